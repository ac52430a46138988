//! Values that updates computed for the tokens of completions, from the files of their steps.

use std::collections::HashMap;

use pl_record::schedule::{SCHEDULE, TrainedSteps};
use pl_record::{RunFolder, StepTable, TokenTable};
use pl_types::{Clipping, EpisodeId, Key, TaskKey, TrainedCompletion};
use serde::Serialize;
use serde_json::Value;

use crate::episode::{Branch, EpisodeDetails, Reward};
use crate::error::Error;
use crate::runs::{FoundRun, inside, read_workflow};

/// A pass of an update over a completion. Lists have one element per token.
#[derive(Debug, Serialize)]
pub(crate) struct PassView {
    epoch: u32,
    optimizer_steps: u32,
    masked: bool,
    advantages: Vec<f32>,
    /// `None` if the completion was not computed.
    logprobs: Option<Vec<f32>>,
    /// Ratios of the tokens to the policy that ratios are relative to.
    ratios: Option<Vec<f64>>,
    entropies: Option<Vec<f32>>,
    /// 0, 1 for the range of ratios, 2 for the bound of negative advantages.
    clipped: Option<Vec<u8>>,
    reference_logprobs: Option<Vec<f32>>,
    importance_weights: Option<Vec<f32>>,
}

impl PassView {
    /// Arranges a record. `sampled` are the log-probabilities of sampling.
    pub(crate) fn new(record: TrainedCompletion, sampled: &[f32]) -> PassView {
        let old = record.old_logprobs.as_deref().unwrap_or(sampled);
        let ratio = |(new, old): (&f32, &f32)| (f64::from(*new) - f64::from(*old)).exp();
        let ratios = record.logprobs.as_ref().map(|new| new.iter().zip(old).map(ratio).collect());
        let number = |clipping: Clipping| match clipping {
            Clipping::None => 0,
            Clipping::Range => 1,
            Clipping::Dual => 2,
        };
        PassView {
            epoch: record.epoch,
            optimizer_steps: record.optimizer_steps,
            masked: record.masked,
            ratios,
            advantages: record.advantages,
            logprobs: record.logprobs,
            entropies: record.entropies,
            clipped: record.clipped.map(|all| all.into_iter().map(number).collect()),
            reference_logprobs: record.reference_logprobs,
            importance_weights: record.importance_weights,
        }
    }
}

/// Reads the steps whose updates train on the tasks of a run.
pub(crate) fn trained_steps(run: &FoundRun) -> Result<TrainedSteps, Error> {
    // Refuses links.
    inside(&run.root, &[SCHEDULE])?;
    Ok(TrainedSteps::read(&run.root)?)
}

/// Opens the tokens of the update that trains on a task. Returns `None` if the run has no such file: it records none, or the
/// step is not finished.
fn open(run: &FoundRun, step: u64, task: u32) -> Result<Option<TokenTable>, Error> {
    let step = trained_steps(run)?.step_of(TaskKey { step, task });
    let path = RunFolder::token_file(&run.root, step);
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !inside(&run.root, &["tokens", &file])?.is_file() {
        return Ok(None);
    }
    Ok(Some(TokenTable::open(&path)?))
}

/// Reads the records of a completion, by epoch.
pub(crate) fn records(run: &FoundRun, key: &Key) -> Result<Vec<TrainedCompletion>, Error> {
    let Some(table) = open(run, key.step, key.task)? else { return Ok(Vec::new()) };
    let rows = table.rows()?.into_iter().enumerate().filter(|(_, row)| row.key == *key);
    let mut records = Vec::new();
    for (row, _) in rows {
        records.extend(table.completion(row)?);
    }
    Ok(records)
}

