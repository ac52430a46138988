//! Matrix products by the crate `gemm`, in blocks that threads share.
//!
//! One thread computes a block of the result. A sum has parts of at most `TERMS` terms, as many as the crate adds up at a time on every
//! CPU. So an element's bits depend on its row, its column and the number of terms alone, not on threads, other rows or caches.

use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::LazyLock;

use gemm_common::Parallelism;
use gemm_common::cache::CACHE_INFO;

use super::MatrixView;
use crate::cpu::Workers;
use crate::cpu::thread_pool::DisjointSlice;

/// Largest numbers of rows and columns of a block: larger ones are hardly faster.
const LARGEST: [usize; 2] = [1024, 1024];
/// Smallest numbers of rows and columns of a block that is made for the sake of more blocks.
const SMALLEST: [usize; 2] = [128, 256];
/// Number of blocks per thread that are enough: every further block packs rows of both matrices once more.
const ENOUGH: usize = 2;
/// Largest number of terms that are added up at a time.
const TERMS: usize = 512;
/// Largest number of elements of a block for which the crate has kernels of another kind.
const FEW: usize = 16 * 16;
/// Number of elements that are computed at a time where it is not used, so that one sum need not wait for the other.
const AT_A_TIME: usize = 8;

/// Smallest second-level cache in bytes with which the crate finds a size for its panels.
const SMALLEST_CACHE: usize = 256 << 10;

/// Returns true if the crate computes products on this CPU. It panics, or never ends, where it can't make sense of the CPU's caches or
/// has no kernel for its instructions, such as FMA without AVX2.
pub fn is_available() -> bool {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(|| catch_unwind(is_tried_out).unwrap_or(false));
    *AVAILABLE
}

/// Computes a product of whole panels. Returns false if the crate can't be called or the result is wrong.
fn is_tried_out() -> bool {
    const SIZE: usize = 128;
    if CACHE_INFO[1].cache_bytes < SMALLEST_CACHE {
        return false;
    }
    let (ones, mut out) = (vec![1.0; SIZE * TERMS], vec![0.0; SIZE * SIZE]);
    let ones = MatrixView { numbers: &ones, rows: SIZE, columns: TERMS, row_stride: TERMS, column_stride: 1 };
    let workers = Workers::new(1, &|count, body| (0..count).for_each(body));
    multiply(workers, ones, ones, &mut out, SIZE, false);
    out.iter().all(|sum| *sum == TERMS as f32)
}

/// Computes a product as [`super::multiply`] does.
///
/// # Panics
/// If sizes do not match. If [`is_available`] is false, it may also never end.
pub fn multiply(
    workers: Workers<'_>,
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    out: &mut [f32],
    stride: usize,
    add: bool,
) {
    if !super::check(&a, &b, out, stride, add) {
        return;
    }
    let [height, width] = block_size([a.rows, b.rows], workers.threads);
    let across = b.rows.div_ceil(width);
    let out = DisjointSlice::new(out);
    (workers.parallel_for)(a.rows.div_ceil(height) * across, &|block| {
        let (row, column) = (block / across * height, block % across * width);
        // Parts of about the same number of terms.
        let length = a.columns.div_ceil(a.columns.div_ceil(TERMS));
        for start in (0..a.columns).step_by(length) {
            let part = Part {
                a: &a,
                b: &b,
                rows: row..a.rows.min(row + height),
                columns: column..b.rows.min(column + width),
                terms: start..a.columns.min(start + length),
                // SAFETY: within the output, as was checked.
                out: unsafe { out.start().add(row * stride + column) },
                stride,
            };
            // SAFETY: blocks do not overlap, and the output was checked to have all of them.
            unsafe { part.add(add || start > 0) };
        }
    });
}

/// Returns the rows and columns of a block of a result with these, for a number of threads.
fn block_size(shape: [usize; 2], threads: usize) -> [usize; 2] {
    // Of about the same size, without a small rest.
    let mut size = [0, 1].map(|i| shape[i].div_ceil(shape[i].div_ceil(LARGEST[i])));
    let count = |size: [usize; 2]| shape[0].div_ceil(size[0]) * shape[1].div_ceil(size[1]);
    while count(size) < ENOUGH * threads {
        // The longer side, measured by the smallest one.
        let i = usize::from(size[1] * SMALLEST[0] > size[0] * SMALLEST[1]);
        if size[i] < 2 * SMALLEST[i] {
            break;
        }
        size[i] = size[i].div_ceil(2);
    }
    size
}

/// Part of a product: some rows of both matrices and some terms.
struct Part<'a> {
    a: &'a MatrixView<'a>,
    b: &'a MatrixView<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    terms: Range<usize>,
    /// Element of the first row and column. Rows are `stride` numbers apart.
    out: *mut f32,
    stride: usize,
}

