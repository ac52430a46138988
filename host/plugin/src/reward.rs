//! Rewards: what a step earned.

use std::sync::Arc;

use pl_types::ItemKind;
use serde_json::{Map, Value};

use crate::bindings::reward::exports::pl_host::plugin::rewards;
use crate::bindings::types;
use crate::environment::world_of;
use crate::error::Failed;
use crate::journal::Journal;
use crate::plugin::{Inner, refused};
use crate::pool::Call;
use crate::{AgentScore, Error, Outcome, Plugin, Scores, Stream, Task, check};

/// A reward with its settings. Keeps nothing between calls; cheap to clone.
#[derive(Clone)]
pub struct Reward {
    plugin: Plugin,
    item: Arc<str>,
    settings: Arc<String>,
    journal: Option<Journal>,
}

impl Reward {
    /// The reward `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub fn new(plugin: &Plugin, item: &str, settings: Map<String, Value>) -> Result<Self, Error> {
        plugin.item(ItemKind::Reward, item)?;
        Ok(Self {
            plugin: plugin.clone(),
            item: item.into(),
            settings: Arc::new(Value::Object(settings).to_string()),
            journal: None,
        })
    }

    /// The same, with what its calls do noted in a journal.
    #[must_use]
    pub fn with_journal(&self, journal: &Journal) -> Self {
        Self { journal: Some(journal.clone()), ..self.clone() }
    }

    /// Scores the step that `actions` (agent and JSON action each) made and `outcome` came of.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
    ) -> Result<Scores, Error> {
        self.try_score(task, actions, outcome)
            .await
            .map_err(|failed| self.inner().error(&self.item, "score", failed))
    }

    async fn try_score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
    ) -> Result<Scores, Failed> {
        let world = world_of(&self.inner().rewards)?;
        let transition = transition(task, actions, outcome);
        let mut parts =
            vec![self.settings.as_bytes(), task.id.as_bytes(), transition.outcome.facts.as_bytes()];
        parts.extend(actions.iter().flat_map(|(agent, action)| [agent.as_bytes(), action.as_bytes()]));
        let stream = Stream::of(&parts);
        let returned = world.pool.call(
            self.inner(),
            Call { item: &self.item, function: "score", stream, journal: self.journal.as_ref() },
            async |store| world.ready.instantiate_async(&mut *store).await,
            async |bindings, store| {
                let rewards = bindings.pl_host_plugin_rewards();
                rewards.call_score(store, &self.item, &self.settings, &transition).await
            },
        );
        let scores = returned.await?.map_err(refused)?;
        let local = scores.local.into_iter().map(|score| AgentScore {
            agent: score.agent,
            reward: score.reward,
            success: score.success,
        });
        let scores = Scores { team: scores.team, local: local.collect(), success: scores.success };
        check::scores(scores, actions).map_err(Failed::invalid)
    }

    fn inner(&self) -> &Inner {
        &self.plugin.inner
    }
}

fn transition(task: &Task, actions: &[(String, String)], outcome: &Outcome) -> rewards::Transition {
    let actions = actions
        .iter()
        .map(|(agent, action)| types::AgentAction { agent: agent.clone(), action: action.clone() });
    rewards::Transition {
        task: types::Task { id: task.id.clone(), data: task.data.clone() },
        actions: actions.collect(),
        outcome: types::Outcome {
            done: outcome.done,
            truncated: outcome.truncated,
            // Serialising string keys and JSON values can't fail.
            facts: serde_json::to_string(&outcome.facts).unwrap_or_default(),
            evidence: outcome.evidence.clone(),
        },
    }
}
