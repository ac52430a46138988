//! Results of a task as bytes, exact to the last bit.

use pl_model::Config;
use pl_plugin::LARGEST_REWARD;
use pl_rollout::{Attempt, EpisodeFailure, EpisodeResult, EpisodeSummary, Trace};
use pl_trainer::Trainer;
use pl_types::{Phase, Transition};
use serde::{Deserialize, Serialize};

use crate::error::cluster::ClusterError;

use super::message;
use super::task::TaskToPlay;

/// Largest result in bytes, unpacked.
const LARGEST_RESULT: u64 = 1 << 30;

/// Largest absolute value of the team's part of a completion's reward: that of its step, and that of the episode's end.
const LARGEST_TEAM_REWARD: f64 = 2.0 * LARGEST_REWARD;

/// Largest absolute value of a completion's reward: both parts, with weights of at most 1000.
const LARGEST_SUM: f64 = 1000.0 * (LARGEST_TEAM_REWARD + LARGEST_REWARD);

/// Models of the workflow's policies. `None` for those that are not trained.
pub(super) struct TrainedModels(Vec<Option<Config>>);

impl TrainedModels {
    pub fn of(trainer: &Trainer) -> TrainedModels {
        let bases = trainer.bases();
        let policies = trainer.policies().into_iter();
        TrainedModels(policies.map(|own| own.trained.then(|| bases[own.base].config.clone())).collect())
    }
}

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
    #[error("it has the id or the sample of another episode")]
    OtherId,
    #[error("a completion of {tokens} tokens has {logprobs} log-probs")]
    Lengths { tokens: usize, logprobs: usize },
    #[error("a completion has several versions, but workers keep the one that an episode began with")]
    Versions,
    #[error("a token has the log-prob {0}")]
    LogProb(f32),
    #[error("the value before a token is {0}")]
    Value(f32),
    #[error("a reward is {0}")]
    Reward(f64),
    #[error("the workflow has no policy {0}")]
    NoPolicy(u32),
    #[error("no policy can be trained on it: {0}")]
    Untrainable(Box<pl_trainer::Error>),
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
    message::pack(&format!("the result of task {task}"), &stored)
}

/// Decodes the attempts at all episodes of a task, and checks that they are such and that an update can train on them: a
/// result that is taken is in the log for good, so that an error of the update would end every resume too.
///
/// # Errors
/// [`ClusterError::Unreadable`] or [`ClusterError::Result`].
pub(super) fn decode(
    task: &TaskToPlay,
    models: &TrainedModels,
    bytes: &[u8],
) -> Result<Vec<Attempt>, ClusterError> {
    let failed = |reason: String| ClusterError::Result { task: task.name(), reason };
    let what = format!("the result of task {}", task.name());
    let stored: Vec<StoredAttempt> = message::unpack(&what, bytes, LARGEST_RESULT)?;
    let restore = |stored: StoredAttempt| {
        let StoredAttempt { transitions, summary, failures, failure, trace } = stored;
        let trace: Trace = serde_json::from_str(&trace).map_err(|error| failed(error.to_string()))?;
        Ok(Attempt { result: EpisodeResult { transitions, summary, failures }, failure, trace })
    };
    let attempts = stored.into_iter().map(restore).collect::<Result<Vec<_>, ClusterError>>()?;
    check(task, models, &attempts).map_err(|mismatch| failed(mismatch.to_string()))?;
    Ok(attempts)
}

/// Checks attempts against the task that they are to be of.
fn check(task: &TaskToPlay, models: &TrainedModels, attempts: &[Attempt]) -> Result<(), Mismatch> {
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
        check_summary(task, key.sample, &result.summary)?;
        for transition in &result.transitions {
            check_transition(task, models, transition)?;
        }
    }
    Ok(())
}

fn check_summary(task: &TaskToPlay, sample: u32, summary: &EpisodeSummary) -> Result<(), Mismatch> {
    let EpisodeSummary { task: number, task_id, sample: own, agents, .. } = summary;
    if (*number, task_id, *own) != (task.number, &task.task.id, sample) {
        return Err(Mismatch::OtherId);
    }
    agents.iter().flatten().try_for_each(|(reward, _)| check_reward(*reward, LARGEST_SUM))
}

fn check_reward(reward: f64, largest: f64) -> Result<(), Mismatch> {
    // False for a reward that is not a number.
    if reward.abs() <= largest {
        return Ok(());
    }
    Err(Mismatch::Reward(reward))
}

