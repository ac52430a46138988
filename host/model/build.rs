//! Compiles the shim over libtorch's headers, and lets tests find libtorch where it was at build time: an
//! rpath to the folder that torch-sys linked against.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") else { return };
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
        .file("shim/context.cpp")
        .compile("pl_model_shim");
}