/// Adds the advantages of an episode's completions, if its update has recorded them.
pub(crate) fn add_advantages(run: &FoundRun, name: &str, episode: &mut EpisodeDetails) -> Result<(), Error> {
    let Ok(id) = name.parse::<EpisodeId>() else { return Ok(()) };
    if id.evaluation.is_some() || episode.failure.is_some() {
        return Ok(());
    }
    let Some(table) = open(run, id.step, id.task)? else { return Ok(()) };
    let rows = table.rows()?.into_iter().filter(|row| {
        (row.key.step, row.key.task, row.key.sample, row.epoch) == (id.step, id.task, id.sample, 0)
    });
    let by_place: HashMap<(u32, u32, u32), f64> =
        rows.map(|row| ((row.key.node_visit, row.key.branch, row.key.agent), row.advantage)).collect();
    let agents = read_workflow(&run.root)?;
    let agents = agents.get("agents").and_then(Value::as_array).into_iter().flatten();
    let agents: Vec<&str> = agents.filter_map(|agent| agent.get("name")?.as_str()).collect();
    for visit in &mut episode.visits {
        for branch in trained_branches(&mut visit.branches) {
            for reward in &mut branch.rewards {
                let agent = agents.iter().position(|name| *name == reward.agent);
                let place = agent.map(|agent| (visit.node_visit, branch.branch, agent as u32));
                reward.advantage = place.and_then(|place| by_place.get(&place).copied());
            }
        }
    }
    Ok(())
}

/// Returns the branches that were trained on: of several attempts at a candidate, the last.
fn trained_branches(branches: &mut [Branch]) -> impl Iterator<Item = &mut Branch> {
    let last: HashMap<u32, u32> = branches.iter().fold(HashMap::new(), |mut last, branch| {
        let retry = last.entry(branch.branch).or_default();
        *retry = branch.retry.max(*retry);
        last
    });
    branches.iter_mut().filter(move |branch| last.get(&branch.branch) == Some(&branch.retry))
}

/// Table of a step with the keys of its rows.
type KeyedTable = (StepTable, Vec<Key>);

/// Rewards of completions that a fault kept from being scored, as updates are trained on them.
pub(crate) struct PenalisedRewards<'r> {
    run: &'r FoundRun,
    /// `None` before they are needed.
    steps: Option<TrainedSteps>,
    /// Step whose file was read last, and the file. `None` if it is missing.
    read: Option<(u64, Option<KeyedTable>)>,
}

impl<'r> PenalisedRewards<'r> {
    pub(crate) fn new(run: &'r FoundRun) -> PenalisedRewards<'r> {
        PenalisedRewards { run, steps: None, read: None }
    }

    /// Adds the rewards of an episode's completions that have none and were trained on.
    ///
    /// # Errors
    /// If the file of the step can't be read.
    pub(crate) fn add(&mut self, episode: &mut EpisodeDetails) -> Result<(), Error> {
        let Ok(id) = episode.episode.parse::<EpisodeId>() else { return Ok(()) };
        // An attempt that failed was drawn again.
        if id.evaluation.is_some() || episode.failure.is_some() {
            return Ok(());
        }
        for visit in &mut episode.visits {
            let shares_fault = visit.fault.is_some();
            for branch in trained_branches(&mut visit.branches) {
                let faulted = branch.fault.is_some() || shares_fault;
                if !faulted || branch.turns.is_empty() || !branch.rewards.is_empty() {
                    continue;
                }
                let step = self.step_of(TaskKey { step: id.step, task: id.task })?;
                let Some((table, keys)) = self.table(step)? else { return Ok(()) };
                let place = (id.step, id.task, id.sample, visit.node_visit, branch.branch);
                for (row, key) in keys.iter().enumerate() {
                    if (key.step, key.task, key.sample, key.node_visit, key.branch) != place {
                        continue;
                    }
                    let Some(own) = table.transition(row)?.filter(|own| own.final_call) else { continue };
                    if branch.turns.iter().any(|turn| turn.agent == own.agent) {
                        let (agent, reward) = (own.agent, own.reward);
                        branch.rewards.push(Reward { agent, reward, relative: None, advantage: None });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the step whose update trains on a task.
    fn step_of(&mut self, task: TaskKey) -> Result<u64, Error> {
        let steps = match self.steps.take() {
            Some(steps) => steps,
            None => trained_steps(self.run)?,
        };
        Ok(self.steps.insert(steps).step_of(task))
    }

    /// Returns the table of a step. Returns `None` if the run has none.
    fn table(&mut self, step: u64) -> Result<Option<&KeyedTable>, Error> {
        if self.read.as_ref().is_none_or(|(read, _)| *read != step) {
            let path = RunFolder::step_file(&self.run.root, step);
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let table = match inside(&self.run.root, &["steps", &file])?.is_file() {
                true => {
                    let table = StepTable::open(&path)?;
                    let keys = table.keys()?;
                    Some((table, keys))
                }
                false => None,
            };
            self.read = Some((step, table));
        }
        Ok(self.read.as_ref().and_then(|(_, table)| table.as_ref()))
    }
}
