//! What the contract promises, tried on a plugin: the same call gives the same answer whoever called before, a copy
//! restored from a snapshot has the same future, tasks do not depend on the block they are asked for in, the schema
//! says what the items really take.
//!
//! Nothing here knows a domain. Environments are driven with the actions that the plugin's own agents make of
//! [`COMPLETIONS`], or with those of [`Samples::actions`]; agents read the views that its environments show, or those of
//! [`Samples::views`].

mod agents;
mod drive;
mod environments;
mod rewards;
mod settings;

use std::collections::BTreeMap;

use pl_types::{Item, ItemKind};
use serde_json::{Map, Value};

use crate::journal::{Journal, Spent};
use crate::{Agent, Environment, Error, Plugin, Reward, Services, Task};

/// What models write, good and bad. No plugin may trap on any of it.
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

/// What a plugin is tried with.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Settings of each item, by its name; an item that is not here gets none.
    pub settings: BTreeMap<String, Map<String, Value>>,
    /// For environments. Without any, an environment's own generator is asked.
    pub tasks: Vec<Task>,
    /// Views (JSON) for agents, beside those of the plugin's environments.
    pub views: Vec<String>,
    /// Actions (JSON) for environments, beside those of the plugin's agents.
    pub actions: Vec<String>,
    /// Difficulty of generated tasks.
    pub level: u32,
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not, and how that was seen.
    Fails(String),
    /// It could not be tried, and what is missing.
    NotTried(String),
}

/// One promise of the contract, on one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Kind and name of the item.
    pub item: String,
    /// The promise in words.
    pub promise: &'static str,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// What a plugin was found to be.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// In the order in which they were tried.
    pub checks: Vec<Check>,
    /// The most that a call of each function took.
    pub spent: BTreeMap<&'static str, Spent>,
}

impl Report {
    /// Whether nothing failed.
    pub fn holds(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.verdict, Verdict::Fails(_)))
    }

    fn note(&mut self, item: &Item, promise: &'static str, outcome: Outcome) {
        let verdict = match outcome {
            Ok(()) => Verdict::Holds,
            Err(Trouble::Broken(how)) => Verdict::Fails(how),
            Err(Trouble::Missing(what)) => Verdict::NotTried(what),
        };
        self.checks.push(Check { item: format!("{} {}", item.kind, item.name), promise, verdict });
    }

    fn spend(&mut self, function: &'static str, journal: &Journal) {
        let most = self.spent.entry(function).or_default();
        *most = most.most(journal.take_spent());
    }
}

/// What keeps a check from holding.
enum Trouble {
    Broken(String),
    Missing(String),
}

type Outcome = Result<(), Trouble>;

fn broken(how: impl Into<String>) -> Trouble {
    Trouble::Broken(how.into())
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Tries everything that a plugin offers. The items of `beside` stand in for what the plugin has not: an environment for
/// its agents, agents for its environment.
pub async fn examine(plugin: &Plugin, beside: &[Plugin], services: &Services, samples: &Samples) -> Report {
    let mut report = Report::default();
    let all: Vec<&Plugin> = std::iter::once(plugin).chain(beside).collect();
    let driven = drive::all(&all, services, samples, &mut report).await;
    for item in plugin.items() {
        let settings = samples.settings.get(&item.name).cloned().unwrap_or_default();
        match item.kind {
            ItemKind::Environment => {
                if let Ok(environment) = Environment::new(plugin, &item.name, settings, services.clone()) {
                    environments::examine(item, &environment, &driven, samples.level, &mut report).await;
                }
            }
            ItemKind::Agent => {
                if let Ok(agent) = Agent::new(plugin, &item.name, settings) {
                    agents::examine(item, &agent, &driven, &samples.views, &mut report).await;
                }
            }
            ItemKind::Reward => {
                if let Ok(reward) = Reward::new(plugin, &item.name, settings) {
                    rewards::examine(item, &reward, &driven, &mut report).await;
                }
            }
        }
        settings::examine(plugin, item, services, &driven, &mut report).await;
    }
    report
}
