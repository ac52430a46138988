//! The transformer: one definition, used by training and by generation.
//!
//! What differs between the two comes in as arguments: what an adapter adds to a projection ([`Deltas`]) and
//! how queries meet keys and values (a closure, which may keep them).

use tch::{Kind, Tensor};

use crate::{Config, Layer, Projection, Rope, Weights};

/// What adapters add to the outputs of linear layers.
pub trait Deltas {
    /// Returns `y` with the adapters' parts added. `x` is the projection's input `[T, in]`, `y` its output
    /// `[T, out]`, which nothing else uses, so that it may be changed in place.
    fn add(&self, layer: usize, projection: Projection, x: &Tensor, y: Tensor) -> Tensor;
}

/// No adapter.
#[derive(Debug, Clone, Copy)]
pub struct NoDeltas;

impl Deltas for NoDeltas {
    fn add(&self, _: usize, _: Projection, _: &Tensor, y: Tensor) -> Tensor {
        y
    }
}

/// Runs the blocks and the final norm over `tokens` (`[T]`, i64): the hidden states `[T, H]`, in the number
/// format of the matrices.
///
/// `rope` has the T rows of the tokens' positions. `attend(layer, q, k, v)` gets rotated queries
/// `[T, heads, D]` and keys and values `[T, kv_heads, D]` and returns `[T, heads x D]`.
pub fn transform(
    config: &Config,
    weights: &Weights,
    tokens: &Tensor,
    rope: &Rope,
    deltas: &dyn Deltas,
    attend: &mut dyn FnMut(usize, Tensor, Tensor, Tensor) -> Tensor,
) -> Tensor {
    let count = tokens.size()[0];
    let (heads, kv_heads) = (config.heads, config.kv_heads);
    let mut x = weights.embed.index_select(0, tokens);
    for (i, layer) in weights.layers.iter().enumerate() {
        let project = |projection: Projection, x: &Tensor| {
            let bias = layer.bias(projection).map(|bias| bias.to_kind(x.kind()));
            let y = x.linear(layer.projection(projection), bias);
            deltas.add(i, projection, x, y)
        };
        let normed = norm(config, &x, &layer.attention_norm);
        let q = project(Projection::Q, &normed).view([count, heads, config.head_dim]);
        let k = project(Projection::K, &normed).view([count, kv_heads, config.head_dim]);
        let v = project(Projection::V, &normed).view([count, kv_heads, config.head_dim]);
        let (q, k) = norm_heads(config, layer, q, k);
        let rotated = rope.rotate(&Tensor::cat(&[q, k], 1));
        let mixed = attend(i, rotated.narrow(1, 0, heads), rotated.narrow(1, heads, kv_heads), v);
        // Never in place: the norms' gradients need the streams as they were.
        let between = x + project(Projection::O, &mixed);

        let normed = norm(config, &between, &layer.ffn_norm);
        let gated = project(Projection::Gate, &normed).silu() * project(Projection::Up, &normed);
        x = between + project(Projection::Down, &gated);
    }
    norm(config, &x, &weights.norm)
}

/// The norms of single heads that Qwen3 has before its rotary embedding.
fn norm_heads(config: &Config, layer: &Layer, q: Tensor, k: Tensor) -> (Tensor, Tensor) {
    let apply = |x: Tensor, weight: &Option<Tensor>| match weight {
        Some(weight) => norm(config, &x, weight),
        None => x,
    };
    (apply(q, &layer.q_norm), apply(k, &layer.k_norm))
}

/// RMS norm (Zhang and Sennrich 2019) over the last dimension. In f32 at least; the result has the format of
/// `x`.
fn norm(config: &Config, x: &Tensor, weight: &Tensor) -> Tensor {
    let wide = match x.kind() {
        Kind::Half | Kind::BFloat16 => x.to_kind(Kind::Float),
        _ => x.shallow_clone(),
    };
    let mean = wide.square().mean_dim([-1i64].as_slice(), true, None);
    (wide * (mean + config.rms_eps).rsqrt() * weight).to_kind(x.kind())
}
