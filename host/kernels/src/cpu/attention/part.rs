//! Attention of some rows to one part of their contexts.

use std::ops::Range;

use super::super::simd::{Kernel, Simd};
use super::super::thread_pool::{DisjointSlice, Scratch};
use super::plan::{Batch, PART, PartTask};
use super::{Attention, BLOCK};

/// Distance between the scores of queries: a constant, so that addresses take no registers, and one line more than a power of
/// two, so that the scores of a token are in different sets of a cache.
const SCORES: usize = PART + BLOCK;
/// Number of tokens whose values are added for all queries before the next tokens' are. The values of these tokens in a head of
/// width 64 take half of a first-level cache of 32 KiB.
const TILE: usize = 64;

/// A part of some rows, for the query heads of one key head.
pub(super) struct PartKernel<'a> {
    /// Keys, values and queries.
    pub(super) attention: &'a Attention<'a>,
    /// Places of the results.
    pub(super) batch: &'a Batch,
    /// Rows and part.
    pub(super) task: &'a PartTask,
    /// Outputs `[rows, heads, dim]`, of rows with one part. No other task touches the outputs of these rows and heads.
    pub(super) out: DisjointSlice<'a, f32>,
    /// Results of parts of the other rows. No other task touches the results of this part, these rows and heads.
    pub(super) results: DisjointSlice<'a, f32>,
    /// Scratch of this thread.
    pub(super) scratch: &'a Scratch,
}

impl Kernel for PartKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { attention, batch, task, .. } = self;
        let (heads, part) = (attention.cache.heads, task.part);
        let (dim, padded_dim, result_len) = (heads.dim, heads.padded_dim(), heads.result_len());
        let group = heads.heads / heads.kv_heads;
        let first_head = task.head * group;
        let queries = &attention.queries[task.rows.clone()];
        let count = queries.len() * group;

        // Tokens that all rows have, and blocks of the row with most.
        let (mut common, mut blocks) = (PART, &[][..]);
        for query in queries {
            common = common.min(query.part_length(part));
            let own = query.part_blocks(part);
            if own.len() > blocks.len() {
                blocks = own;
            }
        }
        let mut pages = [std::ptr::null(); PART / BLOCK];
        for (page, block) in pages.iter_mut().zip(blocks) {
            *page = attention.cache.head_start(*block, attention.layer, task.head).cast_const();
        }
        let pages = &pages[..blocks.len()];

        // SAFETY: the scratch of this thread, borrowed once.
        let scratch = unsafe { self.scratch.get(count * (result_len + SCORES + dim)) };
        let (results, rest) = scratch.split_at_mut(count * result_len);
        let (scores, q) = rest.split_at_mut(count * SCORES);
        results.fill(0.0);
        let scale = 1.0 / (dim as f32).sqrt();
        for index in 0..count {
            let (row, head) = (task.rows.start + index / group, first_head + index % group);
            let from = &attention.q[row * attention.stride + head * dim..][..dim];
            for (d, x) in from.iter().enumerate() {
                q[d * count + index] = x * scale;
            }
        }

        let keys_len = heads.keys_len();
        let keys = Keys { pages, keys_len, q, count, dim, scores: scores.as_mut_ptr() };
        // SAFETY: queries, scores and pages have these shapes; no row has more tokens than the pages.
        unsafe {
            keys.score::<S>();
        }
        for index in 0..count {
            let query = queries[index / group];
            let length = query.part_length(part);
            let own = &mut scores[index * SCORES..][..length.next_multiple_of(BLOCK)];
            // SAFETY: scores are whole blocks.
            let (largest, sum) = unsafe { softmax::<S>(own, length, query.parts() == 1) };
            results[index * result_len + padded_dim] = largest;
            results[index * result_len + padded_dim + 1] = sum;
        }
        let values = Values {
            pages,
            offset: keys_len,
            width: padded_dim,
            scores: scores.as_ptr(),
            results: results.as_mut_ptr(),
            result_len,
        };
        // SAFETY: scores and results have these shapes; no row has more tokens than the pages.
        unsafe {
            values.add::<S>(0..count, 0..common);
            for (row, query) in queries.iter().enumerate() {
                // Each row takes the tokens that are its own alone: values past its end may be anything.
                values.add::<S>(row * group..(row + 1) * group, common..query.part_length(part));
            }
        }

        for index in 0..count {
            let (row, head) = (task.rows.start + index / group, first_head + index % group);
            let parts = queries[index / group].parts();
            let (to, start, len) = if parts == 1 {
                (self.out, (row * heads.heads + head) * dim, dim)
            } else {
                (self.results, batch.result_start(heads, row, parts, head, part), result_len)
            };
            // SAFETY: no two tasks share a part of a row and a head.
            let to = unsafe { to.part(start, len) };
            to.copy_from_slice(&results[index * result_len..][..len]);
        }
    }
}

