//! Files of run folders from strangers, mutated: an error or a run, never a panic.

use std::collections::BTreeMap;
use std::fs;

use pl_dsl::graph::Graph;
use pl_record::{TraceFile, Traces};
use pl_rollout::Trace;
use pl_run::StoredWorkflow;
use pl_run::replay::{Replayer, RunTraces};
use pl_testing::fuzz::fuzz;

use crate::support::{Workflow, host, host_with};

#[test]
fn workflow_json() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    fs::remove_file(root.join("workflow.json.mac")).unwrap();
    let seed = fs::read(root.join("workflow.json")).unwrap();
    let words = ["null", "[]", "{}", "\"../../x\"", "\"/etc/passwd\"", "-1", "\"end\"", "{\"node\": 0}"];
    let host = host_with(&[]);
    fuzz("workflow.json", &[seed], &words, |bytes| {
        fs::write(root.join("workflow.json"), bytes).unwrap();
        let Ok(stored) = StoredWorkflow::read(&root) else { return };
        let _ = Graph::json_of_scenarios(&stored.workflow);
        // The run is not trusted: whatever it names, nothing of the machine is opened.
        let _ = Replayer::new(&host, &root, &BTreeMap::new(), false);
        let _ = RunTraces::open(&root);
    });
}

#[test]
fn trace_lines() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let recorded = RunTraces::open(&root).unwrap();
    let lines = recorded.traces().map(|trace| serde_json::to_vec(&trace.unwrap()).unwrap());
    let seeds: Vec<Vec<u8>> = lines.take(4).collect();
    let words = ["null", "[]", "{}", "-1", "\"view\":", "\"tokens\":[4294967295]", "\"candidates\":0"];
    let host = host();
    let replayer = Replayer::new(&host, &root, &BTreeMap::new(), false).unwrap();
    let (traces, file) = (Traces::for_run(&root), TraceFile { step: 1, evaluation: None });
    fuzz("trace lines", &seeds, &words, |bytes| {
        let Ok(trace) = serde_json::from_slice::<Trace>(bytes) else { return };
        traces.write(&file, &[trace]).unwrap();
        for trace in recorded.traces().flatten() {
            replayer.replay(&host, &trace);
        }
    });
}

/// The compressed file itself: cut, changed, and with wrong sizes.
#[test]
fn trace_files() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let root = workflow.run(&["train.steps=1"]);
    let (traces, file) = (Traces::for_run(&root), TraceFile { step: 1, evaluation: None });
    let path = traces.path(&file);
    let seed = fs::read(&path).unwrap();
    let recorded = RunTraces::open(&root).unwrap();
    fuzz("trace files", &[seed], &[], |bytes| {
        fs::write(&path, bytes).unwrap();
        let _ = traces.index(&file);
        let _ = traces.summaries(&file);
        recorded.traces().for_each(drop);
    });
}
