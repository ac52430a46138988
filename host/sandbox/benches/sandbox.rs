//! Both backends compared with a bare `python3` process, `docker exec` and `docker run`:
//! `cargo xtask bench sandbox`. It starts its own Docker engine, and leaves out the containers if that is not
//! possible.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

#[path = "../tests/it/engine/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "helpers of tests, not all used here")]
mod engine;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{IMAGE, TestEngine, python};
use futures::StreamExt;
use pl_sandbox::{DockerSettings, DockerWorkers, Ending, Job, PythonWorkers, Sandbox, SandboxLimits};
use pl_wasm::EngineConfig;

const TRIVIAL: &str = "print(1)";
const SYMPY: &str = "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))";

/// Runs per row, fewer if a run starts a container, which takes half a second.
const RUNS: usize = 60;
const SLOW_RUNS: usize = 10;

/// Jobs per worker of a throughput row.
const JOBS: usize = 60;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        println!("| one trivial program | median ms | ratio to `python3` |\n|---|---|---|");
        let bare = median(RUNS, || process(&mut bare_python()));
        row("a bare `python3` process", bare, bare);
        let wasm = wasm(2).await;
        row("wasm backend", median_of_jobs(&wasm, RUNS, TRIVIAL).await, bare);
        row("wasm backend, a sympy solve", median_of_jobs(&wasm, RUNS, SYMPY).await, bare);
        let Some(engine) = TestEngine::start("bench").await else { return };
        let one = containers(&engine, 1).await;
        row("docker backend", median_of_jobs(&one, RUNS, TRIVIAL).await, bare);
        one.shut_down().await;
        let warm = ExecContainer::start(&engine);
        row("`docker exec` in a warm container", median(SLOW_RUNS, || process(&mut warm.exec())), bare);
        row("`docker run`", median(SLOW_RUNS, || process(&mut docker_run(&engine))), bare);
        // Once more, as the speed of machines varies.
        row("a bare `python3` process, again", median(RUNS, || process(&mut bare_python())), bare);

        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        println!("\n| jobs per second, {cores} cores | docker backend | `docker exec` | wasm backend |\n|---|---|---|---|");
        for workers in [1, 2, 4, 8] {
            let pool = containers(&engine, workers).await;
            let docker = rate(&pool, workers).await;
            pool.shut_down().await;
            let exec = rate_of_exec(&warm, workers);
            let wasm = rate(&self::wasm(workers as u32).await, workers).await;
            println!("| {workers} workers | {docker:.1} | {exec:.1} | {wasm:.1} |");
        }
    });
}

fn row(name: &str, median: Duration, bare: Duration) {
    let ratio = median.as_secs_f64() / bare.as_secs_f64();
    println!("| {name} | {:.1} | {ratio:.2} |", median.as_secs_f64() * 1e3);
}

fn limits(workers: u32) -> SandboxLimits {
    SandboxLimits { workers, ..SandboxLimits::default() }
}

async fn containers(engine: &TestEngine, workers: usize) -> DockerWorkers {
    let settings = DockerSettings { limits: limits(workers as u32), ..engine.settings() };
    DockerWorkers::start(settings, |_| ()).await.expect("containers")
}

async fn wasm(workers: u32) -> PythonWorkers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
    let component = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let engine = pl_wasm::Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR")))
        .expect("an engine");
    PythonWorkers::new(&engine, &component, limits(workers)).expect("the worker")
}

fn median(runs: usize, mut run: impl FnMut()) -> Duration {
    run();
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[runs / 2]
}

async fn median_of_jobs(backend: &impl Sandbox, runs: usize, source: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..=runs {
        let started = Instant::now();
        one(backend, python(source)).await;
        times.push(started.elapsed());
    }
    times.sort();
    times[runs / 2]
}

async fn one(backend: &impl Sandbox, job: Job) {
    let verdicts = backend.execute(vec![job]).await;
    assert!(verdicts.iter().all(|verdict| verdict.ending == Ending::Ok), "{verdicts:?}");
}

/// Returns jobs per second, with two jobs in flight per worker.
async fn rate(backend: &impl Sandbox, workers: usize) -> f64 {
    let count = JOBS * workers;
    let started = Instant::now();
    let jobs = futures::stream::iter(0..count).map(|_| one(backend, python(TRIVIAL)));
    jobs.buffer_unordered(2 * workers).collect::<Vec<()>>().await;
    count as f64 / started.elapsed().as_secs_f64()
}

fn rate_of_exec(warm: &Arc<ExecContainer>, workers: usize) -> f64 {
    let started = Instant::now();
    let threads: Vec<_> = (0..workers)
        .map(|_| {
            let warm = Arc::clone(warm);
            std::thread::spawn(move || (0..SLOW_RUNS).for_each(|_| process(&mut warm.exec())))
        })
        .collect();
    for thread in threads {
        thread.join().expect("docker exec");
    }
    (SLOW_RUNS * workers) as f64 / started.elapsed().as_secs_f64()
}

fn process(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
}

/// Returns a command for the system's interpreter. The first one on the path may be a wrapper script.
fn bare_python() -> Command {
    let system = "/usr/bin/python3";
    let mut command = Command::new(if Path::new(system).is_file() { system } else { "python3" });
    command.args(["-c", TRIVIAL]);
    command
}

fn docker_run(engine: &TestEngine) -> Command {
    let mut command = Command::new("docker");
    command.args([
        "-H",
        &engine.endpoint(),
        "run",
        "--rm",
        "--network=none",
        IMAGE,
        "python3",
        "-c",
        TRIVIAL,
    ]);
    command
}

/// A sleeping container for `docker exec`.
struct ExecContainer {
    endpoint: String,
    id: String,
}

impl ExecContainer {
    fn start(engine: &TestEngine) -> Arc<ExecContainer> {
        let id = engine.docker(&["run", "--detach", "--rm", "--network=none", IMAGE, "sleep", "100000"]);
        Arc::new(ExecContainer { endpoint: engine.endpoint(), id })
    }

    fn exec(&self) -> Command {
        let mut command = Command::new("docker");
        command.args(["-H", &self.endpoint, "exec", &self.id, "python3", "-c", TRIVIAL]);
        command
    }
}
