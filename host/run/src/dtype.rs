//! The number format of a model on a device.

use pl_dsl::workflow::Model;
use pl_types::Dtype;
use tch::Device;

/// Returns the number format of a model's matrices on a device: the one that the workflow states, or else f32
/// on the CPU and bf16 on a GPU.
pub fn model_dtype(model: &Model, device: Device) -> Dtype {
    model.dtype.unwrap_or(if device == Device::Cpu { Dtype::F32 } else { Dtype::Bf16 })
}
