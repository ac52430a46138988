//! Products of rows with packed matrices.
//!
//! An output row is the sum of [`Term`]s: the base weights for all rows, and for ranges of rows the second
//! factor of an adapter, whose input is the output of the first factor. A task computes one panel of outputs
//! for all rows, or for a part of them if there are few panels for many threads: blocks of up to [`Simd::ROWS`]
//! rows keep their sums in registers while the panel's weights are read, a stride of inputs at a time, so that the
//! weights are still in the cache for the next block of rows. With AVX-512, blocks of f16 and bf16 have up to twice
//! as many rows, and one of the panel's two vectors at a time. Every sum runs over the inputs in order, term by term,
//! with one rounding each.
//!
//! Quantized weights are unpacked in registers if there are few rows, otherwise a stride at a time into memory that stays
//! in the cache. Both give the bits of the same weights in f32.

mod blocks;

use std::ops::{Range, RangeInclusive};

use super::Cpu;
use super::groups::{
    CodeWidth, Eight, EightMinimum, Format, Four, FourMinimum, MAX_BLOCK, PanelLayout, QuantizedStride,
};
use super::matrix::{Matrix, Storage, WeightFormat, panel};
use super::simd::{Kernel, Simd};
use super::storage::{Bf16, F16, F32, WeightStorage};
use super::thread_pool::{DisjointSlice, Scratch};
use blocks::{Block, group_rows};

/// Largest number of inputs of one pass over the rows, and that of a pass over few rows: a number of whole blocks of
/// quantized weights.
pub(crate) const STRIDE: usize = MAX_BLOCK;
/// Number of inputs of one pass over many rows. With it, the f32 weights of a panel and the inputs of 16 rows take at most 12 KiB of a
/// first-level cache, which prefetched weights may share.
const SHORT_STRIDE: usize = 64;
/// Number of rows that are many: a pass over them takes longer than memory takes to send the weights of the next one.
const MANY_ROWS: usize = 9;
/// Numbers of rows for which f32 weights are prefetched into the second-level cache. Memory nearly keeps pace with so few rows only if
/// more lines are under way than the first level can track. A row alone is faster without, and for more rows than these the first level is
/// as good or, on Intel CPUs, better.
const ROWS_AT_MEMORY_SPEED: RangeInclusive<usize> = 2..=24;
/// Smallest number of rows that are worth a task of their own.
const FEWEST_ROWS: usize = 8;

/// A term of a product: `matrix` times the rows of `x`, added to `rows` of the output.
pub struct Term<'a> {
    /// Rows of the output and of `x`; within the rows of the product.
    pub rows: Range<usize>,
    /// Inputs, row by row: input `i` of row `r` is `x[r * stride + offset + i]`.
    pub x: &'a [f32],
    /// Distance between rows of `x`.
    pub stride: usize,
    /// Offset of the inputs in a row.
    pub offset: usize,
    /// Weights.
    pub matrix: &'a Matrix,
}

/// Operation on the sums `s`.
pub enum Epilogue<'a> {
    /// `out = s`
    Store,
    /// `out = s + bias`
    Bias(&'a [f32]),
    /// `out = out + s`
    Add,
    /// `out = silu(s) u`, where `u` is the sum of these terms (Shazeer 2020, SwiGLU).
    Gate(&'a [Term<'a>]),
}

/// A matrix product: output `o` of row `r` is `out[r * stride + offset + o]`.
pub struct Product<'a> {
    /// Rows of the output that the product writes.
    pub rows: Range<usize>,
    /// Terms of the sum. All matrices have the same number of outputs.
    pub terms: &'a [Term<'a>],
    /// Operation on the sums.
    pub epilogue: Epilogue<'a>,
    /// Offset of the outputs in a row of `out`.
    pub offset: usize,
}

