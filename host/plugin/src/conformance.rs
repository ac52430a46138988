//! Conformance checks of a plugin: the result of a call does not depend on earlier calls, a copy restored
//! from a snapshot has the same future, a generated task does not depend on the batch in which it is
//! generated, and the settings schema matches the settings that an item accepts.
//!
//! The checks are independent of the domain. Environments are episodes with the actions that the plugin's own
//! agents make of [`COMPLETIONS`], or with those of [`Samples::actions`]; agents read the views that its
//! environments show, or those of [`Samples::views`].

mod agents;
mod drive;
mod environments;
mod rewards;
mod settings;

use std::collections::BTreeMap;

use pl_types::{Item, ItemKind};
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::call_log::{CallLog, ResourceUsage};
use crate::environment::Environment;
use crate::error::Error;
use crate::plugin::Plugin;
use crate::reward::Reward;
use crate::services::Services;
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

    fn add(&mut self, item: &Item, requirement: &'static str, outcome: CheckOutcome) {
        let result = match outcome {
            Ok(()) => CheckResult::Passed,
            Err(CheckFailure::Violation(how)) => CheckResult::Failed(how),
            Err(CheckFailure::Untestable(what)) => CheckResult::Untested(what),
        };
        self.checks.push(Check { item: format!("{} {}", item.kind, item.name), requirement, result });
    }

    fn record_usage(&mut self, function: &'static str, call_log: &CallLog) {
        let usage = self.usage.entry(function).or_default();
        *usage = usage.max(call_log.take_usage());
    }
}

/// Reason for a check that did not pass.
enum CheckFailure {
    Violation(String),
    Untestable(String),
}

type CheckOutcome = Result<(), CheckFailure>;

fn violation(observation: impl Into<String>) -> CheckFailure {
    CheckFailure::Violation(observation.into())
}

impl From<Error> for CheckFailure {
    fn from(error: Error) -> Self {
        Self::Violation(error.to_string())
    }
}

/// Checks all items of a plugin. The plugins in `others` provide missing counterparts: an environment for its
/// agents, or agents for its environment.
pub async fn check_plugin(
    plugin: &Plugin,
    others: &[Plugin],
    services: &Services,
    samples: &Samples,
) -> Report {
    let mut report = Report::default();
    let all: Vec<&Plugin> = std::iter::once(plugin).chain(others).collect();
    let episodes = drive::sample_episodes(&all, services, samples, &mut report).await;
    for item in plugin.items() {
        let settings = samples.settings.get(&item.name).cloned().unwrap_or_default();
        match item.kind {
            ItemKind::Environment => {
                if let Ok(environment) = Environment::new(plugin, &item.name, settings, services.clone()) {
                    environments::check_environment(
                        item,
                        &environment,
                        &episodes,
                        samples.level,
                        &mut report,
                    )
                    .await;
                }
            }
            ItemKind::Agent => {
                if let Ok(agent) = Agent::new(plugin, &item.name, settings) {
                    agents::check_agent(item, &agent, &episodes, &samples.views, &mut report).await;
                }
            }
            ItemKind::Reward => {
                if let Ok(reward) = Reward::new(plugin, &item.name, settings) {
                    rewards::check_reward(item, &reward, &episodes, &mut report).await;
                }
            }
        }
        settings::check_settings(plugin, item, services, &episodes, &mut report).await;
    }
    report
}
