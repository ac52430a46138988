//! Results of runs, read from their metrics, and statistics over them.

use std::path::Path;

use distrs::StudentsT;
use pl_record::read_jsonl;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// Results of one evaluation over the steps of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationResults {
    /// Name of the evaluation in the workflow.
    pub name: String,
    /// In the order of steps.
    pub scores: Vec<EvaluationScore>,
}

/// Result of an evaluation after a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EvaluationScore {
    /// 0 for the untrained team.
    pub step: u64,
    /// Share of the tasks that were solved, between 0 and 1.
    pub success: f64,
    /// Number of tasks. A resumed run may have another limit than before. `None` in runs that do not record it.
    pub tasks: Option<u64>,
}

impl EvaluationResults {
    /// Success of the untrained team. `None` if it was not evaluated.
    pub fn untrained(&self) -> Option<f64> {
        self.scores.iter().find(|score| score.step == 0).map(|score| score.success)
    }

    /// Success after the last evaluated step.
    pub fn last(&self) -> Option<f64> {
        self.scores.last().map(|score| score.success)
    }

    /// Largest success of an evaluated step. As for the best checkpoint, the untrained team does not count, nor do scores that
    /// can't be compared with the last one, which are those over another number of tasks.
    pub fn best(&self) -> Option<f64> {
        let last = self.scores.last()?;
        let scores = self.scores.iter().filter(|score| score.step > 0 && score.tasks == last.tasks);
        scores.map(|score| score.success).max_by(f64::total_cmp)
    }
}

/// Reads the results of a run's evaluations, in the order of their first lines.
///
/// # Errors
/// [`Error::RunFolder`] if the folder is not a run folder or its metrics can't be read.
pub fn read_evaluations(run: &Path) -> Result<Vec<EvaluationResults>, Error> {
    let mut results: Vec<EvaluationResults> = Vec::new();
    for line in read_jsonl::<Value>(&run.join("metrics.jsonl")).map_err(Error::RunFolder)? {
        let (Some("evaluation"), Some(name), Some(step), Some(success)) = (
            line.get("kind").and_then(Value::as_str),
            line.get("name").and_then(Value::as_str),
            line.get("step").and_then(Value::as_u64),
            line.get("success").and_then(Value::as_f64),
        ) else {
            continue;
        };
        let score = EvaluationScore { step, success, tasks: line.get("tasks").and_then(Value::as_u64) };
        match results.iter_mut().find(|results| results.name == name) {
            Some(results) => results.scores.push(score),
            None => results.push(EvaluationResults { name: name.to_owned(), scores: vec![score] }),
        }
    }
    Ok(results)
}

/// Mean over runs with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanInterval {
    /// Number of values.
    pub count: usize,
    pub mean: f64,
    /// Half of the width of the 95 % interval of the mean by Student's t distribution. `None` for a single
    /// value.
    pub margin: Option<f64>,
}

impl MeanInterval {
    /// Computes the mean of some values. Returns `None` if there are none.
    pub fn new(values: &[f64]) -> Option<MeanInterval> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let margin = (values.len() > 1)
            .then(|| StudentsT::ppf(0.975, count - 1.0) * (squares / (count - 1.0)).sqrt() / count.sqrt());
        Some(MeanInterval { count: values.len(), mean, margin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_step_is_a_trained_one_with_the_tasks_of_the_last() {
        let best = |lines: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("metrics.jsonl"), lines.join("\n") + "\n").unwrap();
            read_evaluations(folder.path()).unwrap()[0].best()
        };
        let line = |step: u64, success: f64, tasks: u64| {
            format!(
                r#"{{"kind":"evaluation","step":{step},"name":"test","success":{success},"tasks":{tasks}}}"#
            )
        };
        let [untrained, first, second, third] =
            [line(0, 0.75, 8), line(2, 0.5, 8), line(4, 0.25, 8), line(6, 0.125, 4)];
        assert_eq!(best(&[&untrained]), None);
        assert_eq!(best(&[&untrained, &first, &second]), Some(0.5));
        assert_eq!(best(&[&untrained, &first, &second, &third]), Some(0.125));
        // Earlier versions did not write the number of tasks.
        let old = |line: &str| line.replace(r#","tasks":8"#, "");
        assert_eq!(best(&[&old(&untrained), &old(&first), &old(&second)]), Some(0.5));
    }

    #[test]
    fn intervals_of_worked_examples() {
        assert_eq!(MeanInterval::new(&[]), None);
        assert_eq!(MeanInterval::new(&[0.5]), Some(MeanInterval { count: 1, mean: 0.5, margin: None }));
        // t(2, 0.975) = 4.302653, sample standard deviation 1, divided by the root of 3.
        let interval = MeanInterval::new(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(interval.mean, 2.0);
        assert!((interval.margin.unwrap() - 4.302_653 / 3f64.sqrt()).abs() < 1e-5);
        assert_eq!(MeanInterval::new(&[0.25; 4]).unwrap().margin, Some(0.0));
    }
}
