//! Query of NVIDIA's driver.

use cudarc::driver::{result, sys};

/// Oldest version of the driver's interface that this build's CUDA libraries of libtorch work with, in the
/// driver's notation: CUDA 13.0, the interface of driver 580.
pub const MIN_DRIVER_VERSION: i32 = 13_000;

/// State of this machine's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// libcuda is missing.
    Absent,
    /// libcuda returned an error.
    Failed(String),
    /// The driver works.
    Found {
        /// Newest CUDA version that it supports: 13000 is 13.0.
        version: i32,
        /// Number of devices that are visible to this process.
        devices: i32,
    },
}

/// Queries the driver, in a way that does not disturb libtorch's later use of it.
pub fn driver() -> Driver {
    // SAFETY: loads libcuda, whose loading has no side effects.
    if !unsafe { sys::is_culib_present() } {
        return Driver::Absent;
    }
    let mut version = 0;
    // SAFETY: may be called before anything else, and writes one integer.
    if let Err(error) = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result() {
        return Driver::Failed(error.to_string());
    }
    let devices = result::init().and_then(|()| result::device::get_count());
    match devices {
        Ok(devices) => Driver::Found { version, devices },
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Driver::Found { version, devices: 0 },
        Err(error) => Driver::Failed(error.to_string()),
    }
}

/// Returns the memory of a device in bytes. Returns `None` if there is no such device.
pub fn device_memory(ordinal: usize) -> Option<u64> {
    let Driver::Found { devices, .. } = driver() else { return None };
    let ordinal = i32::try_from(ordinal).ok().filter(|ordinal| *ordinal < devices)?;
    let device = result::device::get(ordinal).ok()?;
    // SAFETY: the device exists.
    let bytes = unsafe { result::device::total_mem(device) }.ok()?;
    u64::try_from(bytes).ok()
}