impl Cpu {
    /// Computes products into `out` (`[rows, stride]`). No two products may write the same part of it.
    ///
    /// # Panics
    /// If a term's rows, inputs or outputs do not match `out` or each other, or if a matrix was packed for other
    /// instructions.
    pub fn products(&self, products: &[Product<'_>], out: &mut [f32], stride: usize) {
        let mut written: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        for product in products {
            let Some(first) = product.terms.first() else { continue };
            let outputs = first.matrix.outputs();
            product.check(outputs, panel(self.level));
            assert!(product.offset.saturating_add(outputs) <= stride, "outputs past the end of a row");
            assert!(product.rows.end.saturating_mul(stride) <= out.len(), "rows past the end of the output");
            let (rows, columns) = (product.rows.clone(), product.offset..product.offset + outputs);
            let disjoint = |a: &Range<usize>, b: &Range<usize>| a.end <= b.start || b.end <= a.start;
            assert!(
                written.iter().all(|(r, c)| disjoint(r, &rows) || disjoint(c, &columns)),
                "two products write the same outputs"
            );
            written.push((rows, columns));
        }
        let out = DisjointSlice::new(out);
        let (level, scratch) = (self.level, self.scratch.as_slice());
        let tasks = divide(products, scratch.len());
        self.pool.for_each(tasks.len(), |thread, index| {
            let kernel = TaskKernel { task: &tasks[index], out, stride, scratch: &scratch[thread] };
            // SAFETY: the level was detected; shapes were checked above; no two tasks share outputs.
            unsafe { level.run(kernel) };
        });
    }
}

/// A panel of a product, for some of its rows.
struct Task<'a> {
    product: &'a Product<'a>,
    panel: usize,
    rows: Range<usize>,
}

/// Divides products into tasks for a number of threads. Rows are divided only if there are at least twice as many threads as panels,
/// as for an adapter's first factor: each part of them reads all weights.
fn divide<'a>(products: &'a [Product<'a>], threads: usize) -> Vec<Task<'a>> {
    let panels: usize = products.iter().map(Product::panels).sum();
    let parts = (threads / panels.max(1)).max(1);
    let mut tasks = Vec::with_capacity(panels * parts);
    for product in products {
        let Range { start, end } = product.rows;
        let parts = parts.min(product.rows.len() / FEWEST_ROWS).max(1);
        let count = product.rows.len().div_ceil(parts).max(1);
        for panel in 0..product.panels() {
            let rows = (start..end).step_by(count).map(|first| first..end.min(first + count));
            tasks.extend(rows.map(|rows| Task { product, panel, rows }));
        }
    }
    tasks
}

impl Product<'_> {
    /// Returns the number of panels of outputs.
    fn panels(&self) -> usize {
        self.terms.first().map_or(0, |term| term.matrix.panels())
    }

    fn check(&self, outputs: usize, panel: usize) {
        assert!(self.rows.start <= self.rows.end, "a product's rows");
        let gate: &[Term<'_>] = if let Epilogue::Gate(terms) = &self.epilogue { terms } else { &[] };
        for term in self.terms.iter().chain(gate) {
            assert_eq!(term.matrix.outputs(), outputs, "terms of one product have the same outputs");
            assert_eq!(term.matrix.panel(), panel, "a matrix that was packed for other instructions");
            let within = self.rows.start <= term.rows.start && term.rows.end <= self.rows.end;
            assert!(within && term.rows.start <= term.rows.end, "a term's rows");
            let inputs = term.offset.saturating_add(term.matrix.inputs());
            assert!(inputs <= term.stride, "a term's inputs");
            let needed = term.rows.end.saturating_sub(1).saturating_mul(term.stride).saturating_add(inputs);
            assert!(term.rows.is_empty() || term.x.len() >= needed, "a term's inputs are too few");
        }
        if let Epilogue::Bias(bias) = self.epilogue {
            assert_eq!(bias.len(), outputs, "a bias per output");
        }
    }
}

/// Computation of a task.
struct TaskKernel<'a> {
    task: &'a Task<'a>,
    out: DisjointSlice<'a, f32>,
    stride: usize,
    scratch: &'a Scratch,
}