/// Returns the number of queries that the next kernel takes of `left`: about equal shares of those that it has registers for.
#[inline(always)]
fn kernel_queries<S: Simd>(left: usize) -> usize {
    let most = if S::LANES == BLOCK { 12 } else { 6 };
    let share = if left <= most { left } else { left.div_ceil(left.div_ceil(most)) };
    if share > 8 && share < 12 { 8 } else { share }
}

/// Products of queries with the keys of a part.
struct Keys<'a> {
    /// Addresses of the keys of all blocks; values follow.
    pages: &'a [*const f32],
    /// Number of keys of a block.
    keys_len: usize,
    /// Scaled queries, `[dim, count]`.
    q: &'a [f32],
    count: usize,
    dim: usize,
    /// `[count, SCORES]`.
    scores: *mut f32,
}

impl Keys<'_> {
    /// Computes the scores of all tokens in pairs of vectors, of all queries before the next pair.
    #[inline(always)]
    unsafe fn score<S: Simd>(&self) {
        let vectors = self.pages.len() * BLOCK / S::LANES;
        let mut vector = 0;
        while vector < vectors {
            let mut query = 0;
            while query < self.count {
                let left = self.count - query;
                // SAFETY: no arm takes more queries than are left.
                query += unsafe {
                    match kernel_queries::<S>(left) {
                        12 if S::LANES == BLOCK => self.score_pair::<S, 12>(query, vector, vectors),
                        8 if S::LANES == BLOCK => self.score_pair::<S, 8>(query, vector, vectors),
                        7 if S::LANES == BLOCK => self.score_pair::<S, 7>(query, vector, vectors),
                        6 => self.score_pair::<S, 6>(query, vector, vectors),
                        5 => self.score_pair::<S, 5>(query, vector, vectors),
                        4 => self.score_pair::<S, 4>(query, vector, vectors),
                        3 => self.score_pair::<S, 3>(query, vector, vectors),
                        2 => self.score_pair::<S, 2>(query, vector, vectors),
                        _ => self.score_pair::<S, 1>(query, vector, vectors),
                    }
                };
            }
            vector += 2;
        }
    }

    /// Computes the scores of Q queries and two vectors of tokens, or of the last one. Returns Q.
    #[inline(always)]
    unsafe fn score_pair<S: Simd, const Q: usize>(
        &self,
        query: usize,
        vector: usize,
        vectors: usize,
    ) -> usize {
        let q = self.q.as_ptr().wrapping_add(query);
        let scores = self.scores.wrapping_add(query * SCORES + vector * S::LANES);
        let (count, dim) = (self.count, self.dim);
        let (keys, following) = (self.keys::<S>(vector), self.keys::<S>(vector + 2));
        // SAFETY: there are Q queries from `query` on, and all vectors below `vectors`.
        unsafe {
            // Blocks of two vectors have no last one alone.
            if S::LANES < BLOCK || vector + 1 < vectors {
                let keys = [keys, self.keys::<S>(vector + 1)];
                let following = [following, self.keys::<S>(vector + 3)];
                S::call(ScoreKernel::<Q, 2> { q, count, dim, keys, following, scores });
            } else {
                let (keys, following) = ([keys], [following]);
                S::call(ScoreKernel::<Q, 1> { q, count, dim, keys, following, scores });
            }
        }
        Q
    }

    /// Returns the address of the keys of a vector of tokens, or past them, of the first values.
    #[inline(always)]
    fn keys<S: Simd>(&self, vector: usize) -> *const f32 {
        let (block, token) = (vector * S::LANES / BLOCK, vector * S::LANES % BLOCK);
        let last = self.pages.len() - 1;
        if block <= last {
            self.pages[block].wrapping_add(token)
        } else {
            self.pages[(block - last - 1).min(last)].wrapping_add(self.keys_len)
        }
    }
}

