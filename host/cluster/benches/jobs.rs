//! Jobs a second and their latency: Python programs in this process, beside the same ones through the queue of jobs and a
//! sandbox machine in another process, on the same cores.
//!
//! `cargo bench -p pl-cluster --bench jobs` takes `JOBS=500` and `SLOTS=2` from the environment. It needs the Python worker that
//! `cargo xtask setup` builds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench is run by hand")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, JobClient, JobRunner, LeaseQueue, LocalServer, NextJob,
    Role, ServerAddress, Worker,
};
use pl_sandbox::{Ending, Job, PythonWorkers, Sandbox, SandboxLimits, Verdict};
use pl_wasm::{Engine, EngineConfig};
use tokio::task::JoinSet;

/// Jobs that are sent at a time, each after the verdict of the one before.
const SENDERS: usize = 16;

const PROGRAMS: [(&str, &str); 2] =
    [("empty", "pass"), ("sympy", "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))")];

fn main() {
    let number =
        |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (jobs, slots) = (number("JOBS", 500), number("SLOTS", 2));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var("BENCH_URL") {
        Ok(url) => runtime.block_on(serve(url, slots)),
        Err(_) => runtime.block_on(measure(jobs, slots)),
    }
}

fn workers(slots: usize) -> PythonWorkers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
    let component = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let engine = Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    PythonWorkers::new(
        &engine,
        &component,
        SandboxLimits { workers: slots as u32, ..SandboxLimits::default() },
    )
    .unwrap()
}

/// Runs jobs of the queue, until the run ends.
async fn serve(url: String, slots: usize) {
    let credentials = Some(std::env::var("BENCH_CREDENTIALS").unwrap().into());
    let address = ServerAddress { url, credentials, ..ServerAddress::default() };
    let connection = Connection::open(&address, "bench", Role::Sandbox).await.unwrap();
    let workers = workers(slots);
    let runner = JobRunner::join(&connection, "bench", "machine").await.unwrap();
    let mut running = JoinSet::new();
    for _ in 0..slots {
        let (runner, workers) = (runner.clone(), workers.clone());
        running.spawn(async move {
            loop {
                match runner.next().await.unwrap() {
                    NextJob::Run(task) => {
                        let job: Job = postcard::from_bytes(&task.job).unwrap();
                        let verdict = workers.run(job).await;
                        task.finish(&postcard::to_allocvec(&verdict).unwrap()).await.unwrap();
                    }
                    NextJob::Idle => {}
                    NextJob::Ended => return,
                }
            }
        });
    }
    running.join_all().await;
}

/// A place that runs jobs.
enum Place {
    Here(PythonWorkers),
    Queue(JobClient),
}

impl Place {
    async fn run(&self, job: Job) -> Verdict {
        match self {
            Place::Here(workers) => workers.execute(vec![job]).await.pop().unwrap(),
            Place::Queue(jobs) => {
                let job = postcard::to_allocvec(&job).unwrap();
                jobs.run(job, |bytes| postcard::from_bytes::<Verdict>(bytes)).await.unwrap()
            }
        }
    }
}

async fn measure(jobs: usize, slots: usize) {
    println!("| program | place | jobs/s | median ms of one at a time |\n|---|---|---|---|");
    let here = std::sync::Arc::new(Place::Here(workers(slots)));
    for (name, source) in PROGRAMS {
        row(name, "this process", &here, source, jobs).await;
    }
    drop(here);
    let folder = tempfile::tempdir().unwrap();
    let server = LocalServer::start(Path::new("nats-server"), folder.path(), |command| command).unwrap();
    let connect = async |role: Role| Connection::open(&server.address(role), "bench", role).await.unwrap();
    let options = CoordinatorOptions {
        run: "bench".into(),
        lease: Duration::from_secs(30),
        learners: Vec::new(),
        jobs: Some(serde_json::Value::Bool(true)),
    };
    let coordinator = Coordinator::start(&connect(Role::Coordinator).await, &options).await.unwrap();
    coordinator.open_to_workers("0", b"", Vec::new()).await.unwrap();
    let address = server.address(Role::Sandbox);
    let mut process = Command::new(std::env::current_exe().unwrap())
        .env("BENCH_URL", &address.url)
        .env("BENCH_CREDENTIALS", address.credentials.unwrap())
        .env("SLOTS", slots.to_string())
        .spawn()
        .unwrap();
    let connection = connect(Role::Worker).await;
    let worker = Worker::join(&connection, "bench", LeaseQueue::Workers, "w").await.unwrap();
    let queue = std::sync::Arc::new(Place::Queue(worker.jobs().await.unwrap().unwrap()));
    for (name, source) in PROGRAMS {
        row(name, "the queue", &queue, source, jobs).await;
    }
    coordinator.end().await;
    drop(process.kill());
    drop(process.wait());
}

async fn row(name: &str, place: &str, own: &std::sync::Arc<Place>, source: &str, jobs: usize) {
    let job = Job { language: "python".to_owned(), source: source.to_owned(), ..Job::default() };
    // The first one starts the workers.
    assert_eq!(own.run(job.clone()).await.ending, Ending::Ok);
    let mut latencies: Vec<Duration> = Vec::new();
    for _ in 0..jobs / 10 {
        let started = Instant::now();
        own.run(job.clone()).await;
        latencies.push(started.elapsed());
    }
    latencies.sort();
    let started = Instant::now();
    let mut sending = JoinSet::new();
    for _ in 0..SENDERS {
        let (own, job) = (std::sync::Arc::clone(own), job.clone());
        sending.spawn(async move {
            for _ in 0..jobs / SENDERS {
                assert_eq!(own.run(job.clone()).await.ending, Ending::Ok);
            }
        });
    }
    sending.join_all().await;
    let rate = (jobs / SENDERS * SENDERS) as f64 / started.elapsed().as_secs_f64();
    let median = latencies[latencies.len() / 2].as_secs_f64() * 1e3;
    println!("| {name} | {place} | {rate:.0} | {median:.1} |");
}
