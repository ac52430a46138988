//! Operations between the matrix products, forward and backward.
//!
//! Norms and the rotary embedding are computed at least in f32, for every format of the activations. On a CPU in f32, and on a GPU
//! in f32 and bf16, kernels of this program do the work in one pass over memory; elsewhere, libtorch does.

use pl_kernels::cpu::fused;
use pl_kernels::cuda;
use pl_kernels::cuda::elementwise::{Elementwise, HeadInputs};
use tch::{Kind, TchError, Tensor};

use crate::network::parallel::workers;
use crate::network::rope::Rope;
use crate::network::values::{is_native, values, values_mut};

/// Returns the reciprocal root mean squares over the last dimension, which is kept with size 1.
fn reciprocal_rms(x: &Tensor, eps: f64) -> Result<Tensor, TchError> {
    let width = x.size().last().copied().unwrap_or(1);
    // One pass over x without a temporary of its size.
    let norm = wide(x)?.f_linalg_norm(2.0, [-1i64].as_slice(), true, None)?;
    norm.f_square()?.f_div_scalar(width as f64)?.f_add_scalar(eps)?.f_rsqrt()
}

/// Computes the RMS norm (Zhang and Sennrich 2019): `x / rms(x) * gain`. Returns it with the reciprocal root mean squares.
pub(super) fn rms_norm(x: &Tensor, eps: f64, gain: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    if let Some(kernels) = on_gpu(&[x], &[gain]) {
        return Ok(kernels.rms_norm(x, gain, eps)?);
    }
    let rstd = reciprocal_rms(x, eps)?;
    Ok((normalize(x, &rstd, gain)?, rstd))
}

/// Adds `x` to `y`, whose memory may become that of the sum. Returns the sum and its RMS norm.
pub(super) fn add_rms_norm(
    mut y: Tensor,
    x: &Tensor,
    eps: f64,
    gain: &Tensor,
) -> Result<(Tensor, Tensor), TchError> {
    if let Some(kernels) = on_gpu(&[&y, x], &[gain]) {
        return Ok(kernels.add_rms_norm(&y, x, gain, eps)?);
    }
    let sum = y.f_add_(x)?;
    let normed = rms_norm(&sum, eps, gain)?.0;
    Ok((sum, normed))
}

/// Applies the norm of single heads and the rotation to queries and keys, and writes keys and values to a cache, if kernels
/// take the tensors. Returns the queries `[T, heads, D]`.
pub(super) fn rotate_and_store(inputs: &HeadInputs<'_>, eps: f64) -> Result<Option<Tensor>, TchError> {
    let HeadInputs { qkv, q_gain, k_gain, tables: [cos, sin], slots: _, cache } = inputs;
    let wide: Vec<&Tensor> = [Some(*cos), Some(*sin), *q_gain, *k_gain].into_iter().flatten().collect();
    let fits =
        cache.kind() == qkv.kind() && cache.size().last().is_some_and(|width| Elementwise::stores(*width));
    match on_gpu(&[qkv], &wide).filter(|_| fits) {
        Some(kernels) => Ok(Some(kernels.rotate_and_store(inputs, eps)?)),
        None => Ok(None),
    }
}

/// Computes the RMS norm with the reciprocal root mean squares of `x`.
pub(super) fn normalize(x: &Tensor, rstd: &Tensor, gain: &Tensor) -> Result<Tensor, TchError> {
    if let Some(kernels) = on_gpu(&[x], &[rstd, gain]) {
        return Ok(kernels.normalize(x, rstd, gain)?);
    }
    if !is_native(x) {
        return wide(x)?.f_mul(rstd)?.f_mul_(gain)?.f_to_kind(x.kind());
    }
    let [x, rstd, gain] = contiguous([x, rstd, gain])?;
    let out = x.f_empty_like()?;
    // SAFETY: contiguous f32 tensors on the CPU; the result is new.
    unsafe { fused::normalize(workers(), values(&x), values(&rstd), values(&gain), values_mut(&out)) };
    Ok(out)
}

/// Returns the RMS norm's gradient with respect to `x`, given the gradient `dy` with respect to its result.
/// Adds the gradient of the gain to `gain_gradient`.
///
/// ```text
/// n = x rstd        dx = rstd (dy gain - n mean(dy gain n))        d gain = sum over rows of dy n
/// ```
pub(super) fn normalize_backward(
    dy: &Tensor,
    x: &Tensor,
    rstd: &Tensor,
    gain: &Tensor,
    gain_gradient: Option<&Tensor>,
) -> Result<Tensor, TchError> {
    let kernels = on_gpu(&[dy, x], &[rstd, gain]);
    if let Some(total) = gain_gradient {
        let sum = match &kernels {
            Some(kernels) => kernels.gain_gradient(dy, x, rstd)?,
            None => {
                let product = wide(x)?.f_mul(rstd)?.f_mul_(&wide(dy)?)?;
                let width = x.size().last().copied().unwrap_or(1);
                product.f_view([-1, width])?.f_sum_dim_intlist([0i64].as_slice(), false, None)?
            }
        };
        let _ = total.shallow_clone().f_add_(&sum)?;
    }
    if let Some(kernels) = kernels {
        return Ok(kernels.normalize_backward(dy, x, rstd, gain)?);
    }
    let dy = wide(dy)?;
    if is_native(x) {
        let [dy, x, rstd, gain] = contiguous([&dy, x, rstd, gain])?;
        let dx = x.f_empty_like()?;
        // SAFETY: contiguous f32 tensors on the CPU; the result is new.
        unsafe {
            let [dy, x, rstd, gain] = [values(&dy), values(&x), values(&rstd), values(&gain)];
            fused::normalize_backward(workers(), dy, x, rstd, gain, values_mut(&dx));
        }
        return Ok(dx);
    }
    let normed = wide(x)?.f_mul(rstd)?;
    let mut dx = dy.f_mul(gain)?;
    let mean = dx.f_mul(&normed)?.f_mean_dim([-1i64].as_slice(), true, None)?;
    let _ = dx.f_addcmul_(&normed, &mean.f_neg()?)?.f_mul_(rstd)?;
    dx.f_to_kind(x.kind())
}