/// Products of Q queries with N vectors of tokens.
struct ScoreKernel<const Q: usize, const N: usize> {
    /// First query; its numbers are `count` apart.
    q: *const f32,
    count: usize,
    dim: usize,
    /// Keys, [`BLOCK`] numbers apart.
    keys: [*const f32; N],
    /// Keys that are needed next, which are prefetched.
    following: [*const f32; N],
    /// Scores of the first query, [`SCORES`] before those of the next.
    scores: *mut f32,
}

impl<const Q: usize, const N: usize> Kernel for ScoreKernel<Q, N> {
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers only without iterators")]
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { mut q, count, dim, keys, following, scores } = self;
        // SAFETY: the caller's pointers are valid for Q queries and N vectors of `dim` keys; a prefetch has no effect.
        unsafe {
            let mut sums = [[S::splat(0.0); N]; Q];
            for d in 0..dim {
                let mut key = [S::splat(0.0); N];
                for n in 0..N {
                    key[n] = S::load(keys[n].add(d * BLOCK));
                    // Vectors of one block are in one line.
                    if (n * S::LANES).is_multiple_of(BLOCK) {
                        S::prefetch(following[n].wrapping_add(d * BLOCK).cast());
                    }
                }
                for g in 0..Q {
                    let x = S::splat(*q.add(g));
                    for n in 0..N {
                        sums[g][n] = S::fma(x, key[n], sums[g][n]);
                    }
                }
                q = q.wrapping_add(count);
            }
            for g in 0..Q {
                for n in 0..N {
                    S::store(scores.add(g * SCORES + n * S::LANES), sums[g][n]);
                }
            }
        }
    }
}

/// Computes the exponentials of the first `length` scores minus the largest, in place, and divides them by their sum if the
/// scores are those of a whole context. Returns the largest score and the sum.
#[inline(always)]
unsafe fn softmax<S: Simd>(scores: &mut [f32], length: usize, whole: bool) -> (f32, f32) {
    scores[length..].fill(f32::NEG_INFINITY);
    // SAFETY: scores are whole blocks, and therefore whole vectors.
    unsafe {
        let mut largest = S::splat(f32::NEG_INFINITY);
        for offset in (0..scores.len()).step_by(S::LANES) {
            largest = S::max(largest, S::load(scores.as_ptr().add(offset)));
        }
        let largest = S::largest(largest);
        let shift = S::splat(largest);
        let mut sum = S::splat(0.0);
        for offset in (0..scores.len()).step_by(S::LANES) {
            let address = scores.as_mut_ptr().add(offset);
            let p = S::exp(S::sub(S::load(address), shift));
            S::store(address, p);
            // Padding adds about 1e-38 to a sum of at least 1, which does not change it.
            sum = S::add(sum, p);
        }
        let sum = S::sum(sum);
        if whole {
            let scale = S::splat(1.0 / sum);
            for offset in (0..scores.len()).step_by(S::LANES) {
                let address = scores.as_mut_ptr().add(offset);
                S::store(address, S::mul(S::load(address), scale));
            }
        }
        (largest, sum)
    }
}

