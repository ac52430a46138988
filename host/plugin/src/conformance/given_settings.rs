//! Checks of the settings that the caller gives for items: a wrong name or value would leave the other checks without a
//! subject.

use std::sync::Arc;

use pl_types::{Finish, Item, ItemKind};
use serde_json::{Map, Value};
use thiserror::Error;

use super::EchoPolicies;
use super::agents::MAX_VIEWS;
use super::drive::{SEED, SampleEpisodes};
use super::report::Samples;
use crate::agent::Agent;
use crate::environment::Environment;
use crate::error::{Error, RefusalKind};
use crate::plugin::Plugin;
use crate::random::RandomStream;
use crate::reward::Reward;
use crate::services::Services;
use crate::values::{Completion, Outcome, Task, Turn};

/// Given settings that can't be used.
#[derive(Debug, Error)]
pub enum GivenSettingsError {
    /// No plugin has the item.
    #[error("there is no item {name}; {offered}")]
    UnknownItem {
        /// Name in the settings.
        name: String,
        /// Available items.
        offered: String,
    },
    /// The item refuses its settings.
    #[error("{kind} {name} refuses {settings}: {reason}")]
    Refused {
        /// Kind of the item.
        kind: ItemKind,
        /// Its name.
        name: String,
        /// The settings, as JSON.
        settings: String,
        /// The item's message.
        reason: String,
    },
}

/// Checks that every item with given settings exists.
///
/// # Errors
/// [`GivenSettingsError::UnknownItem`].
pub fn check_items(plugins: &[&Plugin], samples: &Samples) -> Result<(), GivenSettingsError> {
    let items: Vec<&Item> = plugins.iter().flat_map(|plugin| plugin.items()).collect();
    let is_unknown = |name: &&String| !items.iter().any(|item| item.name == **name);
    let Some(name) = samples.settings.keys().find(is_unknown) else { return Ok(()) };
    let names: Vec<String> = items.iter().map(|item| format!("{} {}", item.kind, item.name)).collect();
    let offered = match names.as_slice() {
        [] => "there are no items".to_owned(),
        names => format!("the items are {}", names.join(", ")),
    };
    Err(GivenSettingsError::UnknownItem { name: name.clone(), offered })
}

/// Checks that every item accepts the settings given for it. An item reads its settings in every call, so one call shows
/// it, even if there is nothing better to call the item with than an empty task or view.
///
/// # Errors
/// [`GivenSettingsError::Refused`].
pub async fn check_accepted(
    plugins: &[&Plugin],
    services: &Services,
    episodes: &SampleEpisodes,
    samples: &Samples,
) -> Result<(), GivenSettingsError> {
    for plugin in plugins {
        for item in plugin.items() {
            let Some(settings) = samples.settings.get(&item.name) else { continue };
            let call = ItemCall { plugin, item, settings, services };
            let called = match item.kind {
                ItemKind::Environment => call.environment(episodes, samples).await,
                ItemKind::Agent => call.agent(episodes, samples).await,
                ItemKind::Reward => call.reward(episodes, samples).await,
            };
            if let Err(error) = called
                && let Some((RefusalKind::Settings, reason)) = error.refusal()
            {
                return Err(GivenSettingsError::Refused {
                    kind: item.kind,
                    name: item.name.clone(),
                    settings: Value::Object(settings.clone()).to_string(),
                    reason: reason.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// An item and its given settings.
struct ItemCall<'a> {
    plugin: &'a Plugin,
    item: &'a Item,
    settings: &'a Map<String, Value>,
    services: &'a Services,
}

impl ItemCall<'_> {
    /// Starts an episode. Generated tasks would not do: an environment that generates none refuses them like settings.
    async fn environment(&self, episodes: &SampleEpisodes, samples: &Samples) -> Result<(), Error> {
        let (name, settings) = (&self.item.name, self.settings.clone());
        let environment = Environment::new(self.plugin, name, settings, self.services.clone())?;
        let played = episodes.of_environment(name).next().map(|played| played.task.clone());
        let task = played.or_else(|| samples.tasks.first().cloned()).unwrap_or_else(empty_task);
        environment.start(&task, SEED, RandomStream::from_parts(&[b"given settings"])).await.map(drop)
    }

    /// Calls the agent on views until one of them fits the settings: those of another environment need not.
    async fn agent(&self, episodes: &SampleEpisodes, samples: &Samples) -> Result<(), Error> {
        let agent = Agent::new(self.plugin, &self.item.name, self.settings.clone())?;
        let mut views: Vec<&str> = samples
            .views
            .iter()
            .map(String::as_str)
            .chain(episodes.views(MAX_VIEWS))
            .take(MAX_VIEWS)
            .collect();
        if views.is_empty() {
            views.push("null");
        }
        let mut called = Ok(());
        for view in views {
            called = self.agent_on_view(&agent, view).await;
            if !matches!(called.as_ref().map_err(Error::refusal), Err(Some((RefusalKind::Settings, _)))) {
                break;
            }
        }
        called
    }

    async fn agent_on_view(&self, agent: &Agent, view: &str) -> Result<(), Error> {
        agent.prompt(view, &Turn { agent: self.item.name.clone(), visit: 0 }).await?;
        agent.parse(view, &Completion::new("42", Finish::Stop)).await.map(drop)
    }

    async fn reward(&self, episodes: &SampleEpisodes, samples: &Samples) -> Result<(), Error> {
        let reward = Reward::new(self.plugin, &self.item.name, self.settings.clone())?;
        let reward = reward.with_policies(Arc::new(EchoPolicies));
        if let Some((played, step)) = episodes.steps().next() {
            let actions = [(step.agent.clone(), step.action.clone())];
            return reward.score(&played.task, &actions, &step.outcome).await.map(drop);
        }
        let task = samples.tasks.first().cloned().unwrap_or_else(empty_task);
        let nothing =
            Outcome { done: true, truncated: false, facts: Map::new(), evidence: "null".to_owned() };
        reward.score(&task, &[], &nothing).await.map(drop)
    }
}

fn empty_task() -> Task {
    Task { id: "empty".to_owned(), data: "null".to_owned() }
}
