//! Products of small matrices of f32, with sums in registers.

use super::KEYS;
use crate::cpu::simd::Simd;

/// A matrix in memory: element `(i, j)` is at `start + i rows + j columns`.
#[derive(Clone, Copy)]
pub(super) struct Strided {
    pub start: *const f32,
    pub rows: usize,
    pub columns: usize,
}

impl Strided {
    #[inline(always)]
    pub fn new(start: *const f32, rows: usize, columns: usize) -> Self {
        Self { start, rows, columns }
    }
}

/// Computes `c = a b`, or adds it to `c`, for `a` of `rows` x `inner` elements, `b` of `inner` x `columns` elements whose columns
/// are contiguous, and `c` with rows at a distance of `stride`. `columns` is a multiple of two vectors.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(
    [rows, inner, columns]: [usize; 3],
    a: Strided,
    b: Strided,
    c: *mut f32,
    stride: usize,
    add: bool,
) {
    // Rows whose sums are in registers: of AVX-512's 32, and of the 16 of others.
    let most = if S::LANES == 16 { 8 } else { 6 };
    for column in (0..columns).step_by(2 * S::LANES) {
        let mut row = 0;
        while row < rows {
            let count = most.min(rows - row);
            // SAFETY: the caller's matrices have these elements.
            unsafe {
                let a = Strided { start: a.start.add(row * a.rows), ..a };
                let b = Strided { start: b.start.add(column), ..b };
                let c = c.add(row * stride + column);
                match count {
                    8 => tile::<S, 8>(inner, a, b, c, stride, add),
                    7 => tile::<S, 7>(inner, a, b, c, stride, add),
                    6 => tile::<S, 6>(inner, a, b, c, stride, add),
                    5 => tile::<S, 5>(inner, a, b, c, stride, add),
                    4 => tile::<S, 4>(inner, a, b, c, stride, add),
                    3 => tile::<S, 3>(inner, a, b, c, stride, add),
                    2 => tile::<S, 2>(inner, a, b, c, stride, add),
                    _ => tile::<S, 1>(inner, a, b, c, stride, add),
                }
            }
            row += count;
        }
    }
}

/// Computes M rows and two vectors of columns of a product.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(
    inner: usize,
    a: Strided,
    b: Strided,
    c: *mut f32,
    stride: usize,
    add: bool,
) {
    // SAFETY: the caller's pointers are valid for M rows, two vectors and `inner` elements.
    unsafe {
        let mut sums = [[S::splat(0.0); 2]; M];
        if add {
            for (row, sums) in sums.iter_mut().enumerate() {
                *sums = [S::load(c.add(row * stride)), S::load(c.add(row * stride + S::LANES))];
            }
        }
        for i in 0..inner {
            let low = S::load(b.start.add(i * b.rows));
            let high = S::load(b.start.add(i * b.rows + S::LANES));
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*a.start.add(row * a.rows + i * a.columns));
                sums[0] = S::fma(x, low, sums[0]);
                sums[1] = S::fma(x, high, sums[1]);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            S::store(c.add(row * stride), sums[0]);
            S::store(c.add(row * stride + S::LANES), sums[1]);
        }
    }
}

/// Writes the transpose `[dim, KEYS]` of `keys` rows; the other columns are zero.
#[inline(always)]
pub(super) unsafe fn transpose(from: *const f32, stride: usize, keys: usize, dim: usize, to: &mut [f32]) {
    if keys < KEYS {
        to.fill(0.0);
    }
    for start in (0..dim).step_by(16) {
        for key in 0..keys {
            for i in start..dim.min(start + 16) {
                // SAFETY: the caller's rows have `dim` numbers.
                to[i * KEYS + key] = unsafe { *from.add(key * stride + i) };
            }
        }
    }
}
