//! The outer loop, as its metrics show it.

use std::path::Path;

use pl_run::{Error, Progress, RunEnding};
use serde_json::Value;

use crate::example::train_two_steps;
use crate::support::{EMBEDDED, Workflow, checkpoints, metrics};

#[test]
fn the_example_trains_two_steps() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.path("run");
    assert_eq!(train_two_steps(EMBEDDED, &workflow.file, &run).unwrap(), RunEnding::Done);
    assert_eq!(metrics(&run, "step").len(), 2);
    assert_eq!(checkpoints(&run), [2]);
}

#[test]
fn the_timings_of_a_step_have_the_work_of_the_engine() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=2", "held_out.every=0"]);
    let text = std::fs::read_to_string(run.join("timings.jsonl")).unwrap();
    let timings: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps = metrics(&run, "step");
    assert_eq!((timings.len(), steps.len()), (2, 2));
    for (line, step) in timings.iter().zip(&steps) {
        let engine = &line["engine"];
        let sum = |field: &str| {
            engine[field].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
        };
        // Those of the step alone.
        assert_eq!(engine["generated_tokens"], step["tokens"]);
        assert_eq!(engine["passes"], sum("passes_by_rows"));
        let generated = engine["generated_tokens"].as_u64().unwrap();
        assert!(0 < sum("rows") && sum("rows") < generated, "{engine}");
        assert!(engine["prefilled_tokens"].as_u64().unwrap() > 0, "{engine}");
        assert!(engine["seconds"].as_f64().unwrap() > 0.0, "{engine}");
    }
}

#[test]
fn the_timings_have_the_evaluation_of_the_untrained_team() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=2", "held_out.every=1"]);
    let text = std::fs::read_to_string(run.join("timings.jsonl")).unwrap();
    let timings: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(timings.len(), 2, "a line for each step");
    // Times of both are on one clock.
    assert_eq!(timings[0]["clock_started"], timings[1]["clock_started"]);
    assert!(chrono::DateTime::parse_from_rfc3339(timings[0]["clock_started"].as_str().unwrap()).is_ok());
    let evaluations = |line: &Value| -> Vec<(Option<u64>, f64)> {
        let parts = line["timeline"].as_array().unwrap().iter().filter(|part| part["part"] == "evaluate");
        parts.map(|part| (part["step"].as_u64(), part["start"].as_f64().unwrap())).collect()
    };
    let (first, second) = (evaluations(&timings[0]), evaluations(&timings[1]));
    assert_eq!(first.iter().map(|own| own.0).collect::<Vec<_>>(), [Some(0), None]);
    assert_eq!(second.iter().map(|own| own.0).collect::<Vec<_>>(), [None]);
    assert!(first[0].1 < first[1].1 && first[1].1 < second[0].1);
    assert!(timings[0]["seconds"]["baseline"].as_f64().unwrap() > 0.0);
    assert_eq!(timings[1]["seconds"]["baseline"].as_f64().unwrap(), 0.0);
}

fn learning_rates(overrides: &[&str]) -> Vec<f64> {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&[&["train.learning_rate=0.01"], overrides].concat());
    let rate = |line: &Value| line["policies"]["first"]["lr"].as_f64().unwrap();
    metrics(&run, "step").iter().map(rate).collect()
}

#[test]
fn warm_up_starts_with_the_first_step() {
    let rates = learning_rates(&["train.steps=4", "train.warmup=2", "train.lr_schedule=constant"]);
    assert_eq!(rates, [0.005, 0.01, 0.01, 0.01]);
}

#[test]
fn a_cosine_ends_above_zero() {
    let rates = learning_rates(&["train.steps=2", "train.warmup=0", "train.lr_schedule=cosine"]);
    assert_eq!(rates[0], 0.01);
    assert!((rates[1] - 0.005).abs() < 1e-12, "{rates:?}");
    assert_eq!(learning_rates(&["train.steps=1", "train.warmup=0", "train.lr_schedule=cosine"]), [0.01]);
}

#[test]
fn lost_episodes_of_an_evaluation_count_as_not_solved() {
    let workflow = Workflow::new("flat-l3.mas", "");
    // Most episodes fail in all three attempts.
    let overrides =
        ["train.steps=1", "train.faults=redraw", "board.trap=0.35", "held_out.limit=8", "held_out.samples=4"];
    let run = workflow.run(&overrides);
    let recorded = pl_run::replay::RunTraces::open(&run).unwrap();
    let solved = |step: u64| {
        let traces = recorded.traces().map(Result::unwrap);
        let own = traces.filter(|trace| {
            let id = pl_types::EpisodeId::from_key(&trace.key);
            id.step == step && id.evaluation.is_some()
        });
        own.filter(|trace| trace.end.failure.is_none() && trace.end.success).count() as f64
    };
    let mut lost = 0;
    for line in metrics(&run, "evaluation") {
        lost += line["lost"].as_u64().unwrap();
        let planned = line["episodes"].as_u64().unwrap() + line["lost"].as_u64().unwrap();
        assert_eq!(planned, 32);
        let success = line["success"].as_f64().unwrap();
        assert!((success - solved(line["step"].as_u64().unwrap()) / 32.0).abs() < 1e-12, "{line}");
        assert!((success - line["pass@1"].as_f64().unwrap()).abs() < 1e-12, "{line}");
    }
    assert!(lost > 0, "no episode was lost");
    // Every fault is a line, and counted.
    let failures = failures(&run);
    for line in metrics(&run, "evaluation") {
        let id =
            |failure: &Value| failure["episode"].as_str().unwrap().parse::<pl_types::EpisodeId>().unwrap();
        let own = failures.iter().filter(|failure| {
            id(failure).evaluation.as_deref() == line["name"].as_str() && failure["step"] == line["step"]
        });
        assert_eq!(line["failures"].as_u64().unwrap(), own.count() as u64, "{line}");
    }
    let faults =
        |kind| metrics(&run, kind).iter().map(|line| line["failures"].as_u64().unwrap()).sum::<u64>();
    assert!(faults("evaluation") > 0);
    assert_eq!(failures.len() as u64, faults("evaluation") + faults("step"));
}

