//! The form of a model's matrices on a device.

use pl_dsl::workflow::{DeviceSet, Workflow};
use pl_types::ModelDtype;
use tch::Device;

/// Returns the form of the matrices of the model at a position on the device that trains: the one that the workflow states,
/// or else bf16 on a GPU. On a CPU, weights that no policy trains stay as they are in the file, and others are f32.
pub fn model_dtype(workflow: &Workflow, model: usize, device: Device) -> ModelDtype {
    let written = workflow.models.get(model).and_then(|model| model.dtype);
    written.unwrap_or_else(|| match device {
        Device::Cpu if workflow.trains_model(model) || generates_on_gpu(workflow, model) => ModelDtype::F32,
        Device::Cpu => ModelDtype::File,
        _ => ModelDtype::Bf16,
    })
}

/// Returns true if a GPU generates for a policy on the model.
fn generates_on_gpu(workflow: &Workflow, model: usize) -> bool {
    let mut policies = workflow.policies.iter().filter(|policy| policy.model == model);
    policies.any(|policy| matches!(policy.devices.rollout, Some(DeviceSet::Cuda(_))))
}
