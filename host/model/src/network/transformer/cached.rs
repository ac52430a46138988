//! The transformer of generation: keys and values go to a cache, and nothing is kept for a gradient.
//!
//! A step of generation has few rows, so that on a GPU launches take longer than the work. Matrices that lie one after another
//! ([`adjacent`]) have one product, and kernels do the work of several operations. Where there are none, the operations are
//! those of a block of training.

use pl_kernels::cuda::elementwise::HeadInputs;
use tch::{TchError, Tensor, no_grad};

use super::adapter_rows::AdapterRows;
use super::block::Frame;
use super::elementwise::{add_rms_norm, gate, gate_halves, rms_norm, rotate_and_store};
use crate::network::adapter::Projection;
use crate::network::config::Config;
use crate::network::matmul::linear;
use crate::network::rope::Rope;
use crate::network::weight_matrix::adjacent;
use crate::network::weights::Weights;

/// Returns the hidden states `[T, H]` of `tokens` (`[T]`, i64) after the final norm. Writes their keys and values to a cache.
///
/// `rope` has the T rows of the tokens' positions. `cache` has a tensor `[slots, 2, kv_heads, D]` for each layer, a token's keys,
/// then its values; `slots` (`[T]`, i64) are the tokens' places in it. `attend(layer, q)` gets rotated queries `[T, heads, D]`,
/// contiguous, once the layer's keys and values are in the cache, and returns `[T, heads x D]`.
///
/// # Errors
/// If libtorch or `attend` fails, or a layer has no cache.
#[allow(clippy::too_many_arguments, reason = "a step needs as many tensors")]
pub fn forward_cached(
    config: &Config,
    weights: &Weights,
    adapters: AdapterRows<'_>,
    tokens: &Tensor,
    rope: Rope,
    cache: &[Tensor],
    slots: &Tensor,
    mut attend: impl FnMut(usize, &Tensor) -> Result<Tensor, TchError>,
) -> Result<Tensor, TchError> {
    let frame = Frame { config, weights, adapters, rope };
    let (eps, layers) = (config.rms_eps, &weights.layers);
    no_grad(|| {
        let mut x = weights.embed.rows(tokens)?;
        let gain = layers.first().map_or(&weights.norm, |layer| &layer.attention_norm);
        let mut normed = rms_norm(&x, eps, gain)?.0;
        for (i, layer) in layers.iter().enumerate() {
            let missing = || TchError::Torch(format!("layer {i} has no cache"));
            let q = frame.store_heads(i, &normed, cache.get(i).ok_or_else(missing)?, slots)?;
            let mixed = attend(i, &q)?;
            let added = frame.project(i, Projection::O, &mixed)?.0;
            (x, normed) = add_rms_norm(added, &x, eps, &layer.ffn_norm)?;
            let gated = match frame.project_together(i, [Projection::Gate, Projection::Up], &normed)? {
                Products::Together(halves) => gate_halves(&halves)?,
                Products::Each([gates, up]) => gate(&gates, &up)?,
            };
            let added = frame.project(i, Projection::Down, &gated)?.0;
            let gain = layers.get(i + 1).map_or(&weights.norm, |next| &next.attention_norm);
            (x, normed) = add_rms_norm(added, &x, eps, gain)?;
        }
        Ok(normed)
    })
}

/// Projections of the same input.
enum Products<const N: usize> {
    /// Beside each other, `[T, sum of widths]`.
    Together(Tensor),
    Each([Tensor; N]),
}

impl Frame<'_> {
    /// Computes queries, keys and values of a layer. Writes keys and values to their slots, and returns rotated queries
    /// `[T, heads, D]`.
    fn store_heads(
        &self,
        i: usize,
        normed: &Tensor,
        cache: &Tensor,
        slots: &Tensor,
    ) -> Result<Tensor, TchError> {
        let (config, layer) = (self.config, &self.weights.layers[i]);
        let (q_gain, k_gain) = (layer.q_norm.as_ref(), layer.k_norm.as_ref());
        let [q, k, v] =
            match self.project_together(i, [Projection::Q, Projection::K, Projection::V], normed)? {
                Products::Each(parts) => parts,
                Products::Together(qkv) => {
                    let (cos, sin) = self.rope.tables();
                    let inputs = HeadInputs { qkv: &qkv, q_gain, k_gain, tables: [cos, sin], slots, cache };
                    if let Some(q) = rotate_and_store(&inputs, config.rms_eps)? {
                        return Ok(q);
                    }
                    columns(&qkv, [config.q_width(), config.kv_width(), config.kv_width()])?
                }
            };
        let q = self.normed_and_rotated(q, config.heads, q_gain)?.f_contiguous()?;
        let k = self.normed_and_rotated(k, config.kv_heads, k_gain)?;
        let new = Tensor::f_stack(&[&k, &v.f_view(k.size().as_slice())?], 1)?;
        let _ = cache.shallow_clone().f_index_copy_(0, slots, &new)?;
        Ok(q)
    }

    /// Computes projections of `x`, by one product if their matrices are one after another.
    fn project_together<const N: usize>(
        &self,
        i: usize,
        projections: [Projection; N],
        x: &Tensor,
    ) -> Result<Products<N>, TchError> {
        let matrices = projections.map(|projection| self.weights.layers[i].projection(projection));
        let Some(stacked) = adjacent(matrices) else {
            let mut each = projections.map(|_| Tensor::new());
            for (y, projection) in each.iter_mut().zip(projections) {
                *y = self.project(i, projection, x)?.0;
            }
            return Ok(Products::Each(each));
        };
        let all = linear(x, &stacked)?;
        let parts = columns(&all, matrices.map(|matrix| matrix.size()[0]))?;
        for (projection, y) in projections.into_iter().zip(&parts) {
            self.add_bias(i, projection, y)?;
        }
        self.adapters.add_together(i, &projections, x, &all, &parts)?;
        Ok(Products::Together(all))
    }
}

/// Returns ranges of columns beside each other, in the memory of `x`.
fn columns<const N: usize>(x: &Tensor, widths: [i64; N]) -> Result<[Tensor; N], TchError> {
    let (mut start, mut parts) = (0, widths.map(|_| Tensor::new()));
    for (part, width) in parts.iter_mut().zip(widths) {
        *part = x.f_narrow(1, start, width)?;
        start += width;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
