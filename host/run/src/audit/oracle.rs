//! The environment's oracle as a player: it tells which tasks can be solved at all, what a solution earns, and if it solves
//! other tasks too.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use pl_plugin::call_log::CallLog;
use pl_plugin::{Completion, DrawingForm, Message, Outcome, PromptRequest, Snapshot, Task, Tool, Turn};
use pl_rollout::{Agent, Environment, Episode, EventKind, Fault, PromptEncoder, Trace};
use pl_types::{Finish, Generate, GenerateError, Request};
use serde::{Deserialize, Serialize};

/// Result of the oracle on some tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OracleResult {
    /// Name of the environment or of the evaluation whose tasks it played.
    pub tasks: String,
    /// Level of generated tasks. `None` for those of a file or a data set.
    pub level: Option<u32>,
    /// Number of actions that it gave, or failed to give. 0 if the environment has no oracle, or knows no solution.
    pub actions: u64,
    pub episodes: usize,
    /// Share of the episodes that succeeded within the workflow's limit on visits.
    pub success: f64,
    /// Share of the episodes that did not succeed under a longer limit either.
    pub unsolvable: f64,
    /// Mean over episodes and agents of the sum of an agent's rewards.
    pub reward: f64,
    /// Number of episodes in which a plugin failed, also if a later attempt went well.
    pub faults: usize,
}

impl OracleResult {
    /// Returns the name of the tasks, with their level if they are generated.
    pub fn named(&self) -> String {
        match self.level {
            Some(level) => format!("{} (level {level})", self.tasks),
            None => self.tasks.clone(),
        }
    }
}

/// Actions of agents in an episode, by agent and in order.
pub(super) type EpisodeActions = BTreeMap<String, VecDeque<String>>;

/// Returns by the id of each task the actions that solved another one: of the tasks after it, the first with other actions
/// than its own. A task without such another has no entry.
pub(super) fn other_solutions(traces: &[Trace]) -> HashMap<String, EpisodeActions> {
    let played: Vec<(&Trace, EpisodeActions)> =
        traces.iter().map(|trace| (trace, actions_of(trace))).collect();
    let solutions = played.iter().enumerate().filter_map(|(index, (own, own_actions))| {
        let mut after = played.iter().cycle().skip(index + 1).take(played.len());
        let (_, actions) = after.find(|(other, actions)| {
            other.end.success && other.task.id != own.task.id && actions != own_actions
        })?;
        Some((own.task.id.clone(), actions.clone()))
    });
    solutions.collect()
}

/// Returns all actions of episodes.
pub(super) fn all_actions(traces: &[Trace]) -> EpisodeActions {
    let mut all = EpisodeActions::new();
    for (agent, actions) in traces.iter().flat_map(actions_of) {
        all.entry(agent).or_default().extend(actions);
    }
    all
}

fn actions_of(trace: &Trace) -> EpisodeActions {
    let mut actions = EpisodeActions::new();
    for event in &trace.events {
        if let (Some(agent), EventKind::Action(action)) = (&event.position.agent, &event.kind) {
            actions.entry(agent.clone()).or_default().push_back(action.clone());
        }
    }
    actions
}

/// A view with the oracle's advice on it.
#[derive(Serialize, Deserialize)]
struct AdvisedView {
    view: String,
    /// Action of the agent, if the oracle knows one.
    action: Option<String>,
}

/// Source of the actions that views carry.
pub(super) enum Advice {
    /// The environment's oracle, whose actions are counted.
    Oracle(Arc<AtomicU64>),
    /// Actions by the id of the task.
    Tasks(HashMap<String, EpisodeActions>),
}

/// Source of the actions of one episode.
enum EpisodeAdvice {
    Oracle(Arc<AtomicU64>),
    /// After the last action of an agent, its first one follows.
    Actions(EpisodeActions),
}

/// An environment whose views carry an action for the agent.
pub(super) struct AdvisedEnvironment {
    pub environment: Arc<dyn Environment>,
    pub advice: Advice,
}

impl AdvisedEnvironment {
    fn advised(&self, episode: Box<dyn Episode>, task: Option<&Task>) -> Box<dyn Episode> {
        let advice = match &self.advice {
            Advice::Oracle(count) => EpisodeAdvice::Oracle(Arc::clone(count)),
            Advice::Tasks(actions) => {
                let own = task.and_then(|task| actions.get(&task.id));
                EpisodeAdvice::Actions(own.cloned().unwrap_or_default())
            }
        };
        Box::new(AdvisedEpisode { episode, advice })
    }
}

