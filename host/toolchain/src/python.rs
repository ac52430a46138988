//! Python: componentize-py puts CPython and the author's modules, already imported, into a component.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{self, Wheel};
use crate::process::{capture, on_path, run};
use crate::{Error, Project, Result, Say, World, component, embedded};

/// The release that the SDK is made for.
const COMPONENTIZE_PY: Wheel = Wheel {
    name: "componentize-py",
    version: "0.25.1",
    sha256: "8623cd8cab8453cb0cd8bf03f3c7103420d06f2f3d360186a280a70a1ca5e89f",
};

/// Names that the build itself puts beside the author's modules.
const TAKEN: [&str; 5] = ["pl_app", "pl_sdk", "wit_world", "environments", "componentize_py_types"];

/// componentize-py, however it is started.
#[derive(Debug)]
pub(crate) struct ComponentizePy {
    program: PathBuf,
    /// What stands before its own arguments.
    first: Vec<&'static str>,
    /// The folder it is imported from, where it is not installed.
    modules: Option<PathBuf>,
}

impl ComponentizePy {
    /// Looks into the project's `.venv`, the active virtual environment, the `PATH` and the cache.
    pub(crate) fn find(project: &Path) -> Result<Self> {
        let environments = [Some(project.join(".venv")), std::env::var_os("VIRTUAL_ENV").map(PathBuf::from)];
        let installed = environments
            .into_iter()
            .flatten()
            .map(|environment| environment.join("bin/componentize-py"))
            .find(|program| program.is_file())
            .or_else(|| on_path("componentize-py"));
        if let Some(program) = installed {
            return Ok(Self { program, first: Vec::new(), modules: None });
        }
        let modules = fetch::home(&COMPONENTIZE_PY)?;
        match (modules.is_dir(), on_path("python3")) {
            (true, Some(python)) => Ok(Self {
                program: python,
                first: vec!["-c", "import componentize_py, sys; sys.exit(componentize_py.script())"],
                modules: Some(modules),
            }),
            _ => Err(Error::NoTool {
                missing: format!(
                    "componentize-py builds Python plugins, and there is none in {}, on the PATH or in the cache ({})",
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

    /// Fetches it into the cache.
    pub(crate) fn fetch(say: Say) -> Result<()> {
        fetch::wheel(&COMPONENTIZE_PY, "17 MB", say).map(|_| ())
    }

    /// Builds the component. Gives back its size in bytes.
    pub(crate) fn build(&self, project: &Project) -> Result<u64> {
        let module = project.source.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if TAKEN.contains(&module) {
            return Err(Error::project(
                &project.source,
                "a plugin's main file can't be called that; rename it",
            ));
        }
        let scratch = project.scratch();
        let entry = scratch.join("python");
        // componentize-py adds the site-packages that it finds to the component; it shall find none.
        let empty = scratch.join("empty");
        let packages = empty.join("lib/site-packages");
        fs::create_dir_all(&packages).map_err(Error::io("create", &packages))?;
        embedded::write(&entry.join("pl_app.py"), &app(module, project.world))?;
        embedded::write(&entry.join("environments.py"), &environments(project.world))?;
        let out = scratch.join("component.wasm");
        let sources = project.source.parent().unwrap_or(&project.folder);
        let mut command = Command::new(&self.program);
        command.current_dir(&project.folder).args(&self.first);
        command.arg("-q").arg("-d").arg(project.sdk.join("wit")).args([
            "-w",
            project.world.name(),
            "componentize",
        ]);
        command.arg("pl_app").arg("-p").arg(&entry).arg("-p").arg(sources).arg("-p").arg(&project.sdk);
        let own = project.folder.join("packages");
        if own.is_dir() {
            command.arg("-p").arg(own);
        }
        command.arg("--stub-wasi").arg("-o").arg(&out);
        // Equal sources make equal components.
        command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1").env("VIRTUAL_ENV", &empty);
        match &self.modules {
            Some(modules) => command.env("PYTHONPATH", modules),
            None => command.env_remove("PYTHONPATH"),
        };
        let what = format!(
            "{} does not make a plugin (everything that it imports is imported now)",
            project.source.display()
        );
        run(&mut command, &what).map_err(without_backtrace)?;
        component::place(&out, &project.out)
    }

    /// Its name and version, for people.
    pub(crate) fn describe(&self) -> String {
        let mut command = Command::new(&self.program);
        command.args(&self.first).arg("--version");
        if let Some(modules) = &self.modules {
            command.env("PYTHONPATH", modules);
        }
        capture(&mut command).map_or_else(|_| "componentize-py".to_owned(), |line| line.trim().to_owned())
    }
}

/// The module that the component starts with: it serves the author's `plugin` as the world has it.
fn app(module: &str, world: World) -> String {
    let parts = [
        ("environments", "Environments", World::Environment),
        ("agents", "Agents", World::Agent),
        ("rewards", "Rewards", World::Reward),
    ];
    let mut text = format!(
        "import {module}\nfrom pl_sdk.component import serve\nfrom pl_sdk.component.catalog import Catalog\n"
    );
    for (module, class, own) in parts {
        if world == World::Domain || world == own {
            text.push_str(&format!("from pl_sdk.component.{module} import {class}\n"));
        }
    }
    text.push_str(&format!("\nserve({module}.plugin)\n"));
    text
}

/// componentize-py looks for a resource in a module with its interface's name.
fn environments(world: World) -> String {
    match world {
        World::Environment | World::Domain => {
            "from pl_sdk.component.environments import Episode\n".to_owned()
        }
        World::Agent | World::Reward => String::new(),
    }
}

/// The tool's own stack says nothing to an author; Python's, which stands before it, does.
fn without_backtrace(error: Error) -> Error {
    match error {
        Error::Failed { what, log } => {
            let said = log.split_once("Stack backtrace:").map_or(log.as_str(), |(said, _)| said);
            Error::Failed { what, log: said.trim_end().to_owned() }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_serves_what_its_world_has() {
        let whole = app("guess", World::Domain);
        assert!(
            whole.contains("Environments") && whole.contains("Agents") && whole.contains("Rewards"),
            "{whole}"
        );
        let agent = app("guess", World::Agent);
        assert!(!agent.contains("Environments") && agent.contains("import Agents"), "{agent}");
        assert!(agent.ends_with("serve(guess.plugin)\n"), "{agent}");
    }

    #[test]
    fn an_author_sees_their_own_stack() {
        let log = "Traceback:\n  File \"guess.py\", line 3\n\nStack backtrace:\n   0: std::rt\n".to_owned();
        let error = without_backtrace(Error::Failed { what: "no".to_owned(), log });
        assert_eq!(error.to_string(), "no:\nTraceback:\n  File \"guess.py\", line 3");
    }
}
