//! One block of the transformer, forwards and backwards.

use tch::{TchError, Tensor};

use super::Gradients;
use super::attention::{Island, Reach};
use super::elementwise::{gate, gate_backward, normalize, normalize_backward, reciprocal_rms, rotate};
use super::routes::{Inner, Routes};
use crate::{Config, Projection, Rope, Weights, add_outer, linear};

/// What all blocks of a pass share.
pub(super) struct Frame<'a> {
    pub(super) config: &'a Config,
    pub(super) weights: &'a Weights,
    pub(super) routes: Routes<'a>,
    pub(super) reach: Reach,
    pub(super) rope: Rope,
}

/// What a block's gradient needs besides its input: per token, the widths of q, k, v, the attention's output, the
/// residual stream, and twice the feed-forward layer.
pub(super) struct Kept {
    input_rstd: Tensor,
    /// Before the norms of single heads, where there are such norms.
    heads: Option<[Tensor; 2]>,
    island: Island,
    /// The stream after attention.
    between: Tensor,
    between_rstd: Tensor,
    gate: Tensor,
    up: Tensor,
    inner: [Inner; 7],
}

impl Frame<'_> {
    /// The block's output for its input `x` (`[T, H]`), and what its gradient needs if that is wanted.
    pub(super) fn forward(
        &self,
        i: usize,
        x: &Tensor,
        keep: bool,
    ) -> Result<(Tensor, Option<Kept>), TchError> {
        let (config, layer) = (self.config, &self.weights.layers[i]);
        let mut inner: [Inner; 7] = Default::default();
        let mut project = |projection: Projection, x: &Tensor| {
            let mut y = linear(x, layer.projection(projection))?;
            if let Some(bias) = layer.bias(projection) {
                let _ = y.f_add_(&bias.f_to_kind(y.kind())?)?;
            }
            inner[projection as usize] = self.routes.add(i, projection, x, &y)?;
            Ok::<_, TchError>(y)
        };
        let input_rstd = reciprocal_rms(x, config.rms_eps)?;
        let normed = normalize(x, &input_rstd, &layer.attention_norm)?;
        let q = project(Projection::Q, &normed)?;
        let k = project(Projection::K, &normed)?;
        let v = project(Projection::V, &normed)?;
        let turned_q = self.turn(&q, config.heads, layer.q_norm.as_ref())?;
        let turned_k = self.turn(&k, config.kv_heads, layer.k_norm.as_ref())?;
        let island = Island::new(config, &self.reach, &turned_q, &turned_k, &v, keep)?;
        let between = project(Projection::O, &island.mixed(config)?)?.f_add_(x)?;

        let between_rstd = reciprocal_rms(&between, config.rms_eps)?;
        let normed = normalize(&between, &between_rstd, &layer.ffn_norm)?;
        let gates = project(Projection::Gate, &normed)?;
        let up = project(Projection::Up, &normed)?;
        let output = project(Projection::Down, &gate(&gates, &up)?)?.f_add_(&between)?;
        let heads = layer.q_norm.is_some().then_some([q, k]);
        let kept = Kept { input_rstd, heads, island, between, between_rstd, gate: gates, up, inner };
        Ok((output, keep.then_some(kept)))
    }

    /// From the gradient `dy` with respect to the block's output, that with respect to its input `x`. Those of
    /// trained tensors are added to `gradients`.
    pub(super) fn backward(
        &self,
        i: usize,
        x: &Tensor,
        kept: Kept,
        dy: Tensor,
        gradients: &Gradients,
    ) -> Result<Tensor, TchError> {
        let (config, layer) = (self.config, &self.weights.layers[i]);
        let own = gradients.weights.as_ref().map(|weights| &weights.layers[i]);
        let Kept { input_rstd, heads, island, between, between_rstd, gate: gates, up, inner } = kept;
        let back = |projection: Projection, x: &Tensor, dy: &Tensor, dx: Option<Tensor>| {
            self.project_backward(i, projection, x, &inner[projection as usize], dy, dx, gradients)
        };

        let gated = gate(&gates, &up)?;
        let d_gated = back(Projection::Down, &gated, &dy, None)?;
        drop(gated);
        let (d_gates, d_up) = gate_backward(&d_gated, &gates, &up)?;
        drop((d_gated, gates, up));
        let normed = normalize(&between, &between_rstd, &layer.ffn_norm)?;
        let d_normed = back(Projection::Gate, &normed, &d_gates, None)?;
        let d_normed = back(Projection::Up, &normed, &d_up, Some(d_normed))?;
        let gain = own.map(|own| &own.ffn_norm);
        let d_between =
            normalize_backward(&d_normed, &between, &between_rstd, &layer.ffn_norm, gain)?.f_add_(&dy)?;
        drop((d_gates, d_up, d_normed, between, dy));

        let d_mixed = back(Projection::O, &island.mixed(config)?, &d_between, None)?;
        let [d_q, d_k, d_v] = island.backward(config, &self.reach, &d_mixed)?;
        let [q, k] = heads.map_or([None, None], |heads| heads.map(Some));
        let gains = own.map_or([None, None], |own| [own.q_norm.as_ref(), own.k_norm.as_ref()]);
        let d_q = self.turn_backward(&d_q, q, config.heads, layer.q_norm.as_ref(), gains[0])?;
        let d_k = self.turn_backward(&d_k, k, config.kv_heads, layer.k_norm.as_ref(), gains[1])?;
        let normed = normalize(x, &input_rstd, &layer.attention_norm)?;
        let d_normed = back(Projection::Q, &normed, &d_q, None)?;
        let d_normed = back(Projection::K, &normed, &d_k, Some(d_normed))?;
        let d_normed = back(Projection::V, &normed, &d_v, Some(d_normed))?;
        let gain = own.map(|own| &own.attention_norm);
        normalize_backward(&d_normed, x, &input_rstd, &layer.attention_norm, gain)?.f_add_(&d_between)
    }

    /// A projection's gradient with respect to its input, added to `dx` where there is one already.
    #[allow(clippy::too_many_arguments, reason = "a product rule has as many factors")]
    fn project_backward(
        &self,
        i: usize,
        projection: Projection,
        x: &Tensor,
        inner: &Inner,
        dy: &Tensor,
        dx: Option<Tensor>,
        gradients: &Gradients,
    ) -> Result<Tensor, TchError> {
        if let Some(own) = &gradients.weights {
            let own = &own.layers[i];
            add_outer(own.projection(projection), dy, x)?;
            if let Some(bias) = own.bias(projection) {
                let sum = dy.f_sum_dim_intlist([0i64].as_slice(), false, bias.kind())?;
                let _ = bias.shallow_clone().f_add_(&sum)?;
            }
        }
        let mut own = linear(dy, &self.weights.layers[i].projection(projection).f_tr()?)?;
        let dx = match dx {
            Some(dx) => own.f_add_(&dx)?,
            None => own,
        };
        self.routes.backward(i, projection, x, inner, dy, &dx, &gradients.adapters)?;
        Ok(dx)
    }

    /// Queries or keys `[T, heads x D]` as attention wants them: each head normed where the family does that,
    /// then rotated.
    fn turn(&self, x: &Tensor, heads: i64, gain: Option<&Tensor>) -> Result<Tensor, TchError> {
        let x = x.f_view([-1, heads, self.config.head_dim])?;
        match gain {
            Some(gain) => {
                let rstd = reciprocal_rms(&x, self.config.rms_eps)?;
                rotate(&normalize(&x, &rstd, gain)?, &self.rope, false)
            }
            None => rotate(&x, &self.rope, false),
        }
    }

    /// Its gradient; `x` is what went in, where it was normed.
    fn turn_backward(
        &self,
        dy: &Tensor,
        x: Option<Tensor>,
        heads: i64,
        gain: Option<&Tensor>,
        gain_gradient: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        let shape = [-1, heads, self.config.head_dim];
        let mut dx = rotate(&dy.f_view(shape)?, &self.rope, true)?;
        if let (Some(x), Some(gain)) = (x, gain) {
            let x = x.f_view(shape)?;
            let rstd = reciprocal_rms(&x, self.config.rms_eps)?;
            dx = normalize_backward(&dx, &x, &rstd, gain, gain_gradient)?;
        }
        dx.f_view([-1, heads * self.config.head_dim])
    }
}