fn check_transition(
    task: &TaskToPlay,
    models: &TrainedModels,
    transition: &Transition,
) -> Result<(), Mismatch> {
    let Transition { key, task_id, policy, completion, logprobs, support, values, .. } = transition;
    if (key.step, key.task) != (task.step, task.number) {
        return Err(Mismatch::OtherTransition { step: key.step, task: key.task });
    }
    if *task_id != task.task.id {
        return Err(Mismatch::OtherId);
    }
    let length = completion.len();
    let is_off = |other: Option<usize>| other.is_some_and(|other| other != length);
    if logprobs.len() != length
        || is_off(support.as_ref().map(Vec::len))
        || is_off(values.as_ref().map(Vec::len))
    {
        return Err(Mismatch::Lengths { tokens: length, logprobs: logprobs.len() });
    }
    if !transition.version_changes.is_empty() {
        return Err(Mismatch::Versions);
    }
    // Rounding may leave a certain token slightly above 0.
    if let Some(wrong) = logprobs.iter().find(|logprob| !(f32::MIN..=1e-3).contains(*logprob)) {
        return Err(Mismatch::LogProb(*wrong));
    }
    if let Some(wrong) = values.iter().flatten().find(|value| !value.is_finite()) {
        return Err(Mismatch::Value(*wrong));
    }
    check_reward(transition.team_reward, LARGEST_TEAM_REWARD)?;
    check_reward(transition.local_reward, LARGEST_REWARD)?;
    check_reward(transition.reward, LARGEST_SUM)?;
    let model = models.0.get(*policy as usize).ok_or(Mismatch::NoPolicy(*policy))?;
    let (Some(config), Phase::Train) = (model, &task.phase) else { return Ok(()) };
    pl_trainer::check_transition(config, task.step, transition)
        .map_err(|error| Mismatch::Untrainable(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use pl_model::{Family, RopeScaling};
    use pl_types::{Group, Key};

    use super::*;
    use crate::test_transitions::call;

    /// A trained policy and one that is not.
    fn models() -> TrainedModels {
        let config = Config {
            family: Family::Qwen2,
            vocab: 10,
            hidden: 8,
            layers: 1,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            ffn: 8,
            rms_eps: 1e-6,
            rope_theta: 1e4,
            rope_scaling: RopeScaling::None,
            max_positions: 4,
            tied: true,
            bos: None,
            eos: Vec::new(),
        };
        TrainedModels(vec![Some(config), None])
    }

    fn transition() -> Transition {
        Transition {
            key: Key { step: 3, task: 2, sample: 0, node_visit: 0, agent: 0, branch: 0, call: 0 },
            group: Group { step: 3, task: 2, agent: 0, turn: 0, node_visit: None },
            agent: "a".to_owned(),
            completion: vec![2, 3],
            logprobs: vec![-0.5, 0.0],
            ..call(0, 0, true, 2)
        }
    }

    #[test]
    fn a_transition_that_can_not_be_of_its_task_is_refused() {
        let (task, models) = (TaskToPlay::example(), models());
        check_transition(&task, &models, &transition()).unwrap();
        type Change = fn(&mut Transition);
        let lies: [(Change, &str); 19] = [
            (|own| own.key.task = 1, "it has a transition of task 3.1"),
            (|own| own.key.step = 4, "it has a transition of task 4.2"),
            (|own| own.logprobs.truncate(1), "a completion of 2 tokens has 1 log-probs"),
            (|own| own.values = Some(vec![0.0]), "a completion of 2 tokens has 2 log-probs"),
            (|own| own.support = Some(Vec::new()), "a completion of 2 tokens has 2 log-probs"),
            (|own| own.logprobs[0] = 0.5, "a token has the log-prob 0.5"),
            (|own| own.logprobs[0] = f32::NAN, "a token has the log-prob NaN"),
            (|own| own.values = Some(vec![0.0, f32::NAN]), "the value before a token is NaN"),
            (|own| own.reward = f64::INFINITY, "a reward is inf"),
            (|own| own.reward = -1e10, "a reward is -10000000000"),
            (|own| own.team_reward = 3e6, "a reward is 3000000"),
            (|own| own.local_reward = f64::NAN, "a reward is NaN"),
            (|own| own.task_id = "u".to_owned(), "it has the id or the sample of another episode"),
            (|own| own.policy = 2, "the workflow has no policy 2"),
            (|own| own.prompt[0] = 10, "token 10 is outside the model's vocabulary of 10"),
            (|own| own.prompt = vec![1; 3], "5 tokens, but the model has only 4 positions"),
            (|own| own.temperature = f64::NAN, "the temperature is not a number in its range"),
            (|own| own.support = Some(vec![vec![2], vec![2]]), "the ids that token 3 was sampled from"),
            (
                |own| own.version_changes.push(pl_types::VersionChange { token: 1, version: 3 }),
                "a completion has several versions, but workers keep the one that an episode began with",
            ),
        ];
        for (change, expected) in lies {
            let mut lie = transition();
            change(&mut lie);
            let refused = check_transition(&task, &models, &lie).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
        // The texts of a policy that is not trained may have tokens of a server's model.
        let untrained = Transition { policy: 1, prompt: vec![10; 9], ..transition() };
        check_transition(&task, &models, &untrained).unwrap();
    }

    #[test]
    fn a_summary_that_can_not_be_of_its_episode_is_refused() {
        let task = TaskToPlay::example();
        let summary = EpisodeSummary {
            task: 2,
            task_id: "t".to_owned(),
            sample: 1,
            success: true,
            agents: vec![None, Some((1.0, true))],
            turns: 1,
            tokens: 2,
            truncated: false,
            reproducible: true,
        };
        let check = |own: EpisodeSummary| check_summary(&task, 1, &own).map_err(|error| error.to_string());
        assert_eq!(check(summary.clone()), Ok(()));
        let other = Err("it has the id or the sample of another episode".to_owned());
        assert_eq!(check(EpisodeSummary { sample: 0, ..summary.clone() }), other);
        assert_eq!(check(EpisodeSummary { task_id: "u".to_owned(), ..summary.clone() }), other);
        let agents = vec![Some((f64::NAN, true))];
        assert_eq!(check(EpisodeSummary { agents, ..summary }), Err("a reward is NaN".to_owned()));
    }

    #[test]
    fn a_result_without_its_episodes_is_refused() {
        let refused =
            decode(&TaskToPlay::example(), &models(), &encode("train 3.2", Vec::new()).unwrap()).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("episode 0 is missing"), "{refused}");
        for bytes in [&b"no archive"[..], slice::from_ref(&0)] {
            assert!(decode(&TaskToPlay::example(), &models(), bytes).is_err());
        }
    }
}
