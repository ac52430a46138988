//! C and C++: bindings are generated here, `zig cc` compiles them with the SDK and the author's files, and
//! the module is wrapped into a component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

use crate::cache;
use crate::error::{Error, Result};
use crate::pip::{self, Wheel};
use crate::process::{ProgressFn, capture, command_on_path, on_path, run};

use super::component;
use super::project::{Profile, Project, World};

/// clang, a linker and a C library for WebAssembly in one package.
const ZIG: Wheel<'_> = Wheel {
    name: "ziglang",
    version: "0.17.1",
    sha256: "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54",
};

/// yyjson 0.10.0, the SDK's JSON parser, in the source archive of the Python package that wraps it.
const YYJSON: &str =
    "yyjson==4.0.6 --hash=sha256:fcd4dc15c1e39a30bf9fa85d56903029111506860fc3080ab0d81c6c6dacaa8c\n";

/// Files of the SDK that only one interface needs, or (`None`) only tests.
const OPTIONAL_SOURCES: [(&str, Option<World>); 4] = [
    ("pl_environments.c", Some(World::Environment)),
    ("pl_agents.c", Some(World::Agent)),
    ("pl_rewards.c", Some(World::Reward)),
    ("pl_testing.c", None),
];

/// zig and yyjson's folder.
#[derive(Debug)]
pub(crate) struct Zig {
    program: PathBuf,
    yyjson: PathBuf,
}

impl Zig {
    /// Looks zig up on the `PATH`, in Python's packages and in the cache, and yyjson in the cache.
    pub(crate) fn find() -> Result<Self> {
        let yyjson = yyjson_folder()?;
        match (find_compiler()?, yyjson.is_dir()) {
            (Some(program), true) => Ok(Self { program, yyjson }),
            (compiler, _) => Err(Error::NoTool {
                missing: match compiler {
                    Some(_) => format!("yyjson, which the C SDK needs to parse JSON, is not in the cache ({})", yyjson.display()),
                    None => "zig, which builds C plugins, is not on the PATH, in Python's packages or in the cache".to_owned(),
                },
                ways: vec![
                    "`pl-host plugin build --fetch` fetches missing tools into the cache folder (zig: 100 MB)".to_owned(),
                    "only zig: `python3 -m pip install ziglang`, or https://ziglang.org/download".to_owned(),
                ],
            }),
        }
    }

    /// Installs missing tools into the cache.
    pub(crate) fn fetch(progress: ProgressFn) -> Result<()> {
        if find_compiler()?.is_none() {
            ZIG.install("100 MB", progress)?;
        }
        let yyjson = yyjson_folder()?;
        cache::folder(&yyjson, |partial| {
            progress(&format!("fetching yyjson to {}", yyjson.display()));
            pip::download_source("yyjson", YYJSON, partial)?;
            let mut tar =
                command_on_path("tar").map_err(|e| Error::failed(format!("cannot start tar: {e}")))?;
            tar.current_dir(partial).args(["-xzf", "yyjson-4.0.6.tar.gz", "--strip-components=2"]);
            tar.args(["yyjson-4.0.6/yyjson/yyjson.c", "yyjson-4.0.6/yyjson/yyjson.h"]);
            run(&mut tar, "the archive that pip fetched does not contain yyjson")
        })
    }

    /// Builds the component and returns its size in bytes.
    pub(crate) fn build(&self, project: &Project, profile: Profile) -> Result<u64> {
        let scratch = project.scratch();
        let bindings = scratch.join("bindings");
        write_bindings(&project.sdk.join("wit"), project.world, &bindings)?;
        let yyjson = scratch.join("yyjson");
        self.copy_yyjson(&yyjson)?;
        let folders = [&project.sdk, &yyjson, &bindings];
        let message = format!("{} does not compile", project.source.display());
        let mut link = self.compiler("cc", project, profile, &folders);
        link.args(["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-mexec-model=reactor"]);
        let (c, cpp) = sources(&project.source)?;
        link.args(c);
        for file in &cpp {
            let object = scratch.join(file.file_name().unwrap_or_default()).with_extension("o");
            let mut command = self.compiler("c++", project, profile, &folders);
            command.args([
                "-std=c++20",
                "-fno-exceptions",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-c",
            ]);
            run(command.arg(file).arg("-o").arg(&object), &message)?;
            link.arg(object);
        }
        if !cpp.is_empty() {
            link.arg("-lc++");
        }
        let module = scratch.join("module.wasm");
        link.args(sdk_sources(&project.sdk, project.world)?).arg(yyjson.join("yyjson.c"));
        link.arg(bindings.join("pl_world.c")).arg(bindings.join("pl_world_component_type.o"));
        run(link.arg("-o").arg(&module), &message)?;
        component::encode(&module, &project.out)
    }

