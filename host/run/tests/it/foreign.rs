//! Files from strangers: run folders are data, and a check opens nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pl_run::replay::{Replayer, RunTraces};
use pl_run::{
    Access, CheckedWorkflow, DevicePreference, Error, ResumeOptions, RunEnding, StopRequest, StoredWorkflow,
    TrainingRun, select_device,
};
use serde_json::{Value, json};

use crate::support::{Workflow, host, host_with, parse, repository, resume};

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

#[test]
fn a_workflow_is_a_file_of_a_few_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let [huge, pipe] = ["huge.mas", "pipe.mas"].map(|name| folder.path().join(name));
    fs::File::create(&huge).unwrap().set_len((16 << 20) + 1).unwrap();
    // Opening it would wait for a writer.
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (file, reason) in [
        (huge.as_path(), "it is larger than 16 MiB"),
        (pipe.as_path(), "it is not a file"),
        (Path::new("/dev/zero"), "it is not a file"),
    ] {
        let Err(error) = CheckedWorkflow::open(&host_with(&[]), file, &[]) else { panic!("{reason}") };
        let expected = format!("cannot read {}: {reason}; ", file.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

/// Opens a run to continue it, without any permission.
fn open(root: &Path, overrides: &[&str]) -> Result<(), Error> {
    let host = host_with(&[]);
    let device = select_device(&host, DevicePreference::Cpu)?;
    let options = ResumeOptions { overrides: parse(overrides), ..ResumeOptions::default() };
    TrainingRun::resume(&host, root, device, &options).map(|_| ())
}

#[test]
fn a_run_of_somebody_else_needs_consent_for_its_components() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    assert_eq!(resume(&root, &[]).unwrap(), RunEnding::Done);
    // A run folder that was sent has no mark of this user; a changed workflow has the wrong one.
    let mark = root.join("workflow.json.mac");
    for forgery in [None, Some("0".repeat(64))] {
        match forgery {
            None => fs::remove_file(&mark).unwrap(),
            Some(text) => fs::write(&mark, text).unwrap(),
        }
        let message = open(&root, &[]).unwrap_err().to_string();
        assert!(message.contains("plugin letters is loaded from /"), "{message}");
        assert!(message.contains("model base is read from /") && message.contains("--trust"), "{message}");
        let replayed = Replayer::new(&host_with(&[]), &root, &BTreeMap::new(), false);
        assert!(matches!(replayed, Err(Error::ForeignRun { .. })));
    }
    change(&root.join("workflow.json"), |stored| {
        stored["workflow"]["plugins"][0]["grant"] =
            json!({ "read": ["/home"], "http": ["collector.example"] });
    });
    let message = open(&root, &[]).unwrap_err().to_string();
    assert!(
        message.contains("reads /home") && message.contains("requests to collector.example"),
        "{message}"
    );
}

#[test]
fn a_trusted_run_continues_and_is_the_users_own_afterwards() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    fs::remove_file(root.join("workflow.json.mac")).unwrap();
    Replayer::new(&host(), &root, &BTreeMap::new(), true).unwrap();
    let component = repository().join("target/release/plugins/letters.wasm");
    let chosen = BTreeMap::from([("letters".to_owned(), component)]);
    // The user has chosen the component, but not the model.
    let replayed = Replayer::new(&host_with(&[]), &root, &chosen, false);
    let message = replayed.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("model base") && !message.contains("plugin letters"), "{message}");
    let model = Access::read(&repository().join("tests/data/tiny"));
    Replayer::new(&host_with(&[model]), &root, &chosen, false).unwrap();
    let host = host_with(&[]);
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let options = ResumeOptions { trust: true, ..ResumeOptions::default() };
    let mut run = TrainingRun::resume(&host, &root, device, &options).unwrap();
    assert_eq!(run.train(&StopRequest::default()).unwrap(), RunEnding::Done);
    drop(run);
    open(&root, &["train.steps=2"]).unwrap();
}

/// A resume writes logs and deletes later files: through links, it would do that to any file of the user.
#[test]
fn links_in_a_run_are_refused() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let (log, victim) = (root.join("metrics.jsonl"), workflow.path("victim"));
    fs::rename(&log, &victim).unwrap();
    let before = fs::read_to_string(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, &log).unwrap();
    let host = host();
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    for (is_own, trust) in [(true, false), (false, false), (false, true)] {
        if !is_own {
            let _ = fs::remove_file(root.join("workflow.json.mac"));
        }
        let options =
            ResumeOptions { trust, overrides: parse(&["train.steps=3"]), ..ResumeOptions::default() };
        let refused = TrainingRun::resume(&host, &root, device, &options).map(|_| ()).unwrap_err();
        assert!(matches!(&refused, Error::LinkInRun { link, .. } if *link == log), "{refused}");
        let refused = Replayer::new(&host, &root, &BTreeMap::new(), trust).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::LinkInRun { .. }), "{refused}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), before);
    // The program's own link among the checkpoints is none of those, unless it leads elsewhere.
    fs::remove_file(&log).unwrap();
    fs::write(&log, &before).unwrap();
    let checkpoints = root.join("checkpoints");
    assert!(checkpoints.join("best").is_symlink());
    Replayer::new(&host, &root, &BTreeMap::new(), true).unwrap();
    fs::remove_file(checkpoints.join("best")).unwrap();
    std::os::unix::fs::symlink("../traces", checkpoints.join("best")).unwrap();
    assert!(matches!(Replayer::new(&host, &root, &BTreeMap::new(), true), Err(Error::LinkInRun { .. })));
}

