//! Attention of single queries over paged keys and values.
//!
//! A sequence's keys and values are in blocks of [`BLOCK`] tokens anywhere in memory, so that sequences share
//! the blocks of a common prefix (Kwon et al. 2023, PagedAttention). Keys are stored transposed: a vector
//! holds one number of each of the block's tokens, so that one instruction adds to the scores of many tokens.
//! Each query is computed separately, over its tokens in order.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::Cpu;
use super::simd::{Kernel, Simd};
use super::thread_pool::{DisjointSlice, Scratch};

/// Number of tokens of a block: one vector of AVX-512.
pub const BLOCK: usize = 16;

/// Dimensions of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
}

impl Heads {
    /// Returns the number of values in a row of queries, keys and values.
    pub fn stride(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.dim
    }

    /// Returns the width of a value in the cache, padded to whole vectors of any width.
    fn padded_dim(self) -> usize {
        self.dim.next_multiple_of(16)
    }

    /// Returns the number of values of a block's keys of one head.
    fn keys_len(self) -> usize {
        self.dim * BLOCK
    }

    /// Returns the number of values of a block's values of one head.
    fn values_len(self) -> usize {
        self.padded_dim() * BLOCK
    }
}

/// Keys and values of all layers, in blocks. Memory for a block is allocated when it is first written, and
/// kept.
pub struct KvCache {
    heads: Heads,
    layers: usize,
    pages: Vec<Option<Page>>,
}

/// Memory of a block. For each layer and head: keys `[dim, BLOCK]`, then values `[BLOCK, padded_dim]`.
struct Page {
    start: NonNull<f32>,
    layout: Layout,
}

// SAFETY: the page owns its memory.
unsafe impl Send for Page {}
// SAFETY: threads that write it at the same time write different slots; see `KvCache::write`.
unsafe impl Sync for Page {}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}

impl KvCache {
    /// Creates a cache without blocks.
    ///
    /// # Panics
    /// If the number of query heads is not a multiple of the number of key heads.
    pub fn new(heads: Heads, layers: usize) -> Self {
        assert!(heads.kv_heads > 0 && heads.heads.is_multiple_of(heads.kv_heads), "{heads:?}");
        Self { heads, layers, pages: Vec::new() }
    }

    /// Frees the memory of all blocks.
    pub fn clear(&mut self) {
        self.pages = Vec::new();
    }

    /// Returns the size of one block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.layers
            * self.heads.kv_heads
            * (self.heads.keys_len() + self.heads.values_len())
            * size_of::<f32>()
    }

    /// Copies a block.
    ///
    /// # Panics
    /// If `from` was never written.
    pub fn copy(&mut self, from: u32, to: u32) {
        self.reserve([to]);
        let count = self.block_bytes() / size_of::<f32>();
        let (from, to) = (self.page(from), self.page(to));
        // SAFETY: both are blocks of this size, and `self` is borrowed exclusively; copying one onto itself changes nothing.
        unsafe { std::ptr::copy(from.start.as_ptr(), to.start.as_ptr(), count) };
    }

    /// Allocates memory for blocks that have none.
    pub(crate) fn reserve(&mut self, blocks: impl IntoIterator<Item = u32>) {
        let bytes = self.block_bytes().max(1);
        for block in blocks {
            let index = block as usize;
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            if self.pages[index].is_none() {
                #[allow(clippy::expect_used, reason = "a block is never that large")]
                let layout = Layout::from_size_align(bytes, 64).expect("a block that fits memory");
                // SAFETY: the size is not zero.
                let start = unsafe { alloc_zeroed(layout) }.cast();
                let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
                self.pages[index] = Some(Page { start, layout });
            }
        }
    }

    fn page(&self, block: u32) -> &Page {
        let page = self.pages.get(block as usize).and_then(Option::as_ref);
        #[allow(clippy::expect_used, reason = "a mistake of the caller, as documented")]
        page.expect("a block that was written")
    }

    /// Returns the address of the keys of a layer's head; the values follow.
    #[inline(always)]
    fn head_start(&self, block: u32, layer: usize, head: usize) -> *mut f32 {
        assert!(layer < self.layers && head < self.heads.kv_heads, "layer {layer}, head {head}");
        let offset = (layer * self.heads.kv_heads + head) * (self.heads.keys_len() + self.heads.values_len());
        // SAFETY: within the page, as checked.
        unsafe { self.page(block).start.as_ptr().add(offset) }
    }

    /// Writes one token's key and value of a head.
    ///
    /// # Safety
    /// The block was reserved, and no other thread reads or writes this slot of it.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        layer: usize,
        block: u32,
        slot: usize,
        head: usize,
        key: &[f32],
        value: &[f32],
    ) {
        assert!(slot < BLOCK && key.len() == self.heads.dim && value.len() == self.heads.dim);
        let start = self.head_start(block, layer, head);
        // SAFETY: within the head's keys and values; the caller has the slot.
        unsafe {
            for (d, x) in key.iter().enumerate() {
                start.add(d * BLOCK + slot).write(*x);
            }
            let values = start.add(self.heads.keys_len() + slot * self.heads.padded_dim());
            values.copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
    }
}

