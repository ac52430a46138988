//! Products of tensors by the kernels for tile registers.

use pl_kernels::cpu::amx::{self, MatrixView};
use tch::{Device, Kind, TchError, Tensor};

use crate::network::parallel::workers;

/// Smallest numbers of rows and columns of a product, and of terms of its sums, for which these kernels are the faster ones.
const SMALLEST: [usize; 3] = [16, 16, 16];

/// Returns true if this CPU has tile registers that this process may use.
pub(super) fn are_available() -> bool {
    amx::is_available()
}

/// Computes `x wᵀ` for `x` `[T, in]` and `w` `[out, in]`. Returns `None` if these kernels don't multiply such tensors, as all functions
/// here say by `None` or false.
pub(super) fn linear(x: &Tensor, w: &Tensor) -> Result<Option<Tensor>, TchError> {
    let (Some(x), Some(w)) = (view(x), view(w)) else { return Ok(None) };
    if !is_large(&x, &w) {
        return Ok(None);
    }
    let y = Tensor::f_empty([x.rows as i64, w.rows as i64], (Kind::Float, Device::Cpu))?;
    Ok(multiply(&y, x, w, false).then_some(y))
}

/// Adds `x wᵀ` to `y` `[T, out]`.
pub(super) fn add_linear(y: &Tensor, x: &Tensor, w: &Tensor) -> bool {
    let (Some(x), Some(w)) = (view(x), view(w)) else { return false };
    multiply(y, x, w, true)
}

/// Adds `aᵀ b` to a gradient `[out, in]`, for `a` `[T, out]` and `b` `[T, in]`.
pub(super) fn add_outer(gradient: &Tensor, a: &Tensor, b: &Tensor) -> bool {
    let (Some(a), Some(b)) = (view(a), view(b)) else { return false };
    multiply(gradient, a.transposed(), b.transposed(), true)
}

/// Writes `a bᵀ` to `out`, or adds it.
fn multiply(out: &Tensor, a: MatrixView<'_>, b: MatrixView<'_>, add: bool) -> bool {
    let Some(written) = view(out).filter(|_| is_large(&a, &b)) else { return false };
    let (length, stride) = (written.numbers.len(), written.row_stride);
    if (written.rows, written.columns) != (a.rows, b.rows)
        || written.column_stride != 1
        || stride < written.columns
    {
        return false;
    }
    // SAFETY: the memory of a live tensor with gaps between rows at most, which this call alone writes, as in-place operations of
    // libtorch do.
    let numbers = unsafe { std::slice::from_raw_parts_mut(out.data_ptr().cast::<f32>(), length) };
    amx::multiply(workers(), a, b, numbers, stride, add);
    true
}

fn is_large(a: &MatrixView<'_>, b: &MatrixView<'_>) -> bool {
    let sizes = [a.rows, b.rows, a.columns];
    a.columns == b.columns && sizes.iter().zip(SMALLEST).all(|(size, smallest)| *size >= smallest)
}

/// Returns the elements of a matrix of f32 on a CPU with tile registers, if its rows or columns are contiguous.
fn view(matrix: &Tensor) -> Option<MatrixView<'_>> {
    if !are_available() || matrix.kind() != Kind::Float || matrix.device() != Device::Cpu {
        return None;
    }
    let (size, strides) = (matrix.size(), matrix.stride());
    let number = |value: &i64| usize::try_from(*value).ok();
    let ([rows, columns], [row_stride, column_stride]) = (&size[..], &strides[..]) else { return None };
    let (rows, columns) = (number(rows)?, number(columns)?);
    let (row_stride, column_stride) = (number(row_stride)?, number(column_stride)?);
    if rows == 0 || columns == 0 || (row_stride != 1 && column_stride != 1) {
        return None;
    }
    let length = (rows - 1) * row_stride + (columns - 1) * column_stride + 1;
    // SAFETY: the memory of a live tensor from its first element to its last one.
    let numbers = unsafe { std::slice::from_raw_parts(matrix.data_ptr().cast::<f32>(), length) };
    Some(MatrixView { numbers, rows, columns, row_stride, column_stride })
}
