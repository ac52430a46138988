//! Vector instructions are part of the kernels' loops, not functions that these call.

use std::fs;

use object::{Object, ObjectSymbol};

/// An intrinsic in a closure is not inlined, as the closure is compiled without the instructions of its kernel: products of a single row
/// of quantized weights took half as long again.
#[test]
#[cfg_attr(debug_assertions, ignore = "only optimised builds inline")]
fn kernels_call_no_intrinsics() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let program = object::File::parse(&*program).unwrap();
    let names: Vec<_> = program.symbols().filter_map(|symbol| symbol.name().ok()).collect();
    assert!(names.iter().any(|name| name.contains("pl_kernels")), "this program has no names");
    // The detection of features calls the first, and a library of `object` the second.
    let others = |name: &str| name.contains("_xgetbv") || name.contains("_mm256_movemask_epi8");
    let called: Vec<_> = names.iter().filter(|name| name.contains("core_arch") && !others(name)).collect();
    assert!(called.is_empty(), "{called:#?}");
}
