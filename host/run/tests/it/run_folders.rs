//! Run folders: one writer at a time, and nothing is lost by accident.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use pl_run::replay::Replayer;
use pl_run::{
    CheckedWorkflow, ClusterOptions, ClusterServer, DevicePreference, Error, Host, Permissions,
    ResumeOptions, RunEnding, RunOptions, ServerAddress, Session, SessionOptions, StopRequest, TrainingRun,
    last_checkpoint, select_device,
};

use crate::support::{EMBEDDED, Notices, Workflow, host, metrics, parse, repository, resume};

/// Returns all files below a folder with their content.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name != "run.lock" {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn a_second_writer_learns_who_holds_the_folder() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let (host, root) = (host(), workflow.path("run"));
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(&["train.steps=1"])).unwrap();
    let options = RunOptions { folder: Some(root.clone()), seed: 1, ..RunOptions::default() };
    let first = TrainingRun::start(&host, &checked, device, &options).unwrap();
    let before = files(&root);
    let plan: serde_json::Value = serde_json::from_slice(&before["plan.json"]).unwrap();
    assert_eq!(plan["training"]["folder"], root.display().to_string());
    let error = resume(&root, &[]).unwrap_err();
    assert!(matches!(&error, Error::RunFolder(pl_record::Error::Locked { .. })) && error.is_input());
    let message = error.to_string();
    let holder = format!("process {} on", std::process::id());
    assert!(message.contains(&holder) && message.contains(&root.display().to_string()), "{message}");
    let error = workflow.try_run("run", &[]).unwrap_err();
    assert!(matches!(&error, Error::RunFolder(pl_record::Error::Occupied { .. })), "{error}");
    assert_eq!(files(&root), before);
    drop(first);
    assert_eq!(resume(&root, &[]).unwrap(), RunEnding::Done);
}

#[test]
fn weights_of_a_missing_folder_and_of_a_run_without_a_checkpoint_are_errors_that_say_so() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=1"]);
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let host = host();
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &[]).unwrap();
    let open = |checkpoint| {
        let options = SessionOptions { checkpoint: Some(checkpoint), ..SessionOptions::default() };
        Session::open(&host, &checked, device, &options).err().unwrap().to_string()
    };
    assert_eq!(open(run.clone()), format!("{} has no checkpoint yet", run.display()));
    let missing = workflow.path("nope");
    assert!(open(missing.clone()).starts_with(&format!("there is no folder {}:", missing.display())));
}

#[test]
fn adapters_on_another_model_than_that_of_their_run_give_a_warning() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=1"]);
    let other = workflow.path("other");
    fs::create_dir(&other).unwrap();
    for file in fs::read_dir(repository().join("tests/data/tiny")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), other.join(file.file_name())).unwrap();
    }
    let weights = other.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    // The lowest bit of the last number's fraction.
    let lowest = bytes.len() - 4;
    bytes[lowest] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let source = format!("base.source=\"{}\"", other.display());
    for (overrides, warnings) in [(vec![], 0), (vec![source.as_str()], 1)] {
        for checkpoint in [run.clone(), run.join("checkpoints/step-00000001")] {
            let notices = Arc::new(Notices::default());
            let host = Host::new(EMBEDDED, notices.clone()).unwrap().with_permissions(Permissions::all());
            let device = select_device(&host, DevicePreference::Cpu).unwrap();
            let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(&overrides)).unwrap();
            let options = SessionOptions { checkpoint: Some(checkpoint), ..SessionOptions::default() };
            Session::open(&host, &checked, device, &options).unwrap();
            let notices = notices.0.lock().unwrap();
            let expected = "were trained on other weights than those of model `base`";
            let found = notices.iter().filter(|notice| notice.contains(expected)).count();
            assert_eq!(found, warnings, "{notices:?}");
        }
    }
}

#[test]
fn a_run_that_can_not_start_leaves_its_folder_as_it_was() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let (host, device) = (host(), select_device(&host(), DevicePreference::Cpu).unwrap());
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(&["train.steps=1"])).unwrap();
    // Nothing listens on the port of a listener that was closed.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = ServerAddress { url: format!("nats://{closed}"), ..ServerAddress::default() };
    let cluster = ClusterOptions { server: ClusterServer::Address(address), ..ClusterOptions::default() };
    let (missing, used) = (workflow.path("missing"), workflow.path("used"));
    fs::create_dir(&used).unwrap();
    fs::write(used.join("note"), "mine").unwrap();
    for root in [&missing, &used] {
        let options =
            RunOptions { folder: Some(root.clone()), cluster: cluster.clone(), ..RunOptions::default() };
        let error = TrainingRun::start(&host, &checked, device, &options).err().unwrap().to_string();
        assert!(error.contains(&closed.to_string()), "{error}");
    }
    assert!(!missing.exists());
    assert_eq!(files(&used).into_keys().collect::<Vec<_>>(), ["note"]);
    assert_eq!(workflow.try_run("used", &["train.steps=1"]).unwrap(), RunEnding::Done);
}