/// One query: a token and the tokens that it attends to.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Blocks of its sequence.
    pub blocks: &'a [u32],
    /// Number of tokens that it attends to, including itself as the last.
    pub length: usize,
}

/// Attention of many queries in one layer.
pub struct Attention<'a> {
    /// Keys and values, including those of the queries' tokens.
    pub cache: &'a KvCache,
    /// Index of the layer.
    pub layer: usize,
    /// Rotated queries: head `h` of row `r` begins at `r * stride + h * dim`.
    pub q: &'a [f32],
    /// Distance between rows of `q`.
    pub stride: usize,
    /// One query per row.
    pub queries: &'a [Query<'a>],
}

impl Cpu {
    /// Computes softmax attention with scale `1 / sqrt(dim)`; `out` is `[rows, heads dim]`.
    ///
    /// # Panics
    /// If shapes do not match, or if a query names a block that was never written.
    pub fn attend(&self, attention: &Attention<'_>, out: &mut [f32]) {
        let heads = attention.cache.heads;
        let rows = attention.queries.len();
        let width = heads.heads * heads.dim;
        assert!(out.len() >= rows * width, "an output of {rows} rows of {width}");
        assert!(
            attention.stride >= width
                && attention.q.len() >= rows.saturating_sub(1) * attention.stride + width.min(rows * width),
            "queries of {rows} rows"
        );
        for query in attention.queries {
            assert!(query.length > 0 && query.length <= query.blocks.len() * BLOCK, "a query's length");
        }
        let out = DisjointSlice::new(out);
        let group = heads.heads / heads.kv_heads;
        let (level, scratch) = (self.level, self.scratch.as_slice());
        self.pool.for_each(rows * heads.kv_heads, |thread, task| {
            let (row, head) = (task / heads.kv_heads, task % heads.kv_heads);
            let first = head * group;
            let start = row * attention.stride + first * heads.dim;
            let kernel = HeadGroupKernel {
                cache: attention.cache,
                layer: attention.layer,
                head,
                query: attention.queries[row],
                q: &attention.q[start..start + group * heads.dim],
                // SAFETY: no two tasks share a row and a head.
                out: unsafe { out.part(row * width + first * heads.dim, group * heads.dim) }.as_mut_ptr(),
                scratch: &scratch[thread],
            };
            // SAFETY: the level was detected; blocks and lengths were checked.
            unsafe { level.run(kernel) };
        });
    }
}

/// The query heads of one row that share a key head.
struct HeadGroupKernel<'a> {
    cache: &'a KvCache,
    layer: usize,
    head: usize,
    query: Query<'a>,
    q: &'a [f32],
    /// First output of its heads, which nothing else refers to.
    out: *mut f32,
    scratch: &'a Scratch,
}

impl Kernel for HeadGroupKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let dim = self.cache.heads.dim;
        let count = self.q.len() / dim;
        let mut done = 0;
        while done < count {
            // SAFETY: the level and the blocks are the caller's; there are as many heads left as each arm computes.
            unsafe {
                done += match count - done {
                    1 => self.attend_heads::<S, 1>(done),
                    2 => self.attend_heads::<S, 2>(done),
                    3 => self.attend_heads::<S, 3>(done),
                    _ => self.attend_heads::<S, 4>(done),
                };
            }
        }
    }
}

