//! From a project to its component.

use std::path::PathBuf;

use crate::c::Zig;
use crate::js::ComponentizeJs;
use crate::python::ComponentizePy;
use crate::rust::{Crate, Toolchain};
use crate::{Language, Project, Result, Say, component, embedded};

/// How a project is built. Python's and JavaScript's tools know one way, which keeps source lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// In a moment, with the source lines that a trap's stack names.
    Dev,
    /// Small and fast.
    Release,
}

/// A component that was built.
#[derive(Debug, Clone)]
pub struct Built {
    pub component: PathBuf,
    /// Size of its file in bytes.
    pub bytes: u64,
}

/// Builds the component of a project. Says what it does where that takes long.
///
/// # Errors
/// When a tool is missing (with what to install) or refuses the sources (with what it said).
pub fn build(project: &Project, profile: Profile, say: Say) -> Result<Built> {
    if !project.sdk.is_dir() {
        say(&format!("writing the SDK to {}", project.sdk.display()));
        embedded::write_sdk(project.language, &project.sdk)?;
    }
    let start = |tool: &str| say(&format!("building {} with {tool}", project.name));
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
    Ok(Built { component: project.out.clone(), bytes })
}

/// Fetches what is missing of a language's tools: into the cache folder, except for rustup's target.
///
/// # Errors
/// When it can't be had from where it comes from.
pub fn fetch(language: Language, say: Say) -> Result<()> {
    match language {
        Language::Rust => Toolchain::find_or_fetch(&std::env::temp_dir(), say).map(|_| ()),
        Language::Python => ComponentizePy::fetch(say),
        Language::Js => ComponentizeJs::fetch(say),
        Language::C => Zig::fetch(say),
    }
}

fn rust(toolchain: &Toolchain, project: &Project, profile: Profile) -> Result<u64> {
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    let target_dir = project.scratch();
    let what = Crate { folder: &project.folder, package: None, profile, target_dir: &target_dir };
    component::encode(&toolchain.compile(&what)?, &project.out)
}
