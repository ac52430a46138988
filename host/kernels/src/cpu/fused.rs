//! Operations between the matrix products of training, each in one pass over memory.
//!
//! Rows and parts of rows are divided among threads; a row's bits do not depend on them.

use super::Workers;
use super::simd::{Kernel, Simd};
use super::thread_pool::DisjointSlice;

/// Number of values that a task of an operation on single values has.
const CHUNK: usize = 1 << 14;

/// Largest number of lanes of a vector.
const LANES: usize = 16;

/// Computes the gated unit `silu(gate) up` (Shazeer 2020).
///
/// # Panics
/// If the lengths differ.
pub fn gate(workers: Workers<'_>, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let count = out.len();
    assert!(gate.len() == count && up.len() == count, "values of a gate");
    let out = DisjointSlice::new(out);
    (workers.parallel_for)(count.div_ceil(CHUNK), &|chunk| {
        let own = chunk * CHUNK..count.min((chunk + 1) * CHUNK);
        // SAFETY: chunks do not overlap.
        let out = unsafe { out.part(own.start, own.len()) };
        // SAFETY: the level was detected; all have the same length.
        unsafe { workers.level.run(GateKernel { gate: &gate[own.clone()], up: &up[own], out }) };
    });
}

/// Computes the gradients of [`gate`] with respect to the gate and to `up`, given that of its result.
///
/// # Panics
/// If the lengths differ.
pub fn gate_backward(
    workers: Workers<'_>,
    gradient: &[f32],
    gate: &[f32],
    up: &[f32],
    d_gate: &mut [f32],
    d_up: &mut [f32],
) {
    let count = gradient.len();
    let lengths = [gate.len(), up.len(), d_gate.len(), d_up.len()];
    assert!(lengths.iter().all(|len| *len == count), "values of a gate");
    let (d_gate, d_up) = (DisjointSlice::new(d_gate), DisjointSlice::new(d_up));
    (workers.parallel_for)(count.div_ceil(CHUNK), &|chunk| {
        let own = chunk * CHUNK..count.min((chunk + 1) * CHUNK);
        // SAFETY: chunks do not overlap.
        let (d_gate, d_up) = unsafe { (d_gate.part(own.start, own.len()), d_up.part(own.start, own.len())) };
        let (gate, up, gradient) = (&gate[own.clone()], &up[own.clone()], &gradient[own]);
        // SAFETY: the level was detected; all have the same length.
        unsafe { workers.level.run(GateBackwardKernel { gradient, gate, up, d_gate, d_up }) };
    });
}

/// Computes `x rstd gain` for rows of the gain's length, each with its own `rstd`.
///
/// # Panics
/// If lengths do not match.
pub fn normalize(workers: Workers<'_>, x: &[f32], rstd: &[f32], gain: &[f32], out: &mut [f32]) {
    let width = check_rows(&[x, out], rstd, gain);
    let out = DisjointSlice::new(out);
    for_rows(workers, rstd.len(), width, &|row| {
        let x = &x[row * width..][..width];
        // SAFETY: rows do not overlap.
        let out = unsafe { out.part(row * width, width) };
        // SAFETY: the level was detected.
        unsafe { workers.level.run(NormalizeKernel { x, rstd: rstd[row], gain, out }) };
    });
}

/// Computes the gradient of [`normalize`] with respect to `x`, where `rstd` is the reciprocal root mean square of each row, given
/// that of its result:
///
/// ```text
/// n = x rstd        dx = rstd (dy gain - n mean(dy gain n))
/// ```
///
/// # Panics
/// If lengths do not match.
pub fn normalize_backward(
    workers: Workers<'_>,
    dy: &[f32],
    x: &[f32],
    rstd: &[f32],
    gain: &[f32],
    dx: &mut [f32],
) {
    let width = check_rows(&[dy, x, dx], rstd, gain);
    let dx = DisjointSlice::new(dx);
    for_rows(workers, rstd.len(), width, &|row| {
        let (dy, x) = (&dy[row * width..][..width], &x[row * width..][..width]);
        // SAFETY: rows do not overlap.
        let dx = unsafe { dx.part(row * width, width) };
        // SAFETY: the level was detected.
        unsafe { workers.level.run(NormalizeBackwardKernel { dy, x, rstd: rstd[row], gain, dx }) };
    });
}

