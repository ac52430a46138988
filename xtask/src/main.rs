//! `cargo xtask …`: set-up, runs and tests; each command first sets up whatever it needs.
//!
//! ```text
//! cargo xtask setup           fetch libtorch and the model, build guests and host
//! cargo xtask setup --cuda    the same with libtorch's CUDA libraries; later set-ups keep them
//! cargo xtask setup --cpu     the same without them again
//! cargo xtask run FILE …      set up, then pl-host run FILE …
//! cargo xtask host …          set up, then pl-host …
//! cargo xtask test …          set up, then all tests (arguments go to the test runner)
//! cargo xtask attack …        set up, then the attacks and faults of all parts, or of sandbox, plugins, files, faults
//! cargo xtask attack fuzz     set up, then a minute of each target of the fuzzers (--minutes N, --jobs N), and the table of all rounds
//! cargo xtask attack fuzz table   write this table alone into docs/results.md
//! cargo xtask dist            set up, then pack a tarball and a Python wheel into target/dist
//! cargo xtask toolchains      fetch the tools that build plugins in Rust, Python, JavaScript and C into the cache folder
//! cargo xtask servers         fetch vLLM and llama.cpp's server, which tests start, into the cache folder (4 GB)
//! cargo xtask model NAME      fetch a model that set-up leaves out: qwen2.5-coder-1.5b
//! cargo xtask gpu-kit         set up, then pack what a bare machine with a GPU needs to test and measure; --dry-run tries it out
//! cargo xtask architecture    write the picture of the crates into docs/architecture.md
//! cargo xtask reproduce NAME  set up, then train what a table of docs/learning.md compares, and print the table
//! cargo xtask bench           set up, then measure the main job as a whole
//! cargo xtask bench rollouts  set up, then measure rollouts of three examples next to the engine alone
//! cargo xtask bench contexts  set up, then measure generation and training with contexts of up to 8,192 tokens
//! cargo xtask bench engine    set up, then measure generation and training next to their peers
//! cargo xtask bench servers   set up, then measure `serve` under load and what its client costs
//! cargo xtask bench sandbox   set up, then measure both sandbox backends next to python3 and docker
//! cargo xtask bench cluster   measure up to 10,000 simulated workers on a NATS server, and Ray
//! ```

mod architecture;
mod attack;
mod bench;
mod cargo;
mod cuda;
mod dist;
#[cfg(test)]
mod doctests;
mod fetch;
mod gpu_kit;
mod guests;
mod model;
mod page;
mod python_env;
mod reproduce;
mod servers;
mod setup;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cargo::cargo;
use crate::setup::Libtorch;

const USAGE: &str = "usage: cargo xtask setup [--cuda | --cpu] | run FILE [options] | host ARGS… | test [options] | \
     attack [sandbox | plugins | files | faults]… | attack fuzz [--minutes N] [--jobs N] [--built] | attack fuzz table | dist | gpu-kit [--dry-run] | toolchains | servers | model NAME | architecture | reproduce NAME [--seeds 1,2,3] [--set KEY=VALUE] [--device DEVICE] [--corpus FILE] [--out DIR] [--table] [--figure FILE.svg] | bench [rollouts | contexts | engine | servers | sandbox | cluster]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
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
        Some(("attack", rest)) => attack::run(&root, rest),
        Some(("toolchains", [])) => toolchains().map(|()| 0),
        Some(("servers", [])) => servers::set_up().map(|python| {
            println!("{}", python.display());
            0
        }),
        Some(("model", [name])) => model::fetch(name).map(|()| 0),
        Some(("dist", [])) => dist::run(&root).map(|()| 0),
        Some(("gpu-kit", rest)) => gpu_kit::run(&root, rest).map(|()| 0),
        Some(("architecture", [])) => architecture::write(&root).map(|()| 0),
        Some(("reproduce", rest)) => reproduce::run(&root, rest).map(|()| 0),
        Some(("bench", [])) => bench::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "rollouts" => bench::rollouts::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "contexts" => bench::contexts::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "engine" => bench::engine::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "servers" => bench::servers::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "cluster" => bench::cluster::run(&root).map(|()| 0),
        Some(("bench", [what])) if what == "sandbox" => bench::sandbox(&root).map(|()| 0),
        _ => bail!(USAGE),
    }
}

fn workspace_root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask has no workspace around it")
}

/// Runs pl-host in the caller's folder and returns its exit code.
fn host(root: &Path, arguments: &[String]) -> Result<u8> {
    let program = setup::all(root)?;
    let status = Command::new(&program)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    Ok(exit_code(status))
}

/// Fetches the tools of all languages, as `pl-host plugin build --fetch` does for one.
fn toolchains() -> Result<()> {
    for language in pl_toolchain::Language::ALL {
        eprintln!("the tools of {language}");
        pl_toolchain::fetch(language, &|line| eprintln!("      {line}"))?;
    }
    Ok(())
}

/// Sets up, runs the tests, and lists those that were skipped because something is missing on this machine.
fn test(root: &Path, arguments: &[String]) -> Result<u8> {
    setup::all(root)?;
    let log = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let code = run_tests(root, arguments, log.path())?;
    let skipped = std::fs::read_to_string(log.path()).unwrap_or_default();
    if !skipped.is_empty() {
        eprintln!(
            "skipped because this machine lacks something (PL_HOST_NEEDS_…=1 turns a skip into a failure):\n{skipped}"
        );
    }
    Ok(code)
}

fn run_tests(root: &Path, arguments: &[String], skip_log: &Path) -> Result<u8> {
    let cargo_test = |verb: &[&str], arguments: &[String]| {
        eprintln!("cargo {}", verb.join(" "));
        let mut command = cargo(root);
        command.args(verb).args(arguments).env("PL_HOST_SKIP_LOG", skip_log);
        if std::env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, tests_at_a_time().to_string());
        }
        command.status().map(exit_code).context("cannot start cargo")
    };
    let nextest = cargo(root).args(["nextest", "--version"]).output().is_ok_and(|o| o.status.success());
    if !nextest {
        return cargo_test(&["test", "--release", "--workspace"], arguments);
    }
    if arguments.is_empty() {
        // nextest doesn't run the examples in documentation.
        let code = cargo_test(&["test", "--release", "--workspace", "--doc", "--quiet"], &[])?;
        if code != 0 {
            return Ok(code);
        }
    }
    cargo_test(&["nextest", "run", "--release", "--workspace"], arguments)
}

/// Environment variable with the number of tests that nextest runs at a time.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Returns half as many again as there are cores: a quarter of the tests' time is waiting, for processes and for timeouts.
fn tests_at_a_time() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores + cores.div_ceil(2)
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
