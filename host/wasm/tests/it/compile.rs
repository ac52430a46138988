//! Components that would take the compiler gigabytes or minutes.

use std::time::{Duration, Instant};

use pl_wasm::{Engine, EngineConfig, Error};

fn load(text: &str) -> Result<(), Error> {
    let engine = Engine::new(EngineConfig { instances: 2, ..EngineConfig::plugins() }).unwrap();
    engine.load("bomb.wasm", &wat::parse_str(text).unwrap()).map(|_| ())
}

/// Returns a component in text with `functions` functions in which each of `branches` branches passes on `locals` locals.
fn nested(functions: usize, branches: usize, locals: usize) -> String {
    let declared = "i32 ".repeat(locals);
    let blocks = "block local.get 0 br_if 0 ".repeat(branches / 2);
    let assigned: String = (1..=locals).map(|local| format!("local.get 0 local.set {local} ")).collect();
    let ends = "end ".repeat(branches / 2);
    let sum: String = (1..=locals).map(|local| format!("local.get {local} i32.add ")).collect();
    let body = format!("{blocks}{assigned}{ends}local.get 0 {sum}");
    let function = format!("(func (param i32) (result i32) (local {declared}) {body})");
    format!("(component (core module {}))", function.repeat(functions))
}

/// Returns a component in text whose components instantiate `instances` times the one within them.
fn multiplied(depth: usize, instances: usize) -> String {
    let innermost = "(component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
    let outer = (1..depth).fold(innermost, |inner, level| {
        let many = format!("(instance (instantiate $c{}))", level - 1).repeat(instances);
        format!("(component $c{level} {inner} {many})")
    });
    format!("(component {outer} (instance (instantiate $c{})))", depth - 1)
}

#[test]
fn what_would_take_gigabytes_or_minutes_is_refused_before() {
    let wide = "i32 ".repeat(500);
    let calls = "call $f ".repeat(9_000);
    let zeros = "i32.const 0 ".repeat(500);
    let drops = "drop ".repeat(500);
    let calls = format!(
        "(component (core module (func $f (param {wide}) (result {wide}) unreachable) (func {zeros} {calls} {drops})))"
    );
    let functions = format!("(component (core module {}))", "(func)".repeat(100_001));
    let targets = "0 ".repeat(1 << 20);
    let table = format!("(component (core module (func i32.const 0 br_table {targets})))");
    for (bomb, words) in [
        (nested(1, 4_200, 2_100), "values that branches and calls of one function pass: 8"),
        (nested(3, 2_000, 350), "squares of values that branches and calls pass: 14"),
        (calls, "values that branches and calls of one function pass: 9000000"),
        (functions, "functions: 100001, and at most 100000 are compiled"),
        (table, "bytes of code in one function: 10485"),
        (multiplied(6, 10), "instances and functions between components: "),
        (multiplied(20, 1), "components within each other: 17, and at most 16"),
        ("(component (import \"c\" (component)))".to_owned(), "it passes components as arguments"),
    ] {
        let started = Instant::now();
        let error = load(&bomb).unwrap_err();
        assert!(matches!(error, Error::TooMuchToCompile { .. }), "{words}: {error}");
        let message = error.to_string();
        assert!(message.starts_with("bomb.wasm is too much to compile: "), "{message}");
        assert!(message.contains(words), "{words}: {message}");
        assert!(started.elapsed() < Duration::from_secs(20), "{words}: {:?}", started.elapsed());
    }
    // The control: the same forms in an ordinary amount.
    load(&nested(2, 200, 100)).unwrap();
    load(&multiplied(3, 2)).unwrap();
}

/// Memory of this process in bytes, at most so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The control of the limits: a third of this component's length would be ordinary, and a larger one is refused.
#[test]
fn a_short_component_takes_the_compiler_much_memory() {
    let bytes = wat::parse_str(nested(1, 400, 200)).unwrap();
    assert!(bytes.len() < 4 << 10, "{}", bytes.len());
    let before = peak();
    let engine = wasmtime::Engine::default();
    wasmtime::component::Component::from_binary(&engine, &bytes).unwrap();
    let grown = peak().saturating_sub(before);
    assert!(grown > 2_000 * bytes.len() as u64, "{grown} bytes for {} of code", bytes.len());
    assert!(load(&nested(1, 8_000, 4_000)).is_err());
}
