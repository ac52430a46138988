//! Products of rows with packed matrices.
//!
//! An output row is the sum of [`Term`]s: the base weights for all rows, and for ranges of rows the second
//! factor of an adapter, whose input is the output of the first factor. A task computes one panel of outputs
//! for all rows: blocks of up to [`ROWS`] rows keep their sums in registers while the panel's weights are
//! read, [`STRIDE`] inputs at a time, so that the weights are still in the cache for the next block of rows.
//! Every sum runs over the inputs in order, term by term, with one rounding each.

use std::ops::Range;

use super::Cpu;
use super::matrix::{Matrix, WeightFormat, panel};
use super::simd::{Kernel, Simd};
use super::thread_pool::{DisjointSlice, Scratch};

/// Number of rows whose sums are in registers at a time: with two vectors each, half of AVX-512's registers.
const ROWS: usize = 8;
/// Number of inputs of one pass over the rows. The f32 weights of 32 outputs are 32 KiB, which fit into the
/// first-level cache together with the rows.
const STRIDE: usize = 256;

/// Size of a cache line in bytes.
const LINE: usize = 64;

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
        let mut tasks = Vec::new();
        for (index, product) in products.iter().enumerate() {
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
            tasks.extend((0..first.matrix.panels()).map(|panel| (index, panel)));
        }
        let out = DisjointSlice::new(out);
        let (level, scratch) = (self.level, self.scratch.as_slice());
        self.pool.for_each(tasks.len(), |thread, task| {
            let (index, panel) = tasks[task];
            let kernel =
                PanelKernel { product: &products[index], panel, out, stride, scratch: &scratch[thread] };
            // SAFETY: the level was detected; shapes were checked above; no two tasks share outputs.
            unsafe { level.run(kernel) };
        });
    }
}

impl Product<'_> {
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

/// Computation of one panel of one product for all rows.
struct PanelKernel<'a> {
    product: &'a Product<'a>,
    panel: usize,
    out: DisjointSlice<'a, f32>,
    stride: usize,
    scratch: &'a Scratch,
}

impl Kernel for PanelKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = 2 * S::LANES;
        let gated = matches!(self.product.epilogue, Epilogue::Gate(_));
        let rows = self.product.rows.clone();
        let size = rows.len() * width;
        // SAFETY: the scratch of this thread, borrowed once.
        let scratch = unsafe { self.scratch.get(if gated { 2 * size } else { size }) };
        let (sums, ups) = scratch.split_at_mut(size);
        // SAFETY: shapes were checked; sums and ups have all rows.
        unsafe {
            accumulate::<S>(self.product.terms, self.panel, rows.start, sums);
            if let Epilogue::Gate(terms) = &self.product.epilogue {
                accumulate::<S>(terms, self.panel, rows.start, ups);
            }
        }
        let start = self.panel * width;
        let Some(first) = self.product.terms.first() else { return };
        let count = width.min(first.matrix.outputs() - start);
        for (index, row) in rows.enumerate() {
            let offset = row * self.stride + self.product.offset + start;
            // SAFETY: only this task writes this panel's outputs.
            let out = unsafe { self.out.part(offset, count) };
            let sums = &mut sums[index * width..][..width];
            match &self.product.epilogue {
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

/// Computes the sums of terms for one panel and the rows from `first` on.
#[inline(always)]
unsafe fn accumulate<S: Simd>(terms: &[Term<'_>], panel: usize, first: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for term in terms {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match term.matrix.format() {
                WeightFormat::F32 => add_term::<S, F32>(term, panel, first, sums),
                WeightFormat::F16 => add_term::<S, F16>(term, panel, first, sums),
                WeightFormat::Bf16 => add_term::<S, Bf16>(term, panel, first, sums),
            }
        }
    }
}

/// Storage format of weights.
trait WeightStorage {
    /// Type of a stored number.
    type Number;
    /// Loads a vector as f32.
    unsafe fn load<S: Simd>(from: *const Self::Number) -> S::V;
}