#[test]
fn a_run_that_nobody_trusts_stays_one_of_somebody_else() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    fs::remove_file(root.join("workflow.json.mac")).unwrap();
    // Flags allow all that it wants.
    assert_eq!(resume(&root, &["train.steps=2"]).err().map(|error| error.to_string()), None);
    assert!(!root.join("workflow.json.mac").exists());
}

/// The text of a run is checked again when settings change: it must not bring hosts and keys into an own run.
#[test]
fn a_changed_text_or_record_of_permissions_makes_a_run_foreign() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    open(&root, &["train.steps=2"]).unwrap();
    for name in ["workflow.mas", "lock.json", "workflow.json"] {
        let own = fs::read_to_string(root.join(name)).unwrap();
        // The same content in another form: whatever it says, it is not what this user has written.
        fs::write(root.join(name), own.clone() + "\n").unwrap();
        for overrides in [&[] as &[&str], &["train.steps=3"]] {
            assert!(matches!(open(&root, overrides), Err(Error::ForeignRun { .. })), "{name} {overrides:?}");
        }
        fs::write(root.join(name), own).unwrap();
    }
    open(&root, &[]).unwrap();
}

/// Files that a workflow includes are not stored in its run.
#[test]
fn a_file_that_was_changed_since_brings_nothing_into_a_run() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let text = fs::read_to_string(&workflow.file).unwrap();
    fs::write(&workflow.file, format!("{text}\ninclude \"more.mas\"\n")).unwrap();
    let include = |workers: u32| {
        fs::write(workflow.path("more.mas"), format!("sandbox {{ workers = {workers} }}\n")).unwrap();
    };
    include(1);
    let root = workflow.run(&["train.steps=1"]);
    include(3);
    assert_eq!(resume(&root, &[]).unwrap(), RunEnding::Done);
    let error = resume(&root, &["train.steps=2"]).unwrap_err();
    assert!(error.is_input() && error.to_string().contains("sandbox.workers"), "{error}");
    include(1);
    assert_eq!(resume(&root, &["train.steps=2"]).unwrap(), RunEnding::Done);
}

#[test]
fn a_foreign_run_does_not_choose_its_own_folder() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    fs::remove_file(root.join("workflow.json.mac")).unwrap();
    change(&root.join("workflow.json"), |stored| {
        stored["folder"] = json!("/");
        stored["overrides"] = json!([{ "path": "data", "value": "/etc", "shown": "--set data=/etc" }]);
        let workflow = &mut stored["workflow"];
        workflow["scenarios"][0]["environment"]["tasks"] = json!({ "file": "etc/passwd" });
        workflow["policies"][0]["from"] = json!("home/you/adapter");
    });
    change(&root.join("lock.json"), |lock| {
        lock["permissions"] = json!(["read /", "net collector.example:443"]);
    });
    let replayed = Replayer::new(&host_with(&[]), &root, &BTreeMap::new(), false).map(|_| ());
    for message in [open(&root, &[]), replayed].map(|result| result.unwrap_err().to_string()) {
        for opened in
            ["are read from /etc/passwd", "starts from /home/you/adapter", "model base is read from"]
        {
            assert!(message.contains(opened), "{opened}: {message}");
        }
    }
}

/// A process may open several runs: the viewer plays of all that it shows.
#[test]
fn the_permissions_of_a_run_are_no_other_runs_own() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let own = workflow.run(&["train.steps=1"]);
    let other = Workflow::new("tree-l2.mas", "");
    let foreign = other.run(&["train.steps=1"]);
    fs::remove_file(foreign.join("workflow.json.mac")).unwrap();
    let host = host_with(&[]);
    Replayer::new(&host, &own, &BTreeMap::new(), false).unwrap();
    Replayer::new(&host, &own, &BTreeMap::new(), true).unwrap();
    let replayed = Replayer::new(&host, &foreign, &BTreeMap::new(), false);
    assert!(matches!(replayed, Err(Error::ForeignRun { .. })));
}

