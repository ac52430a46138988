//! Tables of the rotary position embedding (Su et al. 2021, in the rotate-half form).
//!
//! The arithmetic is in f32 and in the order of transformers, so that positions far from the start agree too.

use tch::{Device, Tensor};

use crate::network::config::Config;

/// Cosines and sines of the rotary embedding.
#[derive(Debug)]
pub struct Rope {
    /// `[positions, head_dim]`: cosines, both halves alike.
    cos: Tensor,
    /// `[positions, head_dim]`: sines, the first half negated, so that rotating is one swap of halves.
    sin: Tensor,
}

impl Rope {
    /// Computes the table for positions 0 to `positions - 1`, f32. A position's row does not depend on
    /// `positions`.
    pub fn new(config: &Config, positions: usize, device: Device) -> Self {
        let frequencies = config.rope_scaling.frequencies(config.head_dim, config.rope_theta);
        let scale = config.rope_scaling.attention_factor();
        let half = frequencies.len();
        let width = 2 * half;
        let mut cos = vec![0f32; positions * width];
        let mut sin = vec![0f32; positions * width];
        for position in 0..positions {
            let row = position * width;
            for (i, frequency) in frequencies.iter().enumerate() {
                let (s, c) = (position as f32 * frequency).sin_cos();
                let (s, c) = (s * scale, c * scale);
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

    /// Returns the tables: cosines and sines, `[positions, head_dim]`, f32, multiplied by the attention
    /// factor. Both halves of a cosine row are alike; the first half of a sine row is negated, so that a
    /// rotated head is `x * cos + swap_halves(x) * sin`.
    pub fn tables(&self) -> (&Tensor, &Tensor) {
        (&self.cos, &self.sin)
    }

    /// Returns the rows of some positions (a vector of i64).
    pub fn select(&self, positions: &Tensor) -> Self {
        Self { cos: self.cos.index_select(0, positions), sin: self.sin.index_select(0, positions) }
    }

    /// Returns the first rows: positions 0 to `count - 1`.
    pub fn first(&self, count: i64) -> Self {
        Self { cos: self.cos.narrow(0, 0, count), sin: self.sin.narrow(0, 0, count) }
    }
}
