//! The size of the KV cache on a device.

use pl_kernels::cuda;
use tch::Device;

/// Size of the KV cache on a CPU in bytes.
const CPU: u64 = 1 << 30;
/// A GPU's KV cache takes this part of its memory: training needs the rest.
const GPU_PART: u64 = 4;

/// Returns the size of the KV cache on a device in bytes: the one that the workflow states (`inference.kv_cache`), or else one
/// that suits the device. If it is smaller than what all slots need, completions are interrupted and their prompts computed again.
pub fn kv_cache(stated: Option<u64>, device: Device) -> u64 {
    stated.unwrap_or_else(|| match device {
        Device::Cuda(ordinal) => cuda::device_memory(ordinal).map_or(CPU, |bytes| bytes / GPU_PART),
        _ => CPU,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_stated_is_taken_on_every_device() {
        for device in [Device::Cpu, Device::Cuda(0)] {
            assert_eq!(kv_cache(Some(5 << 20), device), 5 << 20);
        }
        assert_eq!(kv_cache(None, Device::Cpu), 1 << 30);
        // A device that no machine has.
        assert_eq!(kv_cache(None, Device::Cuda(1000)), 1 << 30);
    }
}
