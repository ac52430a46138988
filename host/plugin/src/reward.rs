//! Rewards: the scores of a step.

use std::sync::Arc;

use pl_types::erased::erased;
use pl_types::{AnswerQuestions, ItemKind};
use serde_json::{Map, Value};

use crate::bindings::reward::exports::pl_host::plugin::rewards;
use crate::bindings::types;
use crate::call_log::CallLog;
use crate::check;
use crate::environment::require_world;
use crate::error::{CallFailure, Error};
use crate::item_handle::ItemHandle;
use crate::plugin::{Plugin, refused};
use crate::pool::StatelessCall;
use crate::random::RandomStream;
use crate::values::{AgentScore, Outcome, Scores, Task};

/// A reward with its settings. Keeps no state between calls; cheap to clone.
#[derive(Clone)]
pub struct Reward {
    item: ItemHandle,
    range: Option<(f64, f64)>,
    policies: Option<Arc<dyn AnswerQuestions>>,
}

impl Reward {
    /// Creates a handle of the reward `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub fn new(plugin: &Plugin, item: &str, settings: Map<String, Value>) -> Result<Self, Error> {
        let (item, description) = ItemHandle::new(plugin, ItemKind::Reward, item, settings)?;
        Ok(Self { item, range: description.reward_range(), policies: None })
    }

    /// Returns the same reward, whose calls are recorded in `call_log`.
    #[must_use]
    pub fn with_call_log(&self, call_log: &CallLog) -> Self {
        Self { item: self.item.with_call_log(call_log), ..self.clone() }
    }

    /// Returns the smallest and the largest part of its scores that the item declares. `None` if it declares none.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.range
    }

    /// Returns the same reward, which may ask those of `policies` that its plugin is granted.
    #[must_use]
    pub fn with_policies(self, policies: Arc<dyn AnswerQuestions>) -> Self {
        Self { policies: Some(policies), ..self }
    }

    /// Scores a step: the actions (pairs of agent and JSON action) and their outcome.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
    ) -> Result<Scores, Error> {
        self.try_score(task, actions, outcome).await.map_err(|failure| self.item.error("score", failure))
    }

    async fn try_score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
    ) -> Result<Scores, CallFailure> {
        let world = require_world(&self.item.plugin().rewards)?;
        let transition = transition(task, actions, outcome);
        let mut parts =
            vec![self.item.settings.as_bytes(), task.id.as_bytes(), transition.outcome.facts.as_bytes()];
        parts.extend(actions.iter().flat_map(|(agent, action)| [agent.as_bytes(), action.as_bytes()]));
        let stream = RandomStream::from_parts(&parts);
        let returned = erased(world.pool.call(
            &self.item.plugin().stores,
            StatelessCall { policies: self.policies.clone(), ..self.item.stateless_call("score", stream) },
            async |store| world.ready.instantiate_async(&mut *store).await,
            async |bindings, store| {
                let rewards = bindings.pl_host_plugin_rewards();
                rewards.call_score(store, &self.item.name, &self.item.settings, &transition).await
            },
        ));
        let scores = returned.await?.map_err(refused)?;
        let local = scores.local.into_iter().map(|score| AgentScore {
            agent: score.agent,
            reward: score.reward,
            success: score.success,
        });
        let scores = Scores { team: scores.team, local: local.collect(), success: scores.success };
        check::scores(scores, actions).map_err(CallFailure::invalid)
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
