//! Sweeps and comparisons of runs.

use std::sync::Arc;

use pl_run::compare::RunComparison;
use pl_run::sweep::Sweep;
use pl_run::{DevicePreference, Error, Host, Permissions, RunEnding, StopRequest, select_device};
use serde_json::json;

use crate::support::{EMBEDDED, Notices, Workflow, host, metrics, parse};

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
    sweep.check(&host)?.run(&host, device, stop)
}

#[test]
fn a_sweep_trains_every_combination_and_continues_where_it_stopped() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let sweep = sweep(&workflow, &["train.steps=2"]);
    let stop = StopRequest::default();
    stop.request();
    assert_eq!(run(&sweep, &stop).unwrap(), RunEnding::Interrupted);
    assert!(sweep.check(&host()).unwrap().results().unwrap().iter().all(|cell| cell.finished == 0));
    assert_eq!(run(&sweep, &StopRequest::default()).unwrap(), RunEnding::Done);
    let first = workflow.path("sweep/train.learning_rate=0.01,seed=1");
    assert_eq!(metrics(&first, "step").len(), 2);
    let results = sweep.check(&host()).unwrap().results().unwrap();
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
fn a_sweep_with_more_steps_continues_its_runs() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let short = Sweep { grid: Vec::new(), seeds: vec![1], ..sweep(&workflow, &[]) };
    let with = |given: &[&str], seeds: &[u64]| Sweep {
        given: parse(&[&["train.lr_schedule=constant"], given].concat()),
        seeds: seeds.to_vec(),
        ..short.clone()
    };
    let finished = |sweep: &Sweep| sweep.check(&host()).unwrap().results().unwrap()[0].finished;
    let steps = |seed: u64| metrics(&workflow.path(&format!("sweep/seed={seed}")), "step").len();
    run(&short, &StopRequest::default()).unwrap();
    assert_eq!((finished(&short), steps(1)), (1, 1));
    let long = with(&["train.steps=2", "held_out.every=1"], &[1, 2]);
    // A shorter run does not count.
    assert_eq!(finished(&long), 0);
    assert_eq!(run(&long, &StopRequest::default()).unwrap(), RunEnding::Done);
    assert_eq!((finished(&long), steps(1), steps(2)), (2, 2, 2));
    // In the file, not on the command line: the runs were started with another number there.
    let text = std::fs::read_to_string(&workflow.file).unwrap();
    std::fs::write(&workflow.file, text.replace("steps = 6", "steps = 3")).unwrap();
    let edited = with(&["held_out.every=1"], &[1]);
    run(&edited, &StopRequest::default()).unwrap();
    assert_eq!((finished(&edited), steps(1)), (1, 3));
    let refused = |sweep: &Sweep| {
        let error = run(sweep, &StopRequest::default()).unwrap_err();
        assert!(matches!(error, Error::OtherSweep { .. }), "{error}");
        error.to_string()
    };
    let limit = refused(&with(&["held_out.every=1", "held_out.limit=1"], &[1]));
    let expected = "evaluations.held_out.limit: the run was started with 2, now it is 1";
    assert!(limit.contains("seed=1") && limit.contains(expected), "{limit}");
    let shorter = refused(&with(&["held_out.every=1", "train.steps=2"], &[1]));
    assert!(shorter.contains("3 steps are finished, so it can't be 2"), "{shorter}");
    // The learning rates of a finished step can depend on the number of steps.
    let cosine =
        |steps: &str| Sweep { given: parse(&[steps]), folder: workflow.path("cosine"), ..short.clone() };
    run(&cosine("train.steps=1"), &StopRequest::default()).unwrap();
    let stretched = refused(&cosine("train.steps=2"));
    assert!(stretched.contains("train.steps: the run was started with 1, now it is 2"), "{stretched}");
}

#[test]
fn changed_data_are_no_part_of_a_sweep_and_shown_by_a_comparison() {
    let workflow =
        Workflow::new("tree-l2.mas", "\nevaluate file { every = 1; tasks = \"tasks.jsonl\"; limit = 1 }\n");
    let tasks = |topic: &str| {
        std::fs::write(workflow.path("tasks.jsonl"), format!("{{\"topic\":\"{topic}\"}}\n")).unwrap();
    };
    tasks("sea");
    let sweep = Sweep { grid: Vec::new(), seeds: vec![1], ..sweep(&workflow, &[]) };
    for _ in 0..2 {
        assert_eq!(run(&sweep, &StopRequest::default()).unwrap(), RunEnding::Done);
    }
    tasks("sky");
    // Noticed before the run of the other seed starts.
    let both = Sweep { seeds: vec![2, 1], ..sweep };
    let error = run(&both, &StopRequest::default()).unwrap_err();
    assert!(matches!(error, Error::OtherSweep { .. }), "{error}");
    assert!(error.to_string().contains("  data file: "), "{error}");
    assert!(!workflow.path("sweep/seed=2").exists());
    workflow.try_run("other", &["train.steps=1", "train.lr_schedule=constant"]).unwrap();
    let comparison = RunComparison::new(&[workflow.path("sweep/seed=1"), workflow.path("other")]).unwrap();
    let paths: Vec<&str> = comparison.settings.iter().map(|setting| setting.path.as_str()).collect();
    assert_eq!(paths, ["data file"]);
}

#[test]
fn a_sweep_with_a_run_twice_does_not_start() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let once = sweep(&workflow, &[]);
    let axis = |axis: &str| vec![axis.parse().unwrap()];
    let same_value = "train.learning_rate=[1e-4, 0.0001]";
    for twice in [
        Sweep { seeds: vec![1, 1], ..once.clone() },
        Sweep { grid: axis(same_value), ..once.clone() },
        Sweep { grid: [once.grid.clone(), axis("train.learning_rate=[0.1]")].concat(), ..once },
    ] {
        let error = run(&twice, &StopRequest::default()).unwrap_err();
        assert!(matches!(error, Error::Repetition(_)) && error.is_input(), "{error}");
        assert!(!twice.folder.exists());
    }
}

#[test]
fn a_run_that_fails_is_named_and_does_not_keep_the_others_from_being_played() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let model = crate::support::repository().join("tests/data/tiny");
    let sweep = Sweep {
        grid: vec![format!("base.source=[\"nope\", \"{}\"]", model.display()).parse().unwrap()],
        seeds: vec![1],
        ..sweep(&workflow, &[])
    };
    let notices = Arc::new(Notices::default());
    let host = Host::new(EMBEDDED, notices.clone()).unwrap().with_permissions(Permissions::all());
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let mut checked = sweep.check(&host).unwrap();
    let error = checked.run(&host, device, &StopRequest::default()).unwrap_err();
    let Error::SweepRuns { failed: 1, total: 2, name, .. } = &error else { panic!("{error}") };
    let notices = notices.0.lock().unwrap();
    let notices: Vec<&String> = notices.iter().filter(|notice| notice.starts_with("run ")).collect();
    assert_eq!(notices.len(), 2);
    assert!(*notices[0] == format!("run 1 of 2: {name}"), "{notices:?}");
    let finished: Vec<usize> = checked.results().unwrap().iter().map(|cell| cell.finished).collect();
    assert_eq!(finished, [0, 1]);
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
    assert_eq!(comparison.runs[0].evaluations[0].scores.len(), 2);
    assert!(comparison.runs[1].evaluations.is_empty() && comparison.runs[1].step == 1);
    assert!(RunComparison::new(&[workflow.path("a"), workflow.path("none")]).is_err());
}