impl Kernel for TaskKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = 2 * S::LANES;
        let Task { product, panel, rows } = self.task;
        let gated = matches!(product.epilogue, Epilogue::Gate(_));
        let size = rows.len() * width;
        // SAFETY: the scratch of this thread, borrowed once.
        let scratch = unsafe { self.scratch.get(STRIDE * width + if gated { 2 * size } else { size }) };
        let (unpacked, scratch) = scratch.split_at_mut(STRIDE * width);
        let (sums, ups) = scratch.split_at_mut(size);
        // SAFETY: shapes were checked; sums and ups have all rows.
        unsafe {
            accumulate::<S>(product.terms, *panel, rows, sums, unpacked);
            if let Epilogue::Gate(terms) = &product.epilogue {
                accumulate::<S>(terms, *panel, rows, ups, unpacked);
            }
        }
        let start = panel * width;
        let Some(first) = product.terms.first() else { return };
        let count = width.min(first.matrix.outputs() - start);
        for (index, row) in rows.clone().enumerate() {
            let offset = row * self.stride + product.offset + start;
            // SAFETY: only this task writes this panel's outputs of these rows.
            let out = unsafe { self.out.part(offset, count) };
            let sums = &mut sums[index * width..][..width];
            match &product.epilogue {
                Epilogue::Store => {}
                Epilogue::Bias(bias) => {
                    sums.iter_mut().zip(&bias[start..start + count]).for_each(|(s, b)| *s += b);
                }
                Epilogue::Add => sums.iter_mut().zip(&*out).for_each(|(s, o)| *s += o),
                Epilogue::Gate(_) => {
                    // SAFETY: both have the width of a panel.
                    unsafe { gate::<S>(sums, &ups[index * width..][..width]) };
                }
            }
            out.copy_from_slice(&sums[..count]);
        }
    }
}

/// Computes `sums = silu(sums) ups` over the width of a panel.
#[inline(always)]
unsafe fn gate<S: Simd>(sums: &mut [f32], ups: &[f32]) {
    for half in 0..2 {
        // SAFETY: two vectors each.
        unsafe {
            let address = sums.as_mut_ptr().add(half * S::LANES);
            let x = S::load(address);
            let one = S::splat(1.0);
            let sigmoid = S::div(one, S::add(one, S::exp(S::sub(S::splat(0.0), x))));
            S::store(address, S::mul(S::mul(x, sigmoid), S::load(ups.as_ptr().add(half * S::LANES))));
        }
    }
}

