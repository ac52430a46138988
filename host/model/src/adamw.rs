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

impl Moments<'_> {
    /// Returns true if all have the same shape, number format and device, and are contiguous.
    fn fit(&self) -> bool {
        let like = |other: &Tensor| {
            other.size() == self.parameter.size()
                && other.kind() == self.parameter.kind()
                && other.device() == self.parameter.device()
        };
        let all = [self.parameter, self.gradient, self.mean, self.square];
        all.iter().all(|tensor| like(tensor) && tensor.is_contiguous())
    }
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
    if let Some(own) = tensors.iter().find(|own| !own.fit()) {
        let shapes = [own.parameter, own.gradient, own.mean, own.square].map(Tensor::size);
        let reason =
            format!("AdamW needs contiguous tensors of one shape, format and device, not {shapes:?}");
        return Err(TchError::Shape(reason));
    }
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
    // SAFETY: all are live tensors, as many of each as there are parameters, and of the same sizes, as checked: libtorch's
    // kernels go by the size of the parameter. The reason is written within its size, which includes its final zero.
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

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn tensors_of_other_shapes_are_refused() {
        let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let numbers =
            AdamWStep { step: 1, rate: 0.1, betas: (0.9, 0.99), decay: 0.0, epsilon: 1e-8, scale: 1.0 };
        let large = zeros(&[4, 4]);
        for other in [zeros(&[4]), zeros(&[4, 4]).to_kind(Kind::Double), zeros(&[8, 4]).slice(0, 0, 8, 2)] {
            let bad = Moments { parameter: &large, gradient: &other, mean: &large, square: &large };
            let message = fused_adamw(&[bad], &numbers).unwrap_err().to_string();
            assert!(message.contains("contiguous tensors of one shape"), "{message}");
        }
        let (gradient, mean, square) = (zeros(&[4, 4]), zeros(&[4, 4]), zeros(&[4, 4]));
        let good = Moments { parameter: &large, gradient: &gradient, mean: &mean, square: &square };
        fused_adamw(&[good], &numbers).unwrap();
    }
}
