//! Input, output and operations that all implementations of the head share.

use tch::Tensor;

use crate::cuda::error::Error;

/// Input of the head, one row per token, on one device.
#[derive(Debug, Clone, Copy)]
pub struct HeadRows<'a> {
    /// Hidden states that the tokens were predicted from, `[N, H]`.
    pub hidden: &'a Tensor,
    /// Token ids, `[N]` int64.
    pub tokens: &'a Tensor,
    /// Divisors of the logits, `[N]` f32, above 0; `None` if all are 1.
    pub temperatures: Option<&'a Tensor>,
}

/// Output of the head. All tensors are `[N]`, f32.
#[derive(Debug)]
pub struct HeadOutput {
    /// Log-probability of each row's token, in nats; NaN for tokens outside of the vocabulary.
    pub logp: Tensor,
    /// Entropy of each row's distribution, in nats.
    pub entropy: Tensor,
    /// Log of the sum of the exponentials of each row's logits.
    pub normalizer: Tensor,
}

/// An output head, forward and backward, without autograd.
pub trait TokenHead {
    /// Scores the rows' tokens. `unembed` is `[V, H]`, of the kind of the hidden states.
    fn forward(&self, rows: &HeadRows<'_>, unembed: &Tensor) -> Result<HeadOutput, Error>;

    /// Returns the gradient of a loss with respect to the hidden states, `[N, H]`, of their kind. `slopes`,
    /// `[N]` f32, are the derivatives of the loss with respect to the log-probabilities; `scores` is the
    /// result of `forward` for the same rows. Adds the gradient with respect to `unembed` to
    /// `unembed_gradient` if that is given.
    fn backward(
        &self,
        rows: &HeadRows<'_>,
        unembed: &Tensor,
        scores: &HeadOutput,
        slopes: &Tensor,
        unembed_gradient: Option<&Tensor>,
    ) -> Result<Tensor, Error>;
}
