//! Lines of `metrics.jsonl`.

use pl_trainer::StepMetrics;
use serde_json::{Map, Value, json};

use crate::evaluation::EvaluationReport;

use super::rollouts::PlayedStep;

/// Returns the line of metrics of an evaluation.
pub(super) fn evaluation_line(step: u64, report: &EvaluationReport) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "evaluation".into());
    line.insert("step".into(), step.into());
    line.insert("name".into(), report.name.clone().into());
    line.insert("success".into(), report.success.into());
    line.extend(report.metrics());
    Value::Object(line)
}

/// Returns the line of metrics of a training step.
pub(super) fn step_line(step: u64, played: &PlayedStep, metrics: &StepMetrics) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "step".into());
    line.insert("step".into(), step.into());
    line.extend(played.metrics.clone());
    line.insert("transitions".into(), played.transitions.len().into());
    line.insert("groups".into(), metrics.groups.into());
    line.insert("flat_groups".into(), metrics.flat_groups.into());
    let gap = metrics
        .policies
        .iter()
        .filter_map(|m| m.max_logprob_gap)
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    line.insert("max_logprob_gap".into(), json!(gap));
    let policies = metrics.policies.iter().map(|m| (m.policy.clone(), json!(m))).collect();
    line.insert("policies".into(), Value::Object(policies));
    Value::Object(line)
}
