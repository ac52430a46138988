//! Validation of transitions before an update.

use pl_model::Config;

use crate::error::Error;
use crate::plan::{PlannedSequence, Sample};

/// Checks a transition against its model. Returns the properties that planning needs. `policy_index` is the
/// index of its policy within the learner, or `None` if the learner does not train it.
pub(crate) fn planned_sequence(
    config: &Config,
    policy_index: Option<usize>,
    step: u64,
    sample: &Sample<'_>,
) -> Result<PlannedSequence, Error> {
    let t = sample.transition;
    let refuse = |problem: String| {
        let (task, agent) = (t.task_id.clone(), t.agent.clone());
        Error::Transition { step, task, agent, turn: t.turn, problem }
    };
    let Some(policy_index) = policy_index else {
        return Err(refuse(format!("policy {} is not trained by this learner", t.policy)));
    };
    if t.prompt.is_empty() || t.completion.is_empty() {
        return Err(refuse("the prompt or the completion has no tokens".into()));
    }
    if t.completion.len() != t.logprobs.len() {
        let (tokens, logprobs) = (t.completion.len(), t.logprobs.len());
        return Err(refuse(format!("{tokens} completion tokens, but {logprobs} log-probabilities")));
    }
    let total = t.prompt.len() + t.completion.len();
    if total > config.max_positions {
        let limit = config.max_positions;
        return Err(refuse(format!("{total} tokens, but the model has only {limit} positions")));
    }
    if let Some(id) = t.prompt.iter().chain(&t.completion).find(|&&id| i64::from(id) >= config.vocab) {
        return Err(refuse(format!("token {id} is outside the model's vocabulary of {}", config.vocab)));
    }
    let valid = t.logprobs.iter().all(|l| l.is_finite() && *l <= 1e-3)
        && sample.advantage.is_finite()
        && t.temperature.is_finite()
        && t.temperature >= 0.0;
    if !valid {
        return Err(refuse(
            "a log-probability, the temperature or the advantage is not a number in its range".into(),
        ));
    }
    if let Some(support) = &t.support {
        if support.len() != t.completion.len() {
            let (tokens, lists) = (t.completion.len(), support.len());
            return Err(refuse(format!("{tokens} completion tokens, but {lists} lists of sampled-from ids")));
        }
        for (id, ids) in t.completion.iter().zip(support).filter(|(_, ids)| !ids.is_empty()) {
            if !ids.contains(id) || ids.iter().any(|&id| i64::from(id) >= config.vocab) {
                return Err(refuse(format!(
                    "the ids that token {id} was sampled from are outside the vocabulary or do not contain it"
                )));
            }
        }
    }
    Ok(PlannedSequence {
        // The last token of a completion predicts no token that is trained on.
        tokens: t.prompt.iter().chain(&t.completion).take(total - 1).copied().collect(),
        prompt: t.prompt.len(),
        policy_index,
        targets: t.completion.len(),
        advantaged: sample.advantage != 0.0,
    })
}
