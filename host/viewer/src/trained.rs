//! Values that updates computed for the tokens of completions, from the files of their steps.

use std::collections::HashMap;

use pl_record::schedule::{SCHEDULE, trained_in};
use pl_record::{RunFolder, TokenTable};
use pl_types::{Clipping, EpisodeId, Key, TaskKey, TrainedCompletion};
use serde::Serialize;
use serde_json::Value;

use crate::episode::EpisodeDetails;
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

/// Returns the step whose update trains on a task.
pub(crate) fn step_of(run: &FoundRun, step: u64, task: u32) -> Result<u64, Error> {
    // Refuses links.
    inside(&run.root, &[SCHEDULE])?;
    Ok(trained_in(&run.root, TaskKey { step, task })?)
}

/// Opens the tokens of the update that trains on a task. Returns `None` if the run has no such file: it records none, or the
/// step is not finished.
fn open(run: &FoundRun, step: u64, task: u32) -> Result<Option<TokenTable>, Error> {
    let step = step_of(run, step, task)?;
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
        // Of several attempts at a candidate, the last is trained on.
        let last: HashMap<u32, u32> = visit.branches.iter().fold(HashMap::new(), |mut last, branch| {
            let retry = last.entry(branch.branch).or_default();
            *retry = branch.retry.max(*retry);
            last
        });
        for branch in
            visit.branches.iter_mut().filter(|branch| last.get(&branch.branch) == Some(&branch.retry))
        {
            for reward in &mut branch.rewards {
                let agent = agents.iter().position(|name| *name == reward.agent);
                let place = agent.map(|agent| (visit.node_visit, branch.branch, agent as u32));
                reward.advantage = place.and_then(|place| by_place.get(&place).copied());
            }
        }
    }
    Ok(())
}
