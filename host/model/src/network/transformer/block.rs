//! One block of the transformer, forward and backward.

use tch::{TchError, Tensor};

use super::adapter_rows::{AdapterRows, LowRankInputs};
use super::attention::{AttentionBlock, AttentionParts};
use super::elementwise::{gate, gate_backward, normalize, normalize_backward, rms_norm, rotate};
use super::gradients::Gradients;
use crate::network::adapter::Projection;
use crate::network::config::Config;
use crate::network::matmul::add_outer;
use crate::network::rope::Rope;
use crate::network::weights::Weights;

/// Inputs that all blocks of a pass share.
pub(super) struct Frame<'a> {
    pub(super) config: &'a Config,
    pub(super) weights: &'a Weights,
    pub(super) adapters: AdapterRows<'a>,
    /// Rows of the tokens' positions.
    pub(super) rope: Rope,
}

/// Tensors that a block's gradient needs besides its input. Per token, the widths of q, k, v, the attention's
/// output, the residual stream, and twice the feed-forward layer. `A` has those of the attention.
pub(super) struct BlockActivations<A> {
    input_rstd: Tensor,
    /// Queries and keys, in families with norms of single heads.
    heads: Option<[UnnormedHeads; 2]>,
    attention: A,
    /// The residual stream after attention.
    after_attention: Tensor,
    after_attention_rstd: Tensor,
    gate: Tensor,
    up: Tensor,
    low_rank: [LowRankInputs; 7],
}

/// Queries or keys before their norm, `[T, heads, D]`, with the reciprocal root mean squares.
struct UnnormedHeads {
    x: Tensor,
    rstd: Tensor,
}

