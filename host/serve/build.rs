//! Tests find libtorch where it was at build time: an rpath to the folder that torch-sys linked against.

fn main() {
    if let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
