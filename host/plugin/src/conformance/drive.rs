//! Sample episodes for the checks: every environment with every agent that can read its views.

use pl_types::{Finish, ItemKind};

use super::report::{COMPLETIONS, Report, Samples};
use crate::agent::Agent;
use crate::call_log::CallLog;
use crate::environment::Environment;
use crate::error::{Error, RefusalKind};
use crate::plugin::Plugin;
use crate::random::RandomStream;
use crate::services::Services;
use crate::values::{Completion, Outcome, Task, Turn};

/// Number of episodes of each environment.
const EPISODE_COUNT: u32 = 4;

/// Limit of the turns of one episode.
const MAX_TURNS: usize = 8;

/// Seed of every episode.
pub const SEED: u64 = 7;

/// The sample episodes of all environments.
#[derive(Default)]
pub struct SampleEpisodes {
    pub episodes: Vec<SampleEpisode>,
    /// Views that the environments showed, also those on which no agent acted.
    pub views: Vec<ShownView>,
    /// Environments whose episode failed, with the error.
    pub failed: Vec<EpisodeFailure>,
}

/// A view that an environment showed.
pub struct ShownView {
    pub environment: String,
    /// JSON.
    pub view: String,
}

/// Failure of an episode, or of the creation of tasks.
pub struct EpisodeFailure {
    pub environment: String,
    pub error: Error,
    pub stage: Stage,
}

/// What failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The creation of tasks.
    Tasks,
    /// The start of an episode with a given task.
    GivenTask,
    /// The start of an episode with a task that the environment has made.
    OwnTask,
    /// A turn.
    Turn,
}

impl EpisodeFailure {
    /// Returns `true` if the environment is at fault, if all its episodes fail: settings and tasks from outside may be
    /// those of another item.
    pub fn is_environments(&self) -> bool {
        match self.error.refusal() {
            None | Some((RefusalKind::Internal, _)) => true,
            Some((RefusalKind::Task, _)) => matches!(self.stage, Stage::OwnTask | Stage::Turn),
            Some((RefusalKind::Settings, _)) => self.stage == Stage::Turn,
        }
    }
}

/// An episode.
pub struct SampleEpisode {
    pub environment: String,
    pub task: Task,
    /// Distinguishes its random stream.
    pub index: u32,
    pub steps: Vec<Step>,
}

/// A turn.
pub struct Step {
    pub agent: String,
    pub view: String,
    pub action: String,
    pub outcome: Outcome,
}

impl SampleEpisode {
    pub fn stream(&self) -> RandomStream {
        stream(self.index)
    }
}

fn stream(index: u32) -> RandomStream {
    RandomStream::from_parts(&[b"conformance", &index.to_le_bytes()])
}

impl SampleEpisodes {
    /// Iterates over the episodes of one environment.
    pub fn of_environment<'d>(&'d self, environment: &'d str) -> impl Iterator<Item = &'d SampleEpisode> {
        self.episodes.iter().filter(move |played| played.environment == environment)
    }

    /// Iterates over the views of every environment: about `limit` in all, an equal number of each.
    pub fn views(&self, limit: usize) -> impl Iterator<Item = &str> {
        let mut environments: Vec<&str> = self.views.iter().map(|shown| shown.environment.as_str()).collect();
        environments.dedup();
        let each = limit.checked_div(environments.len()).unwrap_or(0).max(1);
        environments.into_iter().flat_map(move |name| {
            let own = self.views.iter().filter(move |shown| shown.environment == name);
            own.take(each).map(|shown| shown.view.as_str())
        })
    }

    pub fn steps(&self) -> impl Iterator<Item = (&SampleEpisode, &Step)> {
        self.episodes.iter().flat_map(|played| played.steps.iter().map(move |step| (played, step)))
    }
}

