//! Matrix products of training.
//!
//! In f32 on a CPU, they are those of `pl_kernels`, which add to gradients in place. All others are libtorch's.

use pl_kernels::cpu::matmul::{self, MatrixView};
use tch::{Device, Kind, TchError, Tensor};

use crate::network::parallel::workers;

/// Number of rows of a 16-bit output matrix that are widened to f32 at a time.
const WIDENED: i64 = 4096;

/// Computes `x wᵀ` for `x` `[T, in]` and `w` `[out, in]`, outside any gradient graph.
///
/// # Errors
/// If shapes do not match or memory runs out.
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor, TchError> {
    let (Some(a), Some(b)) = (view(x), view(w)) else { return x.f_mm(&w.f_tr()?) };
    let y = Tensor::f_empty([a.rows as i64, b.rows as i64], (Kind::Float, Device::Cpu))?;
    match multiply(&y, a, b, false) {
        true => Ok(y),
        false => x.f_mm(&w.f_tr()?),
    }
}

/// Computes the logits `x wᵀ` in f32 from hidden states `x` `[T, H]` and an output matrix `w` `[V, H]`, outside any gradient
/// graph.
///
/// Products of 16-bit numbers are summed in f32, and the sums are not rounded to 16 bits: in bf16, a logit of 20 would be
/// a multiple of 0.125, and a sampler and a trainer whose sums differ in the last bit would differ by percents. All of
/// generation and training compute logits by this rule.
///
/// # Errors
/// As [`linear`].
pub fn logits(x: &Tensor, w: &Tensor) -> Result<Tensor, TchError> {
    match x.kind() {
        Kind::Half | Kind::BFloat16 if x.device().is_cuda() => x.f_mm_dtype(&w.f_tr()?, Kind::Float),
        Kind::Half | Kind::BFloat16 => {
            let wide = x.f_to_kind(Kind::Float)?;
            let parts = (0..w.size()[0]).step_by(WIDENED as usize).map(|start| {
                let part = w.f_narrow(0, start, WIDENED.min(w.size()[0] - start))?;
                linear(&wide, &part.f_to_kind(Kind::Float)?)
            });
            Tensor::f_cat(&parts.collect::<Result<Vec<_>, _>>()?, 1)
        }
        _ => linear(x, w),
    }
}

/// Adds `x wᵀ` to `y` `[T, out]` in place, for `x` `[T, in]` and `w` `[out, in]`. On a GPU, one operation does both.
///
/// # Errors
/// As [`linear`].
pub fn add_linear(y: &Tensor, x: &Tensor, w: &Tensor) -> Result<(), TchError> {
    match (view(x), view(w)) {
        (Some(a), Some(b)) if multiply(y, a, b, true) => {}
        _ => drop(y.shallow_clone().f_addmm_(x, &w.f_tr()?)?),
    }
    Ok(())
}

/// Adds `aᵀ b` to a gradient, in the gradient's number format: `a` `[T, out]`, `b` `[T, in]`.
///
/// # Errors
/// As [`linear`].
pub fn add_outer(gradient: &Tensor, a: &Tensor, b: &Tensor) -> Result<(), TchError> {
    if gradient.device().is_cuda() {
        let a = a.f_tr()?;
        // Products of 16-bit numbers are added in f32, without one of their own.
        let _ = match gradient.kind() == a.kind() {
            true => gradient.shallow_clone().f_addmm_(&a, b)?,
            false => gradient.f_addmm_dtype_out(gradient, &a, b, gradient.kind())?,
        };
        return Ok(());
    }
    if let (Some(a), Some(b)) = (view(a), view(b))
        && multiply(gradient, a.transposed(), b.transposed(), true)
    {
        return Ok(());
    }
    let product = a.f_tr()?.f_mm(b)?;
    let _ = gradient.shallow_clone().f_add_(&product.f_to_kind(gradient.kind())?)?;
    Ok(())
}

