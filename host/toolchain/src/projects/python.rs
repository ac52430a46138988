//! Python: componentize-py makes a component of CPython and the author's modules, which are imported during
//! the build.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::pip::Wheel;
use crate::process::{ProgressFn, capture, on_path, run};

use super::project::{Project, World};
use super::{component, embedded};

/// The release that the SDK is made for.
const COMPONENTIZE_PY: Wheel<'_> = Wheel {
    name: "componentize-py",
    version: "0.25.1",
    sha256: "8623cd8cab8453cb0cd8bf03f3c7103420d06f2f3d360186a280a70a1ca5e89f",
};

/// Starts componentize-py from `PYTHONPATH`. The working folder is removed from Python's path, so that a
/// `componentize_py.py` of the project is not run outside of the sandbox.
const START: &str = "import sys; sys.path = [path for path in sys.path if path]; import componentize_py; \
                     sys.exit(componentize_py.script())";

/// Modules of the build, whose names the author's modules can't have.
const RESERVED: [&str; 5] = ["pl_app", "pl_sdk", "wit_world", "environments", "componentize_py_types"];

/// componentize-py and the way to start it.
#[derive(Debug)]
pub(crate) struct ComponentizePy {
    program: PathBuf,
    /// Arguments before its own ones.
    prefix: Vec<&'static str>,
    /// Folder to import it from if it is not installed.
    modules: Option<PathBuf>,
}

impl ComponentizePy {
    /// Looks it up in the project's `.venv`, the active virtual environment, the `PATH` and the cache.
    pub(crate) fn find(project: &Path) -> Result<Self> {
        let environments = [Some(project.join(".venv")), std::env::var_os("VIRTUAL_ENV").map(PathBuf::from)];
        let installed = environments
            .into_iter()
            .flatten()
            .map(|environment| environment.join("bin/componentize-py"))
            .find(|program| program.is_file())
            .or_else(|| on_path("componentize-py"));
        if let Some(program) = installed {
            return Ok(Self { program, prefix: Vec::new(), modules: None });
        }
        let modules = COMPONENTIZE_PY.folder()?;
        match (modules.is_dir(), on_path("python3")) {
            (true, Some(python)) => {
                Ok(Self { program: python, prefix: vec!["-c", START], modules: Some(modules) })
            }
            _ => Err(Error::NoTool {
                missing: format!(
                    "componentize-py, which builds Python plugins, is missing: it is not in {}, on the PATH or in the cache ({})",
                    project.join(".venv").display(),
                    modules.display()
                ),
                ways: vec![
                    format!(
                        "`python3 -m venv .venv && .venv/bin/pip install componentize-py=={}` in the project (Python \
                         3.10 or newer)",
                        COMPONENTIZE_PY.version
                    ),
                    "`pl-host plugin build --fetch` fetches it into the cache folder".to_owned(),
                ],
            }),
        }
    }

    /// Installs it into the cache.
    pub(crate) fn fetch(progress: ProgressFn) -> Result<()> {
        COMPONENTIZE_PY.install("17 MB", progress).map(|_| ())
    }

    /// Builds the component and returns its size in bytes.
    pub(crate) fn build(&self, project: &Project) -> Result<u64> {
        let module = project.source.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if RESERVED.contains(&module) {
            return Err(Error::project(
                &project.source,
                "this name is reserved and can't be that of a plugin's main file; rename it",
            ));
        }
        let scratch = project.scratch();
        let entry = scratch.join("python");
        // An empty site-packages folder: componentize-py adds the one that it finds to the component.
        let empty = scratch.join("empty");
        let packages = empty.join("lib/site-packages");
        fs::create_dir_all(&packages).map_err(Error::io("create", &packages))?;
        embedded::write(&entry.join("pl_app.py"), &app(module, project.world))?;
        embedded::write(&entry.join("environments.py"), &environments(project.world))?;
        let out = scratch.join("component.wasm");
        let sources = project.source.parent().unwrap_or(&project.folder);
        let mut command = Command::new(&self.program);
        command.current_dir(&project.folder).args(&self.prefix);
        command.arg("-q").arg("-d").arg(project.sdk.join("wit")).args([
            "-w",
            project.world.name(),
            "componentize",
        ]);
        command.arg("pl_app").arg("-p").arg(&entry).arg("-p").arg(sources).arg("-p").arg(&project.sdk);
        let packages = project.folder.join("packages");
        if packages.is_dir() {
            command.arg("-p").arg(packages);
        }
        command.arg("--stub-wasi").arg("-o").arg(&out);
        // Makes the build reproducible.
        command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1").env("VIRTUAL_ENV", &empty);
        match &self.modules {
            Some(modules) => command.env("PYTHONPATH", modules),
            None => command.env_remove("PYTHONPATH"),
        };
        let message = format!(
            "{} does not make a plugin (the build executes all of its imports)",
            project.source.display()
        );
        run(&mut command, &message).map_err(without_backtrace)?;
        component::install(&out, &project.out)
    }