/// Runs the environments of `plugins` with their agents.
pub async fn sample_episodes(
    plugins: &[&Plugin],
    services: &Services,
    samples: &Samples,
    report: &mut Report,
) -> SampleEpisodes {
    let settings = |name: &str| samples.settings.get(name).cloned().unwrap_or_default();
    let items = |kind| {
        plugins.iter().flat_map(move |plugin| {
            plugin.items().iter().filter(move |item| item.kind == kind).map(move |item| (*plugin, item))
        })
    };
    let agents: Vec<(String, Agent)> = items(ItemKind::Agent)
        .filter_map(|(plugin, item)| {
            Some((item.name.clone(), Agent::new(plugin, &item.name, settings(&item.name)).ok()?))
        })
        .collect();
    let source = ActionSource { agents: &agents, actions: &samples.actions };
    let mut episodes = SampleEpisodes::default();
    for (plugin, item) in items(ItemKind::Environment) {
        let name = &item.name;
        let Ok(environment) = Environment::new(plugin, name, settings(name), services.clone()) else {
            continue;
        };
        let tasks = match tasks(&environment, samples).await {
            Ok(tasks) => tasks,
            Err(error) => {
                episodes.failed.push(EpisodeFailure {
                    environment: name.clone(),
                    error,
                    stage: Stage::Tasks,
                });
                continue;
            }
        };
        for (index, task) in (0..).zip(tasks) {
            let played = SampleEpisode { environment: name.clone(), task, index, steps: Vec::new() };
            let mut stage = if samples.tasks.is_empty() { Stage::OwnTask } else { Stage::GivenTask };
            match run_episode(played, &environment, &source, &mut stage, &mut episodes.views, report).await {
                Ok(played) => episodes.episodes.push(played),
                Err(error) => {
                    episodes.failed.push(EpisodeFailure { environment: name.clone(), error, stage });
                }
            }
        }
    }
    episodes
}

async fn tasks(environment: &Environment, samples: &Samples) -> Result<Vec<Task>, Error> {
    match samples.tasks.is_empty() {
        true => environment.tasks("train", 0, EPISODE_COUNT, samples.level).await,
        false => Ok(samples.tasks.clone()),
    }
}

/// Source of actions.
struct ActionSource<'t> {
    agents: &'t [(String, Agent)],
    /// JSON, for environments whose agents are elsewhere.
    actions: &'t [String],
}

async fn run_episode(
    mut played: SampleEpisode,
    environment: &Environment,
    source: &ActionSource<'_>,
    stage: &mut Stage,
    views: &mut Vec<ShownView>,
    report: &mut Report,
) -> Result<SampleEpisode, Error> {
    let call_log = CallLog::default();
    let mut episode = environment.with_call_log(&call_log).start(&played.task, SEED, played.stream()).await?;
    report.record_usage("start", &call_log);
    *stage = Stage::Turn;
    for turn in 0..MAX_TURNS {
        let Some(agent) = source.agent_for(turn) else { break };
        let visit = played.steps.iter().filter(|step| step.agent == agent).count() as u32;
        let view = episode.view(&agent).await?;
        report.record_usage("view", &call_log);
        views.push(ShownView { environment: played.environment.clone(), view: view.clone() });
        let completion = COMPLETIONS[(played.index as usize * MAX_TURNS + turn) % COMPLETIONS.len()];
        let action = match source.act(turn, &view, visit, completion, report).await {
            Some(action) => action,
            None => continue,
        };
        let outcome = episode.apply(vec![(agent.clone(), action.clone())]).await?;
        report.record_usage("apply", &call_log);
        let ended = outcome.done || outcome.truncated;
        played.steps.push(Step { agent, view, action, outcome });
        if ended {
            break;
        }
    }
    Ok(played)
}

impl ActionSource<'_> {
    /// Returns the agent of a turn. Given actions without an agent belong to `agent`.
    fn agent_for(&self, turn: usize) -> Option<String> {
        match self.agents.len() {
            0 if self.actions.is_empty() => None,
            0 => Some("agent".to_owned()),
            count => Some(self.agents[turn % count].0.clone()),
        }
    }

    /// Returns the action on a view. Returns `None` if the agent has none, for example because it belongs to
    /// another environment; the agent's own checks report errors.
    async fn act(
        &self,
        turn: usize,
        view: &str,
        visit: u32,
        completion: &str,
        report: &mut Report,
    ) -> Option<String> {
        if !self.actions.is_empty() && (self.agents.is_empty() || turn.is_multiple_of(2)) {
            return self.actions.get(turn % self.actions.len()).cloned();
        }
        let (name, agent) = self.agents.get(turn % self.agents.len().max(1))?;
        let call_log = CallLog::default();
        let agent = agent.with_call_log(&call_log);
        agent.prompt(view, &Turn { agent: name.clone(), visit }).await.ok()??;
        report.record_usage("prompt", &call_log);
        let action = agent.parse(view, &Completion::new(completion, Finish::Stop)).await.ok()?;
        report.record_usage("parse", &call_log);
        Some(action)
    }
}
