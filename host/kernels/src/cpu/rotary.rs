//! Rotated queries and cached keys from projections: norms of heads, rotary embedding, writing to the
//! cache.

use super::Cpu;
use super::attention::{BLOCK, Heads, KvCache};
use super::elementwise::{RmsNorm, norm_row};
use super::simd::{Kernel, Simd};
use super::thread_pool::DisjointSlice;

/// Cosines and sines of all positions, and the norms of heads if the model has them.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    /// `[positions, dim]`.
    pub cos: &'a [f32],
    /// `[positions, dim]`, with the first half of each row negated, so that a rotation needs one swap of
    /// halves.
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
    /// `slots[r].1` of a sequence, stored in slot `position % BLOCK` of the block `slots[r].0`.
    ///
    /// # Panics
    /// If shapes do not match, if a position is past the rotary table, or if two rows have the same slot.
    pub fn rotate(
        &self,
        rotation: Rotation<'_>,
        heads: Heads,
        qkv: &mut [f32],
        slots: &[(u32, usize)],
        layer: usize,
        cache: &mut KvCache,
    ) {
        let stride = heads.stride();
        assert!(qkv.len() >= slots.len() * stride, "queries, keys and values of {} rows", slots.len());
        for norm in rotation.q_norm.iter().chain(&rotation.k_norm) {
            assert_eq!(norm.weight.len(), heads.dim, "a norm of heads");
        }
        let positions = (rotation.cos.len() / heads.dim).min(rotation.sin.len() / heads.dim);
        assert!(slots.iter().all(|(_, position)| *position < positions), "a position past the rotary table");
        let mut targets: Vec<_> = slots.iter().map(|(block, position)| (*block, position % BLOCK)).collect();
        targets.sort_unstable();
        assert!(targets.windows(2).all(|pair| pair[0] != pair[1]), "two rows have the same slot");
        cache.reserve(slots.iter().map(|(block, _)| *block));
        let cache = &*cache;
        let qkv = DisjointSlice::new(qkv);
        let level = self.level;
        self.pool.for_each(slots.len(), |_, row| {
            let (block, position) = slots[row];
            let start = position * heads.dim;
            let kernel = RowKernel {
                heads,
                rotation,
                cos: &rotation.cos[start..start + heads.dim],
                sin: &rotation.sin[start..start + heads.dim],
                // SAFETY: rows do not overlap.
                row: unsafe { qkv.part(row * stride, stride) },
                cache,
                layer,
                block,
                slot: position % BLOCK,
            };
            // SAFETY: the level was detected; the blocks were reserved, and slots differ, as checked.
            unsafe { level.run(kernel) };
        });
    }
}

/// Rotation of one token.
struct RowKernel<'a> {
    heads: Heads,
    rotation: Rotation<'a>,
    cos: &'a [f32],
    sin: &'a [f32],
    row: &'a mut [f32],
    cache: &'a KvCache,
    layer: usize,
    block: u32,
    slot: usize,
}

impl Kernel for RowKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Heads { heads, kv_heads, dim } = self.heads;
        let (q, rest) = self.row.split_at_mut(heads * dim);
        let (k, v) = rest.split_at_mut(kv_heads * dim);
        for (part, norm) in [(q, self.rotation.q_norm), (&mut *k, self.rotation.k_norm)] {
            for head in part.chunks_exact_mut(dim) {
                if let Some(norm) = norm {
                    // SAFETY: the norm has the width of a head, as checked.
                    unsafe { norm_row::<S>(norm, head) };
                }
                rotate(head, self.cos, self.sin);
            }
        }
        for head in 0..kv_heads {
            let part = head * dim..(head + 1) * dim;
            // SAFETY: the block was reserved; only this row writes this slot.
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
