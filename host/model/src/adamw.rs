//! AdamW over lists of tensors in one launch per list: on a GPU, a launch for each operation on each of hundreds of small
//! tensors takes longer than the arithmetic.

use std::ffi::{CStr, c_char};

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

unsafe extern "C" {
    fn pl_fused_adamw(
        parameters: *const *const C_tensor,
        gradients: *const *const C_tensor,
        means: *const *const C_tensor,
        squares: *const *const C_tensor,
        count: usize,
        step: *const C_tensor,
        divisor: *const C_tensor,
        rate: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        epsilon: f64,
        reason: *mut c_char,
        size: usize,
    ) -> bool;
}

/// A parameter with its gradient and its moments, of one shape, number format and device.
#[derive(Debug)]
pub struct Moments<'t> {
    pub parameter: &'t Tensor,
    pub gradient: &'t Tensor,
    pub mean: &'t Tensor,
    pub square: &'t Tensor,
}

/// Numbers of a step of AdamW.
#[derive(Debug, Clone, Copy)]
pub struct AdamWStep {
    /// Number of the step, from 1.
    pub step: u64,
    pub rate: f64,
    pub betas: (f64, f64),
    /// Weight decay.
    pub decay: f64,
    pub epsilon: f64,
    /// Factor of the gradients.
    pub scale: f64,
}

/// Takes a step, and zeroes the gradients.
///
/// # Errors
/// If the tensors don't fit each other.
pub fn fused_adamw(tensors: &[Moments<'_>], numbers: &AdamWStep) -> Result<(), TchError> {
    let Some(first) = tensors.first() else { return Ok(()) };
    let scalar = |value: f64| {
        Tensor::f_from_slice(&[value as f32])?.f_squeeze()?.f_to_device(first.parameter.device())
    };
    let step = scalar(numbers.step as f64)?;
    let divisor = if numbers.scale == 1.0 { None } else { Some(scalar(1.0 / numbers.scale)?) };
    let list = |of: fn(&Moments<'_>) -> *const C_tensor| tensors.iter().map(of).collect::<Vec<_>>();
    let parameters = list(|own| own.parameter.as_ptr());
    let gradients = list(|own| own.gradient.as_ptr());
    let (means, squares) = (list(|own| own.mean.as_ptr()), list(|own| own.square.as_ptr()));
    let mut reason = [0; 1024];
    // SAFETY: all are live tensors, as many of each as there are parameters; the reason is written within its size, which
    // includes its final zero.
    let done = unsafe {
        pl_fused_adamw(
            parameters.as_ptr(),
            gradients.as_ptr(),
            means.as_ptr(),
            squares.as_ptr(),
            tensors.len(),
            step.as_ptr(),
            divisor.as_ref().map_or(std::ptr::null(), Tensor::as_ptr),
            numbers.rate,
            numbers.betas.0,
            numbers.betas.1,
            numbers.decay,
            numbers.epsilon,
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    if done {
        return Ok(());
    }
    // SAFETY: the shim has written a text with a final zero.
    let reason = unsafe { CStr::from_ptr(reason.as_ptr()) };
    Err(TchError::Torch(reason.to_string_lossy().into_owned()))
}
