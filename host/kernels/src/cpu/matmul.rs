//! Matrix products of f32 for training, whose bits do not depend on the number of threads.
//!
//! On CPUs with tile registers, kernels of our own compute them ([`amx`]). Elsewhere it is the crate `gemm` ([`blocks`]), which reads
//! both matrices by rows or by columns and adds to the result in place. At the shapes of SmolLM2-135M it is about as fast as oneDNN for
//! projections, up to 1.7 times as fast for gradients of weights, and slower for an adapter's first product; MKL stops at AVX2 on CPUs of
//! other makers than Intel.

#[cfg(target_arch = "x86_64")]
pub mod amx;
pub mod blocks;

use super::Workers;

/// A matrix `[rows, columns]`: element `(i, k)` is `numbers[i * row_stride + k * column_stride]`. One of the strides is 1.
#[derive(Debug, Clone, Copy)]
pub struct MatrixView<'a> {
    /// Memory of the matrix.
    pub numbers: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Distance between neighbours in a column.
    pub row_stride: usize,
    /// Distance between neighbours in a row.
    pub column_stride: usize,
}

impl MatrixView<'_> {
    /// Returns the transpose, in the same memory.
    #[must_use]
    pub fn transposed(self) -> Self {
        let Self { numbers, rows, columns, row_stride, column_stride } = self;
        Self { numbers, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    fn check(&self) {
        assert!(
            self.row_stride == 1 || self.column_stride == 1,
            "rows or columns of a matrix are contiguous"
        );
        let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
        let needed = last(self.rows, self.row_stride).saturating_add(last(self.columns, self.column_stride));
        assert!(
            self.rows == 0 || self.columns == 0 || needed < self.numbers.len(),
            "elements past the end of a matrix"
        );
    }
}

/// Smallest numbers of rows, columns and terms of a product for which tiles are the faster way.
const SMALLEST_ON_TILES: usize = 16;

/// Returns true if there is a way to compute products on this CPU.
pub fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    if amx::is_available() {
        return true;
    }
    blocks::is_available()
}

/// Computes `a bᵀ` for `a` `[m, k]` and `b` `[n, k]` into `out` `[m, n]`, or adds it if `add`. Rows of `out` are `stride` numbers
/// apart.
///
/// # Panics
/// If sizes do not match or [`is_available`] is false.
pub fn multiply(
    workers: Workers<'_>,
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    out: &mut [f32],
    stride: usize,
    add: bool,
) {
    #[cfg(target_arch = "x86_64")]
    if amx::is_available()
        && (a.rows.min(b.rows).min(a.columns) >= SMALLEST_ON_TILES || !blocks::is_available())
    {
        return amx::multiply(workers, a, b, out, stride, add);
    }
    assert!(blocks::is_available(), "a CPU without products");
    blocks::multiply(workers, a, b, out, stride, add);
}

/// Returns what computes these products on this CPU, for people.
pub fn description() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if amx::is_available() {
        return "AMX tiles";
    }
    if blocks::is_available() { "gemm" } else { "libtorch" }
}

/// Checks the sizes of a product. Returns false if it has no terms or no elements, and is complete then.
fn check(a: &MatrixView<'_>, b: &MatrixView<'_>, out: &mut [f32], stride: usize, add: bool) -> bool {
    a.check();
    b.check();
    assert_eq!(a.columns, b.columns, "numbers of terms");
    let (rows, columns) = (a.rows, b.rows);
    if rows == 0 || columns == 0 {
        return false;
    }
    assert!(
        columns <= stride && (rows - 1).saturating_mul(stride).saturating_add(columns) <= out.len(),
        "space for a product"
    );
    if a.columns == 0 && !add {
        out.chunks_mut(stride).take(rows).for_each(|row| row[..columns].fill(0.0));
    }
    a.columns > 0
}