#[test]
fn the_faults_of_a_step_without_an_episode_are_recorded() {
    let workflow = Workflow::new("flat-l3.mas", "");
    // The evaluation of the untrained team, and the first step of a run without one.
    for limits in [&["held_out.limit=2"][..], &["held_out.every=0"]] {
        let all_fail = ["train.steps=1", "train.faults=redraw", "board.trap=1"];
        let name = limits[0].replace(['.', '='], "-");
        let error = workflow.try_run(&name, &[&all_fail, limits].concat()).unwrap_err();
        assert!(error.to_string().contains("episodes of step"), "{error}");
        let failures = failures(&workflow.path(&name));
        assert!(!failures.is_empty(), "{limits:?}");
        assert!(
            failures.iter().all(|failure| failure["cause"].as_str().is_some_and(|cause| !cause.is_empty()))
        );
    }
}

/// Returns the lines of a run's `failures.jsonl`.
fn failures(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("failures.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_workflow_without_a_train_block_is_refused_before_anything_is_written() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let text = std::fs::read_to_string(&workflow.file).unwrap();
    let start = text.find("train {").unwrap();
    let end = text.find("evaluate").unwrap();
    std::fs::write(&workflow.file, text[..start].to_owned() + &text[end..]).unwrap();
    let error = workflow.try_run("run", &[]).unwrap_err();
    assert!(matches!(error, Error::NoTrainBlock { .. }) && error.is_input(), "{error}");
    assert!(!workflow.path("run").exists());
}

#[test]
fn progress_reports_metrics_and_activities() {
    use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
    use std::sync::{Arc, Mutex};
    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);
    struct Silent;
    impl Tracker for Silent {
        fn update(&mut self, done: u64, total: u64) {
            assert!(done <= total);
        }
    }
    impl Progress for Recorder {
        fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
            let text = match activity {
                Activity::LoadingModels => "load".to_owned(),
                Activity::Episodes { title, .. } => format!("episodes {title}"),
                Activity::Update => "update".to_owned(),
                _ => "other".to_owned(),
            };
            self.0.lock().unwrap().push(text);
            Box::new(Silent)
        }
        fn notice(&self, notice: &Notice) {
            self.0.lock().unwrap().push(format!("notice {notice}"));
        }
        fn metrics(&self, line: &MetricsLine<'_>) {
            let text = format!("metrics {} {}", line.step, line.evaluation.unwrap_or("step"));
            self.0.lock().unwrap().push(text);
        }
    }
    let workflow = Workflow::new("tree-l2.mas", "");
    let progress = Arc::new(Recorder::default());
    let host = pl_run::Host::new(EMBEDDED, progress.clone()).unwrap();
    let host = host.with_permissions(pl_run::Permissions::all());
    let device = pl_run::select_device(&host, pl_run::DevicePreference::Cpu).unwrap();
    let overrides = crate::support::parse(&["train.steps=1"]);
    let checked = pl_run::CheckedWorkflow::open(&host, &workflow.file, &overrides).unwrap();
    let options = pl_run::RunOptions { folder: Some(workflow.path("run")), seed: 1, ..Default::default() };
    let mut run = pl_run::TrainingRun::start(&host, &checked, device, &options).unwrap();
    run.train(&pl_run::StopRequest::default()).unwrap();
    let reports = progress.0.lock().unwrap();
    let (lines, activities): (Vec<&String>, Vec<&String>) =
        reports.iter().partition(|report| report.starts_with("metrics"));
    assert_eq!(lines, ["metrics 0 held_out", "metrics 1 step", "metrics 1 held_out"]);
    // The rollout thread goes on while the lines of the steps before are written.
    assert_eq!(
        activities,
        [
            "load",
            "notice never audited: `pl-host audit` finds rewards that can be had without solving a task",
            "episodes held_out",
            "episodes step 1",
            "update",
            "episodes held_out",
        ]
    );
}

/// A plugin declares that its reward scores only the end, and the end counts for every agent's last turn.
#[test]
fn the_end_of_an_episode_is_credited_to_every_agent() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let text = std::fs::read_to_string(&workflow.file).unwrap();
    let text = text
        .replace("letters.vowels { ", "letters.finale { lines = 4; ")
        .replace("early = 0.1", "early = 0.0");
    std::fs::write(&workflow.file, text).unwrap();
    let error = workflow.try_run("refused", &["train.returns=step"]).unwrap_err();
    assert!(error.to_string().contains("scores only the end of an episode"), "{error}");
    let run = workflow.run(&["train.returns=discounted", "train.gamma_turn=0.5", "train.steps=1"]);
    let transitions = pl_record::read_transitions(&run.join("steps/000001.parquet")).unwrap();
    let mut whole = 0;
    for episode in transitions.chunk_by(|a, b| (a.key.task, a.key.sample) == (b.key.task, b.key.sample)) {
        let (last, before): (Vec<_>, Vec<_>) = episode.iter().partition(|transition| transition.turn == 1);
        assert!(before.iter().all(|transition| transition.team_reward == 0.0));
        if let [one, other] = last[..] {
            assert!(one.agent != other.agent && one.team_reward == other.team_reward);
            whole += u32::from(one.team_reward > 0.0);
        }
    }
    assert!(whole > 0, "no episode has a whole board");
}
