//! Python jobs in WebAssembly: an empty one measures a fresh interpreter, the sympy one is typical of agents.
//! The peer is an empty `python3` process.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;

use divan::Bencher;
use pl_sandbox::{Job, PythonWorkers, SandboxLimits};
use pl_wasm::{Engine, EngineConfig};

fn main() {
    divan::main();
}

fn workers() -> PythonWorkers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
    let component = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let engine =
        Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).expect("an engine");
    PythonWorkers::new(&engine, &component, SandboxLimits::default()).expect("the worker")
}

fn job(bencher: Bencher<'_, '_>, source: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let workers = workers();
    let job = Job { language: "python".to_owned(), source: source.to_owned(), ..Job::default() };
    bencher.bench_local(|| runtime.block_on(workers.run(job.clone())));
}

#[divan::bench]
fn empty(bencher: Bencher<'_, '_>) {
    job(bencher, "pass");
}

#[divan::bench]
fn sympy_solve(bencher: Bencher<'_, '_>) {
    job(bencher, "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))");
}

#[divan::bench(sample_count = 20)]
fn peer_python3_process(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        std::process::Command::new("python3").args(["-c", "pass"]).output().expect("python3")
    });
}
