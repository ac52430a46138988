//! Products of a panel's weights with blocks of rows, whose sums stay in registers.

use crate::cpu::groups::{Format, QuantizedStride};
use crate::cpu::simd::{Kernel, Simd};
use crate::cpu::storage::WeightStorage;
use crate::cpu::thread_pool::LINE;

/// Some inputs of a panel and of a block of rows, to be added to their sums. Inputs of a panel, and sums of rows, are two vectors apart, of
/// which a block has both or one.
pub(super) struct Block<W: WeightStorage> {
    /// Inputs of the first row, and the distance between rows.
    pub(super) x: *const f32,
    pub(super) stride: usize,
    /// First vector of the first input.
    pub(super) weights: *const W::Number,
    /// Number of inputs.
    pub(super) count: usize,
    /// First vector of the first row.
    pub(super) sums: *mut f32,
    /// Following weights to prefetch, `share` bytes for each input.
    pub(super) ahead: *const u8,
    pub(super) share: usize,
    /// True if f32 weights are prefetched into the second-level cache, false if into the first.
    pub(super) into_second_level: bool,
}

impl<W: WeightStorage> Block<W> {
    /// Prefetches the share of input `k`. An address past the end has no effect.
    #[inline(always)]
    unsafe fn prefetch<S: Simd>(&self, k: usize) {
        let address = self.ahead.wrapping_add(k * self.share);
        // SAFETY: without effect on values.
        unsafe {
            self.prefetch_line::<S>(address);
            if self.share > LINE {
                self.prefetch_line::<S>(address.wrapping_add(LINE));
            }
        }
    }

    #[inline(always)]
    unsafe fn prefetch_line<S: Simd>(&self, address: *const u8) {
        // SAFETY: without effect on values.
        unsafe {
            // The first condition is known to the compiler.
            if !W::CONVERTS && self.into_second_level {
                S::prefetch_second_level(address);
            } else {
                S::prefetch(address);
            }
        }
    }

    /// Adds the inputs to the sums of 1 to 8 rows of two vectors, or 8 to 16 rows of one.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simd>(self, rows: usize, vectors: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (rows, vectors) {
                (16, 1) => S::call(BlockKernel::<W, 16, 1>(self)),
                (15, 1) => S::call(BlockKernel::<W, 15, 1>(self)),
                (14, 1) => S::call(BlockKernel::<W, 14, 1>(self)),
                (13, 1) => S::call(BlockKernel::<W, 13, 1>(self)),
                (12, 1) => S::call(BlockKernel::<W, 12, 1>(self)),
                (11, 1) => S::call(BlockKernel::<W, 11, 1>(self)),
                (10, 1) => S::call(BlockKernel::<W, 10, 1>(self)),
                (9, 1) => S::call(BlockKernel::<W, 9, 1>(self)),
                (8, 1) => S::call(BlockKernel::<W, 8, 1>(self)),
                (8, 2) => S::call(BlockKernel::<W, 8, 2>(self)),
                (7, 2) => S::call(BlockKernel::<W, 7, 2>(self)),
                (6, 2) => S::call(BlockKernel::<W, 6, 2>(self)),
                (5, 2) => S::call(BlockKernel::<W, 5, 2>(self)),
                (4, 2) => S::call(BlockKernel::<W, 4, 2>(self)),
                (3, 2) => S::call(BlockKernel::<W, 3, 2>(self)),
                (2, 2) => S::call(BlockKernel::<W, 2, 2>(self)),
                (1, 2) => S::call(BlockKernel::<W, 1, 2>(self)),
                _ => debug_assert!(false, "{rows} rows of {vectors} vectors"),
            }
        }
    }
}

