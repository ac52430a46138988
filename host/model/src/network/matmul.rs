//! Matrix products of training, by the fastest available kernels.
//!
//! In f32 on a CPU with tile registers, those are our own. Elsewhere they are oneDNN's: on an AMD CPU with AVX-512, its products take
//! 0.45 of the time of MKL's, which libtorch's `mm` uses (measured at the shapes of SmolLM2-135M). Where MKL has kernels for all of the
//! CPU, it adds products to gradients, because it can do so in place.

#[cfg(target_arch = "x86_64")]
mod tiles;
/// Other CPUs have no such registers.
#[cfg(not(target_arch = "x86_64"))]
mod tiles {
    use tch::{TchError, Tensor};

    pub(super) fn are_available() -> bool {
        false
    }

    pub(super) fn linear(_: &Tensor, _: &Tensor) -> Result<Option<Tensor>, TchError> {
        Ok(None)
    }

    pub(super) fn add_linear(_: &Tensor, _: &Tensor, _: &Tensor) -> bool {
        false
    }

    pub(super) fn add_outer(_: &Tensor, _: &Tensor, _: &Tensor) -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
use std::ffi::c_int;
use std::ffi::{CStr, c_char};
use std::sync::LazyLock;

use pl_kernels::cpu::SimdLevel;
use tch::{Device, Kind, TchError, Tensor};
use torch_sys::C_tensor;

/// Number of rows of a 16-bit output matrix that are widened to f32 at a time.
const WIDENED: i64 = 4096;

unsafe extern "C" {
    fn pl_linear_available() -> bool;
    fn pl_linear(x: *const C_tensor, w: *const C_tensor, reason: *mut c_char, size: usize) -> *mut C_tensor;
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Adds `aᵀ b` to `c` `[out, in]`, for `a` `[T, out]` and `b` `[T, in]`.
    fn pl_add_outer(
        c: *mut f32,
        ldc: c_int,
        a: *const f32,
        lda: c_int,
        b: *const f32,
        ldb: c_int,
        terms: c_int,
        out: c_int,
        columns: c_int,
    );
}

/// Computes `x wᵀ` for `x` `[T, in]` and `w` `[out, in]`, outside any gradient graph.
///
/// # Errors
/// If shapes do not match or memory runs out.
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor, TchError> {
    if let Some(y) = tiles::linear(x, w)? {
        return Ok(y);
    }
    // SAFETY: it takes no arguments and looks up an operator.
    let available = x.device() == Device::Cpu
        && (x.kind(), w.kind()) == (Kind::Float, Kind::Float)
        && unsafe { pl_linear_available() };
    if !available {
        return x.f_mm(&w.f_tr()?);
    }
    let mut reason = [0; 1024];
    // SAFETY: both are live tensors, and the reason is written within its size, which includes its final
    // zero. The tensor that is returned is owned by the caller.
    unsafe {
        let y = pl_linear(x.as_ptr(), w.as_ptr(), reason.as_mut_ptr(), reason.len());
        if y.is_null() {
            return Err(TchError::Torch(CStr::from_ptr(reason.as_ptr()).to_string_lossy().into_owned()));
        }
        Ok(Tensor::from_ptr(y))
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

/// Smallest number of columns of a gradient that MKL adds to. It is slower than oneDNN at narrower ones.
const NARROWEST: i64 = 64;

/// True if MKL adds products to gradients, which it does in place, where oneDNN computes a product that is added afterwards. It is 1.2
/// to 4 times as fast on an Intel CPU with AVX-512, and 1.1 to 1.2 times with AVX2 (measured at the shapes of SmolLM2-135M). On CPUs
/// of other makers MKL stops at AVX2, so oneDNN is faster where they have AVX-512.
static MKL_ADDS: LazyLock<bool> = LazyLock::new(|| match SimdLevel::detect() {
    SimdLevel::Avx512 => cpu_vendor() == *b"GenuineIntel",
    SimdLevel::Avx2 => true,
    SimdLevel::Portable => false,
});

/// Returns the vendor of the CPU as it names itself, by which MKL chooses its kernels; zeros if it has no such name.
pub fn cpu_vendor() -> [u8; 12] {
    let mut name = [0; 12];
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid(0);
        for (part, register) in name.chunks_exact_mut(4).zip([leaf.ebx, leaf.edx, leaf.ecx]) {
            part.copy_from_slice(&register.to_le_bytes());
        }
    }
    name
}

/// Returns what computes the products of training in f32 on this CPU, for people.
pub fn training_products() -> &'static str {
    match (tiles::are_available(), *MKL_ADDS) {
        (true, _) => "AMX tiles",
        (false, true) => "oneDNN and MKL",
        (false, false) => "oneDNN",
    }
}

/// Adds `aᵀ b` to a gradient by MKL. Returns false if MKL is not the faster library on this CPU, or can not read the tensors.
#[cfg(target_arch = "x86_64")]
fn add_by_mkl(gradient: &Tensor, a: &Tensor, b: &Tensor) -> bool {
    let tensors = [gradient, a, b];
    // Rows lie in memory one after another, perhaps with a gap between them.
    let readable = |tensor: &Tensor| match (&tensor.size()[..], &tensor.stride()[..]) {
        ([rows, columns], [apart, 1]) => tensor.kind() == Kind::Float && (apart >= columns || *rows == 1),
        _ => false,
    };
    if !*MKL_ADDS || !tensors.into_iter().all(readable) {
        return false;
    }
    let ([out, width], [terms, columns], [rows, inputs]) = (shape(gradient), shape(a), shape(b));
    if (out, width, terms) != (columns, inputs, rows) || width < NARROWEST || terms == 0 {
        return false;
    }
    let number = |value: i64| c_int::try_from(value).ok();
    let row = |tensor: &Tensor, columns: i64| number(tensor.stride()[0].max(columns));
    let (Some(terms), Some(out_rows), Some(in_columns)) = (number(terms), number(out), number(width)) else {
        return false;
    };
    let (Some(ldc), Some(lda), Some(ldb)) = (row(gradient, width), row(a, out), row(b, width)) else {
        return false;
    };
    let [c, a, b] = tensors.map(|tensor| tensor.data_ptr().cast::<f32>());
    // SAFETY: each pointer is that of a live tensor of f32 with the given rows and columns, whose rows lie as far apart as is said.
    // The gradient is written by this call alone, as in-place operations of libtorch write it.
    unsafe { pl_add_outer(c, ldc, a, lda, b, ldb, terms, out_rows, in_columns) };
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn add_by_mkl(_: &Tensor, _: &Tensor, _: &Tensor) -> bool {
    false
}

/// Returns the rows and columns of a matrix.
#[cfg(target_arch = "x86_64")]
fn shape(matrix: &Tensor) -> [i64; 2] {
    let size = matrix.size();
    [size[0], size[1]]
}

/// Adds `x wᵀ` to `y` `[T, out]` in place, for `x` `[T, in]` and `w` `[out, in]`. On a GPU, one operation does both.
///
/// # Errors
/// As [`linear`].
pub fn add_linear(y: &Tensor, x: &Tensor, w: &Tensor) -> Result<(), TchError> {
    if tiles::add_linear(y, x, w) {
        return Ok(());
    }
    let mut y = y.shallow_clone();
    let _ = match y.device().is_cuda() {
        true => y.f_addmm_(x, &w.f_tr()?)?,
        false => y.f_add_(&linear(x, w)?)?,
    };
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
    if tiles::add_outer(gradient, a, b) || add_by_mkl(gradient, a, b) {
        return Ok(());
    }
    add_product(gradient, a, b)
}

/// Adds `aᵀ b` to a gradient on a CPU, by a product of its own.
fn add_product(gradient: &Tensor, a: &Tensor, b: &Tensor) -> Result<(), TchError> {
    // A transposed first argument of a product is copied, so the narrower matrix is the cheaper one.
    let product = if a.size()[1] <= b.size()[1] {
        linear(&a.f_tr()?, &b.f_tr()?)?
    } else {
        linear(&b.f_tr()?, &a.f_tr()?)?.f_tr()?
    };
    let _ = gradient.shallow_clone().f_add_(&product.f_to_kind(gradient.kind())?)?;
    Ok(())
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
            for add in [add_outer, add_product] {
                let gradient = random(out, width);
                let expected = &gradient + dy.tr().mm(&x);
                add(&gradient, &dy, &x).unwrap();
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