/// Rotates the heads of rows: `x cos + swap(x) sin`, where `swap` exchanges the halves of a head. `cos` and `sin` are
/// `[rows, width]`, the first half of a row of sines negated. With `transposed`, the sines have the other sign.
///
/// # Panics
/// If lengths do not match, or the width is odd.
pub fn rotate(
    workers: Workers<'_>,
    x: &[f32],
    [cos, sin]: [&[f32]; 2],
    width: usize,
    transposed: bool,
    out: &mut [f32],
) {
    assert!(width > 0 && width.is_multiple_of(2), "heads of width {width}");
    let rows = cos.len() / width;
    assert!(cos.len() == rows * width && sin.len() == cos.len(), "a row of angles for each row");
    assert!(x.len() == out.len() && x.len().is_multiple_of((rows * width).max(1)), "whole heads");
    let row_width = x.len() / rows.max(1);
    let out = DisjointSlice::new(out);
    for_rows(workers, rows, row_width, &|row| {
        let x = &x[row * row_width..][..row_width];
        let (cos, sin) = (&cos[row * width..][..width], &sin[row * width..][..width]);
        // SAFETY: rows do not overlap.
        let out = unsafe { out.part(row * row_width, row_width) };
        let sign = if transposed { -1.0 } else { 1.0 };
        // SAFETY: the level was detected.
        unsafe { workers.level.run(RotateKernel { x, cos, sin, sign, out }) };
    });
}

/// Checks tensors of rows. Returns the rows' length.
fn check_rows(tensors: &[&[f32]], rstd: &[f32], gain: &[f32]) -> usize {
    let width = gain.len();
    assert!(tensors.iter().all(|x| x.len() == rstd.len() * width), "rows of {width}");
    width
}

/// Calls `body` for each row, in tasks of about [`CHUNK`] values.
fn for_rows(workers: Workers<'_>, rows: usize, width: usize, body: &(dyn Fn(usize) + Sync)) {
    let chunk = (CHUNK / width.max(1)).max(1);
    (workers.parallel_for)(rows.div_ceil(chunk), &|task| {
        (task * chunk..rows.min((task + 1) * chunk)).for_each(body);
    });
}

struct GateKernel<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for GateKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { gate, up, out } = self;
        let whole = out.len() / LANES * LANES;
        // SAFETY: whole vectors within the slices.
        unsafe { gate_vectors::<S>(whole, gate.as_ptr(), up.as_ptr(), out.as_mut_ptr()) };
        let rest = out.len() - whole;
        let ([mut a, mut b, mut c], to) = ([[0f32; LANES]; 3], &mut out[whole..]);
        a[..rest].copy_from_slice(&gate[whole..]);
        b[..rest].copy_from_slice(&up[whole..]);
        // SAFETY: as above.
        unsafe { gate_vectors::<S>(LANES, a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) };
        to.copy_from_slice(&c[..rest]);
    }
}

#[inline(always)]
unsafe fn gate_vectors<S: Simd>(count: usize, gate: *const f32, up: *const f32, out: *mut f32) {
    for at in (0..count).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let x = S::load(gate.add(at));
            S::store(out.add(at), S::mul(S::mul(x, sigmoid::<S>(x)), S::load(up.add(at))));
        }
    }
}

#[inline(always)]
unsafe fn sigmoid<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic alone.
    unsafe {
        let one = S::splat(1.0);
        S::div(one, S::add(one, S::exp(S::sub(S::splat(0.0), x))))
    }
}

