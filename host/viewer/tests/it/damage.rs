//! Damaged files are named, and everything else is still shown.

use std::fs;

use pl_record::{TraceFile, Traces};
use serde_json::json;

use crate::recorded::{event, example, flat};
use crate::server::Server;

#[test]
fn a_truncated_trace_file_is_named_and_the_others_are_shown() {
    let runs = tempfile::tempdir().unwrap();
    let path = example(runs.path(), "math", 0).join("traces/000001.jsonl.zst");
    let whole = fs::read(&path).unwrap();
    let server = Server::start(runs.path());
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let page = server.get("/api/episodes?run=math").json();
        assert!(page["problems"][0].as_str().unwrap().contains("000001.jsonl.zst"), "{length}: {page}");
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["episode"] == "2.0.0#0"), "{length}: {page}");
    }
}

#[test]
fn a_damaged_step_file_is_an_error_that_names_it() {
    let runs = tempfile::tempdir().unwrap();
    let path = example(runs.path(), "math", 0).join("steps/000001.parquet");
    let whole = fs::read(&path).unwrap();
    let server = Server::start(runs.path());
    let tokens = || server.get("/api/tokens?run=math&episode=1.0.0&agent=tool&visit=0&branch=0");
    assert_eq!(tokens().status, 200);
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let response = tokens();
    assert!(response.status == 422 && response.body.contains("000001.parquet"), "{response:?}");
    // Whatever byte is wrong, the server goes on answering.
    for index in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[index] ^= 0x55;
        fs::write(&path, changed).unwrap();
        assert!([200, 422, 500].contains(&tokens().status), "byte {index}");
    }
    assert_eq!(server.get("/api/runs").status, 200);
}

#[test]
fn a_run_with_damaged_descriptions_is_listed_with_its_problem() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "math", 0);
    fs::write(root.join("lock.json"), "{").unwrap();
    fs::write(root.join("workflow.json"), "[1").unwrap();
    let server = Server::start(runs.path());
    let list = server.get("/api/runs").json();
    assert!(list[0]["problem"].as_str().unwrap().contains("lock.json"), "{list}");
    assert_eq!(list[0]["step"], 2);
    assert_eq!(server.get("/api/episodes?run=math").status, 200);
    let response = server.get("/api/workflow?run=math");
    assert!(response.status == 422 && response.body.contains("workflow.json"), "{response:?}");
}

#[test]
fn of_a_trace_with_absurdly_many_candidates_the_first_are_shown() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "math", 0);
    let mut trace = flat("train", 3, 0, 0, "six", 1.0);
    let faults = (0..100_000).map(|branch| {
        event(
            0,
            Some(branch),
            None,
            json!({ "fault": { "stage": "apply", "cause": "many", "reproducible": true } }),
        )
    });
    trace["events"] = faults.collect();
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &[trace]).unwrap();
    let episode = Server::start(runs.path()).get("/api/episode?run=math&episode=3.0.0").json();
    assert_eq!(episode["visits"][0]["branches"].as_array().unwrap().len(), 1024);
    assert!(episode["notes"][0].as_str().unwrap().contains("this trace has more"), "{}", episode["notes"]);
}