/// Computes the sums of terms for one panel and some rows. `unpacked` has space for a stride of weights.
#[inline(always)]
unsafe fn accumulate<S: Simd>(
    terms: &[Term<'_>],
    panel: usize,
    rows: &Range<usize>,
    sums: &mut [f32],
    unpacked: &mut [f32],
) {
    sums.fill(0.0);
    let first = rows.start;
    for term in terms {
        let term = &Term { rows: term.rows.start.max(first)..term.rows.end.min(rows.end), ..*term };
        if term.rows.is_empty() {
            continue;
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            match term.matrix.storage() {
                Storage::Numbers(WeightFormat::F32) => add_term::<S, F32>(term, panel, first, sums),
                Storage::Numbers(WeightFormat::F16) => add_term::<S, F16>(term, panel, first, sums),
                Storage::Numbers(WeightFormat::Bf16) => add_term::<S, Bf16>(term, panel, first, sums),
                Storage::Groups(format) => {
                    let layout = PanelLayout { format, width: 2 * S::LANES };
                    match (format.width, format.minimum) {
                        (CodeWidth::Four, false) => {
                            add_groups::<S, Four>(term, layout, panel, first, sums, unpacked)
                        }
                        (CodeWidth::Four, true) => {
                            add_groups::<S, FourMinimum>(term, layout, panel, first, sums, unpacked)
                        }
                        (CodeWidth::Eight, false) => {
                            add_groups::<S, Eight>(term, layout, panel, first, sums, unpacked)
                        }
                        (CodeWidth::Eight, true) => {
                            add_groups::<S, EightMinimum>(term, layout, panel, first, sums, unpacked)
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn add_term<S: Simd, W: WeightStorage>(term: &Term<'_>, panel: usize, first: usize, sums: &mut [f32]) {
    let width = 2 * S::LANES;
    let inputs = term.matrix.inputs();
    let stride = if term.rows.len() < MANY_ROWS { STRIDE } else { SHORT_STRIDE };
    let weights = term.matrix.panel_start(panel).cast::<W::Number>();
    let mut input = 0;
    while input < inputs {
        let count = stride.min(inputs - input);
        // SAFETY: `input + count <= inputs`, rows are below those of `x` and `sums`; a prefetch past the end
        // has no effect.
        unsafe {
            let weights = weights.add(input * width);
            let following = count * width * size_of::<W::Number>();
            Stride::<W> { weights, input, count, following }.add::<S>(term, first, sums);
        }
        input += count;
    }
}

/// Some inputs of a panel.
struct Stride<W: WeightStorage> {
    weights: *const W::Number,
    /// First input, and number of inputs.
    input: usize,
    count: usize,
    /// Number of bytes to prefetch of what follows the weights.
    following: usize,
}

impl<W: WeightStorage> Stride<W> {
    /// Adds the inputs to the sums of all rows of a term. Passes over the inputs prefetch what follows, a share each.
    #[inline(always)]
    unsafe fn add<S: Simd>(self, term: &Term<'_>, first: usize, sums: &mut [f32]) {
        let Self { weights, input, count, following } = self;
        let width = 2 * S::LANES;
        // Blocks of one vector and twice as many rows convert each weight half as often.
        let is_tall = S::TALL && W::CONVERTS && term.rows.len() > S::ROWS;
        let [height, vectors] = if is_tall { [2 * S::ROWS, 1] } else { [S::ROWS, 2] };
        let blocks = term.rows.len().div_ceil(height);
        let passes = blocks * 2 / vectors;
        let share = following.div_ceil((passes * count).max(1));
        // Half as many lines as those of f32 are under way in other formats.
        let into_second_level = !W::CONVERTS && ROWS_AT_MEMORY_SPEED.contains(&term.rows.len());
        let mut ahead = weights.wrapping_add(count * width).cast::<u8>();
        let mut row = term.rows.start;
        for block in 0..blocks {
            let rows = (term.rows.end - row).div_ceil(blocks - block);
            for column in (0..width).step_by(vectors * S::LANES) {
                // SAFETY: rows, inputs and vectors are within `x`, the panel and `sums`, as the caller guarantees.
                unsafe {
                    let x = term.x.as_ptr().add(row * term.stride + term.offset + input);
                    let weights = weights.add(column);
                    let sums = sums.as_mut_ptr().add((row - first) * width + column);
                    Block::<W> {
                        x,
                        stride: term.stride,
                        weights,
                        count,
                        sums,
                        ahead,
                        share,
                        into_second_level,
                    }
                    .add::<S>(rows, vectors);
                }
                ahead = ahead.wrapping_add(share * count);
            }
            row += rows;
        }
    }
}

/// Adds a term of quantized weights.
#[inline(always)]
unsafe fn add_groups<S: Simd, F: Format>(
    term: &Term<'_>,
    layout: PanelLayout,
    panel: usize,
    first: usize,
    sums: &mut [f32],
    unpacked: &mut [f32],
) {
    let inputs = term.matrix.inputs();
    let weights = term.matrix.panel_start(panel);
    let rows = term.rows.clone();
    // With more rows, the sums and the unpacked weights do not fit into the registers.
    let few = rows.len() <= S::LANES / 2;
    let length = if few { STRIDE } else { SHORT_STRIDE };
    let mut input = 0;
    while input < inputs {
        let count = length.min(inputs - input);
        let stride = QuantizedStride::new(layout, weights, input, count);
        // SAFETY: `input + count <= inputs`, a stride has whole groups or is a part of one, rows are below those of `x` and
        // `sums`, and `unpacked` has space for a stride; a prefetch past the end has no effect.
        unsafe {
            if few {
                let x = term.x.as_ptr().add(rows.start * term.stride + term.offset + input);
                let sums = sums.as_mut_ptr().add((rows.start - first) * layout.width);
                group_rows::<S, F>(rows.len(), x, term.stride, &stride, sums);
            } else {
                stride.unpack::<S, F>(unpacked.as_mut_ptr());
                let weights = unpacked.as_ptr();
                Stride::<F32> { weights, input, count, following: 0 }.add::<S>(term, first, sums);
            }
        }
        input += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_if_there_are_threads_for_them() {
        let cpu = Cpu::with_level(1, super::super::SimdLevel::Portable).unwrap();
        let matrix = Matrix::pack(&cpu, &[0.0; 20], 20, 1, WeightFormat::F32);
        let parts = |count: usize, threads| -> Vec<(usize, Range<usize>)> {
            let rows = 3..3 + count;
            let term = Term { rows: rows.clone(), x: &[], stride: 1, offset: 0, matrix: &matrix };
            let product = Product { rows, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
            divide(&[product], threads).into_iter().map(|task| (task.panel, task.rows)).collect()
        };
        // Two panels of 16.
        assert_eq!(parts(32, 3), [(0, 3..35), (1, 3..35)]);
        assert_eq!(parts(17, 4), [(0, 3..12), (0, 12..20), (1, 3..12), (1, 12..20)]);
        assert_eq!(parts(15, 8), [(0, 3..18), (1, 3..18)]);
        assert_eq!(parts(0, 8), []);
    }
}
