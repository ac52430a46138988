//! Results of finished runs, from the files of their folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pl_record::{AttemptKey, TraceFile, Traces};
use serde_json::Value;

use super::intervals::Proportion;

/// Successes of the episodes of each task, by the task's data: tasks that are equal are one.
pub type TaskSuccesses = BTreeMap<String, Proportion>;

/// A run that was evaluated after its last step.
pub struct FinishedRun {
    /// Successes of the evaluation before the first step. `None` if the run had none.
    pub untrained: Option<Proportion>,
    /// Successes of the evaluation after the last step.
    pub trained: Proportion,
    /// Number of tokens sampled in training.
    pub tokens: u64,
    folder: PathBuf,
    /// Traces of the evaluation after the last step.
    traces: TraceFile,
}

impl FinishedRun {
    /// Reads the metrics of a run folder. Returns `None` if the run has not finished or not begun.
    ///
    /// # Errors
    /// If a file of the run can't be read.
    pub fn read(folder: &Path) -> Result<Option<FinishedRun>> {
        let metrics = folder.join("metrics.jsonl");
        if !metrics.exists() {
            return Ok(None);
        }
        let workflow = read_json(&folder.join("workflow.json"))?;
        let lines = read_lines(&read(&metrics)?);
        let evaluation =
            |step: u64| lines.iter().find(|line| line["kind"] == "evaluation" && line["step"] == step);
        let last = workflow.pointer("/workflow/train/steps").and_then(Value::as_u64);
        let found = last.and_then(|step| {
            let line = evaluation(step)?;
            let traces = TraceFile { step, evaluation: Some(line["name"].as_str()?.to_owned()) };
            Some((successes(line)?, traces))
        });
        let Some((trained, traces)) = found else { return Ok(None) };
        let steps = lines.iter().filter(|line| line["kind"] == "step");
        Ok(Some(FinishedRun {
            untrained: evaluation(0).and_then(successes),
            trained,
            tokens: steps.filter_map(|line| line["tokens"].as_u64()).sum(),
            folder: folder.to_path_buf(),
            traces,
        }))
    }

    /// Adds the successes of each task of the evaluation after the last step.
    fn add_tasks(&self, tasks: &mut TaskSuccesses) -> Result<()> {
        let traces = Traces::for_run(&self.folder);
        let mut attempts = BTreeMap::new();
        for trace in traces.read::<Value>(&self.traces)? {
            let (key, attempt) = parse_attempt(&trace?)
                .with_context(|| format!("{}: a line is no trace", traces.path(&self.traces).display()))?;
            attempts.insert(key, attempt);
        }
        // Attempts before the last one at an episode failed. They come first, and are replaced.
        let episodes: BTreeMap<_, _> =
            attempts.into_iter().map(|(key, attempt)| ((key.task, key.sample), attempt)).collect();
        for (data, success) in episodes.into_values() {
            let task = tasks.entry(data).or_insert(Proportion { successes: 0, count: 0 });
            task.successes += u64::from(success);
            task.count += 1;
        }
        Ok(())
    }
}

/// Returns the successes of each task of the last evaluations of all runs.
///
/// # Errors
/// If the traces of a run can't be read.
pub fn tasks(runs: &[Option<FinishedRun>]) -> Result<TaskSuccesses> {
    let mut tasks = TaskSuccesses::new();
    for run in runs.iter().flatten() {
        run.add_tasks(&mut tasks)?;
    }
    Ok(tasks)
}

/// Returns the key of a trace, the data of its task, and true if it succeeded. A lost episode counts as not solved.
fn parse_attempt(trace: &Value) -> Option<(AttemptKey, (String, bool))> {
    let key = serde_json::from_value(trace.get("key")?.clone()).ok()?;
    let data = trace.pointer("/task/data")?.as_str()?.to_owned();
    let success = trace.pointer("/end/success")?.as_bool()?;
    Some((key, (data, success && trace.pointer("/end/failure").is_none())))
}

/// Returns the episodes of an evaluation that succeeded.
pub fn successes(line: &Value) -> Option<Proportion> {
    let count = line["episodes"].as_u64()? + line["lost"].as_u64()?;
    let successes = (line["success"].as_f64()? * count as f64).round() as u64;
    Some(Proportion { successes, count })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a file of JSON.
pub fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{}", path.display()))
}

/// Lines of JSON, without a last one that is not complete.
pub fn read_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_tasks_are_one_and_the_last_attempt_at_an_episode_decides() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("workflow.json"), r#"{"workflow":{"train":{"steps":1}}}"#).unwrap();
        let metrics = concat!(
            r#"{"kind":"step","step":1,"tokens":70}"#,
            "\n",
            r#"{"kind":"evaluation","step":1,"name":"test","success":0.5,"episodes":3,"lost":1}"#,
        );
        std::fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
        let run = [FinishedRun::read(folder.path()).unwrap()];
        assert!(tasks(&run).is_err(), "an evaluation without traces has no tasks");
        let trace = |task: u32, attempt: u32, data: &str, success: bool, failed: bool| {
            let phase = json!({ "evaluate": "test" });
            let key = json!({ "seed": 1, "phase": phase, "step": 1, "task": task, "sample": 0, "attempt": attempt });
            let mut end = json!({ "success": success, "truncated": false, "turns": 1, "tokens": 5 });
            if failed {
                end["failure"] = "a fault".into();
            }
            json!({ "key": key, "task": { "id": "t", "data": data }, "mode": "flat", "events": [], "end": end })
        };
        let traces = Traces::for_run(folder.path());
        std::fs::create_dir(traces.folder()).unwrap();
        let lines = [
            trace(0, 0, "a", false, true),
            trace(0, 1, "a", true, false),
            trace(1, 0, "a", false, false),
            trace(2, 0, "b", true, true),
            trace(3, 0, "c", true, false),
        ];
        traces.write(&TraceFile { step: 1, evaluation: Some("test".to_owned()) }, &lines).unwrap();
        let found = run[0].as_ref().unwrap();
        assert_eq!((found.untrained, found.tokens), (None, 70));
        assert_eq!(found.trained, Proportion { successes: 2, count: 4 });
        let expected = [("a", 1, 2), ("b", 0, 1), ("c", 1, 1)];
        let expected: TaskSuccesses = expected
            .map(|(data, successes, count)| (data.to_owned(), Proportion { successes, count }))
            .into();
        assert_eq!(tasks(&run).unwrap(), expected);
    }
}
