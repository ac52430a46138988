//! Attention of one query per sequence to keys and values in blocks, for generation.
//!
//! libtorch would have to gather each sequence's keys and values, padded to the longest, in every layer of every step. Here
//! they are read where they are, once for all query heads that share them (`paged.cu`). A sequence's keys are divided into
//! parts of 512, whose sums are merged in their order, so that a sequence's results don't depend on the others of the batch.
//! [`GatheredSequences`] is the same in plain libtorch, on any device.

mod gathered;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

pub use gathered::GatheredSequences;

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Argument, Kernel, Kernels, Launch};
use super::tensors::expect;
use crate::cpu::BLOCK;

/// Source of the kernels.
pub const SOURCE: KernelSource = KernelSource { name: "paged.cu", text: include_str!("paged.cu") };

/// Number of warps of a block, and of its threads. The source has the same values, as of [`SPAN`].
const WARPS: i64 = 4;
const THREADS: u32 = 32 * WARPS as u32;
/// Number of keys of a block.
pub const SPAN: i64 = 512;
/// Largest width of a head.
const WIDEST: i64 = 256;

/// Widths of heads in bf16 whose products are computed by tensor cores, each with a kernel, and the query heads of its blocks.
const MMA_WIDTHS: [i64; 3] = [64, 128, 256];
const MMA_QUERIES: i64 = 8;
/// Numbers of query heads of a block of the other kernels, each with one.
const QUERIES: [i64; 4] = [1, 2, 4, 8];

pub(super) const KERNELS: [Kernel; 13] = [
    attend_span("attend_span_bf16_1", QUERIES[0], WIDEST),
    attend_span("attend_span_bf16_2", QUERIES[1], WIDEST),
    attend_span("attend_span_bf16_4", QUERIES[2], WIDEST),
    attend_span("attend_span_bf16_8", QUERIES[3], WIDEST),
    attend_span("attend_span_f32_1", QUERIES[0], WIDEST),
    attend_span("attend_span_f32_2", QUERIES[1], WIDEST),
    attend_span("attend_span_f32_4", QUERIES[2], WIDEST),
    attend_span("attend_span_f32_8", QUERIES[3], WIDEST),
    Kernel { name: "merge_spans_bf16", threads: THREADS, shared: 0 },
    Kernel { name: "merge_spans_f32", threads: THREADS, shared: 0 },
    attend_span("attend_span_mma_64", MMA_QUERIES, MMA_WIDTHS[0]),
    attend_span("attend_span_mma_128", MMA_QUERIES, MMA_WIDTHS[1]),
    attend_span("attend_span_mma_256", MMA_QUERIES, MMA_WIDTHS[2]),
];
/// Indices of the kernels that merge, and of the first of those by tensor cores.
const MERGE: usize = 8;
const MMA: usize = 10;

/// Returns a kernel of spans. In shared memory, it has the numbers of a span's blocks, and the results of its warps: a head and two
/// numbers for each query.
const fn attend_span(name: &'static str, queries: i64, width: i64) -> Kernel {
    let numbers = SPAN / BLOCK as i64 + WARPS * queries * (width + 2);
    Kernel { name, threads: THREADS, shared: 4 * numbers as u32 }
}

/// Sequences whose keys and values are in a cache.
#[derive(Debug, Clone, Copy)]
pub struct PagedSequences<'a> {
    /// Numbers of the sequences' blocks, `[rows, blocks]`, i32; those past a sequence's end are not used.
    pub tables: &'a Tensor,
    /// Numbers of tokens, at least 1 each, `[rows]`, i32.
    pub lengths: &'a Tensor,
    /// Length of the longest sequence.
    pub longest: usize,
}

/// The attention as kernels of this folder.
pub struct PagedAttention {
    launcher: Arc<dyn Launch>,
}

impl PagedAttention {
    /// Creates the attention on a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Returns true if the kernels support heads of `width` numbers of a kind.
    pub fn supports(kind: Kind, width: i64) -> bool {
        matches!(kind, Kind::BFloat16 | Kind::Float) && width % 8 == 0 && (8..=WIDEST).contains(&width)
    }

