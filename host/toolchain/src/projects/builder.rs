//! Builds of projects into components.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::process::ProgressFn;
use crate::rust::{Crate, Toolchain};

use super::c::Zig;
use super::js::ComponentizeJs;
use super::project::{Language, Profile, Project};
use super::python::ComponentizePy;
use super::{component, embedded};

/// Folder in which tools run without a project. rustup and others obey files of the folder, such as
/// `rust-toolchain.toml`: only root can write one into this folder.
const NO_PROJECT: &str = "/";

/// Result of a build.
#[derive(Debug, Clone)]
pub struct BuildOutput {
    /// File of the component.
    pub component: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Builds the component of a project.
///
/// # Errors
/// [`Error::NoTool`](crate::Error::NoTool) with the commands that install a missing tool,
/// [`Error::Failed`](crate::Error::Failed) with the tool's output if it refuses the sources.
pub fn build(project: &Project, profile: Profile, progress: ProgressFn) -> Result<BuildOutput> {
    if !project.sdk.is_dir() {
        progress(&format!("writing the SDK to {}", project.sdk.display()));
        embedded::write_sdk(project.language, &project.sdk)?;
    }
    let start = |tool: &str| progress(&format!("building {} with {tool}", project.name));
    let bytes = match project.language {
        Language::Rust => {
            let toolchain = Toolchain::find(&project.folder)?;
            start(toolchain.describe());
            rust(&toolchain, project, profile)?
        }
        Language::Python => {
            let tool = ComponentizePy::find(&project.folder)?;
            start(&tool.describe());
            tool.build(project)?
        }
        Language::Js => {
            let tool = ComponentizeJs::find(&project.folder)?;
            start(&tool.describe());
            tool.build(project)?
        }
        Language::C => {
            let tool = Zig::find()?;
            start(&tool.describe());
            tool.build(project, profile)?
        }
    };
    Ok(BuildOutput { component: project.out.clone(), bytes })
}

/// Looks up the tools of a language without a project, and returns a description of them.
///
/// # Errors
/// [`Error::NoTool`](crate::Error::NoTool) with the commands that install what is missing.
pub fn find_tools(language: Language) -> Result<String> {
    let folder = Path::new(NO_PROJECT);
    match language {
        Language::Rust => Toolchain::find(folder).map(|toolchain| toolchain.describe().to_owned()),
        Language::Python => ComponentizePy::find(folder).map(|tool| tool.describe()),
        Language::Js => ComponentizeJs::find(folder).map(|tool| tool.describe()),
        Language::C => Zig::find().map(|tool| tool.describe()),
    }
}

/// Fetches the missing tools of a language into the cache folder, or for Rust into rustup's.
///
/// # Errors
/// [`Error::Failed`](crate::Error::Failed) or [`Error::NoTool`](crate::Error::NoTool) if a download fails.
pub fn fetch(language: Language, progress: ProgressFn) -> Result<()> {
    match language {
        Language::Rust => Toolchain::find_or_fetch(Path::new(NO_PROJECT), progress).map(|_| ()),
        Language::Python => ComponentizePy::fetch(progress),
        Language::Js => ComponentizeJs::fetch(progress),
        Language::C => Zig::fetch(progress),
    }
}

fn rust(toolchain: &Toolchain, project: &Project, profile: Profile) -> Result<u64> {
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    let target_dir = project.scratch();
    let guest = Crate { folder: &project.folder, package: None, profile, target_dir: &target_dir };
    component::encode(&toolchain.compile(&guest)?, &project.out)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Another user's file would name the compiler that is run.
    #[test]
    fn only_the_owner_can_write_where_tools_run_without_a_project() {
        let folder = std::fs::canonicalize(NO_PROJECT).unwrap();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{}: {mode:o}", folder.display());
        // rustup looks in the folders above as well.
        assert_eq!(folder.parent(), None);
    }
}