    /// Returns `zig cc` or `zig c++` with the arguments that all files share.
    fn compiler(&self, kind: &str, project: &Project, profile: Profile, folders: &[&PathBuf]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&project.folder).arg(kind).args(["-target", "wasm32-wasi"]);
        command.args(match profile {
            Profile::Dev => ["-O1", "-g1"],
            Profile::Release => ["-O2", "-g0"],
        });
        // Plugins read and write standard JSON only.
        command.arg("-DYYJSON_DISABLE_NON_STANDARD=1");
        for folder in folders {
            command.arg("-I").arg(folder);
        }
        command
    }

    /// Copies yyjson to the project's intermediate results, where the author's own tests can use it too.
    fn copy_yyjson(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        for name in ["yyjson.c", "yyjson.h"] {
            let (from, to) = (self.yyjson.join(name), folder.join(name));
            // A new copy would have a new time stamp, and would be compiled again.
            if !to.is_file() {
                fs::copy(&from, &to).map_err(Error::io("write", &to))?;
            }
        }
        Ok(())
    }

    /// Returns its name and version for display.
    pub(crate) fn describe(&self) -> String {
        let version = capture(Command::new(&self.program).arg("version")).unwrap_or_default();
        format!("zig {}", version.trim())
    }
}

/// Looks zig up on the `PATH`, in the cache and in Python's packages.
fn find_compiler() -> Result<Option<PathBuf>> {
    let cached = ZIG.folder()?.join("ziglang/zig");
    if let Some(program) = on_path("zig").or_else(|| Some(cached).filter(|zig| zig.is_file())) {
        return Ok(Some(program));
    }
    let Some(python) = on_path("python3") else { return Ok(None) };
    let mut find = Command::new(python);
    // Python looks for modules in the working folder first: a project's `ziglang.py` must not run.
    find.args(["-c", "import ziglang; print(ziglang.__path__[0])"]).current_dir("/");
    let installed = capture(&mut find).ok().map(|folder| Path::new(folder.trim_end()).join("zig"));
    Ok(installed.filter(|program| program.is_file()))
}

fn yyjson_folder() -> Result<PathBuf> {
    cache::tool("yyjson", "0.10.0")
}

/// Writes the contract in C, with file names that are the same for all worlds.
fn write_bindings(wit: &Path, world: World, folder: &Path) -> Result<()> {
    let broken =
        |e: &dyn std::fmt::Display| Error::project(wit, format!("the contract can't be read: {e:#}"));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).map_err(|e| broken(&e))?;
    let world = resolve.select_world(&[package], Some(world.name())).map_err(|e| broken(&e))?;
    let options = wit_bindgen_c::Opts { rename_world: Some("pl_world".to_owned()), ..Default::default() };
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files).map_err(|e| broken(&e))?;
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    for (name, bytes) in files.iter() {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// Returns the author's sources: all C and all C++ files in the folder of the main one.
fn sources(main: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let files = files_in(main.parent().unwrap_or(main))?;
    let with = |extensions: &[&str]| {
        let files = files
            .iter()
            .filter(|file| extensions.iter().any(|own| file.extension().is_some_and(|e| e == *own)));
        files.cloned().collect()
    };
    Ok((with(&["c"]), with(&["cpp", "cc", "cxx"])))
}

/// Returns the SDK's sources that a world needs.
fn sdk_sources(sdk: &Path, world: World) -> Result<Vec<PathBuf>> {
    let needed = |file: &PathBuf| match OPTIONAL_SOURCES.iter().find(|(name, _)| file.ends_with(name)) {
        None => true,
        Some((_, own)) => own.is_some_and(|own| world == World::Domain || world == own),
    };
    let files = files_in(sdk)?.into_iter().filter(|file| file.extension().is_some_and(|e| e == "c"));
    Ok(files.filter(needed).collect())
}

/// Returns the files of a folder, sorted by name to make builds reproducible.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let mut files = entries
        .map(|entry| Ok(entry.map_err(Error::io("read", folder))?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_in_the_folder_belong_to_the_plugin() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.c", "a.c", "a.h", "c.cpp", "notes.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let (c, cpp) = sources(&folder.path().join("b.c")).unwrap();
        assert_eq!(c, [folder.path().join("a.c"), folder.path().join("b.c")]);
        assert_eq!(cpp, [folder.path().join("c.cpp")]);
    }

    #[test]
    fn an_agent_is_compiled_without_other_interfaces() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pl_agents.c", "pl_json.c", "pl_rewards.c", "pl_sdk.h", "pl_testing.c"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = ["pl_agents.c", "pl_json.c"].map(|name| folder.path().join(name));
        assert_eq!(sdk_sources(folder.path(), World::Agent).unwrap(), names);
    }
}
