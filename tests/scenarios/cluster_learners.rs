//! Runs whose learners are processes of their own, ranks among them, end with the bits of one process, also after kills.

use std::net::TcpListener;
use std::path::Path;

use crate::cluster::{Nats, Process, await_step, await_that, ends, one_process, same_bits};
use crate::support::{assert_equal_runs, pl_host, run, scenario, stderr, stdout, succeed};

impl Nats {
    /// Starts a process that trains a policy.
    fn learner(&self, policy: &str) -> Process {
        let mut command = pl_host();
        command.args(["learner", "--nats", &self.url(), "--device", "cpu", "--policy", policy]);
        Process::start(command.args(["--name", &format!("learner-{policy}")]))
    }

    /// Starts a rank of the processes that train a policy together.
    fn rank(&self, policy: &str, rank: u32, leader: &str) -> Process {
        let mut command = pl_host();
        command.args(["learner", "--nats", &self.url(), "--device", "cpu", "--policy", policy]);
        command.args(["--rank", &rank.to_string(), "--leader", leader]);
        Process::start(command.args(["--name", &format!("{policy}-{rank}")]))
    }
}

/// Teams that share no learner, one of which another process trains.
#[test]
fn lanes_on_workers_and_in_another_process() {
    same_bits("letters/lanes.mas", &[]);
    same_bits_with_learners("letters/lanes.mas", &["second"], &[]);
}

fn same_bits_with_learners(name: &str, learners: &[&str], settings: &[&str]) {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(name);
    let reference = one_process(folder.path(), &file, settings);
    let _worker = nats.worker("one");
    let _learners: Vec<Process> = learners.iter().map(|policy| nats.learner(policy)).collect();
    let out = folder.path().join("learners");
    succeed(nats.run(&file, &out, settings).args(["--learners", &learners.join(",")]));
    assert_equal_runs(&reference, &out, name);
}

#[test]
fn adapters_that_another_process_trains() {
    let settings = ["train.algorithm=ppo", "first.critic.on=adapter", "first.critic.rank=4", "train.kl=0.05"];
    same_bits_with_learners("letters/tree-l2.mas", &["first"], &settings.map(|own| ["--set", own]).concat());
}

/// One model is trained here, the other in a process of its own, on two steps at once.
#[test]
fn a_whole_model_that_another_process_trains() {
    let settings = ["train.schedule=async", "second.train.tasks_per_update=6"];
    same_bits_with_learners("letters/flat-l3.mas", &["second"], &settings.map(|own| ["--set", own]).concat());
}

/// A learner that is killed between two checkpoints does the updates since the last one again, and so does one that takes over
/// from it; a coordinator that is killed goes back to its checkpoint, and the learners with it.
#[test]
fn learners_and_coordinators_that_are_killed_continue() {
    let Some(mut nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/flat-l3.mas");
    let settings = ["--set", "train.checkpoint_every=3"];
    let reference = one_process(folder.path(), &file, &settings);
    let _worker = nats.worker("one");
    let (mut first, mut second) = (nats.learner("first"), nats.learner("second"));
    let out = folder.path().join("learners");
    let learners = ["--learners", "first,second"];
    let mut child = Process::start(nats.run(&file, &out, &settings).args(learners));
    await_step(&out, 2);
    second.kill();
    second = nats.learner("second");
    await_step(&out, 3);
    child.kill();
    child = Process::start(nats.resume(&out).args(learners));
    await_step(&out, 5);
    // A process that is about to connect ends with an error if there is no server.
    nats.restart();
    first.kill();
    first = nats.learner("first");
    ends(child);
    assert_equal_runs(&reference, &out, "learners and the coordinator were killed");
    drop((first, second));
}

#[test]
fn ranks_of_a_learner_have_the_bits_of_one_process() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, policy, settings) in [
        ("letters/flat-l3.mas", "second", &["train.data_parallel=3"][..]),
        (
            "letters/tree-l2.mas",
            "first",
            &["train.data_parallel=2", "train.algorithm=ppo", "train.token_budget=64"],
        ),
    ] {
        let file = scenario(name);
        let settings: Vec<&str> = settings.iter().flat_map(|own| ["--set", own]).collect();
        let folder = folder.path().join(policy);
        let reference = one_process(&folder, &file, &settings);
        let out = folder.join("ranks");
        let mut local = run(&file, &out, &settings);
        succeed(local.args(["--local-cluster", "1", "--learners", policy]));
        assert_equal_runs(&reference, &out, name);
        // Connected ranks do their own shares alone.
        let log = |learner| out.join(format!("cluster/learner-{learner}-rank-1.log"));
        let log = [log(0), log(1)].iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
        assert!(log.contains("ranks are connected"), "{log}");
    }
    drop(nats);
}

