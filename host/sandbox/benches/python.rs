//! Python jobs in WebAssembly: an empty one measures a fresh interpreter, the sympy one is typical of agents.
//! Both also in a worker process. The peer is an empty `python3` process.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::{Path, PathBuf};

use divan::Bencher;
use pl_sandbox::{
    Job, ProcessSettings, ProcessWorkers, PythonWorkers, Sandbox, SandboxLimits, WorkerProgram,
};
use pl_wasm::{Engine, EngineConfig};

fn main() {
    divan::main();
}

fn component() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst")
}

async fn instances() -> PythonWorkers {
    let component = std::fs::read(component()).expect("`cargo xtask setup` builds it");
    let engine =
        Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).expect("an engine");
    PythonWorkers::new(&engine, &component, SandboxLimits::default()).expect("the worker")
}

/// Worker processes. Build their program first: `cargo build --release -p pl-sandbox --examples`.
async fn processes() -> ProcessWorkers {
    instances().await;
    let program = std::env::current_exe().expect("this program");
    let program = program.parent().expect("its folder").with_file_name("examples").join("sandbox-worker");
    let settings = ProcessSettings {
        program: WorkerProgram { path: program, arguments: vec![component().display().to_string()] },
        cache_dir: env!("CARGO_TARGET_TMPDIR").into(),
        limits: SandboxLimits::default(),
        jobs_per_worker: 1000,
    };
    ProcessWorkers::start(settings).await.expect("worker processes")
}

fn bench<S: Sandbox>(bencher: Bencher<'_, '_>, workers: impl Future<Output = S>, source: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let workers = runtime.block_on(workers);
    let job = Job { language: "python".to_owned(), source: source.to_owned(), ..Job::default() };
    bencher.bench_local(|| runtime.block_on(workers.execute(vec![job.clone()])));
}

#[divan::bench]
fn empty(bencher: Bencher<'_, '_>) {
    bench(bencher, instances(), "pass");
}

#[divan::bench]
fn empty_in_a_process(bencher: Bencher<'_, '_>) {
    bench(bencher, processes(), "pass");
}

const SOLVE: &str = "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))";

#[divan::bench]
fn sympy_solve(bencher: Bencher<'_, '_>) {
    bench(bencher, instances(), SOLVE);
}

#[divan::bench]
fn sympy_solve_in_a_process(bencher: Bencher<'_, '_>) {
    bench(bencher, processes(), SOLVE);
}

#[divan::bench(sample_count = 20)]
fn peer_python3_process(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| {
        std::process::Command::new("python3").args(["-c", "pass"]).output().expect("python3")
    });
}
