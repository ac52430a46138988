//! Simulated workers against a real server: tasks per second, CPU time, bytes and memory of coordinator, workers and server,
//! and the time from new weights to the first result with them.
//!
//! Workers are tasks of a process of their own, a hundred to a connection, and play at once. `cargo bench -p pl-cluster` takes
//! `WORKERS=10,100,1000,10000` and `TASKS=10000` from the environment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench is run by hand")]

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_cluster::{
    Connection, Coordinator, CoordinatorOptions, Lease, LeaseQueue, Next, Role, ServerAddress, ServerConfig,
    WeightsRef, Worker,
};
use tokio::task::JoinSet;

/// Workers that share a connection.
const PER_CONNECTION: usize = 100;

/// Workers that join at a time.
const JOINING: usize = 64;

/// Bytes of a task, of a result, and of an adapter: some episodes of a few hundred tokens.
const TASK: usize = 2_000;
const RESULT: usize = 20_000;
const ADAPTER: usize = 1_000_000;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(workers) = std::env::var("BENCH_WORKERS") {
        return runtime.block_on(work(workers.parse().unwrap()));
    }
    let list = |name: &str, default: &str| -> Vec<usize> {
        let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
        text.split(',').map(|number| number.parse().unwrap()).collect()
    };
    let tasks = list("TASKS", "10000")[0];
    println!(
        "| workers | writes | tasks/s | joined s | CPU ms per task: coordinator, workers, server | kB per task to and from the \
         coordinator | MB: coordinator, server | new weights s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for workers in list("WORKERS", "10,100,1000,10000") {
        for synchronous in [true, false] {
            runtime.block_on(measure(workers, tasks, synchronous));
        }
    }
}

