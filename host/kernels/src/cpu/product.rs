//! Products of rows with packed matrices.
//!
//! An output row is the sum of [`Term`]s: the base's weights for all rows, and for ranges of rows the second
//! factor of an adapter, whose input is what its first factor gave. A task computes one panel of outputs for all
//! rows: blocks of up to [`ROWS`] rows keep their sums in registers while the panel's weights stream by, and
//! [`STRIDE`] inputs at a time, so that the weights that the next block of rows needs are still close.
//! Every sum runs over its inputs in their order, one term after the other, with one rounding each.

use std::ops::Range;

use super::Cpu;
use super::matrix::{Format, Matrix};
use super::simd::{Kernel, Simd};
use super::team::{Scratch, Shards};

/// Rows whose sums are in registers at a time: with two vectors each, half of AVX-512's registers.
const ROWS: usize = 8;
/// Inputs of one pass over the rows: 32 outputs of so many f32 weights are 32 KiB, which the first-level cache
/// holds beside the rows.
const STRIDE: usize = 256;

/// Bytes of a cache line.
const LINE: usize = 64;

/// `rows` of an output get `matrix` times the rows of `x`.
pub struct Term<'a> {
    /// Rows of the output, and of `x`; within those of the product.
    pub rows: Range<usize>,
    /// Inputs, row after row: input `i` of row `r` is `x[r * stride + offset + i]`.
    pub x: &'a [f32],
    /// Numbers from one row of `x` to the next.
    pub stride: usize,
    /// Where a row's inputs begin.
    pub offset: usize,
    /// The weights.
    pub matrix: &'a Matrix,
}

/// What becomes of the sums `s`.
pub enum Epilogue<'a> {
    /// `out = s`
    Store,
    /// `out = s + bias`
    Bias(&'a [f32]),
    /// `out = out + s`
    Add,
    /// `out = silu(s) u`, with `u` the sum of these terms (Shazeer 2020, SwiGLU).
    Gate(&'a [Term<'a>]),
}

/// A matrix product: output `o` of row `r` is `out[r * stride + offset + o]`.
pub struct Product<'a> {
    /// Rows of the output that it writes.
    pub rows: Range<usize>,
    /// What is summed; all matrices have as many outputs.
    pub terms: &'a [Term<'a>],
    /// What becomes of the sums.
    pub epilogue: Epilogue<'a>,
    /// Where in a row of `out` the outputs begin.
    pub offset: usize,
}

impl Cpu {
    /// Computes products into `out` (`[rows, stride]`), of which they must not write the same part.
    ///
    /// # Panics
    /// When a term's rows, inputs or outputs do not fit `out` or each other.
    pub fn products(&self, products: &[Product<'_>], out: &mut [f32], stride: usize) {
        let mut written: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        let mut tasks = Vec::new();
        for (index, product) in products.iter().enumerate() {
            let Some(first) = product.terms.first() else { continue };
            let outputs = first.matrix.outputs();
            product.check(outputs);
            assert!(product.offset + outputs <= stride, "outputs past the end of a row");
            assert!(product.rows.end * stride <= out.len(), "rows past the end of the output");
            let (rows, columns) = (product.rows.clone(), product.offset..product.offset + outputs);
            let apart = |a: &Range<usize>, b: &Range<usize>| a.end <= b.start || b.end <= a.start;
            assert!(
                written.iter().all(|(r, c)| apart(r, &rows) || apart(c, &columns)),
                "two products write the same outputs"
            );
            written.push((rows, columns));
            tasks.extend((0..first.matrix.panels()).map(|panel| (index, panel)));
        }
        let out = Shards::new(out);
        let (level, scratch) = (self.level, self.scratch.as_slice());
        self.team.each(tasks.len(), |thread, task| {
            let (index, panel) = tasks[task];
            let work = Panel { product: &products[index], panel, out, stride, scratch: &scratch[thread] };
            // SAFETY: the level was detected; shapes were checked above; no two tasks share outputs.
            unsafe { level.run(work) };
        });
    }
}

impl Product<'_> {
    fn check(&self, outputs: usize) {
        assert!(self.rows.start <= self.rows.end, "a product's rows");
        let gate: &[Term<'_>] = if let Epilogue::Gate(terms) = &self.epilogue { terms } else { &[] };
        for term in self.terms.iter().chain(gate) {
            assert_eq!(term.matrix.outputs(), outputs, "terms of one product have the same outputs");
            let within = self.rows.start <= term.rows.start && term.rows.end <= self.rows.end;
            assert!(within && term.rows.start <= term.rows.end, "a term's rows");
            assert!(term.offset + term.matrix.inputs() <= term.stride, "a term's inputs");
            let needed = term.rows.end.saturating_sub(1) * term.stride + term.offset + term.matrix.inputs();
            assert!(term.rows.is_empty() || term.x.len() >= needed, "a term's inputs are too few");
        }
        if let Epilogue::Bias(bias) = self.epilogue {
            assert_eq!(bias.len(), outputs, "a bias per output");
        }
    }
}

/// One panel of one product, for all rows.
struct Panel<'a> {
    product: &'a Product<'a>,
    panel: usize,
    out: Shards<'a, f32>,
    stride: usize,
    scratch: &'a Scratch,
}

