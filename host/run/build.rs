//! Tells the linker where libtorch is, for the tests of this crate.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(libraries) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.to_string_lossy());
    }
}
