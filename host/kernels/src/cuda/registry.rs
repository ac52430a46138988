//! The kernels of all devices in use, compiled and loaded once per process.

use std::sync::Arc;

use parking_lot::Mutex;
use tch::Device;

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Kernel, KernelSettings, Kernels, Launch};
use super::{elementwise, head, library, lora, paged, sampling};

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
    OPENED.lock().push(Arc::clone(&kernels));
    Ok(kernels)
}

/// Loads libtorch's CUDA libraries, if they are found, and opens the kernels of the first GPU, for tests and benchmarks: the
/// program itself asks first what the machine has. Returns `None` if libtorch finds no GPU.
///
/// # Errors
/// As [`open`], and if the libraries can't be loaded.
pub fn first_gpu(settings: &KernelSettings) -> Result<Option<Device>, Error> {
    if let Some(library) = library::find_libtorch_cuda() {
        // SAFETY: libtorch's own library, found by its name, whose initialisation registers its operators.
        unsafe { library::load(&library)? };
    }
    if !tch::Cuda::is_available() {
        return Ok(None);
    }
    open(0, settings)?;
    Ok(Some(Device::Cuda(0)))
}

/// Returns the open kernels of a device. Returns `None` for a device without open kernels, such as a CPU.
pub fn opened(device: Device) -> Option<Arc<Kernels>> {
    let opened = OPENED.lock();
    opened.iter().find(|kernels| kernels.device() == device).cloned()
}
