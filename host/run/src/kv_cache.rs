//! The size of the KV cache on a device.

use pl_dsl::workflow::Workflow;
use pl_kernels::cuda;
use tch::Device;

/// Size of the KV cache on a CPU in bytes.
const CPU: u64 = 1 << 30;
/// Share of a GPU's memory that the KV cache takes: training needs the rest.
const GPU_SHARE: u64 = 4;

/// Returns the size of the KV cache on a device in bytes: the one that the workflow states, or else one that keeps all slots busy.
/// If it is smaller than what they need, completions are interrupted and their prompts computed again.
pub fn kv_cache(workflow: &Workflow, device: Device) -> u64 {
    workflow.inference.kv_cache.unwrap_or_else(|| match device {
        Device::Cuda(ordinal) => cuda::device_memory(ordinal).map_or(CPU, |bytes| bytes / GPU_SHARE),
        _ => CPU,
    })
}
