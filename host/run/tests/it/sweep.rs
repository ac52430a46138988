//! Sweeps and comparisons of runs.

use pl_run::compare::RunComparison;
use pl_run::sweep::Sweep;
use pl_run::{DevicePreference, Error, RunEnding, StopRequest, select_device};
use serde_json::json;

use crate::support::{Workflow, host, metrics, parse};

fn sweep(workflow: &Workflow, given: &[&str]) -> Sweep {
    Sweep {
        file: workflow.file.clone(),
        given: parse(&[&["train.steps=1", "train.lr_schedule=constant"], given].concat()),
        grid: vec!["train.learning_rate=[0.01, 0.001]".parse().unwrap()],
        seeds: vec![1, 2],
        folder: workflow.path("sweep"),
    }
}

fn run(sweep: &Sweep, stop: &StopRequest) -> Result<RunEnding, Error> {
    let host = host();
    let device = select_device(&host, DevicePreference::Cpu)?;
    sweep.run(&host, device, stop)
}

#[test]
fn a_sweep_trains_every_combination_and_continues_where_it_stopped() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let sweep = sweep(&workflow, &["train.steps=2"]);
    let stop = StopRequest::default();
    stop.request();
    assert_eq!(run(&sweep, &stop).unwrap(), RunEnding::Interrupted);
    assert!(sweep.results().unwrap().iter().all(|cell| cell.finished == 0));
    assert_eq!(run(&sweep, &StopRequest::default()).unwrap(), RunEnding::Done);
    let first = workflow.path("sweep/train.learning_rate=0.01,seed=1");
    assert_eq!(metrics(&first, "step").len(), 2);
    let results = sweep.results().unwrap();
    assert_eq!(results.len(), 2);
    for cell in &results {
        assert_eq!(cell.finished, 2);
        assert_eq!(cell.evaluations.len(), 1);
        let evaluation = &cell.evaluations[0];
        assert!(evaluation.name == "held_out" && evaluation.gain.unwrap().margin.is_some());
        assert_eq!(evaluation.last.unwrap().count, 2);
    }
    // A finished sweep changes nothing, and another one does not mix with it.
    let before = std::fs::read(first.join("metrics.jsonl")).unwrap();
    assert_eq!(run(&sweep, &StopRequest::default()).unwrap(), RunEnding::Done);
    assert_eq!(before, std::fs::read(first.join("metrics.jsonl")).unwrap());
    let other = self::sweep(&workflow, &["train.steps=2", "train.epochs=1"]);
    let error = run(&other, &StopRequest::default()).unwrap_err();
    assert!(matches!(error, Error::OtherSweep { .. }), "{error}");
    assert!(error.to_string().contains("train.epochs"), "{error}");
}

#[test]
fn an_invalid_combination_stops_a_sweep_before_it_starts() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let mut sweep = sweep(&workflow, &[]);
    sweep.grid.push("train.samples=[3, 0]".parse().unwrap());
    let error = run(&sweep, &StopRequest::default()).unwrap_err();
    assert!(matches!(error, Error::Workflow(_)), "{error}");
    assert!(error.to_string().contains("--grid train.samples=0: "), "{error}");
    assert!(!sweep.folder.exists());
}

#[test]
fn a_comparison_shows_what_differs() {
    let workflow = Workflow::new("tree-l2.mas", "");
    workflow.try_run("a", &["train.steps=1"]).unwrap();
    workflow.try_run("b", &["train.steps=1", "train.epochs=1", "held_out.every=0"]).unwrap();
    let comparison = RunComparison::new(&[workflow.path("a"), workflow.path("b")]).unwrap();
    let paths: Vec<&str> = comparison.settings.iter().map(|setting| setting.path.as_str()).collect();
    assert_eq!(paths, ["evaluations.held_out.every", "train.epochs"]);
    assert_eq!(comparison.settings[1].values, [Some(json!(2)), Some(json!(1))]);
    assert_eq!(comparison.runs[0].evaluations[0].success.len(), 2);
    assert!(comparison.runs[1].evaluations.is_empty() && comparison.runs[1].step == 1);
    assert!(RunComparison::new(&[workflow.path("a"), workflow.path("none")]).is_err());
}
