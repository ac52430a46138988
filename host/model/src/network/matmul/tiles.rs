//! Products of tensors by the kernels for tile registers.

use pl_kernels::cpu::amx::{self, MatrixView};
use tch::{Device, Kind, Tensor};

use crate::network::parallel::workers;

/// Smallest numbers of rows and columns of a product, and of terms of its sums, for which these kernels are the faster ones.
const SMALLEST: [i64; 3] = [16, 16, 16];

/// Returns true if this CPU has tile registers that this process may use.
pub(super) fn are_available() -> bool {
    amx::is_available()
}

/// Returns true if these kernels multiply `a` `[m, k]` and the transpose of `b` `[n, k]`.
pub(super) fn multiplies(a: &Tensor, b: &Tensor) -> bool {
    are_available() && is_large(a, b) && view(a).is_some() && view(b).is_some()
}

/// Writes `a bᵀ` to `out` `[m, n]`, or adds it, for `a` `[m, k]` and `b` `[n, k]`. Returns false if these kernels don't multiply such
/// tensors.
pub(super) fn multiply(out: &Tensor, a: &Tensor, b: &Tensor, add: bool) -> bool {
    if !are_available() || !is_large(a, b) || out.size() != [a.size()[0], b.size()[0]] {
        return false;
    }
    let (Some(left), Some(right), Some(written)) = (view(a), view(b), view(out)) else { return false };
    let (length, stride) = (written.numbers.len(), written.row_stride);
    if written.column_stride != 1 || stride < written.columns {
        return false;
    }
    // SAFETY: the memory of a live tensor with gaps between rows at most, which this call alone writes, as in-place operations of
    // libtorch do.
    let numbers = unsafe { std::slice::from_raw_parts_mut(out.data_ptr().cast::<f32>(), length) };
    amx::multiply(workers(), left, right, numbers, stride, add);
    true
}

fn is_large(a: &Tensor, b: &Tensor) -> bool {
    let (&[rows, terms], &[columns, others]) = (&a.size()[..], &b.size()[..]) else { return false };
    terms == others && [rows, columns, terms].iter().zip(SMALLEST).all(|(size, smallest)| *size >= smallest)
}

/// Returns the elements of a matrix of f32 on the CPU whose rows or columns are contiguous.
fn view(matrix: &Tensor) -> Option<MatrixView<'_>> {
    if matrix.kind() != Kind::Float || matrix.device() != Device::Cpu {
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
