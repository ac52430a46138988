//! Episodes to try things on: every environment with every agent that can read its views.

use pl_types::{Finish, ItemKind};

use super::{COMPLETIONS, Report, Samples};
use crate::journal::Journal;
use crate::{Agent, Completion, Environment, Error, Outcome, Plugin, Services, Stream, Task, Turn};

/// Episodes of each environment.
const EPISODES: u32 = 4;

/// Turns of one episode, at most.
const TURNS: usize = 8;

/// Fixes the start of every episode.
pub const SEED: u64 = 7;

/// What was played.
#[derive(Default)]
pub struct Driven {
    pub episodes: Vec<Played>,
    /// Environments that could not be played, and why.
    pub stuck: Vec<(String, String)>,
}

/// An episode.
pub struct Played {
    pub environment: String,
    pub task: Task,
    /// Tells its random stream from those of the others.
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

impl Played {
    pub fn stream(&self) -> Stream {
        stream(self.index)
    }
}

fn stream(index: u32) -> Stream {
    Stream::of(&[b"conformance", &index.to_le_bytes()])
}

impl Driven {
    /// Episodes of one environment.
    pub fn of<'d>(&'d self, environment: &'d str) -> impl Iterator<Item = &'d Played> {
        self.episodes.iter().filter(move |played| played.environment == environment)
    }

    pub fn steps(&self) -> impl Iterator<Item = (&Played, &Step)> {
        self.episodes.iter().flat_map(|played| played.steps.iter().map(move |step| (played, step)))
    }
}

/// Plays the environments of `plugins` with their agents.
pub async fn all(plugins: &[&Plugin], services: &Services, samples: &Samples, report: &mut Report) -> Driven {
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
    let table = Table { agents: &agents, actions: &samples.actions };
    let mut driven = Driven::default();
    for (plugin, item) in items(ItemKind::Environment) {
        let name = &item.name;
        let Ok(environment) = Environment::new(plugin, name, settings(name), services.clone()) else {
            continue;
        };
        let tasks = match tasks(&environment, samples).await {
            Ok(tasks) => tasks,
            Err(error) => {
                driven.stuck.push((name.clone(), error.to_string()));
                continue;
            }
        };
        for (index, task) in (0..).zip(tasks) {
            match play(name, &environment, &table, &task, index, report).await {
                Ok(played) => driven.episodes.push(played),
                Err(error) => driven.stuck.push((name.clone(), error.to_string())),
            }
        }
    }
    driven
}

async fn tasks(environment: &Environment, samples: &Samples) -> Result<Vec<Task>, Error> {
    match samples.tasks.is_empty() {
        true => environment.tasks("train", 0, EPISODES, samples.level).await,
        false => Ok(samples.tasks.clone()),
    }
}

/// What episodes are played with.
struct Table<'t> {
    agents: &'t [(String, Agent)],
    /// JSON, for environments whose agents are elsewhere.
    actions: &'t [String],
}

async fn play(
    name: &str,
    environment: &Environment,
    table: &Table<'_>,
    task: &Task,
    index: u32,
    report: &mut Report,
) -> Result<Played, Error> {
    let journal = Journal::default();
    let mut episode = environment.with_journal(&journal).start(task, SEED, stream(index)).await?;
    report.spend("start", &journal);
    let mut steps: Vec<Step> = Vec::new();
    for turn in 0..TURNS {
        let Some(agent) = table.seat(turn) else { break };
        let visit = steps.iter().filter(|step| step.agent == agent).count() as u32;
        let view = episode.view(&agent).await?;
        report.spend("view", &journal);
        let said = COMPLETIONS[(index as usize * TURNS + turn) % COMPLETIONS.len()];
        let action = match table.act(turn, &view, visit, said, report).await {
            Some(action) => action,
            None => continue,
        };
        let outcome = episode.apply(vec![(agent.clone(), action.clone())]).await?;
        report.spend("apply", &journal);
        let over = outcome.done || outcome.truncated;
        steps.push(Step { agent, view, action, outcome });
        if over {
            break;
        }
    }
    Ok(Played { environment: name.to_owned(), task: task.clone(), index, steps })
}

impl Table<'_> {
    /// Whose turn it is. Actions that were given are somebody's.
    fn seat(&self, turn: usize) -> Option<String> {
        match self.agents.len() {
            0 if self.actions.is_empty() => None,
            0 => Some("agent".to_owned()),
            count => Some(self.agents[turn % count].0.clone()),
        }
    }

    /// What is done on a view. None: the agent does nothing with it, for example because it is made for another
    /// environment; its own checks say whether it should.
    async fn act(
        &self,
        turn: usize,
        view: &str,
        visit: u32,
        said: &str,
        report: &mut Report,
    ) -> Option<String> {
        if !self.actions.is_empty() && (self.agents.is_empty() || turn.is_multiple_of(2)) {
            return self.actions.get(turn % self.actions.len()).cloned();
        }
        let (name, agent) = self.agents.get(turn % self.agents.len().max(1))?;
        let journal = Journal::default();
        let agent = agent.with_journal(&journal);
        agent.prompt(view, &Turn { agent: name.clone(), visit }).await.ok()??;
        report.spend("prompt", &journal);
        let action = agent.parse(view, &Completion::new(said, Finish::Stop)).await.ok()?;
        report.spend("parse", &journal);
        Some(action)
    }
}