#[test]
fn a_run_without_its_checkpoints_starts_again_only_if_that_is_asked_for() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=2"]);
    let metrics_before = metrics(&root, "step");
    fs::remove_dir_all(root.join("checkpoints")).unwrap();
    let before = files(&root);
    let error = resume(&root, &[]).unwrap_err();
    assert!(matches!(error, Error::NothingToResume { .. }) && error.is_input(), "{error}");
    assert!(error.to_string().contains("--from-start"), "{error}");
    assert_eq!(files(&root), before);
    let host = host();
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let options = ResumeOptions { from_start: true, ..ResumeOptions::default() };
    let mut run = TrainingRun::resume(&host, &root, device, &options).unwrap();
    assert_eq!(last_checkpoint(run.folder()).unwrap(), None);
    assert_eq!(run.train(&StopRequest::default()).unwrap(), RunEnding::Done);
    assert_eq!(last_checkpoint(run.folder()).unwrap(), Some(2));
    assert_eq!(metrics(&root, "step"), metrics_before);
}

#[test]
fn files_that_are_not_the_runs_stay() {
    let workflow = Workflow::new("tree-l2.mas", "");
    for entry in ["workflow.mas", "lock.json", "checkpoints", "workflow.json.mac", "cluster", "best"] {
        let precious = workflow.path(&format!("with-{entry}")).join(entry);
        fs::create_dir_all(precious.parent().unwrap()).unwrap();
        fs::write(&precious, "mine").unwrap();
        let error = workflow.try_run(&format!("with-{entry}"), &["train.steps=1"]).unwrap_err();
        assert!(matches!(&error, Error::RunFolder(pl_record::Error::InUse { .. })), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    }
    let root = workflow.run(&["train.steps=1"]);
    let mine = ["steps/notes.txt", "steps/000002.csv", "traces/plot.jsonl.zst", "notes.txt"];
    for name in mine {
        fs::write(root.join(name), "mine").unwrap();
    }
    assert_eq!(resume(&root, &["train.steps=2"]).unwrap(), RunEnding::Done);
    for name in mine {
        assert_eq!(fs::read_to_string(root.join(name)).unwrap(), "mine", "{name}");
    }
}

#[test]
fn a_folder_that_is_not_a_run_is_not_touched() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.path("pictures");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("cat.png"), "cat").unwrap();
    let message = resume(&root, &[]).unwrap_err().to_string();
    assert!(message.contains("it has no workflow.json") && message.contains("name a folder"), "{message}");
    assert_eq!(files(&root).len(), 1);
    // A link is only of interest in a run.
    std::os::unix::fs::symlink("cat.png", root.join("link")).unwrap();
    let refused = Replayer::new(&host(), &root, &BTreeMap::new(), true).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::RunFolder(pl_record::Error::NoRun { .. })), "{refused}");
}

#[test]
fn a_resumed_run_keeps_its_date() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let lock = fs::read_to_string(root.join("lock.json")).unwrap();
    let mut lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    assert_eq!(lock["date"].as_str().unwrap().len(), "2026-11-23".len());
    lock["date"] = "1999-12-31".into();
    fs::write(root.join("lock.json"), lock.to_string()).unwrap();
    assert_eq!(resume(&root, &["train.steps=2"]).unwrap(), RunEnding::Done);
    let kept = fs::read_to_string(root.join("lock.json")).unwrap();
    assert!(kept.contains("1999-12-31"), "{kept}");
}

/// The picture of the curves is an extra: a run does not end because of it.
#[test]
fn curves_that_can_not_be_drawn_end_no_run() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    fs::remove_file(root.join("curves.png")).unwrap();
    fs::create_dir(root.join("curves.png")).unwrap();
    assert_eq!(resume(&root, &["train.steps=2"]).unwrap(), RunEnding::Done);
    assert_eq!(metrics(&root, "step").len(), 2);
}