    /// Returns its name and version for display.
    pub(crate) fn describe(&self) -> String {
        let mut command = Command::new(&self.program);
        command.args(&self.prefix).arg("--version");
        if let Some(modules) = &self.modules {
            command.env("PYTHONPATH", modules);
        }
        capture(&mut command).map_or_else(|_| "componentize-py".to_owned(), |line| line.trim().to_owned())
    }
}

/// Returns the main module of the component: it exports the parts of the author's `plugin` that the world
/// has.
fn app(module: &str, world: World) -> String {
    let parts = [
        ("environments", "Environments", World::Environment),
        ("agents", "Agents", World::Agent),
        ("rewards", "Rewards", World::Reward),
    ];
    // The SDK replaces the interpreter's streams before the author's modules can keep them.
    let mut text = format!(
        "from pl_sdk.component import serve\nimport {module}\nfrom pl_sdk.component.catalog import Catalog\n"
    );
    for (module, class, own) in parts {
        if world == World::Domain || world == own {
            text.push_str(&format!("from pl_sdk.component.{module} import {class}\n"));
        }
    }
    text.push_str(&format!("\nserve({module}.plugin)\n"));
    text
}

/// Returns the module in which componentize-py expects the resource of the interface `environments`.
fn environments(world: World) -> String {
    match world {
        World::Environment | World::Domain => {
            "from pl_sdk.component.environments import Episode\n".to_owned()
        }
        World::Agent | World::Reward => String::new(),
    }
}

/// Removes the tool's own stack from its output. Python's traceback, which is useful to authors, comes before
/// it.
fn without_backtrace(error: Error) -> Error {
    match error {
        Error::Failed { message, log } => {
            let output = log.split_once("Stack backtrace:").map_or(log.as_str(), |(output, _)| output);
            Error::Failed { message, log: output.trim_end().to_owned() }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_exports_the_parts_of_its_world() {
        let domain = app("guess", World::Domain);
        assert!(
            domain.contains("Environments") && domain.contains("Agents") && domain.contains("Rewards"),
            "{domain}"
        );
        let agent = app("guess", World::Agent);
        assert!(!agent.contains("Environments") && agent.contains("import Agents"), "{agent}");
        assert!(agent.ends_with("serve(guess.plugin)\n"), "{agent}");
        assert!(agent.find("pl_sdk.component") < agent.find("import guess"), "{agent}");
    }

    #[test]
    fn modules_of_the_project_are_not_run_by_the_build() {
        let Some(python) = on_path("python3") else {
            return pl_testing::skip_or_fail(pl_testing::Requirement::Python, "python3 is not on the PATH");
        };
        let (project, modules) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(project.path().join("componentize_py.py"), "def script(): return 'the project ran'\n")
            .unwrap();
        fs::write(modules.path().join("componentize_py.py"), "def script(): print('fetched'); return 0\n")
            .unwrap();
        let mut command = Command::new(python);
        command.args(["-c", START]).current_dir(project.path()).env("PYTHONPATH", modules.path());
        assert_eq!(capture(&mut command).unwrap(), "fetched\n");
    }

    #[test]
    fn only_the_authors_stack_is_shown() {
        let log = "Traceback:\n  File \"guess.py\", line 3\n\nStack backtrace:\n   0: std::rt\n".to_owned();
        let error = without_backtrace(Error::Failed { message: "no".to_owned(), log });
        assert_eq!(error.to_string(), "no:\nTraceback:\n  File \"guess.py\", line 3");
    }
}
