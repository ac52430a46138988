//! `--device cuda` without CUDA: refused before anything is loaded or written, with instructions.

use crate::support::{pl_host, repository, stderr};

/// Returns true if this machine has a CUDA driver, by the file name under which programs load it.
fn driver() -> bool {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64"];
    let known = std::process::Command::new("ldconfig").arg("-p").output();
    let listed = known.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libcuda.so.1"));
    listed || folders.iter().any(|folder| std::path::Path::new(folder).join("libcuda.so.1").exists())
}

#[test]
fn cuda_without_a_driver_is_refused_and_auto_takes_the_cpu() {
    if driver() {
        return pl_testing::skip_or_fail(pl_testing::Requirement::NoCuda, "this machine has a CUDA driver");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let example = repository().join("examples/math.mas");
    let output =
        pl_host().args(["run", "--device", "cuda", "--out"]).args([&out, &example]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(
        message,
        "error: --device cuda: there is no NVIDIA driver (libcuda.so.1) on this machine; install driver 580 or newer, or use --device cpu\n"
    );
    assert!(!out.exists(), "the run folder was created");

    // With `auto` (the default) only the missing file stops this run.
    let missing = folder.path().join("missing.mas");
    let output = pl_host().args(["run", "--device", "auto"]).arg(&missing).output().unwrap();
    assert!(stderr(&output).starts_with("error: cannot read "), "{}", stderr(&output));
}
