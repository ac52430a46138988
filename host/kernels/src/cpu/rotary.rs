//! From projections to queries and cached keys: norms of heads, rotary embedding, and the way into the cache.

use super::Cpu;
use super::attention::{BLOCK, Heads, KeyValues};
use super::elementwise::{RmsNorm, norm_row};
use super::simd::{Kernel, Simd};
use super::team::Shards;

/// Cosines and sines of the rows' positions, and the norms of heads where a model has them.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    /// `[positions, dim]`.
    pub cos: &'a [f32],
    /// `[positions, dim]`, the first half of each row negated, so that rotating is one swap of halves.
    pub sin: &'a [f32],
    /// Norm of every query head.
    pub q_norm: Option<RmsNorm<'a>>,
    /// Norm of every key head.
    pub k_norm: Option<RmsNorm<'a>>,
}

impl Cpu {
    /// Rotates the queries of `qkv` in place and writes the rotated keys and the values to the cache.
    ///
    /// `qkv` is `[rows, (heads + 2 kv_heads) dim]`: queries, keys, values. Row `r` is the token at position
    /// `places[r].1` of a sequence, kept in slot `position % BLOCK` of the block `places[r].0`.
    ///
    /// # Panics
    /// When shapes do not fit, or a block or position is not there.
    pub fn rotate(
        &self,
        rotation: Rotation<'_>,
        heads: Heads,
        qkv: &mut [f32],
        places: &[(u32, usize)],
        layer: usize,
        cache: &mut KeyValues,
    ) {
        let stride = heads.stride();
        assert!(qkv.len() >= places.len() * stride, "queries, keys and values of {} rows", places.len());
        for norm in rotation.q_norm.iter().chain(&rotation.k_norm) {
            assert_eq!(norm.weight.len(), heads.dim, "a norm of heads");
        }
        let positions = (rotation.cos.len() / heads.dim).min(rotation.sin.len() / heads.dim);
        assert!(places.iter().all(|(_, position)| *position < positions), "a position past the rotary table");
        cache.reserve(places.iter().map(|(block, _)| *block));
        let cache = &*cache;
        let qkv = Shards::new(qkv);
        let level = self.level;
        self.team.each(places.len(), |_, row| {
            let (block, position) = places[row];
            let at = position * heads.dim;
            let work = Row {
                heads,
                rotation,
                cos: &rotation.cos[at..at + heads.dim],
                sin: &rotation.sin[at..at + heads.dim],
                // SAFETY: rows don't overlap.
                row: unsafe { qkv.part(row * stride, stride) },
                cache,
                layer,
                block,
                slot: position % BLOCK,
            };
            // SAFETY: the level was detected; no two rows are one token of one sequence, so that slots differ.
            unsafe { level.run(work) };
        });
    }
}

/// One token.
struct Row<'a> {
    heads: Heads,
    rotation: Rotation<'a>,
    cos: &'a [f32],
    sin: &'a [f32],
    row: &'a mut [f32],
    cache: &'a KeyValues,
    layer: usize,
    block: u32,
    slot: usize,
}

impl Kernel for Row<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Heads { heads, kv_heads, dim } = self.heads;
        let (q, rest) = self.row.split_at_mut(heads * dim);
        let (k, v) = rest.split_at_mut(kv_heads * dim);
        for (part, norm) in [(q, self.rotation.q_norm), (&mut *k, self.rotation.k_norm)] {
            for head in part.chunks_exact_mut(dim) {
                if let Some(norm) = norm {
                    // SAFETY: the norm is a head wide, as was checked.
                    unsafe { norm_row::<S>(norm, head) };
                }
                rotate(head, self.cos, self.sin);
            }
        }
        for head in 0..kv_heads {
            let part = head * dim..(head + 1) * dim;
            // SAFETY: the block was reserved; this slot is this row's alone.
            unsafe { self.cache.write(self.layer, self.block, self.slot, head, &k[part.clone()], &v[part]) };
        }
    }
}

#[inline(always)]
fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = head.len() / 2;
    let (low, high) = head.split_at_mut(half);
    let (cos_low, cos_high) = cos.split_at(half);
    let (sin_low, sin_high) = sin.split_at(half);
    for i in 0..half {
        let (a, b) = (low[i], high[i]);
        low[i] = a * cos_low[i] + b * sin_low[i];
        high[i] = b * cos_high[i] + a * sin_high[i];
    }
}
