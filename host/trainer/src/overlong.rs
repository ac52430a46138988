//! Treatment of completions that are cut off at the limit of tokens, or come near it.
//!
//! DAPO (Yu et al. 2025, arXiv:2503.14476, section 3.4) lowers the reward of a completion of `n` tokens, with
//! a limit of `max` tokens and a buffer of `b` tokens before it, by
//!
//! ```text
//! penalty · clamp((n - (max - b)) / b, 0, 1)
//! ```
//!
//! and proposes, as the other choice, to train on none of the tokens of a completion that was cut off.

use pl_dsl::workflow::objective::{Objective, Overlong};
use pl_types::Transition;

/// Amount by which a completion's reward is lowered.
pub fn penalty(tokens: usize, max_tokens: u32, buffer: u32, largest: f64) -> f64 {
    let over = tokens as f64 - (f64::from(max_tokens) - f64::from(buffer));
    if over <= 0.0 { 0.0 } else { largest * (over / f64::from(buffer.max(1))).min(1.0) }
}

/// Amount by which a completion lowers the reward of its turn. 0 unless the objective penalises overlong completions.
pub(crate) fn reward_penalty(objective: &Objective, transition: &Transition) -> f64 {
    let tokens = transition.completion.len();
    match objective.overlong {
        Overlong::Penalize => {
            let Objective { overlong_buffer, overlong_penalty, .. } = *objective;
            penalty(tokens, transition.max_tokens, overlong_buffer, overlong_penalty)
        }
        Overlong::Keep | Overlong::Mask => 0.0,
    }
}

/// Returns true if the objective trains on none of the transition's tokens.
pub(crate) fn is_masked(objective: &Objective, transition: &Transition) -> bool {
    objective.overlong == Overlong::Mask && transition.cut_off
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_rises_over_the_buffer() {
        let penalties = [0, 60, 80, 85, 90, 100, 120].map(|tokens| penalty(tokens, 100, 20, 2.0));
        assert_eq!(penalties, [0.0, 0.0, 0.0, 0.5, 1.0, 2.0, 2.0]);
        // Without a buffer, only completions above the limit are penalised.
        assert_eq!([99, 100, 101].map(|tokens| penalty(tokens, 100, 0, 1.0)), [0.0, 0.0, 1.0]);
    }
}