impl Part<'_> {
    /// Writes or adds the sums of products.
    ///
    /// # Safety
    /// `out` is valid for these rows and columns, and nothing else uses them.
    unsafe fn add(&self, add: bool) {
        let (rows, columns, terms) = (self.rows.len(), self.columns.len(), self.terms.len());
        // For these the crate has other kernels, with sums in other orders.
        if rows == 1 || columns == 1 || rows * columns <= FEW || terms <= 2 {
            // SAFETY: guaranteed by the caller; the instructions are there.
            return unsafe {
                match has_fma() {
                    true => self.add_elements_by_fma(add),
                    false => self.add_elements::<false>(add),
                }
            };
        }
        let (left, [left_row, left_column]) = (self.right_of(self.columns.start), strides(self.b));
        let (right, [right_row, right_column]) = (self.left_of(self.rows.start), strides(self.a));
        // The crate stores vectors along columns, so to it the result is the transpose, `b aᵀ`.
        // SAFETY: the views were checked to have these rows and terms, and the caller guarantees the output.
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                columns,
                rows,
                terms,
                self.out,
                self.stride.cast_signed(),
                1,
                add,
                left,
                left_column,
                left_row,
                right,
                right_row,
                right_column,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "fma"))]
    unsafe fn add_elements_by_fma(&self, add: bool) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.add_elements::<true>(add) };
    }

    /// Computes elements of a row, or of a column if that is longer, several at a time. Each is one sum in the order of the terms, as in
    /// the crate's main kernels.
    #[inline(always)]
    unsafe fn add_elements<const FUSED: bool>(&self, add: bool) {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        // From an element to the next one.
        let step = if columns >= rows { [0, 1] } else { [1, 0] };
        let length = rows.max(columns);
        for line in 0..rows.min(columns) {
            for first in (0..length).step_by(AT_A_TIME) {
                let row = line * step[1] + first * step[0];
                let column = line * step[0] + first * step[1];
                // SAFETY: guaranteed by the caller; these elements are of this part.
                unsafe { self.add_line::<FUSED>([row, column], step, AT_A_TIME.min(length - first), add) };
            }
        }
    }

    /// Computes `count` elements from one on.
    #[inline(always)]
    unsafe fn add_line<const FUSED: bool>(
        &self,
        [row, column]: [usize; 2],
        step: [usize; 2],
        count: usize,
        add: bool,
    ) {
        let (mut left, mut right) = ([std::ptr::null(); AT_A_TIME], [std::ptr::null(); AT_A_TIME]);
        for i in 0..AT_A_TIME {
            // Beyond the last one, it stands in.
            let i_th = i.min(count - 1);
            left[i] = self.left_of(self.rows.start + row + i_th * step[0]);
            right[i] = self.right_of(self.columns.start + column + i_th * step[1]);
        }
        let mut sums = [0f32; AT_A_TIME];
        for term in 0..self.terms.len() {
            for i in 0..AT_A_TIME {
                // SAFETY: the views were checked to have these rows and terms.
                let (x, y): (f32, f32) = unsafe {
                    (*left[i].add(term * self.a.column_stride), *right[i].add(term * self.b.column_stride))
                };
                sums[i] = if FUSED { x.mul_add(y, sums[i]) } else { x * y + sums[i] };
            }
        }
        for (i, sum) in sums.into_iter().enumerate().take(count) {
            let (row, column) = (row + i * step[0], column + i * step[1]);
            // SAFETY: the caller guarantees the output.
            let out = unsafe { &mut *self.out.add(row * self.stride + column) };
            *out = if add { *out + sum } else { sum };
        }
    }

    /// Returns the first term of a row of the first matrix.
    fn left_of(&self, row: usize) -> *const f32 {
        element(self.a, row, self.terms.start)
    }

    /// Returns the first term of a row of the second matrix.
    fn right_of(&self, row: usize) -> *const f32 {
        element(self.b, row, self.terms.start)
    }
}

/// Returns true if the crate's kernels multiply and add in one instruction.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

fn element(matrix: &MatrixView<'_>, row: usize, column: usize) -> *const f32 {
    matrix.numbers.as_ptr().wrapping_add(row * matrix.row_stride + column * matrix.column_stride)
}

/// Returns the distances of neighbours in a column and in a row.
fn strides(matrix: &MatrixView<'_>) -> [isize; 2] {
    [matrix.row_stride, matrix.column_stride].map(usize::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_divided_into_enough_blocks_unless_they_are_small() {
        for (shape, threads, expected) in [
            ([1, 1], 2, [1, 1]),
            ([100, 200], 2, [100, 200]),
            ([2048, 576], 1, [1024, 576]),
            ([2048, 576], 2, [512, 576]),
            ([2048, 576], 4, [256, 576]),
            ([2048, 576], 64, [128, 288]),
            ([576, 16], 2, [144, 16]),
            ([1025, 2050], 2, [513, 684]),
            ([16, 576], 2, [16, 288]),
            ([512, 49_152], 2, [512, 1024]),
            ([49_152, 576], 2, [1024, 576]),
        ] {
            assert_eq!(block_size(shape, threads), expected, "{shape:?}, {threads} threads");
        }
    }
}
