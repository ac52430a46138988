//! Builds the supervisor of containers as a static program, so that it runs in every image.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=supervisor");
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    let target = std::env::var("TARGET").unwrap_or_default();
    let supervisor = out.join("pl-supervisor");
    let built =
        if target.contains("linux") { build(&out, &target) } else { Err("containers run Linux".to_owned()) };
    let copied = built.and_then(|built| std::fs::copy(built, &supervisor).map_err(|error| error.to_string()));
    if let Err(reason) = copied {
        println!("cargo:warning=the docker backend is left out, as its supervisor can't be built: {reason}");
        // An empty file makes the backend report the missing supervisor when it is used.
        let _ = std::fs::write(&supervisor, b"");
    }
}

fn build(out: &Path, target: &str) -> Result<PathBuf, String> {
    let folder = out.join("supervisor");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("supervisor/Cargo.toml");
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .args(["build", "--release", "--locked", "--bin", "pl-supervisor", "--target", target])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "true")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false")
        // Flags and lints of the outer build don't apply to this one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        let last = messages.lines().rev().find(|line| line.contains("error")).unwrap_or("cargo failed");
        return Err(format!("{last} (a static C library is needed: libc6-dev or glibc-static)"));
    }
    Ok(folder.join(target).join("release/pl-supervisor"))
}
