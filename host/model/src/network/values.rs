//! Values of tensors for this program's kernels for CPUs.

use tch::{Device, Kind, Tensor};

/// Returns true if the kernels take the tensor, once it is contiguous.
pub(crate) fn is_native(x: &Tensor) -> bool {
    x.device() == Device::Cpu && x.kind() == Kind::Float
}

/// # Safety
/// The tensor is contiguous, f32, on the CPU, and lives as long as the values are used.
pub(crate) unsafe fn values<'a>(x: &Tensor) -> &'a [f32] {
    if x.numel() == 0 {
        // It has no memory to point to.
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(x.data_ptr().cast::<f32>(), x.numel()) }
}

/// # Safety
/// As [`values`], and nothing else refers to the values.
pub(crate) unsafe fn values_mut<'a>(x: &Tensor) -> &'a mut [f32] {
    if x.numel() == 0 {
        return &mut [];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(x.data_ptr().cast::<f32>(), x.numel()) }
}
