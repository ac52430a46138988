//! Weights of tokens in the loss of a mini-batch.
//!
//! ```text
//! token_mean       1 / tokens of the mini-batch                                DAPO, Yu et al. 2025 (arXiv:2503.14476)
//! sequence_mean    1 / (completions · tokens of the completion)                GRPO, Shao et al. 2024 (arXiv:2402.03300)
//! constant         1 / (completions · divisor)                                 Dr. GRPO, Liu et al. 2025 (arXiv:2503.20783)
//! ```
//!
//! Counts are those of the policy's whole mini-batch, so that the gradient does not depend on how it is cut into
//! packed batches. They include completions without an advantage, and exclude masked ones, as in verl. TRL counts
//! masked completions in its means over completions.

use pl_dsl::workflow::objective::Aggregation;

/// Numbers of completions and of their tokens, of one policy in one mini-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionCounts {
    pub completions: usize,
    pub tokens: usize,
}

/// Weight of each token of a completion of `tokens` tokens. `divisor` is that of [`Aggregation::Constant`].
pub fn token_weight(
    aggregation: Aggregation,
    divisor: u32,
    tokens: usize,
    mini_batch: CompletionCounts,
) -> f32 {
    let completions = mini_batch.completions as f64;
    match aggregation {
        Aggregation::TokenMean => 1.0 / mini_batch.tokens as f32,
        Aggregation::SequenceMean => (1.0 / (completions * tokens as f64)) as f32,
        Aggregation::Constant => (1.0 / (completions * f64::from(divisor))) as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_worked_example() {
        let lengths = [1, 3, 4];
        let counts = CompletionCounts { completions: 3, tokens: 8 };
        let sums =
            |aggregation| lengths.map(|tokens| tokens as f32 * token_weight(aggregation, 16, tokens, counts));
        let near = |got: [f32; 3], expected: [f32; 3]| {
            assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}");
        };
        near(sums(Aggregation::TokenMean), [1.0 / 8.0, 3.0 / 8.0, 4.0 / 8.0]);
        near(sums(Aggregation::SequenceMean), [1.0 / 3.0; 3]);
        near(sums(Aggregation::Constant), [1.0 / 48.0, 3.0 / 48.0, 4.0 / 48.0]);
    }
}