#[test]
fn a_stored_workflow_has_no_index_or_name_that_leads_elsewhere() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let good = fs::read(root.join("workflow.json")).unwrap();
    let mut designer = serde_json::from_slice::<Value>(&good).unwrap()["workflow"]["agents"][0].clone();
    let own = json!({
        "policy": 7, "designs": 1, "executions": 1, "patterns": [], "constrained": false,
        "palette": { "agents": [], "policies": [], "max_agents": 1, "max_visits": 1, "max_tokens": 1 },
    });
    designer.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let cases: [(&str, Value, &str); 20] = [
        ("/scenarios", json!([]), "no scenario"),
        ("/agents/0/policy", json!(2), "policy 2"),
        ("/agents/1/plugin", json!(9), "plugin 9"),
        ("/policies/0/model", json!(1), "model 1"),
        ("/scenarios/0/reward/plugin", json!(1), "plugin 1"),
        ("/scenarios/0/environment/plugin", json!(7), "plugin 7"),
        ("/scenarios/0/turns/nodes/0/agents", json!([5]), "agent 5"),
        ("/scenarios/0/turns/nodes/0/agents", json!([]), "no agent"),
        ("/scenarios/0/turns/start/0/to", json!({ "node": 99 }), "node 99"),
        ("/policies/1/name", json!("../../../escape"), "../../../escape"),
        ("/evaluations/0/name", json!("/tmp/escape"), "/tmp/escape"),
        ("/name", json!(".."), "\"..\""),
        ("/policies/1/name", json!("first"), "two blocks"),
        ("/evaluations/0/roles", json!([{ "agent": 0, "policy": 999 }]), "policy 999"),
        ("/evaluations/0/roles", json!([{ "agent": 8, "policy": 0 }]), "agent 8"),
        ("/scenarios/0/designer", json!(3), "designer 3"),
        ("/designers", json!([designer]), "policy 7"),
        ("/plugins/0/memory", json!(u64::MAX), "a memory out of range (64KiB to 4GiB)"),
        ("/plugins/0/fuel", json!(u64::MAX), "a fuel out of range (10000 or more)"),
        ("/plugins/0/timeout", json!({ "secs": 3601, "nanos": 0 }), "a timeout out of range (10ms to 1h)"),
    ];
    for (pointer, value, expected) in cases {
        fs::write(root.join("workflow.json"), &good).unwrap();
        change(&root.join("workflow.json"), |stored| {
            let pointer = format!("/workflow{pointer}");
            let (block, key) = pointer.rsplit_once('/').unwrap();
            stored.pointer_mut(block).unwrap()[key] = value;
        });
        let error = StoredWorkflow::read(&root).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::StoredWorkflow { .. }) && error.is_input(), "{message}");
        assert!(message.contains("workflow.json: ") && message.contains(expected), "{pointer}: {message}");
        assert!(RunTraces::open(&root).is_err() && resume(&root, &[]).is_err(), "{pointer}");
    }
}

#[test]
fn a_trace_that_claims_too_many_candidates_is_an_error() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let recorded = RunTraces::open(&root).unwrap();
    let mut trace = recorded.traces().next().unwrap().unwrap();
    trace.candidates = u32::MAX;
    let (traces, file) =
        (pl_record::Traces::for_run(&root), pl_record::TraceFile { step: 1, evaluation: None });
    traces.write(&file, &[trace]).unwrap();
    let read: Vec<_> = recorded.traces().filter_map(Result::err).collect();
    assert!(matches!(&read[..], [Error::InvalidTrace { .. }]), "{read:?}");
}

/// A component without a description runs in a check, but the folders that the workflow grants stay closed:
/// this one can't be read.
#[test]
fn a_check_opens_no_grant() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let mut component = fs::read(repository().join("target/release/plugins/letters.wasm")).unwrap();
    let section = b"pl-host:items@0.1";
    // Another name each time: descriptions are cached by the component's hash.
    let name = format!("{:017}", std::process::id());
    while let Some(at) = component.windows(section.len()).position(|bytes| bytes == section) {
        component[at..at + section.len()].copy_from_slice(name.as_bytes());
    }
    fs::write(workflow.path("undescribed.wasm"), component).unwrap();
    fs::create_dir(workflow.path("secrets")).unwrap();
    std::os::unix::fs::symlink("/etc", workflow.path("secrets/link")).unwrap();
    let text = fs::read_to_string(&workflow.file).unwrap();
    let start = text.find("plugin letters").unwrap();
    let end = start + text[start..].find('\n').unwrap();
    let plugin = "plugin letters = \"undescribed.wasm\" { grant { read = [\"secrets\"] } }";
    fs::write(&workflow.file, text[..start].to_owned() + plugin + &text[end..]).unwrap();
    let host = host();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(&[])).unwrap();
    assert_eq!(checked.workflow.plugins[0].grant.read, ["secrets"]);
    // A run opens it, and fails.
    let error = workflow.try_run("run", &[]).unwrap_err();
    assert!(matches!(error, Error::Plugin { .. }), "{error}");
}
