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

/// Difference of a result from its task.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error("episode {0} is missing")]
    MissingEpisode(u32),
    #[error("it has an episode of task {step}.{task}")]
    OtherEpisode { step: u64, task: u32 },
    #[error("it has a transition of task {step}.{task}")]
    OtherTransition { step: u64, task: u32 },
    #[error("a completion of {tokens} tokens has {logprobs} log-probs")]
    Lengths { tokens: usize, logprobs: usize },
    #[error("a completion has several versions, but workers keep the one that an episode began with")]
    Versions,
    #[error("a token has the log-prob {0}")]
    LogProb(f32),
    #[error("a reward is {0}")]
    Reward(f64),
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
    check(task, &attempts).map_err(|mismatch| failed(mismatch.to_string()))?;
    Ok(attempts)
}

/// Checks attempts against the task that they are to be of.
fn check(task: &TaskToPlay, attempts: &[Attempt]) -> Result<(), Mismatch> {
    for (_, sample) in task.plan().episodes() {
        if !attempts.iter().any(|attempt| attempt.trace.key.sample == sample) {
            return Err(Mismatch::MissingEpisode(sample));
        }
    }
    for Attempt { result, trace, .. } in attempts {
        let key = &trace.key;
        let own = (key.seed, &key.phase, key.step, key.task);
        if own != (task.seed, &task.phase, task.step, task.number) {
            return Err(Mismatch::OtherEpisode { step: key.step, task: key.task });
        }
        for transition in &result.transitions {
            check_transition(task, transition)?;
        }
    }
    Ok(())
}

fn check_transition(task: &TaskToPlay, transition: &Transition) -> Result<(), Mismatch> {
    let Transition { key, completion, logprobs, reward, support, values, version_changes, .. } = transition;
    if (key.step, key.task) != (task.step, task.number) {
        return Err(Mismatch::OtherTransition { step: key.step, task: key.task });
    }
    let length = completion.len();
    let is_off = |other: Option<usize>| other.is_some_and(|other| other != length);
    if logprobs.len() != length
        || is_off(support.as_ref().map(Vec::len))
        || is_off(values.as_ref().map(Vec::len))
    {
        return Err(Mismatch::Lengths { tokens: length, logprobs: logprobs.len() });
    }
    if !version_changes.is_empty() {
        return Err(Mismatch::Versions);
    }
    // Rounding may leave a certain token slightly above 0.
    if let Some(wrong) = logprobs.iter().find(|logprob| !(f32::MIN..=1e-3).contains(*logprob)) {
        return Err(Mismatch::LogProb(*wrong));
    }
    if !reward.is_finite() {
        return Err(Mismatch::Reward(*reward));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use pl_plugin::Task;
    use pl_types::{Group, Key, Phase};

    use super::super::task::Team;
    use super::*;

    fn task() -> TaskToPlay {
        TaskToPlay {
            team: Team::Scenario(0),
            seed: 1,
            phase: Phase::Train,
            step: 3,
            number: 2,
            task: Task { id: "t".to_owned(), data: "{}".to_owned() },
            mode: pl_dsl::workflow::Rollout::Flat,
            samples: 2,
            first_sample: 0,
            versions: vec![0],
        }
    }

    fn transition() -> Transition {
        Transition {
            key: Key { step: 3, task: 2, sample: 0, node_visit: 0, agent: 0, branch: 0, call: 0 },
            group: Group { step: 3, task: 2, agent: 0, turn: 0, node_visit: None },
            task_id: "t".to_owned(),
            agent: "a".to_owned(),
            policy: 0,
            turn: 0,
            prompt: vec![1],
            completion: vec![2, 3],
            logprobs: vec![-0.5, 0.0],
            support: None,
            temperature: 1.0,
            max_tokens: 8,
            cut_off: false,
            final_call: true,
            versions: vec![0],
            version: 0,
            version_changes: Vec::new(),
            team_reward: 1.0,
            local_reward: 0.0,
            reward: 1.0,
            success: true,
            chosen: true,
            action: "null".to_owned(),
            state: String::new(),
            next_prompt: None,
            values: None,
        }
    }

    #[test]
    fn a_transition_that_can_not_be_of_its_task_is_refused() {
        let task = task();
        check_transition(&task, &transition()).unwrap();
        type Change = fn(&mut Transition);
        let lies: [(Change, &str); 9] = [
            (|own| own.key.task = 1, "it has a transition of task 3.1"),
            (|own| own.key.step = 4, "it has a transition of task 4.2"),
            (|own| own.logprobs.truncate(1), "a completion of 2 tokens has 1 log-probs"),
            (|own| own.values = Some(vec![0.0]), "a completion of 2 tokens has 2 log-probs"),
            (|own| own.support = Some(Vec::new()), "a completion of 2 tokens has 2 log-probs"),
            (|own| own.logprobs[0] = 0.5, "a token has the log-prob 0.5"),
            (|own| own.logprobs[0] = f32::NAN, "a token has the log-prob NaN"),
            (|own| own.reward = f64::INFINITY, "a reward is inf"),
            (
                |own| own.version_changes.push(pl_types::VersionChange { token: 1, version: 3 }),
                "a completion has several versions, but workers keep the one that an episode began with",
            ),
        ];
        for (change, expected) in lies {
            let mut lie = transition();
            change(&mut lie);
            assert_eq!(check_transition(&task, &lie).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_result_without_its_episodes_is_refused() {
        let refused = decode(&task(), &encode("train 3.2", Vec::new()).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("episode 0 is missing"), "{refused}");
        for bytes in [&b"no archive"[..], slice::from_ref(&0)] {
            assert!(decode(&task(), bytes).is_err());
        }
    }
}
