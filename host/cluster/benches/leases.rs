//! Simulated workers against a real server: tasks per second, and CPU time per task of coordinator and workers.
//!
//! All workers are tasks of one process with a few connections, and play at once. `cargo bench -p pl-cluster` takes
//! `WORKERS=10,100,1000` and `TASKS=4000` from the environment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench is run by hand")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, Lease, LocalServer, Next, Role, WeightsRef, Worker,
};
use tokio::task::JoinSet;

/// Connections that the workers share.
const CONNECTIONS: usize = 8;

/// Bytes of a task and of a result: some episodes of a few hundred tokens.
const TASK: usize = 2_000;
const RESULT: usize = 20_000;

fn main() {
    let list = |name: &str, default: &str| -> Vec<usize> {
        let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
        text.split(',').map(|number| number.parse().unwrap()).collect()
    };
    let tasks = list("TASKS", "4000")[0];
    for workers in list("WORKERS", "10,100,1000") {
        for results in [RESULT, 200] {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(measure(workers, tasks, results));
        }
    }
}

async fn measure(workers: usize, tasks: usize, result: usize) {
    let folder = tempfile::tempdir().unwrap();
    let server = LocalServer::start(folder.path(), |command| command).unwrap();
    let (run, play) = (server.address(Role::Coordinator), server.address(Role::Worker));
    let connect = || Connection::open(&play, "bench", Role::Worker);
    let coordinating = Connection::open(&run, "bench", Role::Coordinator).await.unwrap();
    let options = CoordinatorOptions { run: "bench".into(), lease: Duration::from_secs(30) };
    let coordinator = Arc::new(Coordinator::start(&coordinating, &options).await.unwrap());
    coordinator.open_to_workers("0", b"", Vec::new()).await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS.min(workers) {
        connections.push(connect().await.unwrap());
    }
    let mut running = JoinSet::new();
    for number in 0..workers {
        let connection = &connections[number % connections.len()];
        let worker = Worker::join(connection, "bench", &format!("w{number}")).await.unwrap();
        running.spawn(async move {
            loop {
                match worker.next().await.unwrap() {
                    Next::Play(task) => task.finish(vec![7; result]).await.unwrap(),
                    Next::Idle => {}
                    Next::Ended => return,
                }
            }
        });
    }
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut playing = JoinSet::new();
    for number in 0..tasks {
        let coordinator = Arc::clone(&coordinator);
        let mut body = vec![0; TASK];
        body[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let weights = vec![WeightsRef { learner: 0, update: 0, hash: "0".repeat(64) }];
        let lease = Lease { task: format!("train 1.{number}"), step: 1, weights, body };
        playing.spawn(async move {
            coordinator.play(lease, |bytes| Ok::<_, Infallible>(bytes.len())).await.unwrap()
        });
    }
    while let Some(length) = playing.join_next().await {
        assert_eq!(length.unwrap(), result);
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!(
        "{workers:>6} workers, results of {result:>6} bytes: {:>7.0} tasks/s, {:.3} ms CPU per task in this process",
        tasks as f64 / seconds,
        cpu / tasks as f64 * 1e3,
    );
    coordinator.end().await;
    running.abort_all();
}

/// CPU time of this process in seconds: of the coordinator and all workers, without the server.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in ticks of 10 ms.
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}
