//! NVIDIA's driver: whether there is one, and what it drives.

use cudarc::driver::{result, sys};

/// The oldest version of the driver's interface that the libraries of this build of libtorch work with, as the driver
/// counts: CUDA 13.0. That is the driver of release 580.
pub const LEAST_DRIVER: i32 = 13_000;

/// What this machine's driver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// There is no libcuda.
    Absent,
    /// There is one, but it does not answer as it should.
    Failed(String),
    /// It works.
    Found {
        /// The newest CUDA that it knows: 13000 is 13.0.
        version: i32,
        /// Devices that it lets this process see.
        devices: i32,
    },
}

/// Asks the driver. It does nothing that libtorch's own start would come too late for.
pub fn driver() -> Driver {
    // SAFETY: loads libcuda, which does nothing by being loaded.
    if !unsafe { sys::is_culib_present() } {
        return Driver::Absent;
    }
    let mut version = 0;
    // SAFETY: may be asked before anything else, and writes one integer.
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