/// Sums of the values of a part, weighted by the scores of queries.
struct Values<'a> {
    /// Addresses of the keys of all blocks.
    pages: &'a [*const f32],
    /// Offset of the values.
    offset: usize,
    /// Distance between the values of tokens.
    width: usize,
    /// `[queries, SCORES]`.
    scores: *const f32,
    /// `[queries, result_len]`, of which the first `width` are sums.
    results: *mut f32,
    result_len: usize,
}

impl Values<'_> {
    /// Adds tokens in their order to the sums of queries.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, queries: Range<usize>, tokens: Range<usize>) {
        let mut token = tokens.start;
        while token < tokens.end {
            let end = tokens.end.min(token + TILE);
            let mut query = queries.start;
            while query < queries.end {
                let left = queries.end - query;
                // SAFETY: no arm takes more queries than are left; the tokens have pages.
                query += unsafe {
                    match kernel_queries::<S>(left) {
                        12 if S::LANES == BLOCK => self.add_tokens::<S, 12>(query, token, end),
                        8 if S::LANES == BLOCK => self.add_tokens::<S, 8>(query, token, end),
                        7 if S::LANES == BLOCK => self.add_tokens::<S, 7>(query, token, end),
                        6 => self.add_tokens::<S, 6>(query, token, end),
                        5 => self.add_tokens::<S, 5>(query, token, end),
                        4 => self.add_tokens::<S, 4>(query, token, end),
                        3 => self.add_tokens::<S, 3>(query, token, end),
                        2 => self.add_tokens::<S, 2>(query, token, end),
                        _ => self.add_tokens::<S, 1>(query, token, end),
                    }
                };
            }
            token = end;
        }
    }

    /// Adds the tokens from `token` to `end` to the sums of Q queries. Returns Q.
    #[inline(always)]
    unsafe fn add_tokens<S: Simd, const Q: usize>(&self, query: usize, token: usize, end: usize) -> usize {
        let mut column = 0;
        while column < self.width {
            let left = (self.width - column) / S::LANES;
            // SAFETY: as many vectors are left: `width` is a multiple of 16, two vectors of 8 lanes.
            let vectors = unsafe {
                if S::LANES == BLOCK && left == 1 {
                    S::call(ValuesKernel::<Q, 1> { values: self, query, column, token, end });
                    1
                } else if S::LANES == BLOCK && Q <= 6 && left >= 4 {
                    S::call(ValuesKernel::<Q, 4> { values: self, query, column, token, end });
                    4
                } else {
                    S::call(ValuesKernel::<Q, 2> { values: self, query, column, token, end });
                    2
                }
            };
            column += vectors * S::LANES;
        }
        Q
    }
}

/// N vectors of the sums of Q queries over the tokens from `token` to `end`.
struct ValuesKernel<'a, const Q: usize, const N: usize> {
    values: &'a Values<'a>,
    /// First query.
    query: usize,
    /// First number of a value.
    column: usize,
    token: usize,
    end: usize,
}

