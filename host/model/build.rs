//! Compiles the shim over libtorch's headers and the module that renders chat templates, and lets tests find libtorch
//! where it was at build time: an rpath to the folder that torch-sys linked against.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Target of the module.
const WASM: &str = "wasm32-unknown-unknown";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=jinja");
    build_jinja()?;
    let Ok(folder) = env::var("DEP_TCH_LIBTORCH_LIB") else { return Ok(()) };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    let headers = Path::new(&folder).with_file_name("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        // Their warnings are not ours.
        .flag("-isystem")
        .flag(headers.display().to_string())
        .file("shim/linear.cpp")
        .file("shim/adamw.cpp")
        .file("shim/attention.cpp")
        .file("shim/context.cpp")
        .compile("pl_model_shim");
    Ok(())
}

/// Compiles `jinja` to `jinja.wasm` in the output folder.
fn build_jinja() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = out.join("jinja");
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("jinja/Cargo.toml");
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["rustc", "--lib", "--crate-type", "cdylib", "--locked", "--profile", "guest"])
        .args(["--target", WASM])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_GUEST_DEBUG", "false")
        .env("CARGO_PROFILE_GUEST_STRIP", "true")
        // What the outer build asks of its own target and of its crates doesn't apply to this one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .output()?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "the module that renders chat templates can't be built (Rust's target for it: rustup target add {WASM}):\n{messages}"
        )
        .into());
    }
    fs::copy(target.join(WASM).join("guest/pl_jinja.wasm"), out.join("jinja.wasm"))?;
    Ok(())
}
