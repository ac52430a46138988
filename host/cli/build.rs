//! Tells the binary where the components are that it embeds, and the linker where libtorch is.

use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=PL_HOST_PLUGINS={}", root.join("target/release/plugins").display());
    // A package has the program beside the Python package torch.
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN/../../torch/lib");
    if let Ok(libraries) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libraries}");
    }
}