impl<const Q: usize, const N: usize> Kernel for ValuesKernel<'_, Q, N> {
    #[allow(clippy::needless_range_loop, reason = "vectors stay in registers only without iterators")]
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { values, query, column, mut token, end } = self;
        let Values { pages, offset, width, scores, results, result_len } = *values;
        // SAFETY: there are Q queries from `query` on and N vectors from `column` on; the tokens have pages; a prefetch has no
        // effect.
        unsafe {
            let scores = scores.add(query * SCORES);
            let results = results.add(query * result_len + column);
            let mut sums = [[S::splat(0.0); N]; Q];
            for g in 0..Q {
                for n in 0..N {
                    sums[g][n] = S::load(results.add(g * result_len + n * S::LANES));
                }
            }
            while token < end {
                let block = token / BLOCK;
                let within = offset + token % BLOCK * width + column;
                let mut address = pages[block].wrapping_add(within);
                let mut following = pages[(block + 1).min(pages.len() - 1)].wrapping_add(within);
                let until = end.min((block + 1) * BLOCK);
                while token < until {
                    let mut value = [S::splat(0.0); N];
                    for n in 0..N {
                        value[n] = S::load(address.add(n * S::LANES));
                        // Two vectors of 8 lanes are in one line.
                        if (n * S::LANES).is_multiple_of(BLOCK) {
                            S::prefetch(following.wrapping_add(n * S::LANES).cast());
                        }
                    }
                    for g in 0..Q {
                        let p = S::splat(*scores.add(g * SCORES + token));
                        for n in 0..N {
                            sums[g][n] = S::fma(p, value[n], sums[g][n]);
                        }
                    }
                    address = address.wrapping_add(width);
                    following = following.wrapping_add(width);
                    token += 1;
                }
            }
            for g in 0..Q {
                for n in 0..N {
                    S::store(results.add(g * result_len + n * S::LANES), sums[g][n]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::simd::SimdLevel;
    use super::super::merge::MergeKernel;
    use super::super::{Heads, KvCache, Query};
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
        let queries = [Query { blocks: &[0], length: 1 }];
        let batch = Batch::new(&queries, heads, 0, 1);
        let kernel = PartKernel {
            attention: &Attention { cache: &cache, layer: 0, q: &[0.5; 18], stride: 18, queries: &queries },
            batch: &batch,
            task: &PartTask { rows: 0..1, part: 0, head: 1 },
            out: DisjointSlice::new(&mut out),
            results: DisjointSlice::new(&mut []),
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

    /// Without threads and special instructions, so that it runs in Miri too.
    #[test]
    fn rows_of_one_task_have_the_results_of_a_task_each() {
        let heads = Heads { heads: 2, kv_heads: 1, dim: 3 };
        let blocks: Vec<u32> = (0..33).collect();
        let mut cache = KvCache::new(heads, 1);
        cache.reserve(blocks.iter().copied());
        let number = |index: usize| (index * 7 % 23) as f32 / 8.0 - 1.0;
        for token in 0..513 {
            let [key, value] = [3, 5].map(|factor| [0, 1, 2].map(|d| number(factor * token + d)));
            // SAFETY: the block was reserved, and there are no other threads.
            unsafe { cache.write(0, blocks[token / BLOCK], token % BLOCK, 0, &key, &value) };
        }
        let q: Vec<f32> = (0..12).map(number).collect();
        let queries = [513, 512].map(|length| Query { blocks: &blocks, length });
        let attention = Attention { cache: &cache, layer: 0, q: &q, stride: 6, queries: &queries };
        let batch = Batch::new(&queries, heads, 0, 1);
        let scratch = Scratch::default();
        let attend = |tasks: &[(Range<usize>, usize)]| {
            // Numbers that are not written stay NaN, which is not equal to itself.
            let (mut attended, mut parts) = (vec![f32::NAN; 12], vec![f32::NAN; batch.results]);
            let (out, results) = (DisjointSlice::new(&mut attended), DisjointSlice::new(&mut parts));
            for (rows, part) in tasks {
                let task = &PartTask { rows: rows.clone(), part: *part, head: 0 };
                let (attention, batch, scratch) = (&attention, &batch, &scratch);
                let kernel = PartKernel { attention, batch, task, out, results, scratch };
                // SAFETY: every CPU has these instructions; the queries' blocks were written.
                unsafe { SimdLevel::Portable.run(kernel) };
            }
            // The first row has two parts.
            let kernel = MergeKernel {
                heads,
                parts: 2,
                // SAFETY: the parts have been computed, and there are no other threads.
                results: unsafe { results.part(0, batch.results) },
                // SAFETY: there are no other threads.
                out: unsafe { out.part(0, 6) },
                scratch: &scratch,
            };
            // SAFETY: every CPU has these instructions; results and outputs are those of two heads.
            unsafe { SimdLevel::Portable.run(kernel) };
            attended
        };
        let apart = attend(&[(0..1, 0), (1..2, 0), (0..1, 1)]);
        assert_eq!(attend(&[(0..2, 0), (0..1, 1)]), apart);
    }
}