    /// Computes the attention of queries `[rows, heads, width]`, one of each sequence, to its keys and values in a cache
    /// `[slots, 2, kv_heads, width]`: a token's keys, then its values, in blocks of [`BLOCK`] slots. The scores are divided by
    /// the root of the width. Returns a tensor like the queries.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a tensor has a wrong kind, shape or device, or if [`supports`](Self::supports) is false for them.
    pub fn attend(
        &self,
        queries: &Tensor,
        cache: &Tensor,
        sequences: &PagedSequences<'_>,
    ) -> Result<Tensor, Error> {
        let sizes = self.check(queries, cache, sequences)?;
        no_grad(|| {
            let out = queries.f_empty_like()?;
            if sizes.rows == 0 {
                return Ok(out);
            }
            let spans = (sequences.longest as i64 + SPAN - 1) / SPAN;
            let options = (Kind::Float, queries.device());
            // Rows of one span have no sums to merge.
            let merged = if spans > 1 { spans } else { 0 };
            let outs = Tensor::f_empty([sizes.rows, sizes.heads, merged, sizes.width], options)?;
            let sums = Tensor::f_empty([sizes.rows, sizes.heads, merged, 2], options)?;
            let count = |n: i64| Argument::Count(n as i32);
            let arguments = [
                Argument::tensor(queries),
                Argument::tensor(cache),
                Argument::tensor(sequences.tables),
                Argument::tensor(sequences.lengths),
                Argument::tensor(&outs),
                Argument::tensor(&sums),
                Argument::tensor(&out),
                count(sizes.heads),
                count(sizes.kv_heads),
                count(sizes.width),
                count(sizes.blocks),
                count(spans),
            ];
            let [attend, merge] = sizes.kernels();
            let parts = (sizes.heads / sizes.kv_heads + sizes.queries() - 1) / sizes.queries();
            let grid = [(sizes.rows * sizes.kv_heads * parts) as u32, spans as u32];
            // SAFETY: the kernel's arguments in its order; `check` and the lines above ensure the kinds and dimensions that it
            // needs, and libtorch frees tensors in the stream's order. Blocks of the tables are in the cache, which the
            // caller guarantees as the owner of both.
            unsafe { self.launcher.launch(attend, grid, &arguments)? };
            if spans == 1 {
                return Ok(out);
            }
            let arguments = [
                Argument::tensor(&outs),
                Argument::tensor(&sums),
                Argument::tensor(sequences.lengths),
                Argument::tensor(&out),
                count(sizes.heads),
                count(sizes.width),
                count(spans),
            ];
            // SAFETY: as above.
            unsafe { self.launcher.launch(merge, [(sizes.rows * sizes.heads) as u32, 1], &arguments)? };
            Ok(out)
        })
    }

    fn check(
        &self,
        queries: &Tensor,
        cache: &Tensor,
        sequences: &PagedSequences<'_>,
    ) -> Result<Sizes, Error> {
        let (device, kind) = (self.launcher.device(), queries.kind());
        let invalid =
            |tensor, expected: &str, got: &Tensor| Err(Error::tensor("paged", tensor, expected, got));
        let &[rows, heads, width] = queries.size().as_slice() else {
            return invalid("the queries", "of three dimensions", queries);
        };
        let &[slots, 2, kv_heads, _] = cache.size().as_slice() else {
            return invalid("the cache", "of dimensions [slots, 2, heads, width]", cache);
        };
        if !Self::supports(kind, width) || kv_heads == 0 || heads % kv_heads != 0 {
            let expected =
                format!("of a multiple of {kv_heads} heads of 8 to {WIDEST} numbers in bf16 or f32");
            return invalid("the queries", &expected, queries);
        }
        let blocks = sequences.tables.size().get(1).copied().unwrap_or(0);
        // Counts and the numbers of blocks of a grid are 32-bit integers.
        if rows * heads > i64::from(i32::MAX) || slots % BLOCK as i64 != 0 {
            return invalid("the cache", "whole blocks for at most 2³¹ query heads", cache);
        }
        if rows > 0 && (sequences.longest == 0 || sequences.longest > blocks as usize * BLOCK) {
            return invalid("the tables", "as long as the longest sequence", sequences.tables);
        }
        expect("paged", "the queries", queries, kind, &[rows, heads, width], device)?;
        expect("paged", "the cache", cache, kind, &[slots, 2, kv_heads, width], device)?;
        expect("paged", "the tables", sequences.tables, Kind::Int, &[rows, blocks], device)?;
        expect("paged", "the lengths", sequences.lengths, Kind::Int, &[rows], device)?;
        Ok(Sizes { kind, rows, heads, kv_heads, width, blocks })
    }
}

/// Dimensions of a call.
struct Sizes {
    kind: Kind,
    rows: i64,
    heads: i64,
    kv_heads: i64,
    width: i64,
    /// Length of a row of the tables.
    blocks: i64,
}

impl Sizes {
    /// Returns the index of the width among those of tensor cores.
    fn mma(&self) -> Option<usize> {
        let index = MMA_WIDTHS.into_iter().position(|width| width == self.width);
        index.filter(|_| self.kind == Kind::BFloat16)
    }

    /// Returns the number of query heads of a block: of the heads that share keys, as many as a kernel takes.
    fn queries(&self) -> i64 {
        if self.mma().is_some() {
            return MMA_QUERIES;
        }
        let group = self.heads / self.kv_heads;
        QUERIES.into_iter().find(|queries| *queries >= group).unwrap_or(QUERIES[QUERIES.len() - 1])
    }

    /// Returns the kernels of the number format, with the shared memory for the width.
    fn kernels(&self) -> [Kernel; 2] {
        let queries = self.queries();
        let by_queries = QUERIES.into_iter().position(|other| other == queries).unwrap_or(0);
        let f32 = usize::from(self.kind == Kind::Float);
        let attend = match self.mma() {
            Some(index) => KERNELS[MMA + index],
            None => KERNELS[QUERIES.len() * f32 + by_queries],
        };
        [attend_span(attend.name, queries, self.width), KERNELS[MERGE + f32]]
    }
}