#[test]
fn ranks_that_are_killed_are_replaced() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/flat-l3.mas");
    let settings = ["--set", "train.data_parallel=2"];
    let reference = one_process(folder.path(), &file, &settings);
    let leader =
        format!("127.0.0.1:{}", TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port());
    let _workers = [nats.worker("one"), nats.worker("two")];
    let mut ranks = [0, 1].map(|rank| nats.rank("second", rank, &leader));
    let out = folder.path().join("ranks");
    let child = Process::start(nats.run(&file, &out, &settings).args(["--learners", "second"]));
    for (step, rank) in [(1, 1), (2, 0), (4, 1)] {
        await_step(&out, step);
        ranks[rank].kill();
        ranks[rank] = nats.rank("second", rank as u32, &leader);
    }
    ends(child);
    assert_equal_runs(&reference, &out, "ranks were killed");
}

#[test]
fn weights_in_a_shared_folder_have_the_same_bits() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("weights");
    let place = ["--weights-folder", shared.to_str().unwrap()];
    let file = scenario("letters/flat-l3.mas");
    let settings = ["--set", "train.schedule=async"];
    let reference = one_process(folder.path(), &file, &settings);
    let out = folder.path().join("folder");
    let local = ["--local-cluster", "2", "--learners", "second"];
    let child = Process::start(run(&file, &out, &settings).args(local).args(place));
    await_that("a version is a delta", || {
        let has_delta = |folder: &Path| {
            let names =
                std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
            names.into_iter().any(|name| name.to_string_lossy().ends_with(".delta"))
        };
        let runs = std::fs::read_dir(&shared).into_iter().flatten().flatten();
        runs.into_iter().any(|run| has_delta(&run.path().join("0")) || has_delta(&run.path().join("1")))
    });
    ends(child);
    assert_equal_runs(&reference, &out, "weights in a folder");
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0, "weights are left");
    // A worker that doesn't know the folder is told.
    let out = folder.path().join("waits");
    let _run = Process::start(nats.run(&file, &out, &settings).args(place));
    let mut worker = nats.worker_command("one");
    await_that("the run is listed", || {
        let mut status = pl_host();
        status.args(["cluster", "status", "--json", "--nats", &nats.url()]);
        status.output().is_ok_and(|output| stdout(&output).contains("\"run\""))
    });
    let message = stderr(&worker.output().unwrap());
    assert!(message.contains("name it by --weights-folder"), "{message}");
}

#[test]
fn a_rank_that_is_none_is_told_how_many_there_are() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let file = scenario("letters/flat-l3.mas");
    let settings = ["--set", "train.data_parallel=2"];
    let _run = Process::start(nats.run(&file, &out, &settings).args(["--learners", "second"]));
    await_that("the run is listed", || {
        let mut status = pl_host();
        status.args(["cluster", "status", "--json", "--nats", &nats.url()]);
        status.output().is_ok_and(|output| stdout(&output).contains("\"learners\":[{"))
    });
    let mut learner = pl_host();
    learner.args(["learner", "--nats", &nats.url(), "--device", "cpu", "--policy", "second"]);
    let message = stderr(&learner.args(["--rank", "2", "--leader", "127.0.0.1:1"]).output().unwrap());
    assert!(message.contains("no rank 2") && message.contains("among 2 ranks"), "{message}");
}

#[test]
fn learners_of_no_policy_are_refused() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/flat-l3.mas"), folder.path().join("run"));
    let mut command = nats.run(&file, &out, &["--learners", "third"]);
    let message = stderr(&command.output().unwrap());
    assert!(message.contains("no learner trains policy `third`"), "{message}");
    assert!(message.contains("first, second"), "{message}");
    let message = stderr(&run(&file, &out, &["--learners", "first"]).output().unwrap());
    assert!(message.contains("only over a NATS server") && !out.exists(), "{message}");
    let _run = Process::start(nats.run(&file, &out, &[]).args(["--learners", "second"]));
    await_that("the run is listed", || {
        let mut status = pl_host();
        status.args(["cluster", "status", "--json", "--nats", &nats.url()]);
        status.output().is_ok_and(|output| stdout(&output).contains("\"learners\":[{"))
    });
    let mut learner = pl_host();
    learner.args(["learner", "--nats", &nats.url(), "--device", "cpu", "--policy", "first"]);
    let message = stderr(&learner.output().unwrap());
    assert!(message.contains("no learner for policy `first`") && message.contains("second"), "{message}");
}