/// Rotates heads `[T, heads, D]` by the T positions of a table. With `transposed`, applies the transpose,
/// which is the gradient, and the inverse too unless the table scales.
pub(super) fn rotate(x: &Tensor, rope: &Rope, transposed: bool) -> Result<Tensor, TchError> {
    let (cos, sin) = rope.tables();
    // Half of a head is whole reads.
    let halves = x.size().last().is_some_and(|width| width % 16 == 0);
    if let Some(kernels) = on_gpu(&[x], &[cos, sin]).filter(|_| halves) {
        return Ok(kernels.rotate(x, [cos, sin], transposed)?);
    }
    if is_native(x) {
        let [x, cos, sin] = contiguous([x, cos, sin])?;
        let (out, width) = (x.f_empty_like()?, x.size().last().map_or(0, |width| *width as usize));
        // SAFETY: contiguous f32 tensors on the CPU; the result is new.
        unsafe {
            let (x, angles) = (values(&x), [values(&cos), values(&sin)]);
            fused::rotate(workers(), x, angles, width, transposed, values_mut(&out));
        }
        return Ok(out);
    }
    let half = x.size().last().copied().unwrap_or(0) / 2;
    let (cos, sin) = (cos.f_unsqueeze(1)?, sin.f_unsqueeze(1)?);
    let sin = if transposed { sin.f_neg()? } else { sin };
    let single = wide(x)?;
    let swapped = single.f_roll([half].as_slice(), [-1i64].as_slice())?;
    single.f_mul(&cos)?.f_addcmul_(&swapped, &sin)?.f_to_kind(x.kind())
}

/// Computes the gated unit: `silu(gate) * up`.
pub(super) fn gate(gate: &Tensor, up: &Tensor) -> Result<Tensor, TchError> {
    if let Some(kernels) = on_gpu(&[gate, up], &[]) {
        return Ok(kernels.gate(gate, up)?);
    }
    if !is_native(gate) {
        return gate.f_silu()?.f_mul_(up);
    }
    let [gate, up] = contiguous([gate, up])?;
    let out = gate.f_empty_like()?;
    // SAFETY: contiguous f32 tensors on the CPU; the result is new.
    unsafe { fused::gate(workers(), values(&gate), values(&up), values_mut(&out)) };
    Ok(out)
}

/// Computes [`gate`] of the halves of rows `[T, 2 F]`: the gate, then the other factor.
pub(super) fn gate_halves(halves: &Tensor) -> Result<Tensor, TchError> {
    let width = halves.size().last().copied().unwrap_or(0) / 2;
    if let Some(kernels) = on_gpu(&[halves], &[]).filter(|_| width % 8 == 0) {
        return Ok(kernels.gate_halves(halves)?);
    }
    gate(&halves.f_narrow(-1, 0, width)?, &halves.f_narrow(-1, width, width)?)
}

/// Returns the gradients of [`gate`] with respect to the gate and to `up`.
pub(super) fn gate_backward(
    gradient: &Tensor,
    gate: &Tensor,
    up: &Tensor,
) -> Result<(Tensor, Tensor), TchError> {
    if let Some(kernels) = on_gpu(&[gate, up, gradient], &[]) {
        return Ok(kernels.gate_backward(gradient, gate, up)?);
    }
    if is_native(gate) {
        let [gradient, gate, up] = contiguous([gradient, gate, up])?;
        let (d_gate, d_up) = (gate.f_empty_like()?, up.f_empty_like()?);
        // SAFETY: contiguous f32 tensors on the CPU; the results are new.
        unsafe {
            let [gradient, gate, up] = [values(&gradient), values(&gate), values(&up)];
            let (d_gate, d_up) = (values_mut(&d_gate), values_mut(&d_up));
            fused::gate_backward(workers(), gradient, gate, up, d_gate, d_up);
        }
        return Ok((d_gate, d_up));
    }
    let d_up = gate.f_silu()?.f_mul_(gradient)?;
    let d_gate = gate.f_silu_backward(&gradient.f_mul(up)?)?;
    Ok((d_gate, d_up))
}

/// Returns the kernels of the GPU that the activations are on, if they take them, in one format, and the `wide` tensors in f32.
fn on_gpu(activations: &[&Tensor], wide: &[&Tensor]) -> Option<Elementwise> {
    let first = activations.first()?;
    let kernels = first.device().is_cuda().then(|| cuda::opened(first.device())).flatten()?;
    let takes = activations.iter().all(|x| Elementwise::supports(x) && x.kind() == first.kind())
        && wide.iter().all(|x| x.kind() == Kind::Float && x.is_contiguous());
    takes.then(|| Elementwise::new(kernels))
}

/// Returns tensors whose values are one after the other.
fn contiguous<const N: usize>(tensors: [&Tensor; N]) -> Result<[Tensor; N], TchError> {
    let mut all = tensors.map(Tensor::shallow_clone);
    for tensor in &mut all {
        *tensor = tensor.f_contiguous()?;
    }
    Ok(all)
}

/// Converts to f32 if the format is narrower.
fn wide(x: &Tensor) -> Result<Tensor, TchError> {
    match x.kind() {
        Kind::Half | Kind::BFloat16 => x.f_to_kind(Kind::Float),
        _ => Ok(x.shallow_clone()),
    }
}
