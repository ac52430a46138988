//! Compiles the generated parser, as an editor does.

fn main() {
    let source = "../tree-sitter-mas/src";
    println!("cargo:rerun-if-changed={source}");
    cc::Build::new().include(source).file(format!("{source}/parser.c")).std("c11").compile("tree-sitter-mas");
}
