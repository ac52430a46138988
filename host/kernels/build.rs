//! Compiles the shim over libtorch's headers, and lets tests and benches of this crate find libtorch where torch-sys linked it.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") else { return };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rustc-env=PL_LIBTORCH_LIB={folder}");
    let headers = Path::new(&folder).with_file_name("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        // Their warnings are not ours.
        .flag("-isystem")
        .flag(headers.display().to_string())
        .file("shim/graphs.cpp")
        .compile("pl_kernels_shim");
}