/// A server with its folder, which is removed when it ends.
struct Server {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn start(synchronous: bool) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let (listen, store) = (format!("127.0.0.1:{port}"), folder.path().join("store"));
        let path = ServerConfig { listen, store, tls: None }.write(&folder.path().join("config")).unwrap();
        if !synchronous {
            let text = std::fs::read_to_string(&path).unwrap().replace(", sync_interval: always", "");
            std::fs::write(&path, text).unwrap();
        }
        let mut command = Command::new("nats-server");
        let process =
            command.arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { process, folder, port }
    }

    fn credentials(&self, role: Role) -> PathBuf {
        self.folder.path().join("config").join(role.credentials_file())
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

async fn connect(url: &str, credentials: &Path, role: Role) -> Connection {
    let credentials = Some(credentials.to_path_buf());
    let address = ServerAddress { url: url.to_owned(), credentials, ..ServerAddress::default() };
    Connection::open(&address, "bench", role).await.unwrap()
}

/// Plays as many workers, until the run ends.
async fn work(workers: usize) {
    let (url, credentials) =
        (std::env::var("BENCH_URL").unwrap(), std::env::var("BENCH_CREDENTIALS").unwrap());
    let mut connections = Vec::new();
    for _ in 0..workers.div_ceil(PER_CONNECTION) {
        // A machine fetches weights once.
        let fetched: Arc<tokio::sync::Mutex<String>> = Arc::default();
        connections.push((connect(&url, Path::new(&credentials), Role::Worker).await, fetched));
    }
    let joining = Arc::new(tokio::sync::Semaphore::new(JOINING));
    let mut joins = JoinSet::new();
    for number in 0..workers {
        let ((connection, fetched), joining) =
            (connections[number % connections.len()].clone(), Arc::clone(&joining));
        joins.spawn(async move {
            let _turn = joining.acquire_owned().await.unwrap();
            (
                Worker::join(&connection, "bench", LeaseQueue::Workers, &format!("w{number}")).await.unwrap(),
                fetched,
            )
        });
    }
    let joined = joins.join_all().await;
    println!("joined");
    let mut running = JoinSet::new();
    for (worker, fetched) in joined {
        running.spawn(async move {
            loop {
                match worker.next().await.unwrap() {
                    Next::Play(task) => {
                        let hash = &task.lease.weights[0].hash;
                        let mut fetched = fetched.lock().await;
                        if *fetched != *hash {
                            assert_eq!(worker.blob(hash).await.unwrap().len(), ADAPTER);
                            fetched.clone_from(hash);
                        }
                        drop(fetched);
                        task.finish(vec![7; RESULT]).await.unwrap();
                    }
                    Next::Idle => {}
                    Next::Ended => return,
                }
            }
        });
    }
    running.join_all().await;
}

async fn measure(workers: usize, tasks: usize, synchronous: bool) {
    let server = Server::start(synchronous);
    let connection = connect(&server.url(), &server.credentials(Role::Coordinator), Role::Coordinator).await;
    let options = CoordinatorOptions {
        run: "bench".into(),
        lease: Duration::from_secs(30),
        learners: Vec::new(),
        jobs: None,
    };
    let coordinator = Arc::new(Coordinator::start(&connection, &options).await.unwrap());
    coordinator.open_to_workers("0", b"", Vec::new()).await.unwrap();
    let started = Instant::now();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .env("BENCH_WORKERS", workers.to_string())
        .env("BENCH_URL", server.url())
        .env("BENCH_CREDENTIALS", server.credentials(Role::Worker))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "joined\n");
    let joined = started.elapsed().as_secs_f64();
    let first = coordinator.put_blob(&vec![1; ADAPTER]).await.unwrap();
    // Every worker has played, and has the first weights.
    play(&coordinator, 1, workers, &first).await;
    let pids = [std::process::id(), process.id(), server.process.id()];
    let (started, cpu, traffic) = (Instant::now(), pids.map(cpu_seconds), connection.traffic());
    play(&coordinator, 2, tasks, &first).await;
    let seconds = started.elapsed().as_secs_f64();
    let cpu: Vec<f64> = pids.iter().zip(cpu).map(|(pid, before)| cpu_seconds(*pid) - before).collect();
    let after = connection.traffic();
    let started = Instant::now();
    let second = coordinator.put_blob(&vec![2; ADAPTER]).await.unwrap();
    coordinator.announce(&WeightsRef { learner: 0, update: 2, hash: second.clone() }).await.unwrap();
    play(&coordinator, 3, 1, &second).await;
    let used = started.elapsed().as_secs_f64();
    let per_task = |value: f64| value / tasks as f64;
    println!(
        "| {workers} | {} | {:.0} | {joined:.1} | {:.2}, {:.2}, {:.2} | {:.1}, {:.1} | {:.0}, {:.0} | {used:.3} |",
        if synchronous { "synchronous" } else { "every two minutes" },
        tasks as f64 / seconds,
        per_task(cpu[0] * 1e3),
        per_task(cpu[1] * 1e3),
        per_task(cpu[2] * 1e3),
        per_task((after.1 - traffic.1) as f64 / 1e3),
        per_task((after.0 - traffic.0) as f64 / 1e3),
        peak_megabytes(pids[0]),
        peak_megabytes(pids[2]),
    );
    coordinator.end().await;
    drop(process.kill());
    drop(process.wait());
}

/// Plays tasks of a step, all at once.
async fn play(coordinator: &Arc<Coordinator>, step: u64, tasks: usize, hash: &str) {
    let mut playing = JoinSet::new();
    for number in 0..tasks {
        let coordinator = Arc::clone(coordinator);
        let mut body = vec![0; TASK];
        body[..8].copy_from_slice(&(number as u64).to_le_bytes());
        body[8..16].copy_from_slice(&step.to_le_bytes());
        let weights = vec![WeightsRef { learner: 0, update: 0, hash: hash.to_owned() }];
        let lease =
            Lease { queue: LeaseQueue::Workers, task: format!("train {step}.{number}"), step, weights, body };
        playing.spawn(async move {
            coordinator.play(lease, |bytes| Ok::<_, Infallible>(bytes.len())).await.unwrap()
        });
    }
    while let Some(length) = playing.join_next().await {
        assert_eq!(length.unwrap(), RESULT);
    }
    coordinator.forget(step..=step).await;
}

/// CPU time of a process in seconds.
fn cpu_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in ticks of 10 ms.
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// Largest resident memory of a process so far.
fn peak_megabytes(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() * 1024.0 / 1e6
}
