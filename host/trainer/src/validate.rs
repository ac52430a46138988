//! Validation of transitions before an update.

use pl_model::Config;
use pl_types::Transition;

use crate::error::Error;

/// Checks a transition against the model of its policy, which is trained on it in `step`.
///
/// # Errors
/// [`Error::Transition`] if the policy can't be trained on it.
pub fn check_transition(config: &Config, step: u64, t: &Transition) -> Result<(), Error> {
    let refuse = |problem: String| refuse(step, t, problem);
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
    let tokens = t.prompt.iter().chain(&t.completion).chain(t.next_prompt.iter().flatten());
    if let Some(id) = tokens.into_iter().find(|&&id| i64::from(id) >= config.vocab) {
        return Err(refuse(format!("token {id} is outside the model's vocabulary of {}", config.vocab)));
    }
    let valid = t.logprobs.iter().all(|l| l.is_finite() && *l <= 1e-3)
        && t.temperature.is_finite()
        && t.temperature >= 0.0;
    if !valid {
        return Err(refuse("a log-probability or the temperature is not a number in its range".into()));
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
    Ok(())
}

/// Error for a transition that can't be trained on.
pub(crate) fn refuse(step: u64, t: &Transition, problem: String) -> Error {
    Error::Transition { step, task: t.task_id.clone(), agent: t.agent.clone(), turn: t.turn, problem }
}
