//! The kernels of all devices in use, compiled and loaded once per process.

use std::sync::{Arc, Mutex, PoisonError};

use tch::Device;

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Kernel, KernelSettings, Kernels, Launch};
use super::{elementwise, head, lora, paged, sampling};

/// Sources with their kernels.
pub(super) const SOURCES: [(&KernelSource, &[Kernel]); 5] = [
    (&head::SOURCE, &head::KERNELS),
    (&paged::SOURCE, &paged::KERNELS),
    (&elementwise::SOURCE, &elementwise::KERNELS),
    (&lora::SOURCE, &lora::KERNELS),
    (&sampling::SOURCE, &sampling::KERNELS),
];

/// Devices whose kernels are open. They stay open until the process ends.
static OPENED: Mutex<Vec<Arc<Kernels>>> = Mutex::new(Vec::new());

/// Compiles and loads the kernels for a device and keeps them until the process ends. The first compilation
/// takes seconds.
///
/// # Errors
/// If the driver or NVRTC is missing, or the device is too old. None of these has to stop a run, because
/// libtorch works without these kernels.
pub fn open(ordinal: usize, settings: &KernelSettings) -> Result<Arc<Kernels>, Error> {
    if let Some(kernels) = opened(Device::Cuda(ordinal)) {
        return Ok(kernels);
    }
    let kernels = Arc::new(Kernels::new(ordinal, settings, &SOURCES)?);
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&kernels));
    Ok(kernels)
}

/// Returns the open kernels of a device. Returns `None` for a device without open kernels, such as a CPU.
pub fn opened(device: Device) -> Option<Arc<Kernels>> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.iter().find(|kernels| kernels.device() == device).cloned()
}
