//! The stages of set-up. A stage whose result exists does nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use pl_toolchain::cache;

use crate::cargo::cargo;
use crate::fetch::{self, Wheel};
use crate::{cuda, guests};

/// The Python worker as the program embeds it.
const PYTHON_WORKER: &str = "python.wasm.zst";

/// Compression level of the Python worker: 48 s of work for 26.6 MB. With 27.2 MB, of level 17, a package is over its bound.
const WORKER_LEVEL: i32 = 19;

/// Base-two logarithm of the compressor's window: 64 MiB, about the worker's size.
const WORKER_WINDOW: u32 = 26;

/// libtorch in the PyPI wheel of the version that tch 0.24 requires.
const LIBTORCH: [Wheel; 3] = [
    Wheel {
        name: "torch",
        version: "2.11.0",
        sha256: "0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756",
    },
    Wheel {
        name: "nvidia-cuda-runtime",
        version: "13.0.96",
        sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    },
    Wheel {
        name: "nvidia-cuda-cupti",
        version: "13.0.85",
        sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    },
];

/// libtorch libraries that a checkout links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libtorch {
    /// Keeps the present choice; a new checkout gets the CPU libraries.
    Keep,
    /// CPU libraries only.
    Cpu,
    /// CPU and CUDA libraries.
    Cuda,
}

/// Prepares a checkout so that pl-host runs, with its present libtorch, and returns the program.
pub fn all(root: &Path) -> Result<PathBuf> {
    with(root, Libtorch::Keep)
}

/// Does the same as [`all`] with the given libtorch.
///
/// Only the host's build needs libtorch, so downloads, the Python worker and the plugins are made at the same time. The
/// program embeds two of the components; since it is compiled last, they exist by then after a cold start.
pub fn with(root: &Path, wanted: Libtorch) -> Result<PathBuf> {
    let cache = cache::root()?;
    let plugins = root.join("target/release/plugins");
    std::fs::create_dir_all(&plugins).with_context(|| format!("cannot write {}", plugins.display()))?;
    let embedded = || ["std_chat.wasm", PYTHON_WORKER].map(|name| modified(&plugins.join(name)));
    let embedded_before = embedded();
    let host_result = std::thread::scope(|scope| {
        let side_stages = [
            scope.spawn(|| stage("model SmolLM2-135M-Instruct", smollm2)),
            scope.spawn(|| stage("CUDA kernel compiler", || cuda::nvrtc(&cache))),
            scope.spawn(|| stage("Python worker", || python_worker(root, &cache, &plugins))),
            scope.spawn(|| stage("plugins", || guests::build(root, &plugins))),
        ];
        let host_result =
            stage("libtorch", || libtorch(root, &cache, wanted)).map(|()| stage("pl-host", || host(root)));
        // All stages end before an error is returned: a download that is nearly complete is kept.
        let results = side_stages.map(|stage| {
            stage.join().unwrap_or_else(|_| Err(anyhow!("a stage of set-up panicked: see above")))
        });
        results.into_iter().fold(Ok(()), Result::and).and(host_result)
    })?;
    if embedded() == embedded_before {
        host_result?;
    } else {
        // The first build may have been too early for the new components. This one does nothing if it was not.
        stage("pl-host", || host(root))?;
    }
    embed_descriptions(root, &plugins)?;
    Ok(root.join("target/release/pl-host"))
}

/// Returns the time of a file's last change, or `None` if it is missing.
fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Runs one stage and reports its start, its time if it did any work, and its failure.
fn stage(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    eprintln!("[set-up] {name}");
    let result = work().context(name.to_owned());
    let seconds = start.elapsed().as_secs();
    if result.is_ok() && seconds > 0 {
        eprintln!("[set-up] {name}: ready after {seconds} s");
    }
    result
}

/// Fetches libtorch into one of two folders of the cache and links the checkout to it.
fn libtorch(root: &Path, cache: &Path, wanted: Libtorch) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "set-up supports only Linux on x86-64; on another platform, set LIBTORCH to a libtorch 2.11 and build with cargo"
        );
    }
    let (cpu, with_cuda) = (cache.join("libtorch-2.11.0-cpu"), cache.join("libtorch-2.11.0-cuda"));
    let link = root.join(".libtorch");
    let linked = std::fs::read_link(&link).ok();
    let has_cuda = linked.as_ref() == Some(&with_cuda);
    let home = if wanted == Libtorch::Cuda || (wanted == Libtorch::Keep && has_cuda) {
        cache::folder(&with_cuda, |partial| {
            eprintln!("      fetching 2.5 GB, once for all checkouts");
            let wheels = [&LIBTORCH[..], &cuda::LIBRARIES[..]].concat();
            fetch::unpack(&wheels, partial, |name| libtorch_member(name).or_else(|| cuda::member(name)))
        })?;
        with_cuda
    } else {
        cache::folder(&cpu, |partial| {
            eprintln!("      fetching 0.5 GB, once for all checkouts");
            fetch::unpack(&LIBTORCH, partial, libtorch_member)
        })?;
        cpu
    };
    if linked.as_ref() == Some(&home) {
        return Ok(());
    }
    // A link to the other folder, if any.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&home, &link).with_context(|| format!("cannot link {}", link.display()))
}

