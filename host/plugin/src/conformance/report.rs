//! Inputs and results of the checks.

use std::collections::BTreeMap;

use pl_types::Item;
use serde_json::{Map, Value};

use crate::call_log::{CallLog, ResourceUsage};
use crate::error::Error;
use crate::values::Task;

/// Completions of a model, good and bad. No plugin may trap on any of them.
pub const COMPLETIONS: [&str; 12] = [
    "",
    " \n\t ",
    "42",
    "The answer is \\boxed{42}.",
    "\\boxed{\\frac{1}{2}} and \\boxed{",
    "```python\nprint(6 * 7)\n```",
    "```\nunclosed",
    "{\"move\": \"left\", \"n\": [1, 2, {\"deep\": null}]}",
    "yes",
    "Größe 🦀 \u{0} \u{202e}desrever",
    "<|im_end|>[INST]</s>",
    "a very long line ",
];

/// Inputs for the checks.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Settings by item name; other items get empty settings.
    pub settings: BTreeMap<String, Map<String, Value>>,
    /// Tasks for environments. If empty, each environment generates its own.
    pub tasks: Vec<Task>,
    /// Views (JSON) for agents, in addition to those of the environments.
    pub views: Vec<String>,
    /// Actions (JSON) for environments, in addition to those of the agents.
    pub actions: Vec<String>,
    /// Difficulty of generated tasks.
    pub level: u32,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// The plugin behaves as required.
    Passed,
    /// The plugin violates the contract, with the observation.
    Failed(String),
    /// The check could not run, with the reason.
    Untested(String),
}

/// One requirement of the contract, checked on one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Kind and name of the item.
    pub item: String,
    /// The requirement, as the end of a sentence that starts with "it".
    pub requirement: &'static str,
    /// Result.
    pub result: CheckResult,
}

/// Results of all checks of a plugin.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Checks in the order of execution.
    pub checks: Vec<Check>,
    /// Largest resource usage of one call, by function.
    pub usage: BTreeMap<&'static str, ResourceUsage>,
}

impl Report {
    /// Returns `true` if no check failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.result, CheckResult::Failed(_)))
    }

    pub(super) fn add(&mut self, item: &Item, requirement: &'static str, outcome: CheckOutcome) {
        let result = match outcome {
            Ok(()) => CheckResult::Passed,
            Err(CheckFailure::Violation(how)) => CheckResult::Failed(how),
            Err(CheckFailure::Untestable(what)) => CheckResult::Untested(what),
        };
        self.checks.push(Check { item: format!("{} {}", item.kind, item.name), requirement, result });
    }

    pub(super) fn record_usage(&mut self, function: &'static str, call_log: &CallLog) {
        let usage = self.usage.entry(function).or_default();
        *usage = usage.max(call_log.take_usage());
    }
}

/// Reason for a check that did not pass.
pub(super) enum CheckFailure {
    Violation(String),
    Untestable(String),
}

pub(super) type CheckOutcome = Result<(), CheckFailure>;

pub(super) fn violation(observation: impl Into<String>) -> CheckFailure {
    CheckFailure::Violation(observation.into())
}

impl From<Error> for CheckFailure {
    fn from(error: Error) -> Self {
        Self::Violation(error.to_string())
    }
}
