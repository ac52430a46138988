//! `cargo xtask …`: set-up, runs and tests, each with all it needs.
//!
//! ```text
//! cargo xtask setup           fetch libtorch and the model, build guests and host
//! cargo xtask setup --cuda    the same with libtorch's CUDA libraries; later set-ups keep them
//! cargo xtask setup --cpu     the same without them again
//! cargo xtask run FILE …      set up, then pl-host run FILE …
//! cargo xtask host …          set up, then pl-host …
//! cargo xtask test …          set up, then all tests (arguments go to the test runner)
//! cargo xtask toolchains      fetch what builds plugins in Rust, Python, JavaScript and C, into the cache folder
//! cargo xtask model NAME      fetch a model that set-up does not: qwen2.5-coder-1.5b
//! cargo xtask bench           set up, then the main job as a whole, measured
//! cargo xtask bench engine    set up, then generation and training beside their peers
//! cargo xtask bench sandbox   set up, then both backends of untrusted code beside python3 and docker
//! ```

mod bench;
mod cuda;
mod fetch;
mod guests;
mod model;
mod setup;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::setup::Libtorch;

/// What went wrong, for a person.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "usage: cargo xtask setup [--cuda | --cpu] | run FILE [options] | host ARGS… | test [options] | \
     toolchains | model NAME | bench [engine | sandbox]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<u8> {
    let root = workspace_root()?;
    match arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        Some(("setup", [])) => setup::all(&root).map(|_| 0),
        Some(("setup", [which])) if which == "--cuda" => setup::with(&root, Libtorch::Cuda).map(|_| 0),
        Some(("setup", [which])) if which == "--cpu" => setup::with(&root, Libtorch::Cpu).map(|_| 0),
        Some(("run", rest)) => host(&root, &[&["run".to_owned()], rest].concat()),
        Some(("host", rest)) => host(&root, rest),
        Some(("test", rest)) => test(&root, rest),
        Some(("toolchains", [])) => toolchains().map(|()| 0),
        Some(("model", [name])) => model::fetch(name).map(|()| 0),
        Some(("bench", [])) => bench::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "engine" => bench::engine::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "sandbox" => bench::sandbox(&root).map(|()| 0),
        _ => Err(USAGE.to_owned()),
    }
}

fn workspace_root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| "xtask has no workspace around it".to_owned())
}

/// Runs pl-host in the caller's folder and hands on its exit code.
fn host(root: &Path, arguments: &[String]) -> Result<u8> {
    let program = setup::all(root)?;
    let status = Command::new(&program)
        .args(arguments)
        .status()
        .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    Ok(exit_code(status))
}

/// The tools of all languages, as `pl-host plugin build --fetch` fetches those of one.
fn toolchains() -> Result<()> {
    for language in pl_toolchain::Language::ALL {
        eprintln!("the tools of {language}");
        pl_toolchain::fetch(language, &|line| eprintln!("      {line}"))?;
    }
    Ok(())
}

fn test(root: &Path, arguments: &[String]) -> Result<u8> {
    setup::all(root)?;
    let nextest = cargo(root).args(["nextest", "--version"]).output().is_ok_and(|o| o.status.success());
    if !nextest {
        return run_cargo(root, &["test", "--release", "--workspace"], arguments);
    }
    if arguments.is_empty() {
        // nextest passes over the examples in documentation.
        let code = run_cargo(root, &["test", "--release", "--workspace", "--doc", "--quiet"], &[])?;
        if code != 0 {
            return Ok(code);
        }
    }
    run_cargo(root, &["nextest", "run", "--release", "--workspace"], arguments)
}

/// Cargo in the workspace, as it is when it is called by hand. What `cargo run` says of this program would make it build
/// crates again whose build scripts look at that (ring's does), and all that stands on them.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let told =
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.to_string_lossy().starts_with(start));
        if told || name == "CARGO" {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs cargo in the workspace and gives back its exit code.
fn run_cargo(root: &Path, verb: &[&str], arguments: &[String]) -> Result<u8> {
    eprintln!("cargo {}", verb.join(" "));
    let status =
        cargo(root).args(verb).args(arguments).status().map_err(|e| format!("cannot start cargo: {e}"))?;
    Ok(exit_code(status))
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