impl HeadGroupKernel<'_> {
    /// Computes G heads from `first` on. Returns G.
    #[inline(always)]
    unsafe fn attend_heads<S: Simd, const G: usize>(&self, first: usize) -> usize {
        let heads = self.cache.heads;
        let (dim, padded_dim, length) = (heads.dim, heads.padded_dim(), self.query.length);
        let padded = length.next_multiple_of(BLOCK);
        // SAFETY: the scratch of this thread, borrowed once at a time.
        let scratch = unsafe { self.scratch.get(G * (dim + padded + padded_dim)) };
        let (q, rest) = scratch.split_at_mut(G * dim);
        let (scores, mixed) = rest.split_at_mut(G * padded);
        let scale = 1.0 / (dim as f32).sqrt();
        for (to, from) in q.iter_mut().zip(&self.q[first * dim..]) {
            *to = from * scale;
        }
        // SAFETY: the parts of the scratch are long enough; the blocks have `length` tokens.
        unsafe {
            self.scores::<S, G>(q, scores, padded);
            for scores in scores.chunks_exact_mut(padded) {
                softmax::<S>(scores, length);
            }
            self.mix::<S, G>(scores, padded, mixed);
        }
        for (g, mixed) in mixed.chunks_exact(padded_dim).enumerate() {
            // SAFETY: only this task has `out`, a part of the outputs with all its heads.
            unsafe { self.out.add((first + g) * dim).copy_from_nonoverlapping(mixed.as_ptr(), dim) };
        }
        G
    }

    /// Computes the products of G queries with the keys of all blocks, in pairs of vectors.
    #[inline(always)]
    unsafe fn scores<S: Simd, const G: usize>(&self, q: &[f32], scores: &mut [f32], padded: usize) {
        let vectors = padded / S::LANES;
        let mut vector = 0;
        while vector < vectors {
            // SAFETY: vectors below `vectors` are in the query's blocks and in `scores`.
            unsafe {
                let keys = self.keys::<S>(vector);
                if vector + 1 < vectors {
                    score::<S, G, 2>(q, [keys, self.keys::<S>(vector + 1)], scores, padded, vector);
                } else {
                    score::<S, G, 1>(q, [keys], scores, padded, vector);
                }
            }
            vector += 2;
        }
    }

    /// Returns the address of the keys of a vector of tokens.
    #[inline(always)]
    fn keys<S: Simd>(&self, vector: usize) -> *const f32 {
        let token = vector * S::LANES;
        let start = self.cache.head_start(self.query.blocks[token / BLOCK], self.layer, self.head);
        start.wrapping_add(token % BLOCK)
    }

    /// Sums the values weighted by `scores`, in the order of the tokens.
    #[inline(always)]
    unsafe fn mix<S: Simd, const G: usize>(&self, scores: &[f32], padded: usize, mixed: &mut [f32]) {
        let padded_dim = self.cache.heads.padded_dim();
        let mut column = 0;
        while column < padded_dim {
            // SAFETY: `column` plus the vectors of a part stay within `padded_dim`, a multiple of 16.
            unsafe {
                column += match (padded_dim - column) / S::LANES {
                    1 => self.mix_part::<S, G, 1>(scores, padded, mixed, column),
                    2 | 3 => self.mix_part::<S, G, 2>(scores, padded, mixed, column),
                    // AVX2 has registers for two vectors of four heads.
                    _ if S::LANES == 8 => self.mix_part::<S, G, 2>(scores, padded, mixed, column),
                    _ => self.mix_part::<S, G, 4>(scores, padded, mixed, column),
                };
            }
        }
    }

    /// Computes N vectors of the weighted sum from `column` on. Returns their width.
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers only without iterators")]
    #[inline(always)]
    unsafe fn mix_part<S: Simd, const G: usize, const N: usize>(
        &self,
        scores: &[f32],
        padded: usize,
        mixed: &mut [f32],
        column: usize,
    ) -> usize {
        let heads = self.cache.heads;
        let padded_dim = heads.padded_dim();
        // SAFETY: tokens below the query's length are in its blocks; there is room for N vectors from
        // `column` on.
        unsafe {
            let mut sums = [[S::splat(0.0); N]; G];
            let mut token = 0;
            for block in self.query.blocks {
                let values =
                    self.cache.head_start(*block, self.layer, self.head).add(heads.keys_len() + column);
                let end = (token + BLOCK).min(self.query.length);
                for slot in 0..end - token {
                    for n in 0..N {
                        let value = S::load(values.add(slot * padded_dim + n * S::LANES));
                        for g in 0..G {
                            let p = S::splat(*scores.as_ptr().add(g * padded + token + slot));
                            sums[g][n] = S::fma(p, value, sums[g][n]);
                        }
                    }
                }
                token = end;
                if token == self.query.length {
                    break;
                }
            }
            for (g, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    S::store(mixed.as_mut_ptr().add(g * padded_dim + column + n * S::LANES), *sum);
                }
            }
        }
        N * S::LANES
    }
}

