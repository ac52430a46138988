//! Runs whose code sandbox machines run end with the bits of one process, also after kills.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::{Nats, Process, await_step, await_that, ends, one_process};
use crate::support::{assert_equal_runs, pl_host, run, scenario, stderr, stdout, succeed};

const FILE: &str = "sandboxes/programs.mas";

impl Nats {
    fn sandbox_command(&self, name: &str) -> Command {
        let mut command = pl_host();
        command.args(["sandbox", "serve", "--nats", &self.url(), "--slots", "2", "--name", name]);
        // Such a machine needs nothing that a workflow names.
        command.env_remove("PL_HOST_ALLOW_READ").env_remove("PL_HOST_ALLOW_NET");
        command
    }

    fn sandbox(&self, name: &str) -> Process {
        Process::start(&mut self.sandbox_command(name))
    }

    fn status(&self, more: &[&str]) -> String {
        let mut status = pl_host();
        stdout(&succeed(status.args(["cluster", "status", "--nats", &self.url()]).args(more)))
    }

    /// Returns the number of jobs that the sandbox machines have answered.
    fn jobs_done(&self) -> u64 {
        let runs: serde_json::Value = serde_json::from_str(&self.status(&["--json"])).unwrap();
        let machines = runs[0]["sandboxes"].as_array().cloned().unwrap_or_default();
        machines.iter().filter_map(|machine| machine["done"].as_u64()).sum()
    }
}

#[test]
fn a_local_cluster_has_a_sandbox_of_its_own() {
    let Some(_) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(FILE);
    let reference = one_process(folder.path(), &file, &[]);
    let out = folder.path().join("local");
    succeed(&mut run(&file, &out, &["--local-cluster", "2", "--sandboxes"]));
    assert_equal_runs(&reference, &out, "a local cluster with a sandbox");
    let log = std::fs::read_to_string(out.join("cluster/sandbox.log")).unwrap();
    assert!(log.contains("joined run "), "{log}");
}

/// Workers run no code: without a sandbox machine, a run waits. Then one machine is killed while it works and another one is
/// told to end, and the server, which keeps jobs in its memory, is started again.
#[test]
fn jobs_wait_for_a_machine_and_survive_its_end() {
    let Some(mut nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(FILE);
    let settings = ["--sandboxes", "--set", "train.steps=100", "--set", "train.checkpoint_every=50"];
    let reference = one_process(folder.path(), &file, &settings[1..]);
    let _workers = [nats.worker("one"), nats.worker("two")];
    let out = folder.path().join("machines");
    let messages = folder.path().join("messages");
    let mut command = nats.run(&file, &out, &settings);
    command.stdout(Stdio::null()).stderr(File::create(&messages).unwrap());
    let child = Process(command.spawn().unwrap());
    let notice = "pl-host sandbox serve --nats URL";
    await_that("the run says that it waits", || std::fs::read_to_string(&messages).unwrap().contains(notice));
    let listed = nats.status(&[]);
    assert!(listed.contains("no sandbox machine takes them") && !listed.contains(" 0 jobs"), "{listed}");
    assert!(!out.join("steps/000001.parquet").exists());
    let mut first = nats.sandbox("first");
    await_that("jobs are run", || nats.jobs_done() > 0);
    first.kill();
    let mut second = nats.sandbox("second");
    // A process that is about to connect ends with an error if there is no server.
    await_that("the second machine runs jobs", || nats.jobs_done() > 0);
    let step = |number: usize| out.join(format!("steps/{number:06}.parquet"));
    let played = (1..100).take_while(|number| step(*number).exists()).count();
    nats.restart();
    await_step(&out, u32::try_from(played).unwrap() + 3);
    let _third = nats.sandbox("third");
    second.signal("TERM");
    assert!(second.0.wait().unwrap().success());
    assert!(!step(100).exists(), "the run is still under way");
    ends(child);
    assert_equal_runs(&reference, &out, "sandbox machines were killed");
}

#[test]
fn sandbox_machines_need_a_server_and_a_run_that_has_them() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario(FILE), folder.path().join("run"));
    let message = stderr(&run(&file, &out, &["--sandboxes"]).output().unwrap());
    assert!(message.contains("only over a NATS server") && !out.exists(), "{message}");
    let _run = Process::start(&mut nats.run(&file, &out, &[]));
    let name = || -> Option<String> {
        let runs: serde_json::Value = serde_json::from_str(&nats.status(&["--json"])).ok()?;
        runs[0]["run"].as_str().map(str::to_owned)
    };
    await_that("the run is listed", || name().is_some());
    let mut command = nats.sandbox_command("idle");
    let message = stderr(&command.args(["--run", &name().unwrap()]).output().unwrap());
    assert!(message.contains("has no jobs for sandbox machines"), "{message}");
}

/// A file may ask for sandbox machines, and a run of one process ignores that.
#[test]
fn a_file_names_its_sandboxes() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(scenario(FILE)).unwrap();
    let text = text.replace("../../data/tiny", &scenario("../data/tiny").display().to_string());
    let block = format!("cluster {{ nats = {:?}; sandboxes = true; lease = 2s }}\n", nats.url());
    let file = folder.path().join("programs.mas");
    std::fs::write(&file, text + "\n" + &block).unwrap();
    let reference = one_process(folder.path(), &file, &["--no-cluster"]);
    let _processes = [nats.worker("one"), nats.sandbox("two")];
    let out = folder.path().join("cluster");
    succeed(&mut run(&file, &out, &[]));
    let lock = |root: &Path| std::fs::read_to_string(root.join("lock.json")).unwrap();
    assert_ne!(lock(&reference), lock(&out), "the server was allowed to one of them");
    std::fs::copy(reference.join("lock.json"), out.join("lock.json")).unwrap();
    assert_equal_runs(&reference, &out, "sandboxes of the file");
}