impl Frame<'_> {
    /// Returns a projection of `x` with its bias and the adapters' parts.
    pub(super) fn project(
        &self,
        i: usize,
        projection: Projection,
        x: &Tensor,
    ) -> Result<(Tensor, LowRankInputs), TchError> {
        let y = self.weights.layers[i].projection(projection).linear(x)?;
        self.add_bias(i, projection, &y)?;
        let inner = self.adapters.add(i, projection, x, &y)?;
        Ok((y, inner))
    }

    /// Adds the bias of a projection, if there is one, to the product `y` of its matrix, in place.
    pub(super) fn add_bias(&self, i: usize, projection: Projection, y: &Tensor) -> Result<(), TchError> {
        if let Some(bias) = self.weights.layers[i].bias(projection) {
            let _ = y.shallow_clone().f_add_(&bias.f_to_kind(y.kind())?)?;
        }
        Ok(())
    }

    /// Returns the block's output for its input `x` (`[T, H]`), and the tensors that its gradient needs.
    ///
    /// `attend(q, k, v)` gets rotated queries `[T, heads, D]` and keys `[T, kv_heads, D]`, and values
    /// `[T, kv_heads x D]`, and returns the attention's output `[T, heads x D]`.
    pub(super) fn forward<A>(
        &self,
        i: usize,
        x: &Tensor,
        attend: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<(Tensor, A), TchError>,
    ) -> Result<(Tensor, BlockActivations<A>), TchError> {
        let (config, layer) = (self.config, &self.weights.layers[i]);
        let mut low_rank: [LowRankInputs; 7] = Default::default();
        let mut project = |projection: Projection, x: &Tensor| {
            let (y, inner) = self.project(i, projection, x)?;
            low_rank[projection as usize] = inner;
            Ok::<_, TchError>(y)
        };
        let (normed, input_rstd) = rms_norm(x, config.rms_eps, &layer.attention_norm)?;
        let q = project(Projection::Q, &normed)?;
        let k = project(Projection::K, &normed)?;
        let v = project(Projection::V, &normed)?;
        let (rotated_q, q) = self.norm_and_rotate(q, config.heads, layer.q_norm.as_ref())?;
        let (rotated_k, k) = self.norm_and_rotate(k, config.kv_heads, layer.k_norm.as_ref())?;
        let (mixed, attention) = attend(&rotated_q, &rotated_k, &v)?;
        let after_attention = project(Projection::O, &mixed)?.f_add_(x)?;
        drop(mixed);

        let (normed, after_attention_rstd) = rms_norm(&after_attention, config.rms_eps, &layer.ffn_norm)?;
        let gates = project(Projection::Gate, &normed)?;
        let up = project(Projection::Up, &normed)?;
        let output = project(Projection::Down, &gate(&gates, &up)?)?.f_add_(&after_attention)?;
        let heads = q.zip(k).map(|(q, k)| [q, k]);
        let activations = BlockActivations {
            input_rstd,
            heads,
            attention,
            after_attention,
            after_attention_rstd,
            gate: gates,
            up,
            low_rank,
        };
        Ok((output, activations))
    }

    /// Returns the gradient with respect to the block's input `x`, given the gradient `dy` with respect to
    /// its output. Adds the gradients of trained tensors to `gradients`.
    pub(super) fn backward(
        &self,
        i: usize,
        x: &Tensor,
        parts: &AttentionParts,
        activations: BlockActivations<AttentionBlock>,
        dy: Tensor,
        gradients: &Gradients,
    ) -> Result<Tensor, TchError> {
        let (config, layer) = (self.config, &self.weights.layers[i]);
        let own = gradients.weights.as_ref().map(|weights| &weights.layers[i]);
        let BlockActivations {
            input_rstd,
            heads,
            attention,
            after_attention,
            after_attention_rstd,
            gate: gates,
            up,
            low_rank,
        } = activations;
        let back = |projection: Projection, x: &Tensor, dy: &Tensor, dx: Option<Tensor>| {
            self.project_backward(i, projection, x, &low_rank[projection as usize], dy, dx, gradients)
        };

        let gated = gate(&gates, &up)?;
        let d_gated = back(Projection::Down, &gated, &dy, None)?;
        drop(gated);
        let (d_gates, d_up) = gate_backward(&d_gated, &gates, &up)?;
        drop((d_gated, gates, up));
        let normed = normalize(&after_attention, &after_attention_rstd, &layer.ffn_norm)?;
        let d_normed = back(Projection::Gate, &normed, &d_gates, None)?;
        let d_normed = back(Projection::Up, &normed, &d_up, Some(d_normed))?;
        let gain = own.map(|own| &own.ffn_norm);
        let d_after_attention =
            normalize_backward(&d_normed, &after_attention, &after_attention_rstd, &layer.ffn_norm, gain)?
                .f_add_(&dy)?;
        drop((d_gates, d_up, d_normed, after_attention, dy));

        let d_mixed = back(Projection::O, &attention.output()?, &d_after_attention, None)?;
        let [d_q, d_k, d_v] = attention.backward(parts, &d_mixed)?;
        let [q, k] = heads.map_or([None, None], |heads| heads.map(Some));
        let gains = own.map_or([None, None], |own| [own.q_norm.as_ref(), own.k_norm.as_ref()]);
        let d_q = self.norm_and_rotate_backward(&d_q, q, config.heads, layer.q_norm.as_ref(), gains[0])?;
        let d_k = self.norm_and_rotate_backward(&d_k, k, config.kv_heads, layer.k_norm.as_ref(), gains[1])?;
        let normed = normalize(x, &input_rstd, &layer.attention_norm)?;
        let d_normed = back(Projection::Q, &normed, &d_q, None)?;
        let d_normed = back(Projection::K, &normed, &d_k, Some(d_normed))?;
        let d_normed = back(Projection::V, &normed, &d_v, Some(d_normed))?;
        let gain = own.map(|own| &own.attention_norm);
        normalize_backward(&d_normed, x, &input_rstd, &layer.attention_norm, gain)?.f_add_(&d_after_attention)
    }

    /// Returns a projection's gradient with respect to its input, added to `dx` if that is given.
    #[allow(clippy::too_many_arguments, reason = "a product rule has as many factors")]
    fn project_backward(
        &self,
        i: usize,
        projection: Projection,
        x: &Tensor,
        low_rank: &LowRankInputs,
        dy: &Tensor,
        dx: Option<Tensor>,
        gradients: &Gradients,
    ) -> Result<Tensor, TchError> {
        if let Some(own) = &gradients.weights {
            let own = &own.layers[i];
            if let Some(gradient) = own.projection(projection).tensor() {
                add_outer(gradient, dy, x)?;
            }
            if let Some(bias) = own.bias(projection) {
                let sum = dy.f_sum_dim_intlist([0i64].as_slice(), false, bias.kind())?;
                let _ = bias.shallow_clone().f_add_(&sum)?;
            }
        }
        let matrix = self.weights.layers[i].projection(projection);
        let dx = match dx {
            Some(dx) => matrix.add_linear_backward(dy, dx)?,
            None => matrix.linear_backward(dy)?,
        };
        self.adapters.backward(i, projection, x, low_rank, dy, &dx, &gradients.adapters)?;
        Ok(dx)
    }

    /// Applies the norm of single heads, in families that have it, and the rotary embedding to queries or
    /// keys `[T, heads x D]`. Returns `[T, heads, D]`, and what the gradient of the norm needs.
    fn norm_and_rotate(
        &self,
        x: Tensor,
        heads: i64,
        gain: Option<&Tensor>,
    ) -> Result<(Tensor, Option<UnnormedHeads>), TchError> {
        let x = x.f_view([-1, heads, self.config.head_dim])?;
        let Some(gain) = gain else { return Ok((rotate(&x, &self.rope, false)?, None)) };
        let (normed, rstd) = rms_norm(&x, self.config.rms_eps, gain)?;
        Ok((rotate(&normed, &self.rope, false)?, Some(UnnormedHeads { x, rstd })))
    }

    /// Returns the first result of [`norm_and_rotate`](Self::norm_and_rotate).
    pub(super) fn normed_and_rotated(
        &self,
        x: Tensor,
        heads: i64,
        gain: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        Ok(self.norm_and_rotate(x, heads, gain)?.0)
    }

    /// Returns the gradient of [`norm_and_rotate`](Self::norm_and_rotate) with respect to its input.
    fn norm_and_rotate_backward(
        &self,
        dy: &Tensor,
        unnormed: Option<UnnormedHeads>,
        heads: i64,
        gain: Option<&Tensor>,
        gain_gradient: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        let shape = [-1, heads, self.config.head_dim];
        let mut dx = rotate(&dy.f_view(shape)?, &self.rope, true)?;
        if let (Some(UnnormedHeads { x, rstd }), Some(gain)) = (unnormed, gain) {
            dx = normalize_backward(&dx, &x, &rstd, gain, gain_gradient)?;
        }
        dx.f_view([-1, heads * self.config.head_dim])
    }
}
