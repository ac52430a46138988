//! One completion, token by token, from the file of its step.

use pl_record::{RunFolder, StepTable};
use pl_types::{EpisodeId, TaskKey, Transition, VersionChange};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::event::{Full, Kind, TraceRecord};
use crate::runs::{FoundRun, inside};
use crate::trained::{PassView, records, trained_steps};
use crate::workflow::{TokenTexts, Workflows};

/// Largest number of ids of a sampled support that are shown.
const LARGEST_SUPPORT: usize = 64;

/// Position of a completion in its episode.
#[derive(Debug, Clone)]
pub(crate) struct CompletionPosition {
    pub(crate) agent: String,
    pub(crate) visit: u32,
    pub(crate) branch: u32,
    /// Number of model calls before it in the turn. `None` for the last one.
    pub(crate) call: Option<u32>,
}

/// A token of a completion in a pass of an update.
#[derive(Debug, Clone)]
pub(crate) struct TokenPosition {
    pub(crate) epoch: u32,
    pub(crate) token: usize,
}

/// A completion with the recorded log-probabilities and supports of its tokens.
#[derive(Debug, Serialize)]
pub(crate) struct TokenView {
    tokens: Vec<Token>,
    /// Number of model calls before it in the turn.
    call: u32,
    /// Number of model calls of the turn.
    calls: u32,
    /// Fields of the step file. `None` for episodes that are not trained on.
    recorded: Option<Recorded>,
    /// Passes of the update over the completion. Empty if none is recorded.
    passes: Vec<PassView>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Token {
    id: u32,
    /// `None` if the model's tokenizer is not available.
    text: Option<String>,
    /// Natural logarithm of its probability when it was sampled.
    logprob: Option<f32>,
    /// Number of tokens that it was drawn from. `None` for the whole vocabulary.
    support: Option<usize>,
    /// The first of these tokens.
    alternatives: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Recorded {
    version: u64,
    version_changes: Vec<VersionChange>,
    versions: Vec<u64>,
    temperature: f64,
    max_tokens: u32,
    cut_off: bool,
    prompt_tokens: usize,
    reward: f64,
    team_reward: f64,
    local_reward: f64,
    success: bool,
    chosen: bool,
    state: String,
}

/// Reads the tokens of a completion.
pub(crate) fn read(
    run: &FoundRun,
    name: &str,
    trace: &TraceRecord<Full>,
    position: &CompletionPosition,
    workflows: &dyn Workflows,
) -> Result<TokenView, Error> {
    let agent = &position.agent;
    let sampled = completion(trace, position).ok_or_else(|| unknown(name, position))?;
    let mut notes = Vec::new();
    let evaluation = name.parse::<EpisodeId>().ok().and_then(|id| id.evaluation);
    let transition = transition(run, name, position, &sampled)?;
    let mut passes = Vec::new();
    match &transition {
        None => notes.push(
            "No log-probabilities are recorded: only completions that are trained on have them.".into(),
        ),
        Some(transition) => match records(run, &transition.key) {
            Ok(found) if found.is_empty() => notes.push(
                "Nothing of the update is recorded: the step is not finished, its policy was not updated in it, or \
                 `train.record_tokens` is off."
                    .into(),
            ),
            Ok(found) => passes.extend(found.into_iter().map(|one| PassView::new(one, &transition.logprobs))),
            Err(error) => notes.push(error.to_string()),
        },
    }
    let tokenizer = match workflows.tokenizer(&run.root, evaluation.as_deref(), agent) {
        Ok(tokenizer) => Some(tokenizer),
        Err(error) => {
            notes.push(format!("Texts of tokens are not shown: {error}"));
            None
        }
    };
    let text = |id: u32| tokenizer.as_ref().map(|tokenizer| tokenizer.text(&[id]));
    let tokens = sampled.tokens.iter().enumerate().map(|(index, id)| {
        let support = transition.as_ref().and_then(|t| t.support.as_ref()?.get(index));
        let support = support.filter(|support| !support.is_empty());
        Token {
            id: *id,
            text: text(*id),
            logprob: transition.as_ref().and_then(|t| t.logprobs.get(index).copied()),
            support: support.map(Vec::len),
            alternatives: alternatives(support.map(Vec::as_slice).unwrap_or_default(), tokenizer.as_deref()),
        }
    });
    let tokens = tokens.collect();
    let SampledCompletion { call, calls, .. } = sampled;
    Ok(TokenView { tokens, call, calls, recorded: transition.map(recorded), passes, notes })
}

/// Explains the gradient of a token.
pub(crate) fn gradient(
    run: &FoundRun,
    name: &str,
    trace: &TraceRecord<Full>,
    position: &CompletionPosition,
    token: &TokenPosition,
    workflows: &dyn Workflows,
) -> Result<Value, Error> {
    let sampled = completion(trace, position).ok_or_else(|| unknown(name, position))?;
    let transition = transition(run, name, position, &sampled)?.ok_or_else(|| unknown(name, position))?;
    let records = records(run, &transition.key)?;
    let record = records.iter().find(|record| record.epoch == token.epoch);
    let record = record.ok_or_else(|| unknown(name, position))?;
    Ok(workflows.gradient(&run.root, &position.agent, record, &transition.logprobs, token.token)?)
}

fn unknown(name: &str, position: &CompletionPosition) -> Error {
    let CompletionPosition { agent, visit, branch, call } = position.clone();
    Error::UnknownCompletion { episode: name.to_owned(), agent, visit, branch, call }
}

/// Finds the row of a completion. Evaluations have none.
fn transition(
    run: &FoundRun,
    name: &str,
    position: &CompletionPosition,
    sampled: &SampledCompletion,
) -> Result<Option<Transition>, Error> {
    match name.parse::<EpisodeId>().ok().filter(|id| id.evaluation.is_none()) {
        Some(id) => find(run, &id, position, sampled),
        None => Ok(None),
    }
}

fn alternatives(support: &[u32], tokenizer: Option<&dyn TokenTexts>) -> Vec<String> {
    let Some(tokenizer) = tokenizer else { return Vec::new() };
    support.iter().take(LARGEST_SUPPORT).map(|id| tokenizer.text(&[*id])).collect()
}

/// A completion of a trace, with its place in its turn.
struct SampledCompletion {
    tokens: Vec<u32>,
    call: u32,
    calls: u32,
}

/// Finds a completion in a trace: of the last attempt at its candidate.
fn completion(trace: &TraceRecord<Full>, position: &CompletionPosition) -> Option<SampledCompletion> {
    let events = trace.events.iter().filter(|event| {
        event.position.node_visit == position.visit
            && event.position.candidate.map_or(0, |candidate| candidate.branch) == position.branch
            && event.position.agent.as_ref() == Some(&position.agent)
    });
    let completions = events.filter_map(|event| match &event.kind {
        Kind::Completion(completion) => Some((event.position.candidate, &completion.tokens)),
        _ => None,
    });
    let completions: Vec<_> = completions.collect();
    let (last_attempt, _) = completions.last()?;
    let calls: Vec<_> = completions.iter().filter(|(attempt, _)| attempt == last_attempt).collect();
    let call = position.call.map_or(calls.len() - 1, |call| call as usize);
    let (_, tokens) = calls.get(call)?;
    Some(SampledCompletion { tokens: tokens.to_vec(), call: call as u32, calls: calls.len() as u32 })
}

/// Finds the row of a completion. Returns `None` if the episode was not trained on: its attempt failed, or the
/// step is not finished.
fn find(
    run: &FoundRun,
    id: &EpisodeId,
    position: &CompletionPosition,
    sampled: &SampledCompletion,
) -> Result<Option<Transition>, Error> {
    let step = trained_steps(run)?.step_of(TaskKey { step: id.step, task: id.task });
    let path = RunFolder::step_file(&run.root, step);
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !inside(&run.root, &["steps", &file])?.is_file() {
        return Ok(None);
    }
    let table = StepTable::open(&path)?;
    for (row, key) in table.keys()?.into_iter().enumerate() {
        let wanted = (id.step, id.task, id.sample, position.visit, position.branch, sampled.call);
        if (key.step, key.task, key.sample, key.node_visit, key.branch, key.call) != wanted {
            continue;
        }
        let transition = table.transition(row)?;
        // An attempt that failed has the position of the one that was trained on.
        let same = |t: &Transition| t.agent == position.agent && t.completion == sampled.tokens;
        if let Some(transition) = transition.filter(same) {
            return Ok(Some(transition));
        }
    }
    Ok(None)
}

fn recorded(transition: Transition) -> Recorded {
    Recorded {
        version: transition.version,
        version_changes: transition.version_changes,
        versions: transition.versions,
        temperature: transition.temperature,
        max_tokens: transition.max_tokens,
        cut_off: transition.cut_off,
        prompt_tokens: transition.prompt.len(),
        reward: transition.reward,
        team_reward: transition.team_reward,
        local_reward: transition.local_reward,
        success: transition.success,
        chosen: transition.chosen,
        state: transition.state,
    }
}
