//! Both backends beside a bare `python3` process, `docker exec` and `docker run`, in one run: `cargo xtask bench
//! sandbox`. It starts an engine of its own where it can, and leaves out the containers where it can't.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

#[path = "../tests/it/engine/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "helpers of tests, not all used here")]
mod engine;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, IMAGE, python};
use futures::StreamExt;
use pl_sandbox::{DockerSettings, DockerWorkers, Ending, Job, PythonWorkers, Sandbox, SandboxLimits};
use pl_wasm::EngineConfig;

const TRIVIAL: &str = "print(1)";
const SYMPY: &str = "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))";

/// Runs of a row. Starting a container takes half a second.
const RUNS: usize = 60;
const FEW: usize = 10;

/// Jobs of a throughput row for each worker.
const JOBS: usize = 60;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        println!("| one trivial program | median ms | beside `python3` |\n|---|---|---|");
        let bare = median(RUNS, || process(&mut bare_python()));
        row("a bare `python3` process", bare, bare);
        let wasm = wasm(2).await;
        row("wasm backend", of_backend(&wasm, RUNS, TRIVIAL).await, bare);
        row("wasm backend, a sympy solve", of_backend(&wasm, RUNS, SYMPY).await, bare);
        let Some(engine) = Engine::start("bench").await else { return };
        let one = containers(&engine, 1).await;
        row("docker backend", of_backend(&one, RUNS, TRIVIAL).await, bare);
        one.shut_down().await;
        let warm = Warm::start(&engine);
        row("`docker exec` in a warm container", median(FEW, || process(&mut warm.exec())), bare);
        row("`docker run`", median(FEW, || process(&mut docker_run(&engine))), bare);
        // Once more, as machines change their pace.
        row("a bare `python3` process, again", median(RUNS, || process(&mut bare_python())), bare);

        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        println!("\n| jobs a second, {cores} cores | docker backend | `docker exec` | wasm backend |\n|---|---|---|---|");
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

async fn containers(engine: &Engine, workers: usize) -> DockerWorkers {
    let settings = DockerSettings { limits: limits(workers as u32), ..engine.settings() };
    DockerWorkers::start(settings, |_| ()).await.expect("containers")
}

async fn wasm(workers: u32) -> PythonWorkers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
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

async fn of_backend(backend: &impl Sandbox, runs: usize, source: &str) -> Duration {
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

/// Jobs a second, with two for each worker on the way.
async fn rate(backend: &impl Sandbox, workers: usize) -> f64 {
    let count = JOBS * workers;
    let started = Instant::now();
    let jobs = futures::stream::iter(0..count).map(|_| one(backend, python(TRIVIAL)));
    jobs.buffer_unordered(2 * workers).collect::<Vec<()>>().await;
    count as f64 / started.elapsed().as_secs_f64()
}

fn rate_of_exec(warm: &Arc<Warm>, workers: usize) -> f64 {
    let started = Instant::now();
    let threads: Vec<_> = (0..workers)
        .map(|_| {
            let warm = Arc::clone(warm);
            std::thread::spawn(move || (0..FEW).for_each(|_| process(&mut warm.exec())))
        })
        .collect();
    for thread in threads {
        thread.join().expect("docker exec");
    }
    (FEW * workers) as f64 / started.elapsed().as_secs_f64()
}

fn process(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
}

/// The system's own interpreter: what is first on the path may be a script that looks for one.
fn bare_python() -> Command {
    let system = "/usr/bin/python3";
    let mut command = Command::new(if Path::new(system).is_file() { system } else { "python3" });
    command.args(["-c", TRIVIAL]);
    command
}

fn docker_run(engine: &Engine) -> Command {
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

/// A container that sleeps, for `docker exec`.
struct Warm {
    endpoint: String,
    id: String,
}

impl Warm {
    fn start(engine: &Engine) -> Arc<Warm> {
        let id = engine.docker(&["run", "--detach", "--rm", "--network=none", IMAGE, "sleep", "100000"]);
        Arc::new(Warm { endpoint: engine.endpoint(), id })
    }

    fn exec(&self) -> Command {
        let mut command = Command::new("docker");
        command.args(["-H", &self.endpoint, "exec", &self.id, "python3", "-c", TRIVIAL]);
        command
    }
}