struct F32;
struct F16;
struct Bf16;

impl WeightStorage for F32 {
    type Number = f32;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load(from) }
    }
}

impl WeightStorage for F16 {
    type Number = u16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load_f16(from) }
    }
}

impl WeightStorage for Bf16 {
    type Number = u16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load_bf16(from) }
    }
}

#[inline(always)]
unsafe fn add_term<S: Simd, W: WeightStorage>(term: &Term<'_>, panel: usize, first: usize, sums: &mut [f32]) {
    let width = 2 * S::LANES;
    let inputs = term.matrix.inputs();
    let blocks = term.rows.len().div_ceil(ROWS).max(1);
    let weights = term.matrix.panel_start(panel).cast::<W::Number>();
    let mut input = 0;
    while input < inputs {
        let count = STRIDE.min(inputs - input);
        // SAFETY: `input + count <= inputs`, rows are below those of `x` and `sums`; a prefetch past the end
        // has no effect.
        unsafe {
            let weights = weights.add(input * width);
            // While one stride is multiplied, the blocks of rows prefetch the next one, a share each.
            let bytes = count * width * size_of::<W::Number>();
            let mut ahead = weights.cast::<u8>().add(bytes);
            let share = bytes.div_ceil(blocks * count);
            let mut row = term.rows.start;
            while row < term.rows.end {
                let rows = ROWS.min(term.rows.end - row);
                let x = term.x.as_ptr().add(row * term.stride + term.offset + input);
                let sums = sums.as_mut_ptr().add((row - first) * width);
                match rows {
                    8 => block::<S, W, 8>(x, term.stride, weights, count, sums, ahead, share),
                    7 => block::<S, W, 7>(x, term.stride, weights, count, sums, ahead, share),
                    6 => block::<S, W, 6>(x, term.stride, weights, count, sums, ahead, share),
                    5 => block::<S, W, 5>(x, term.stride, weights, count, sums, ahead, share),
                    4 => block::<S, W, 4>(x, term.stride, weights, count, sums, ahead, share),
                    3 => block::<S, W, 3>(x, term.stride, weights, count, sums, ahead, share),
                    2 => block::<S, W, 2>(x, term.stride, weights, count, sums, ahead, share),
                    _ => block::<S, W, 1>(x, term.stride, weights, count, sums, ahead, share),
                }
                ahead = ahead.wrapping_add(share * count);
                row += rows;
            }
        }
        input += count;
    }
}

/// Adds `count` inputs of M rows to their sums.
#[inline(always)]
unsafe fn block<S: Simd, W: WeightStorage, const M: usize>(
    x: *const f32,
    stride: usize,
    weights: *const W::Number,
    count: usize,
    sums: *mut f32,
    ahead: *const u8,
    share: usize,
) {
    let width = 2 * S::LANES;
    // SAFETY: the caller's pointers are valid for M rows, `count` inputs and a panel.
    unsafe {
        let mut c = [[S::splat(0.0); 2]; M];
        for (row, c) in c.iter_mut().enumerate() {
            c[0] = S::load(sums.add(row * width));
            c[1] = S::load(sums.add(row * width + S::LANES));
        }
        for k in 0..count {
            let low = W::load::<S>(weights.add(k * width));
            let high = W::load::<S>(weights.add(k * width + S::LANES));
            S::prefetch(ahead.wrapping_add(k * share));
            if share > LINE {
                S::prefetch(ahead.wrapping_add(k * share + LINE));
            }
            for (row, c) in c.iter_mut().enumerate() {
                let x = S::splat(*x.add(row * stride + k));
                c[0] = S::fma(x, low, c[0]);
                c[1] = S::fma(x, high, c[1]);
            }
        }
        for (row, c) in c.iter().enumerate() {
            S::store(sums.add(row * width), c[0]);
            S::store(sums.add(row * width + S::LANES), c[1]);
        }
    }
}