/// Computes the products of G queries with N vectors of tokens, whose keys are [`BLOCK`] numbers apart.
#[allow(clippy::needless_range_loop, reason = "vectors stay in registers only without iterators")]
#[inline(always)]
unsafe fn score<S: Simd, const G: usize, const N: usize>(
    q: &[f32],
    keys: [*const f32; N],
    scores: &mut [f32],
    padded: usize,
    vector: usize,
) {
    let dim = q.len() / G;
    // SAFETY: keys are valid for `dim` vectors that are BLOCK apart, scores for N vectors from `vector` on.
    unsafe {
        let mut sums = [[S::splat(0.0); N]; G];
        for d in 0..dim {
            for n in 0..N {
                let key = S::load(keys[n].add(d * BLOCK));
                for g in 0..G {
                    sums[g][n] = S::fma(S::splat(*q.as_ptr().add(g * dim + d)), key, sums[g][n]);
                }
            }
        }
        for (g, sums) in sums.iter().enumerate() {
            for (n, sum) in sums.iter().enumerate() {
                S::store(scores.as_mut_ptr().add(g * padded + (vector + n) * S::LANES), *sum);
            }
        }
    }
}

/// Computes the softmax of the first `length` scores, in place.
#[inline(always)]
unsafe fn softmax<S: Simd>(scores: &mut [f32], length: usize) {
    scores[length..].fill(f32::NEG_INFINITY);
    // SAFETY: scores are whole blocks, and therefore whole vectors.
    unsafe {
        let mut largest = S::splat(f32::NEG_INFINITY);
        for offset in (0..scores.len()).step_by(S::LANES) {
            largest = S::max(largest, S::load(scores.as_ptr().add(offset)));
        }
        let largest = S::splat(S::largest(largest));
        let mut sum = S::splat(0.0);
        for offset in (0..scores.len()).step_by(S::LANES) {
            let address = scores.as_mut_ptr().add(offset);
            let p = S::exp(S::sub(S::load(address), largest));
            S::store(address, p);
            // Padding adds about 1e-38 to a sum of at least 1, which does not change it.
            sum = S::add(sum, p);
        }
        let scale = S::splat(1.0 / S::sum(sum));
        for offset in (0..scores.len()).step_by(S::LANES) {
            let address = scores.as_mut_ptr().add(offset);
            S::store(address, S::mul(S::load(address), scale));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::SimdLevel;
    use super::*;

    /// Without threads and special instructions, so that it runs in Miri too, which refuses writes through a shared
    /// borrow.
    #[test]
    fn a_group_of_heads_writes_its_own_outputs_alone() {
        let heads = Heads { heads: 6, kv_heads: 2, dim: 3 };
        let mut cache = KvCache::new(heads, 1);
        cache.reserve([0]);
        for (head, value) in [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]].iter().enumerate() {
            // SAFETY: the block was reserved, and there are no other threads.
            unsafe { cache.write(0, 0, 0, head, &[1.0; 3], value) };
        }
        let scratch = Scratch::default();
        let mut out = [-1.0_f32; 27];
        let parts = DisjointSlice::new(&mut out);
        let kernel = HeadGroupKernel {
            cache: &cache,
            layer: 0,
            head: 1,
            query: Query { blocks: &[0], length: 1 },
            q: &[0.5; 9],
            // SAFETY: no other part is taken.
            out: unsafe { parts.part(9, 9) }.as_mut_ptr(),
            scratch: &scratch,
        };
        // SAFETY: every CPU has these instructions; the query's block was written.
        unsafe { SimdLevel::Portable.run(kernel) };
        // One token has all of the weight: each of the three heads gets its value.
        let (untouched, value) = ([[-1.0_f32; 3]; 3], [[5.0, 6.0, 7.0]; 3]);
        let expected = untouched.into_iter().chain(value).chain(untouched).flatten();
        for (index, (got, expected)) in out.iter().zip(expected).enumerate() {
            assert!((got - expected).abs() < 1e-5, "{index}: {got} instead of {expected}");
        }
    }
}