/// Maps a member of a wheel to its path, if a CPU build links to it or loads it; headers included.
fn libtorch_member(name: &str) -> Option<PathBuf> {
    const LIBRARIES: [&str; 4] = [
        "torch/lib/libtorch_cpu.so",
        "torch/lib/libc10.so",
        "torch/lib/libtorch.so",
        "torch/lib/libgomp.so.1",
    ];
    let loaded =
        name.starts_with("nvidia/cu13/lib/libcudart.so") || name.starts_with("nvidia/cu13/lib/libcupti.so");
    (name.starts_with("torch/include/") || loaded || LIBRARIES.contains(&name)).then(|| name.into())
}

fn smollm2() -> Result<()> {
    pl_toolchain::fetch_example_model(&|line| eprintln!("      {line}"))?;
    Ok(())
}

/// Builds CPython with the standard library and sympy as a component.
fn python_worker(root: &Path, cache: &Path, plugins: &Path) -> Result<()> {
    let output = pl_toolchain::command_on_path("python3")
        .context("install Python 3 with pip")?
        .arg(root.join("host/sandbox/python/build.py"))
        .arg("--out")
        .arg(plugins.join("python.wasm"))
        .arg("--cache")
        .arg(cache.join("python-worker"))
        .output()
        .context("cannot start python3: install Python 3 with pip")?;
    if output.status.success() {
        return compress(&plugins.join("python.wasm"), &plugins.join(PYTHON_WORKER));
    }
    // Kept until now, because the host's build writes to the terminal at the same time.
    let log = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    bail!("the build failed:\n{log}")
}

/// Compresses a file unless its compressed form is newer.
fn compress(file: &Path, into: &Path) -> Result<()> {
    if modified(into).is_some_and(|written| modified(file).is_some_and(|changed| changed <= written)) {
        return Ok(());
    }
    let failed = || format!("cannot compress {} to {}", file.display(), into.display());
    let bytes = std::fs::read(file).with_context(failed)?;
    let compress = || -> std::io::Result<()> {
        let partial = pl_record::create_partial(into)?;
        let mut encoder = zstd::Encoder::new(&partial, WORKER_LEVEL)?;
        encoder.window_log(WORKER_WINDOW)?;
        encoder.long_distance_matching(true)?;
        encoder.write_all(&bytes)?;
        encoder.finish()?;
        partial.persist(into)?;
        Ok(())
    };
    compress().with_context(failed)
}

/// Embeds into the shipped plugins the description of their items, so that `check` need not compile them.
fn embed_descriptions(root: &Path, plugins: &Path) -> Result<()> {
    let status = Command::new(root.join("target/release/pl-host"))
        .args(["plugin", "describe", "--embed"])
        .args(guests::shipped(plugins))
        .stdout(std::io::stderr())
        .status()
        .context("cannot start pl-host")?;
    if !status.success() {
        bail!("the plugins could not be described: see above");
    }
    Ok(())
}

fn host(root: &Path) -> Result<()> {
    let status = cargo(root)
        .args(["build", "--release", "--workspace", "--bin", "pl-host"])
        .stdout(std::io::stderr())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("pl-host could not be built: see above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace_root;

    /// One dependency of tests that asks for a feature more compiles wasmtime once more, and what stands on it: minutes of a cold build.
    #[test]
    fn tests_compile_what_set_up_compiled_with_the_same_features() {
        let packages = |edges: &str| -> BTreeSet<String> {
            let tree = ["tree", "--workspace", "--prefix", "none", "--format", "{p} {f}", "--edges", edges];
            let output = cargo(&workspace_root().unwrap()).args(tree).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let lines = String::from_utf8(output.stdout).unwrap();
            lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
        };
        let (without, with) = (packages("normal,build"), packages("normal,build,dev"));
        assert!(without.len() > 100);
        let changed: Vec<_> = without.difference(&with).collect();
        assert!(changed.is_empty(), "dependencies of tests alone give these more features: {changed:#?}");
    }
}
