//! Reasons for which CUDA is not usable.

use std::fmt;
use std::path::PathBuf;

use pl_kernels::cuda::{self, LIBTORCH_CUDA_VARIABLE, MIN_DRIVER_VERSION};

/// Reason why CUDA can't be used, with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum CudaUnavailable {
    /// libcuda is missing.
    #[error(
        "there is no NVIDIA driver (libcuda.so.1) on this machine; install driver 580 or newer, or use --device cpu"
    )]
    NoDriver,
    /// libcuda fails.
    #[error("the NVIDIA driver does not work ({0}); make `nvidia-smi` work first, or use --device cpu")]
    BrokenDriver(String),
    /// libcuda is older than libtorch's libraries need.
    #[error(
        "the NVIDIA driver supports CUDA only up to {has}, and {} is needed; install driver 580 or newer, or use --device cpu",
        CudaVersion(MIN_DRIVER_VERSION)
    )]
    OldDriver {
        /// Newest CUDA version that the driver supports.
        has: CudaVersion,
    },
    /// The driver finds no device.
    #[error(
        "the NVIDIA driver finds no device; CUDA_VISIBLE_DEVICES may hide it, or the container may have no access to it; or use --device cpu"
    )]
    NoDevice,
    /// libtorch's CUDA libraries are missing.
    #[error(
        "libtorch has no CUDA libraries here: `cargo xtask setup --cuda` fetches them, or set {LIBTORCH_CUDA_VARIABLE} to the folder of a libtorch_cuda.so 2.11; or use --device cpu"
    )]
    NoLibraries,
    /// libtorch's CUDA libraries can't be loaded.
    #[error("{0}; `cargo xtask setup --cuda` fetches libraries that belong together, or use --device cpu")]
    LoadFailed(#[source] cuda::Error),
    /// The libraries are loaded, and libtorch finds no device.
    #[error("libtorch finds no CUDA device, although its libraries in {folder} were loaded and the driver finds one; use libraries of libtorch 2.11, or use --device cpu", folder = .0.display())]
    NotFoundByLibtorch(PathBuf),
}

/// A CUDA version in the driver's notation: 13000 is 13.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaVersion(pub i32);

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}