impl Kernel for Panel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = 2 * S::LANES;
        let gated = matches!(self.product.epilogue, Epilogue::Gate(_));
        let rows = self.product.rows.clone();
        let size = rows.len() * width;
        // SAFETY: the thread's own scratch, borrowed once.
        let scratch = unsafe { self.scratch.get(if gated { 2 * size } else { size }) };
        let (sums, ups) = scratch.split_at_mut(size);
        // SAFETY: shapes were checked; sums and ups hold all rows.
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
            let at = row * self.stride + self.product.offset + start;
            // SAFETY: this panel's outputs belong to this task.
            let out = unsafe { self.out.part(at, count) };
            let sums = &mut sums[index * width..][..width];
            match &self.product.epilogue {
                Epilogue::Store => {}
                Epilogue::Bias(bias) => {
                    sums.iter_mut().zip(&bias[start..start + count]).for_each(|(s, b)| *s += b);
                }
                Epilogue::Add => sums.iter_mut().zip(&*out).for_each(|(s, o)| *s += o),
                Epilogue::Gate(_) => {
                    // SAFETY: both are a panel wide.
                    unsafe { gate::<S>(sums, &ups[index * width..][..width]) };
                }
            }
            out.copy_from_slice(&sums[..count]);
        }
    }
}

/// `sums = silu(sums) ups`, a panel wide.
#[inline(always)]
unsafe fn gate<S: Simd>(sums: &mut [f32], ups: &[f32]) {
    for half in 0..2 {
        // SAFETY: two vectors each.
        unsafe {
            let at = sums.as_mut_ptr().add(half * S::LANES);
            let x = S::load(at);
            let one = S::splat(1.0);
            let sigmoid = S::div(one, S::add(one, S::exp(S::sub(S::splat(0.0), x))));
            S::store(at, S::mul(S::mul(x, sigmoid), S::load(ups.as_ptr().add(half * S::LANES))));
        }
    }
}

/// The sums of some terms for one panel and the rows from `first` on, from zero.
#[inline(always)]
unsafe fn accumulate<S: Simd>(terms: &[Term<'_>], panel: usize, first: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for term in terms {
        // SAFETY: the caller's.
        unsafe {
            match term.matrix.format() {
                Format::F32 => add_term::<S, F32>(term, panel, first, sums),
                Format::F16 => add_term::<S, F16>(term, panel, first, sums),
                Format::Bf16 => add_term::<S, Bf16>(term, panel, first, sums),
            }
        }
    }
}

/// How a vector of weights is read.
trait Stored {
    /// A stored number.
    type Number;
    /// Widens a vector.
    unsafe fn load<S: Simd>(from: *const Self::Number) -> S::V;
}

struct F32;
struct F16;
struct Bf16;

impl Stored for F32 {
    type Number = f32;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::V {
        // SAFETY: the caller's.
        unsafe { S::load(from) }
    }
}

impl Stored for F16 {
    type Number = u16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: the caller's.
        unsafe { S::load_f16(from) }
    }
}

impl Stored for Bf16 {
    type Number = u16;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: the caller's.
        unsafe { S::load_bf16(from) }
    }
}

#[inline(always)]
unsafe fn add_term<S: Simd, W: Stored>(term: &Term<'_>, panel: usize, first: usize, sums: &mut [f32]) {
    let width = 2 * S::LANES;
    let inputs = term.matrix.inputs();
    let blocks = term.rows.len().div_ceil(ROWS).max(1);
    let weights = term.matrix.panel_start(panel).cast::<W::Number>();
    let mut at = 0;
    while at < inputs {
        let count = STRIDE.min(inputs - at);
        // SAFETY: `at + count <= inputs`, rows are below those of `x` and `sums`; a prefetch past the end is void.
        unsafe {
            let weights = weights.add(at * width);
            // While one stride is multiplied, the next one comes in, shared among the blocks of rows.
            let bytes = count * width * size_of::<W::Number>();
            let mut ahead = weights.cast::<u8>().add(bytes);
            let share = bytes.div_ceil(blocks * count);
            let mut row = term.rows.start;
            while row < term.rows.end {
                let rows = ROWS.min(term.rows.end - row);
                let x = term.x.as_ptr().add(row * term.stride + term.offset + at);
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
        at += count;
    }
}

/// Adds `count` inputs of M rows to their sums.
#[inline(always)]
unsafe fn block<S: Simd, W: Stored, const M: usize>(
    x: *const f32,
    stride: usize,
    weights: *const W::Number,
    count: usize,
    sums: *mut f32,
    ahead: *const u8,
    share: usize,
) {
    let width = 2 * S::LANES;
    // SAFETY: the caller's pointers are good for M rows, `count` inputs and a panel.
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
