//! Results of a task as bytes, exact to the last bit.

use pl_rollout::{Attempt, EpisodeFailure, EpisodeResult, EpisodeSummary, Trace};
use pl_types::Transition;
use serde::{Deserialize, Serialize};

use crate::error::cluster::ClusterError;

use super::task::TaskToPlay;

/// Level of zstd: the fastest, since most of a result is random numbers.
const LEVEL: i32 = 1;

/// Largest result in bytes, unpacked. A longer one would be a broken worker's.
const LARGEST_RESULT: usize = 1 << 30;

/// An attempt without its trace, which is JSON as in the run folder: its parts have no fixed form.
#[derive(Serialize, Deserialize)]
struct StoredAttempt {
    transitions: Vec<Transition>,
    summary: EpisodeSummary,
    failures: Vec<EpisodeFailure>,
    failure: Option<EpisodeFailure>,
    trace: String,
}

/// Encodes the attempts at all episodes of a task.
///
/// # Errors
/// If a trace has a number that JSON can't have.
pub(super) fn encode(task: &str, attempts: Vec<Attempt>) -> Result<Vec<u8>, ClusterError> {
    let failed = |reason: String| ClusterError::Result { task: task.to_owned(), reason };
    let store = |attempt: Attempt| {
        let Attempt { result: EpisodeResult { transitions, summary, failures }, failure, trace } = attempt;
        let trace = serde_json::to_string(&trace).map_err(|error| failed(error.to_string()))?;
        Ok(StoredAttempt { transitions, summary, failures, failure, trace })
    };
    let stored = attempts.into_iter().map(store).collect::<Result<Vec<_>, ClusterError>>()?;
    let bytes = postcard::to_allocvec(&stored).map_err(|error| failed(error.to_string()))?;
    zstd::bulk::compress(&bytes, LEVEL).map_err(|error| failed(error.to_string()))
}

/// Decodes the attempts at all episodes of a task, and checks that they are such.
///
/// # Errors
/// [`ClusterError::Result`].
pub(super) fn decode(task: &TaskToPlay, bytes: &[u8]) -> Result<Vec<Attempt>, ClusterError> {
    let failed = |reason: String| ClusterError::Result { task: task.name(), reason };
    let bytes = zstd::bulk::decompress(bytes, LARGEST_RESULT).map_err(|error| failed(error.to_string()))?;
    let stored: Vec<StoredAttempt> =
        postcard::from_bytes(&bytes).map_err(|error| failed(error.to_string()))?;
    let restore = |stored: StoredAttempt| {
        let StoredAttempt { transitions, summary, failures, failure, trace } = stored;
        let trace: Trace = serde_json::from_str(&trace).map_err(|error| failed(error.to_string()))?;
        Ok(Attempt { result: EpisodeResult { transitions, summary, failures }, failure, trace })
    };
    let attempts = stored.into_iter().map(restore).collect::<Result<Vec<_>, ClusterError>>()?;
    check(task, &attempts).map_err(failed)?;
    Ok(attempts)
}

/// Checks attempts against the task that they are to be of. Returns what is wrong.
fn check(task: &TaskToPlay, attempts: &[Attempt]) -> Result<(), String> {
    for (_, sample) in task.plan().episodes() {
        if !attempts.iter().any(|attempt| attempt.trace.key.sample == sample) {
            return Err(format!("episode {sample} is missing"));
        }
    }
    for Attempt { result, trace, .. } in attempts {
        let key = &trace.key;
        let own = (key.seed, &key.phase, key.step, key.task);
        if own != (task.seed, &task.phase, task.step, task.number) {
            return Err(format!("it has an episode of task {}.{}", key.step, key.task));
        }
        for transition in &result.transitions {
            check_transition(task, transition)?;
        }
    }
    Ok(())
}

fn check_transition(task: &TaskToPlay, transition: &Transition) -> Result<(), String> {
    let Transition { key, completion, logprobs, reward, support, values, .. } = transition;
    if (key.step, key.task) != (task.step, task.number) {
        return Err(format!("it has a transition of task {}.{}", key.step, key.task));
    }
    let length = completion.len();
    let is_off = |other: Option<usize>| other.is_some_and(|other| other != length);
    if logprobs.len() != length
        || is_off(support.as_ref().map(Vec::len))
        || is_off(values.as_ref().map(Vec::len))
    {
        return Err(format!("a completion of {length} tokens has {} log-probs", logprobs.len()));
    }
    // Rounding may leave a certain token slightly above 0.
    if let Some(wrong) = logprobs.iter().find(|logprob| !(f32::MIN..=1e-3).contains(*logprob)) {
        return Err(format!("a token has the log-prob {wrong}"));
    }
    if !reward.is_finite() {
        return Err(format!("a reward is {reward}"));
    }
    Ok(())
}
