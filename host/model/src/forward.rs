//! The transformer: one definition, used by training and by generation.
//!
//! What differs between the two comes in as arguments: what an adapter adds to a projection ([`Deltas`]) and
//! how queries meet keys and values (a closure, which may keep them).

use tch::{Device, Kind, Tensor};

use crate::{Config, Projection, Weights};

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

/// Cosines and sines of the rotary embedding (Su et al. 2021, in the rotate-half form).
#[derive(Debug)]
pub struct Rope {
    /// `[positions, head_dim]`: cosines, both halves alike.
    cos: Tensor,
    /// `[positions, head_dim]`: sines, the first half negated, so that rotating is one swap of halves.
    sin: Tensor,
}

impl Rope {
    /// The table for positions 0 to `positions - 1`. A position's row does not depend on `positions`.
    pub fn new(config: &Config, positions: usize, device: Device) -> Self {
        let half = (config.head_dim / 2) as usize;
        // In f32 from the frequencies on, as transformers computes them.
        let frequencies: Vec<f32> = (0..half)
            .map(|i| {
                let exponent = (2 * i) as f32 / config.head_dim as f32;
                1.0 / (config.rope_theta as f32).powf(exponent)
            })
            .collect();
        let width = 2 * half;
        let mut cos = vec![0f32; positions * width];
        let mut sin = vec![0f32; positions * width];
        for position in 0..positions {
            let row = position * width;
            for (i, frequency) in frequencies.iter().enumerate() {
                let (s, c) = (position as f32 * frequency).sin_cos();
                (cos[row + i], cos[row + half + i]) = (c, c);
                (sin[row + i], sin[row + half + i]) = (-s, s);
            }
        }
        let shape = [positions as i64, width as i64];
        Self {
            cos: Tensor::from_slice(&cos).view(shape).to_device(device),
            sin: Tensor::from_slice(&sin).view(shape).to_device(device),
        }
    }

    /// The rows of some positions (a vector of i64).
    pub fn at(&self, positions: &Tensor) -> Self {
        Self { cos: self.cos.index_select(0, positions), sin: self.sin.index_select(0, positions) }
    }

    /// The first rows: positions 0 to `count - 1`.
    pub fn first(&self, count: i64) -> Self {
        Self { cos: self.cos.narrow(0, 0, count), sin: self.sin.narrow(0, 0, count) }
    }

    /// Rotates heads `[T, heads, D]`, T positions of this table.
    fn rotate(&self, x: &Tensor) -> Tensor {
        let half = x.size()[2] / 2;
        let swapped = Tensor::cat(&[x.narrow(2, half, half), x.narrow(2, 0, half)], 2);
        x * self.cos.unsqueeze(1) + swapped * self.sin.unsqueeze(1)
    }
}

/// Runs the blocks and the final norm over `tokens` (`[T]`, i64): the hidden states `[T, H]`.
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
            let y = x.linear(layer.projection(projection), None::<&Tensor>);
            deltas.add(i, projection, x, y)
        };
        let normed = norm(config, &x, &layer.attention_norm);
        let q = project(Projection::Q, &normed).view([count, heads, config.head_dim]);
        let k = project(Projection::K, &normed).view([count, kv_heads, config.head_dim]);
        let v = project(Projection::V, &normed).view([count, kv_heads, config.head_dim]);
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

/// RMS norm (Zhang and Sennrich 2019).
fn norm(config: &Config, x: &Tensor, weight: &Tensor) -> Tensor {
    let mean = x.square().mean_dim([-1i64].as_slice(), true, Kind::Float);
    x * (mean + config.rms_eps).rsqrt() * weight
}