#[async_trait]
impl Environment for AdvisedEnvironment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        let episode = self.environment.start(task, seed, stream, call_log).await?;
        Ok(self.advised(episode, Some(task)))
    }

    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        // Only trees restore, and audits are flat.
        Ok(self.advised(self.environment.restore(snapshot, call_log).await?, None))
    }

    fn capacity(&self) -> usize {
        self.environment.capacity()
    }
}

struct AdvisedEpisode {
    episode: Box<dyn Episode>,
    advice: EpisodeAdvice,
}

#[async_trait]
impl Episode for AdvisedEpisode {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        let view = self.episode.view(agent).await?;
        let action = match &mut self.advice {
            EpisodeAdvice::Oracle(count) => {
                let action = self.episode.oracle(agent).await;
                count.fetch_add(u64::from(!matches!(action, Ok(None))), Ordering::Relaxed);
                action?
            }
            EpisodeAdvice::Actions(actions) => actions.get_mut(agent).and_then(|own| {
                let next = own.pop_front()?;
                own.push_back(next.clone());
                Some(next)
            }),
        };
        serde_json::to_string(&AdvisedView { view, action }).map_err(|error| Fault::new("view", error))
    }

    async fn apply(&mut self, actions: &[(String, String)]) -> Result<Outcome, Fault> {
        self.episode.apply(actions).await
    }

    async fn oracle(&mut self, agent: &str) -> Result<Option<String>, Fault> {
        self.episode.oracle(agent).await
    }

    async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        self.episode.draw(form).await
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.episode.snapshot().await
    }

    async fn suspend(&mut self) -> Result<(), Fault> {
        self.episode.suspend().await
    }

    fn reproducible(&self) -> bool {
        self.episode.reproducible()
    }
}

/// An agent that acts as the oracle says; without advice it parses the empty completion.
pub(super) struct AdvisedAgent(pub Arc<pl_plugin::Agent>);

#[async_trait]
impl Agent for AdvisedAgent {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        // The agent decides if it skips the turn.
        Agent::prompt(self.0.as_ref(), &read(view)?.view, turn, call_log).await
    }

    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault> {
        let AdvisedView { view, action } = read(view)?;
        match action {
            Some(action) => Ok(action),
            None => Agent::parse(self.0.as_ref(), &view, completion, call_log).await,
        }
    }
}

fn read(view: &str) -> Result<AdvisedView, Fault> {
    serde_json::from_str(view).map_err(|error| Fault::new("view", error))
}

/// An encoder without tokens of its own, and a generator of empty completions: the oracle reads no prompts.
pub(super) struct Silent;

impl PromptEncoder for Silent {
    fn encode(&self, _policy: usize, _messages: &[Message], _tools: &[Tool]) -> Result<Vec<u32>, Fault> {
        Ok(vec![0])
    }
}

#[async_trait]
impl Generate for Silent {
    async fn generate(&self, request: Request) -> Result<Vec<pl_types::Completion>, GenerateError> {
        let completion = |_: &[u8; 32]| pl_types::Completion {
            tokens: vec![0],
            logprobs: vec![0.0],
            support: None,
            values: None,
            top: Vec::new(),
            text: String::new(),
            finish: Finish::Stop,
            version: 0,
            version_changes: Vec::new(),
        };
        Ok(request.seeds.iter().map(completion).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixtures;

    fn trace(task: &str, action: &str, success: bool) -> Trace {
        let mut trace = fixtures::trace(task, Some("one"), vec![EventKind::Action(action.to_owned())]);
        trace.end.success = success;
        trace
    }

    #[test]
    fn a_task_is_played_with_the_next_solution_that_differs() {
        let others = |traces: &[Trace]| -> BTreeMap<String, String> {
            let first = |actions: EpisodeActions| actions["one"].front().cloned().unwrap_or_default();
            other_solutions(traces).into_iter().map(|(task, actions)| (task, first(actions))).collect()
        };
        let traces = [
            trace("a", "yes", true),
            trace("b", "yes", true),
            trace("c", "unsolved", false),
            trace("d", "no", true),
        ];
        let expected = [("a", "no"), ("b", "no"), ("c", "no"), ("d", "yes")];
        let expected = expected.map(|(task, action)| (task.to_owned(), action.to_owned()));
        assert_eq!(others(&traces), BTreeMap::from(expected));
        assert!(others(&traces[..2]).is_empty() && others(&[]).is_empty());
        assert_eq!(all_actions(&traces)["one"], ["yes", "yes", "unsolved", "no"]);
    }
}
