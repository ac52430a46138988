//! Reference implementation of the transformer for tests: one sequence at a time, all operations by libtorch,
//! and gradients by its autograd.

use pl_model::{Adapter, Config, Projection, Rope, Weights};
use tch::{Kind, Tensor};

/// Returns the hidden states `[T, H]` of a sequence after the final norm, in the number format of the
/// matrices.
pub fn hidden_states(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    tokens: &[u32],
) -> Tensor {
    let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
    let count = ids.len() as i64;
    let rope = Rope::new(config, ids.len(), weights.device());
    let mut x = weights.embed.rows(&Tensor::from_slice(&ids).to_device(weights.device())).unwrap();
    for (i, layer) in weights.layers.iter().enumerate() {
        let project = |projection: Projection, x: &Tensor| {
            let bias = layer.bias(projection).map(|bias| bias.to_kind(x.kind()));
            let y = x.linear(&layer.projection(projection).to_tensor().unwrap(), bias);
            match adapter.and_then(|adapter| Some((adapter.scale(), adapter.part(i, projection)?))) {
                Some((scale, part)) => y + x.matmul(&part.a.tr()).matmul(&part.b.tr()) * scale,
                None => y,
            }
        };
        let heads = |projection: Projection, x: &Tensor, heads: i64, gain: Option<&Tensor>| {
            let y = project(projection, x).view([count, heads, config.head_dim]);
            gain.map_or_else(|| y.shallow_clone(), |gain| norm(config, &y, gain))
        };
        let normed = norm(config, &x, &layer.attention_norm);
        let q = rotate(&rope, &heads(Projection::Q, &normed, config.heads, layer.q_norm.as_ref()));
        let k = rotate(&rope, &heads(Projection::K, &normed, config.kv_heads, layer.k_norm.as_ref()));
        let v = heads(Projection::V, &normed, config.kv_heads, None);
        // Never in place: the gradients of the norms need the residual stream as it was.
        let after_attention = x + project(Projection::O, &causal_attention(config, &q, &k, &v));

        let normed = norm(config, &after_attention, &layer.ffn_norm);
        let gated = project(Projection::Gate, &normed).silu() * project(Projection::Up, &normed);
        x = after_attention + project(Projection::Down, &gated);
    }
    norm(config, &x, &weights.norm)
}

/// RMS norm (Zhang and Sennrich 2019) over the last dimension, at least in f32. The result has the format of
/// `x`.
fn norm(config: &Config, x: &Tensor, gain: &Tensor) -> Tensor {
    let wide = match x.kind() {
        Kind::Half | Kind::BFloat16 => x.to_kind(Kind::Float),
        _ => x.shallow_clone(),
    };
    let mean = wide.square().mean_dim([-1i64].as_slice(), true, None);
    (wide * (mean + config.rms_eps).rsqrt() * gain).to_kind(x.kind())
}

/// Rotates heads `[T, heads, D]` at the first T positions, in f32. The result has the format of `x`.
fn rotate(rope: &Rope, x: &Tensor) -> Tensor {
    let (cos, sin) = rope.tables();
    let half = x.size()[2] / 2;
    let swapped = Tensor::cat(&[x.narrow(2, half, half), x.narrow(2, 0, half)], 2);
    (x * cos.unsqueeze(1) + swapped * sin.unsqueeze(1)).to_kind(x.kind())
}

/// Causal attention of one sequence: from queries `[T, heads, D]`, keys and values `[T, kv_heads, D]` to
/// `[T, heads x D]`.
fn causal_attention(config: &Config, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let count = q.size()[0];
    let group = config.heads / config.kv_heads;
    let query = q.transpose(0, 1).unsqueeze(0);
    // Expanded by hand, because libtorch's fused CPU attention needs equal numbers of heads.
    let expand = |x: &Tensor| {
        x.transpose(0, 1)
            .unsqueeze(1)
            .expand([config.kv_heads, group, count, config.head_dim], false)
            .reshape([1, config.heads, count, config.head_dim])
    };
    let mask = None::<&Tensor>;
    Tensor::scaled_dot_product_attention(&query, &expand(k), &expand(v), mask, 0.0, true, None, false)
        .squeeze_dim(0)
        .transpose(0, 1)
        .reshape([count, config.q_width()])
}
