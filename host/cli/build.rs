//! Tells the build where the guests lie that the program carries, and the linker where libtorch is.

use std::path::PathBuf;

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let plugins = root.join("target/release/plugins");
    for guest in ["std_chat.wasm", "python.wasm"] {
        let path = plugins.join(guest);
        println!("cargo:rerun-if-changed={}", path.display());
        if !path.is_file() {
            println!("cargo:warning={guest} is not built yet: run `cargo xtask setup` first");
        }
    }
    println!("cargo:rustc-env=PL_HOST_PLUGINS={}", plugins.display());
    if let Ok(libraries) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libraries}");
    }
}
