//! A pass through the transformer over a packed row, forwards and backwards, as training needs it.
//!
//! The transformer's one definition is [`crate::transform`]; this is its gradient, written out, and tests hold it
//! against what libtorch's autograd makes of that definition. Written out because it then costs what it must:
//! a block keeps ten widths of the stream instead of some forty, nothing is kept twice, gradients are added into
//! their buffers as they come, and a block can be run again from its input when memory is
//! short (Chen et al. 2016, arXiv:1604.06174). Nothing here panics where libtorch fails.

mod attention;
mod block;
mod elementwise;
mod routes;

use tch::{TchError, Tensor, no_grad};

use crate::{Adapter, Config, Error, Packed, Rope, Weights};
use attention::Reach;
use block::{Frame, Kept};
use elementwise::{normalize, normalize_backward, reciprocal_rms};
use routes::Routes;

/// What a forward pass keeps for the backward one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Each block's input; going back, the block is run again.
    Inputs,
    /// All that its gradient needs.
    Activations,
}

/// Buffers that gradients are added to.
#[derive(Debug)]
pub struct Gradients {
    /// Of all weights, where they are trained.
    pub weights: Option<Weights>,
    /// Of the adapters, in the order in which a pass is given them.
    pub adapters: Vec<Adapter>,
}

impl Gradients {
    /// Zeros for some weights, or for adapters.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn zeros(weights: Option<&Weights>, adapters: &[&Adapter]) -> Result<Self, TchError> {
        let gradients = Self {
            weights: weights.map(Weights::copy),
            adapters: adapters.iter().map(|adapter| adapter.copy()).collect(),
        };
        gradients.clear()?;
        Ok(gradients)
    }

    /// Sets all of them to zero.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn clear(&self) -> Result<(), TchError> {
        let weights = self.weights.iter().flat_map(Weights::parameters);
        let mut all = weights.chain(self.adapters.iter().flat_map(Adapter::parameters));
        no_grad(|| all.try_for_each(|(_, mut tensor)| tensor.f_zero_().map(drop)))
    }
}

/// A pass that went forwards and can go back.
pub struct Pass<'a> {
    frame: Frame<'a>,
    tokens: Tensor,
    /// Per block its input, and what its gradient needs.
    blocks: Vec<(Tensor, Option<Kept>)>,
    last: Tensor,
    rstd: Tensor,
    hidden: Tensor,
}

impl<'a> Pass<'a> {
    /// Goes forwards over a row of tokens.
    ///
    /// # Errors
    /// [`Error::Packed`] when the spans are not what they should be, [`Error::Torch`] when libtorch fails (memory).
    pub fn forward(
        config: &'a Config,
        weights: &'a Weights,
        adapters: &'a [&'a Adapter],
        packed: &Packed,
        keep: Keep,
    ) -> Result<Self, Error> {
        let (frame, tokens) = start(config, weights, adapters, packed)?;
        let mut blocks = Vec::with_capacity(config.layers);
        Ok(no_grad(|| {
            let mut x = weights.embed.f_index_select(0, &tokens)?;
            for i in 0..weights.layers.len() {
                let (output, kept) = frame.forward(i, &x, keep == Keep::Activations)?;
                blocks.push((x, kept));
                x = output;
            }
            let rstd = reciprocal_rms(&x, config.rms_eps)?;
            let hidden = normalize(&x, &rstd, &weights.norm)?;
            Ok::<_, TchError>(Self { frame, tokens, blocks, last: x, rstd, hidden })
        })?)
    }

    /// The hidden states `[T, H]` after the final norm.
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// Goes back from the gradient `[T, H]` with respect to the hidden states: adds the gradients of trained
    /// tensors to `gradients`, which has those of all adapters of the forward pass, or of the weights.
    ///
    /// # Errors
    /// When libtorch fails (memory).
    pub fn backward(self, gradient: &Tensor, gradients: &Gradients) -> Result<(), TchError> {
        let Self { frame, tokens, blocks, last, rstd, hidden } = self;
        drop(hidden);
        no_grad(|| {
            let weights = frame.weights;
            let gain = gradients.weights.as_ref().map(|own| &own.norm);
            let mut dy = normalize_backward(gradient, &last, &rstd, &weights.norm, gain)?;
            drop((last, rstd));
            for (i, (x, kept)) in blocks.into_iter().enumerate().rev() {
                let kept = match kept {
                    Some(kept) => Some(kept),
                    None => frame.forward(i, &x, true)?.1,
                };
                let Some(kept) = kept else { continue };
                dy = frame.backward(i, &x, kept, dy, gradients)?;
            }
            if let Some(own) = &gradients.weights {
                let dy = dy.f_to_kind(own.embed.kind())?;
                let _ = own.embed.shallow_clone().f_index_add_(0, &tokens, &dy)?;
            }
            Ok(())
        })
    }
}

/// The hidden states `[T, H]` after the final norm of a packed row, nothing kept for a gradient.
///
/// # Errors
/// As [`Pass::forward`].
pub fn hidden_states(
    config: &Config,
    weights: &Weights,
    adapters: &[&Adapter],
    packed: &Packed,
) -> Result<Tensor, Error> {
    let (frame, tokens) = start(config, weights, adapters, packed)?;
    Ok(no_grad(|| {
        let mut x = weights.embed.f_index_select(0, &tokens)?;
        for i in 0..weights.layers.len() {
            x = frame.forward(i, &x, false)?.0;
        }
        normalize(&x, &reciprocal_rms(&x, config.rms_eps)?, &weights.norm)
    })?)
}

fn start<'a>(
    config: &'a Config,
    weights: &'a Weights,
    adapters: &'a [&'a Adapter],
    packed: &Packed,
) -> Result<(Frame<'a>, Tensor), Error> {
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
    let rope = Rope::new(config, longest, device).at(&column(&positions)?);
    let reach = Reach::new(packed, weights.embed.kind(), device)?;
    Ok((Frame { config, weights, routes: Routes::new(adapters, packed), reach, rope }, column(&ids)?))
}