struct GateBackwardKernel<'a> {
    gradient: &'a [f32],
    gate: &'a [f32],
    up: &'a [f32],
    d_gate: &'a mut [f32],
    d_up: &'a mut [f32],
}

impl Kernel for GateBackwardKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { gradient, gate, up, d_gate, d_up } = self;
        let whole = gradient.len() / LANES * LANES;
        let inputs = [gradient.as_ptr(), gate.as_ptr(), up.as_ptr()];
        // SAFETY: whole vectors within the slices.
        unsafe { gate_backward_vectors::<S>(whole, inputs, d_gate.as_mut_ptr(), d_up.as_mut_ptr()) };
        let rest = gradient.len() - whole;
        let [mut a, mut b, mut c, mut d, mut e] = [[0f32; LANES]; 5];
        a[..rest].copy_from_slice(&gradient[whole..]);
        b[..rest].copy_from_slice(&gate[whole..]);
        c[..rest].copy_from_slice(&up[whole..]);
        let inputs = [a.as_ptr(), b.as_ptr(), c.as_ptr()];
        // SAFETY: as above.
        unsafe { gate_backward_vectors::<S>(LANES, inputs, d.as_mut_ptr(), e.as_mut_ptr()) };
        d_gate[whole..].copy_from_slice(&d[..rest]);
        d_up[whole..].copy_from_slice(&e[..rest]);
    }
}

/// `silu'(x) = s (1 + x (1 - s))` with the sigmoid `s` of `x`.
#[inline(always)]
unsafe fn gate_backward_vectors<S: Simd>(
    count: usize,
    [gradient, gate, up]: [*const f32; 3],
    d_gate: *mut f32,
    d_up: *mut f32,
) {
    for at in (0..count).step_by(S::LANES) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (dy, x, up) = (S::load(gradient.add(at)), S::load(gate.add(at)), S::load(up.add(at)));
            let (one, s) = (S::splat(1.0), sigmoid::<S>(x));
            let slope = S::mul(s, S::fma(x, S::sub(one, s), one));
            S::store(d_gate.add(at), S::mul(S::mul(dy, up), slope));
            S::store(d_up.add(at), S::mul(S::mul(x, s), dy));
        }
    }
}

struct NormalizeKernel<'a> {
    x: &'a [f32],
    rstd: f32,
    gain: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for NormalizeKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { x, rstd, gain, out } = self;
        for i in 0..out.len() {
            out[i] = x[i] * rstd * gain[i];
        }
    }
}

struct NormalizeBackwardKernel<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    rstd: f32,
    gain: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for NormalizeBackwardKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { dy, x, rstd, gain, dx } = self;
        let width = dx.len();
        // Sixteen sums for every vector width, then the rest in order.
        let mut sums = [0f32; LANES];
        let whole = width / LANES * LANES;
        for start in (0..whole).step_by(LANES) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let i = start + lane;
                *sum += dy[i] * gain[i] * (x[i] * rstd);
            }
        }
        let mut sum: f32 = sums.iter().sum();
        for i in whole..width {
            sum += dy[i] * gain[i] * (x[i] * rstd);
        }
        let mean = sum / width as f32;
        for i in 0..width {
            dx[i] = (dy[i] * gain[i] - x[i] * rstd * mean) * rstd;
        }
    }
}

struct RotateKernel<'a> {
    x: &'a [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    sign: f32,
    out: &'a mut [f32],
}

impl Kernel for RotateKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { x, cos, sin, sign, out } = self;
        let (width, half) = (cos.len(), cos.len() / 2);
        for start in (0..out.len()).step_by(width) {
            let (x, out) = (&x[start..start + width], &mut out[start..start + width]);
            for i in 0..half {
                out[i] = x[i] * cos[i] + x[half + i] * (sin[i] * sign);
                out[half + i] = x[half + i] * cos[half + i] + x[i] * (sin[half + i] * sign);
            }
        }
    }
}
