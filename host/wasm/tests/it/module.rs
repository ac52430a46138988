//! Core modules: arguments and results, limits, and the cache.

use std::path::Path;
use std::time::SystemTime;

use pl_wasm::{Error, GuestFault, Limits, Module};

/// Has its argument at 1024. `echo` returns it, `count` the number of calls so far, and the others go wrong.
const GUEST: &str = r#"(module
    (memory (export "memory") 1)
    (global $length (mut i32) (i32.const 0))
    (global $calls (mut i32) (i32.const 0))
    (func (export "allocate") (param $length i32) (result i32)
        (global.set $length (local.get $length))
        (i32.const 1024))
    (func $packed (param $address i32) (param $length i32) (result i64)
        (i64.or
            (i64.shl (i64.extend_i32_u (local.get $address)) (i64.const 32))
            (i64.extend_i32_u (local.get $length))))
    (func (export "echo") (result i64) (call $packed (i32.const 1024) (global.get $length)))
    (func (export "count") (result i64)
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (i32.store8 (i32.const 0) (global.get $calls))
        (call $packed (i32.const 0) (i32.const 1)))
    (func (export "loop") (result i64) (loop $on (br $on)) (unreachable))
    (func $deeper (export "recurse") (result i64) (i64.add (call $deeper) (i64.const 1)))
    (func (export "grow") (result i64)
        (if (i32.eq (memory.grow (i32.const 100)) (i32.const -1)) (then (unreachable)))
        (call $packed (i32.const 0) (i32.const 0)))
    (func (export "trap") (result i64) (unreachable))
    (func (export "outside") (result i64) (call $packed (i32.const 65530) (i32.const 100)))
    (func (export "beyond") (result i64) (call $packed (i32.const -1) (i32.const -1)))
    (func (export "large") (result i64) (call $packed (i32.const 0) (i32.const 5000)))
)"#;

fn limits() -> Limits {
    Limits { memory: 1 << 20, fuel: 1_000_000, returned: 4096, ..Limits::default() }
}

fn module(cache: Option<&Path>) -> Module {
    Module::load("guest", &wat::parse_str(GUEST).unwrap(), cache, limits()).unwrap()
}

#[test]
fn an_instance_keeps_its_state() {
    let module = module(None);
    let mut first = module.instantiate().unwrap();
    assert_eq!(first.call("echo", b"hello").unwrap(), b"hello");
    assert_eq!(first.call("echo", b"").unwrap(), b"");
    assert_eq!((first.call("count", b"").unwrap(), first.call("count", b"").unwrap()), (vec![1], vec![2]));
    assert_eq!(module.instantiate().unwrap().call("count", b"").unwrap(), [1]);
    assert_eq!(first.memory(), 1 << 16);
}

#[test]
fn every_limit_is_a_fault_of_its_own() {
    let module = module(None);
    let fault = |function: &str| module.instantiate().unwrap().call(function, b"x").unwrap_err();
    assert_eq!(fault("loop"), GuestFault::OutOfFuel { fuel: 1_000_000 });
    assert_eq!(fault("recurse"), GuestFault::Stack);
    assert_eq!(fault("grow"), GuestFault::Memory { limit: 1 << 20 });
    assert_eq!(fault("large"), GuestFault::Returned { limit: 4096 });
    for outside in ["outside", "beyond"] {
        assert!(matches!(fault(outside), GuestFault::Rules(_) | GuestFault::Returned { .. }), "{outside}");
    }
    assert!(matches!(fault("trap"), GuestFault::Trap(_)));
    assert!(fault("missing").to_string().contains("missing"));
    // An argument has to fit too.
    let long = module.instantiate().unwrap().call("echo", &vec![0; 1 << 17]).unwrap_err();
    assert!(matches!(long, GuestFault::Rules(_)), "{long:?}");
}

#[test]
fn a_module_with_imports_or_without_exports_is_refused() {
    let load = |text: &str| Module::load("guest", &wat::parse_str(text).unwrap(), None, limits());
    let imports = load("(module (import \"env\" \"f\" (func)))").err().unwrap();
    assert!(matches!(&imports, Error::Damaged { name, .. } if name == "guest"), "{imports}");
    let no_memory = load("(module)").unwrap().instantiate().err().unwrap().to_string();
    assert!(no_memory.contains("exports no memory"), "{no_memory}");
    let large = load("(module (memory (export \"memory\") 17))").unwrap().instantiate().err().unwrap();
    assert_eq!(large, GuestFault::Memory { limit: 1 << 20 });
}

#[test]
fn the_cache_keeps_the_code_and_a_damaged_entry_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    let code = || {
        let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.extension().is_some_and(|end| end == "cwasm")).unwrap()
    };
    assert_eq!(module(Some(folder.path())).instantiate().unwrap().call("echo", b"a").unwrap(), b"a");
    let written = code().metadata().unwrap().modified().unwrap();
    assert_eq!(module(Some(folder.path())).instantiate().unwrap().call("echo", b"a").unwrap(), b"a");
    assert_eq!(code().metadata().unwrap().modified().unwrap(), written, "it was not compiled again");
    let intact = std::fs::read(code()).unwrap();
    std::fs::write(code(), &intact[..intact.len() / 2]).unwrap();
    let damaged = std::fs::File::options().append(true).open(code()).unwrap();
    damaged.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(module(Some(folder.path())).instantiate().unwrap().call("echo", b"a").unwrap(), b"a");
    assert_eq!(std::fs::read(code()).unwrap(), intact);
}
