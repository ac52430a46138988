//! The transformer: its only definition on libtorch, forward and backward.
//!
//! Training runs it over packed sequences ([`Pass`]); generation keeps keys and
//! values in a cache ([`forward_cached`]). The gradient is written out instead of left to libtorch's autograd,
//! because that needs less: a block keeps ten widths of the residual stream instead of about forty, nothing
//! is kept twice, gradients are added to their buffers as they are computed, and a block can be run again
//! from its input if memory is short (Chen et al. 2016, arXiv:1604.06174). Tests compare it with autograd on
//! a plain implementation. Nothing here panics if libtorch fails.

mod adapter_rows;
mod adapter_slots;
mod attention;
mod block;
mod cached;
mod elementwise;
#[cfg(test)]
mod gpu_tests;
mod gradients;
mod slot_rows;

use tch::{TchError, Tensor, no_grad};

use crate::error::Error;
use crate::network::adapter::Adapter;
use crate::network::config::Config;
use crate::network::packed::Packed;
use crate::network::rope::Rope;
use crate::network::weights::Weights;
use attention::{AttentionBlock, AttentionParts};
use block::{BlockActivations, Frame};
use elementwise::{normalize_backward, rms_norm};

pub use adapter_rows::{AdapterRows, AdapterRun};
pub use adapter_slots::AdapterSlots;
pub use attention::ContextAttention;
pub use cached::forward_cached;
pub use gradients::Gradients;

/// Gradient checkpointing: recomputation of activations in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpointing {
    /// The forward pass keeps only each layer's input; the backward pass runs the layer again.
    On,
    /// The forward pass keeps all tensors that the gradients need.
    Off,
}

/// A forward pass over packed sequences, ready for its backward pass.
pub struct Pass<'a> {
    frame: Frame<'a>,
    parts: AttentionParts,
    tokens: Tensor,
    /// Input of each block, and the tensors that its gradient needs unless they are computed again.
    blocks: Vec<(Tensor, Option<BlockActivations<AttentionBlock>>)>,
    last: Tensor,
    rstd: Tensor,
    hidden: Tensor,
}

impl<'a> Pass<'a> {
    /// Runs the forward pass over a packed batch.
    ///
    /// # Errors
    /// [`Error::Packed`] if the spans are invalid, [`Error::Torch`] if libtorch fails (memory).
    pub fn forward(
        config: &'a Config,
        weights: &'a Weights,
        adapters: &'a [&'a Adapter],
        packed: &Packed,
        checkpointing: Checkpointing,
    ) -> Result<Self, Error> {
        let (frame, parts, tokens) = prepare(config, weights, adapters, packed)?;
        let mut blocks = Vec::with_capacity(config.layers);
        Ok(no_grad(|| {
            let mut x = weights.embed.rows(&tokens)?;
            for i in 0..weights.layers.len() {
                let (output, activations) = match checkpointing {
                    Checkpointing::On => (run_block(&frame, &parts, i, &x)?.0, None),
                    Checkpointing::Off => {
                        let (output, activations) = run_block(&frame, &parts, i, &x)?;
                        (output, Some(activations))
                    }
                };
                blocks.push((x, activations));
                x = output;
            }
            let (hidden, rstd) = rms_norm(&x, config.rms_eps, &weights.norm)?;
            Ok::<_, TchError>(Self { frame, parts, tokens, blocks, last: x, rstd, hidden })
        })?)
    }

    /// Returns the hidden states `[T, H]` after the final norm.
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// Runs the backward pass from the gradient `[T, H]` with respect to the hidden states. Adds the
    /// gradients of trained tensors to `gradients`, which has buffers for all adapters of the forward pass,
    /// or for the weights.
    ///
    /// # Errors
    /// If libtorch fails (memory).
    pub fn backward(self, gradient: &Tensor, gradients: &Gradients) -> Result<(), TchError> {
        let Self { frame, parts, tokens, blocks, last, rstd, hidden } = self;
        drop(hidden);
        no_grad(|| {
            let weights = frame.weights;
            let gain = gradients.weights.as_ref().map(|own| &own.norm);
            let mut dy = normalize_backward(gradient, &last, &rstd, &weights.norm, gain)?;
            drop((last, rstd));
            for (i, (x, activations)) in blocks.into_iter().enumerate().rev() {
                let activations = match activations {
                    Some(activations) => activations,
                    None => run_block(&frame, &parts, i, &x)?.1,
                };
                dy = frame.backward(i, &x, &parts, activations, dy, gradients)?;
            }
            if let Some(own) = gradients.weights.as_ref().and_then(|own| own.embed.tensor()) {
                let dy = dy.f_to_kind(own.kind())?;
                let _ = own.shallow_clone().f_index_add_(0, &tokens, &dy)?;
            }
            Ok(())
        })
    }
}

/// Returns the hidden states `[T, H]` of a packed batch after the final norm. Keeps nothing for a gradient.
///
/// # Errors
/// As [`Pass::forward`].
pub fn hidden_states(
    config: &Config,
    weights: &Weights,
    adapters: &[&Adapter],
    packed: &Packed,
) -> Result<Tensor, Error> {
    let (frame, parts, tokens) = prepare(config, weights, adapters, packed)?;
    Ok(run_blocks(&frame, &tokens, |_, q, k, v| AttentionBlock::new(&parts, q, k, v)?.output())?)
}

/// Runs all blocks and the final norm, and keeps nothing for a gradient.
fn run_blocks(
    frame: &Frame<'_>,
    tokens: &Tensor,
    mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Result<Tensor, TchError>,
) -> Result<Tensor, TchError> {
    let Frame { config, weights, .. } = frame;
    no_grad(|| {
        let mut x = weights.embed.rows(tokens)?;
        for i in 0..weights.layers.len() {
            x = frame.forward(i, &x, |q, k, v| Ok((attend(i, q, k, v)?, ())))?.0;
        }
        Ok(rms_norm(&x, config.rms_eps, &weights.norm)?.0)
    })
}

/// Runs one block of a packed batch.
fn run_block(
    frame: &Frame<'_>,
    parts: &AttentionParts,
    i: usize,
    x: &Tensor,
) -> Result<(Tensor, BlockActivations<AttentionBlock>), TchError> {
    frame.forward(i, x, |q, k, v| {
        let attention = AttentionBlock::new(parts, q, k, v)?;
        Ok((attention.output()?, attention))
    })
}

/// Checks a packed batch and prepares the inputs of its blocks. Returns the token ids as a tensor too.
fn prepare<'a>(
    config: &'a Config,
    weights: &'a Weights,
    adapters: &'a [&'a Adapter],
    packed: &Packed,
) -> Result<(Frame<'a>, AttentionParts, Tensor), Error> {
    packed.check(adapters.len())?;
    let device = weights.device();
    let column = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
    let ids: Vec<i64> = packed.tokens.iter().map(|id| i64::from(*id)).collect();
    let first = packed.first_positions();
    let positions: Vec<i64> = packed
        .spans
        .iter()
        .zip(first)
        .flat_map(|(span, first)| (first..first + span.len).map(|position| position as i64))
        .collect();
    let longest = positions.iter().max().map_or(0, |last| *last as usize + 1);
    let rope = Rope::new(config, longest, device).select(&column(&positions)?);
    let parts = AttentionParts::new(packed, device)?;
    let adapters = AdapterRows::for_packed(adapters, packed)?;
    Ok((Frame { config, weights, adapters, rope }, parts, column(&ids)?))
}