/// Loads the sums of M rows, N vectors of the two of each.
#[inline(always)]
unsafe fn load_sums<S: Simd, const M: usize, const N: usize>(sums: *const f32) -> [[S::V; N]; M] {
    // SAFETY: arithmetic alone.
    let mut c = [[unsafe { S::splat(0.0) }; N]; M];
    for (row, c) in c.iter_mut().enumerate() {
        for (n, c) in c.iter_mut().enumerate() {
            // SAFETY: the caller's pointer is valid for M rows.
            *c = unsafe { S::load(sums.add((2 * row + n) * S::LANES)) };
        }
    }
    c
}

/// Stores the sums of M rows, N vectors of the two of each.
#[inline(always)]
unsafe fn store_sums<S: Simd, const M: usize, const N: usize>(sums: *mut f32, c: &[[S::V; N]; M]) {
    for (row, c) in c.iter().enumerate() {
        for (n, c) in c.iter().enumerate() {
            // SAFETY: the caller's pointer is valid for M rows.
            unsafe { S::store(sums.add((2 * row + n) * S::LANES), *c) };
        }
    }
}

/// Adds a block of M rows to their sums, N vectors each.
struct BlockKernel<W: WeightStorage, const M: usize, const N: usize>(Block<W>);

impl<W: WeightStorage, const M: usize, const N: usize> Kernel for BlockKernel<W, M, N> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Block { x, stride, weights, count, sums, .. } = self.0;
        // SAFETY: the caller's pointers are valid for M rows, `count` inputs and N vectors of a panel.
        unsafe {
            let mut c = load_sums::<S, M, N>(sums);
            for k in 0..count {
                let weights = weights.add(2 * k * S::LANES);
                let mut w = [S::splat(0.0); N];
                for (n, w) in w.iter_mut().enumerate() {
                    *w = W::load::<S>(weights.add(n * S::LANES));
                }
                self.0.prefetch::<S>(k);
                for (row, c) in c.iter_mut().enumerate() {
                    let x = S::splat(*x.add(row * stride + k));
                    for (c, w) in c.iter_mut().zip(w) {
                        *c = S::fma(x, w, *c);
                    }
                }
            }
            store_sums::<S, M, N>(sums, &c);
        }
    }
}

/// Calls [`group_block`] for a number of rows.
#[inline(always)]
pub(super) unsafe fn group_rows<S: Simd, F: Format>(
    rows: usize,
    x: *const f32,
    stride: usize,
    weights: &QuantizedStride,
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match rows {
            8 => group_block::<S, F, 8>(x, stride, weights, sums),
            7 => group_block::<S, F, 7>(x, stride, weights, sums),
            6 => group_block::<S, F, 6>(x, stride, weights, sums),
            5 => group_block::<S, F, 5>(x, stride, weights, sums),
            4 => group_block::<S, F, 4>(x, stride, weights, sums),
            3 => group_block::<S, F, 3>(x, stride, weights, sums),
            2 => group_block::<S, F, 2>(x, stride, weights, sums),
            1 => group_block::<S, F, 1>(x, stride, weights, sums),
            _ => {}
        }
    }
}

/// Adds a stride of inputs to the sums of M rows.
#[inline(always)]
unsafe fn group_block<S: Simd, F: Format, const M: usize>(
    x: *const f32,
    stride: usize,
    weights: &QuantizedStride,
    sums: *mut f32,
) {
    // SAFETY: the caller's pointers are valid for M rows, and the panel has the inputs.
    unsafe {
        let mut c = load_sums::<S, M, 2>(sums);
        let mut done = 0;
        while done < weights.count {
            let inputs = weights.layout.format.group.min(weights.count - done);
            let group = weights.group::<S>(done);
            for k in 0..inputs {
                let [low, high] = group.weights::<F>(k);
                weights.prefetch::<S>(done + k);
                for (row, c) in c.iter_mut().enumerate() {
                    let x = S::splat(*x.add(row * stride + done + k));
                    c[0] = S::fma(x, low, c[0]);
                    c[1] = S::fma(x, high, c[1]);
                }
            }
            done += inputs;
        }
        store_sums::<S, M, 2>(sums, &c);
    }
}
