//! Compiles the shim over libtorch's headers and the module that renders chat templates, and lets tests find libtorch
//! where it was at build time: an rpath to the folder that torch-sys linked against.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use pl_toolchain::rust::{Crate, Toolchain};

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
        .file("shim/adamw.cpp")
        .file("shim/attention.cpp")
        .file("shim/context.cpp")
        .compile("pl_model_shim");
    Ok(())
}

/// Compiles `jinja` to `jinja.wasm` in the output folder, as plugins are compiled. `cargo xtask setup` has fetched what that
/// needs.
fn build_jinja() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("jinja");
    let target_dir = out.join("jinja");
    let what =
        Crate { folder: &folder, package: Some("pl-jinja"), profile: "guest", target_dir: &target_dir };
    let module = Toolchain::find(&folder)?.compile(&what)?;
    fs::copy(module, out.join("jinja.wasm"))?;
    Ok(())
}