/// Writes `a bᵀ` to `out`, or adds it. Returns false if the shapes do not match or rows of `out` are not contiguous.
fn multiply(out: &Tensor, a: MatrixView<'_>, b: MatrixView<'_>, add: bool) -> bool {
    let Some(written) = view(out) else { return false };
    let (length, stride) = (written.numbers.len(), written.row_stride);
    let matches = a.columns == b.columns && (written.rows, written.columns) == (a.rows, b.rows);
    if !matches || written.column_stride != 1 || (stride < written.columns && written.rows > 1) {
        return false;
    }
    // SAFETY: the memory of a live tensor with gaps between rows at most, which this call alone writes, as in-place operations of
    // libtorch do.
    let numbers = unsafe { std::slice::from_raw_parts_mut(out.data_ptr().cast::<f32>(), length) };
    matmul::multiply(workers(), a, b, numbers, stride.max(written.columns), add);
    true
}

/// Returns the elements of a matrix of f32 on a CPU that has these products, if its rows or columns are contiguous.
fn view(matrix: &Tensor) -> Option<MatrixView<'_>> {
    if matrix.kind() != Kind::Float || matrix.device() != Device::Cpu || !matmul::is_available() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn random(rows: i64, columns: i64) -> Tensor {
        Tensor::randn([rows, columns], (Kind::Float, Device::Cpu))
    }

    fn gap(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.size(), b.size());
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn products_equal_those_of_libtorch() {
        for (rows, width, out) in [(1, 8, 3), (33, 64, 48), (40, 16, 130), (70, 64, 128)] {
            let (x, w) = (random(rows, width), random(out, width));
            assert!(gap(&linear(&x, &w).unwrap(), &x.mm(&w.tr())) < 1e-4);
            // Transposed weights and slices, as in the backward pass.
            let dy = random(rows, out);
            assert!(gap(&linear(&dy, &w.tr()).unwrap(), &dy.mm(&w)) < 1e-4);
            let part = x.narrow(0, 0, (rows + 1) / 2);
            assert!(gap(&linear(&part, &w).unwrap(), &part.mm(&w.tr())) < 1e-4);
            // Rows and columns with gaps, which libtorch multiplies.
            let gaps = random(rows, 2 * width).slice(1, 0, 2 * width, 2);
            assert!(gap(&linear(&gaps, &w).unwrap(), &gaps.mm(&w.tr())) < 1e-4);
            for x in [&x, &gaps] {
                let gradient = random(out, width);
                let expected = &gradient + dy.tr().mm(x);
                add_outer(&gradient, &dy, x).unwrap();
                assert!(gap(&gradient, &expected) < 1e-4);
            }
            let (y, sum) = (dy.copy(), &dy + x.mm(&w.tr()));
            add_linear(&y, &x, &w).unwrap();
            assert!(gap(&y, &sum) < 1e-4);
        }
    }

    #[test]
    fn sums_do_not_depend_on_the_number_of_threads() {
        let shapes = [(2048, 16, 576), (700, 576, 16), (512, 960, 576), (2048, 256, 1536), (70, 600, 2100)];
        for (rows, out, width) in shapes {
            let (x, dy, w) = (random(rows, width), random(rows, out), random(out, width));
            let sums = [1, 2, 3].map(|threads| {
                tch::set_num_threads(threads);
                let (gradient, dx) = (w.ones_like(), x.ones_like());
                add_outer(&gradient, &dy, &x).unwrap();
                add_linear(&dx, &dy, &w.tr()).unwrap();
                [gradient, dx]
            });
            for other in &sums[1..] {
                assert!(sums[0].iter().zip(other).all(|(a, b)| a.equal(b)), "{rows} x {out} x {width}");
            }
        }
    }

    #[test]
    fn logits_of_16_bit_numbers_are_not_rounded() {
        let (x, w) = (random(7, 64), random(WIDENED + 30, 64));
        for kind in [Kind::Half, Kind::BFloat16, Kind::Float] {
            let (x, w) = (x.to_kind(kind), w.to_kind(kind));
            let exact = x.to_kind(Kind::Double).mm(&w.to_kind(Kind::Double).tr());
            let found = logits(&x, &w).unwrap();
            assert_eq!(found.kind(), Kind::Float);
            assert!(gap(&found, &exact) < 1e-4, "{kind:?}");
            if kind == Kind::BFloat16 {
                let rounded = x.mm(&w.tr()).to_kind(Kind::Float);
                assert!(gap(&rounded, &exact) > 1e-2, "a rounded product would do as well");
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error() {
        assert!(linear(&random(3, 4), &random(5, 6)).is_err());
    }
}
