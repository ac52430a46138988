//! What a workflow says of sampling, in the engine's words.

use pl_dsl::workflow::{Resampling, Sampling as Written};
use pl_inference::Sampling;

/// An agent's way to draw tokens.
pub fn of(agent: &Written) -> Sampling {
    Sampling {
        temperature: agent.temperature,
        top_k: agent.top_k as usize,
        top_p: agent.top_p,
        min_p: agent.min_p,
        repetition_penalty: agent.repetition_penalty,
        presence_penalty: agent.presence_penalty,
        frequency_penalty: agent.frequency_penalty,
        ..Sampling::default()
    }
}

/// The agent's way, but for what an evaluation says otherwise.
pub fn over(own: &Sampling, evaluation: &Resampling) -> Sampling {
    Sampling {
        temperature: evaluation.temperature.unwrap_or(own.temperature),
        top_k: evaluation.top_k.map_or(own.top_k, |k| k as usize),
        top_p: evaluation.top_p.unwrap_or(own.top_p),
        min_p: evaluation.min_p.unwrap_or(own.min_p),
        repetition_penalty: evaluation.repetition_penalty.unwrap_or(own.repetition_penalty),
        presence_penalty: evaluation.presence_penalty.unwrap_or(own.presence_penalty),
        frequency_penalty: evaluation.frequency_penalty.unwrap_or(own.frequency_penalty),
        ..own.clone()
    }
}
