//! Errors of kernels on CUDA.

use std::path::PathBuf;

use tch::{TchError, Tensor};

/// Errors of [`crate::cuda`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CUDA driver is missing.
    #[error("the CUDA driver (libcuda.so.1) is missing; install NVIDIA's driver")]
    NoDriver,
    /// NVRTC was not found.
    #[error(
        "NVRTC (libnvrtc.so.13) is neither in the system's library folders nor in {}; `cargo xtask setup` fetches it",
        .folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoCompiler {
        /// Folders that were searched.
        folders: Vec<PathBuf>,
    },
    /// A library can't be loaded.
    #[error("{path} can't be loaded: {reason}", path = .path.display())]
    Library {
        /// Path of the library.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// NVRTC can't compile a source.
    #[error("NVRTC can't compile {name} for {arch}: {reason}")]
    Compile {
        /// Name of the source.
        name: &'static str,
        /// Target architecture, as in `sm_90`.
        arch: String,
        /// NVRTC's error and log.
        reason: String,
    },
    /// The device is too old for the kernels.
    #[error("device cuda:{ordinal} has compute capability {major}.{minor}; the kernels need 8.0")]
    Device {
        /// Number of the device.
        ordinal: usize,
        /// Major number of its compute capability.
        major: i32,
        /// Minor number of its compute capability.
        minor: i32,
    },
    /// A call of the driver failed.
    #[error("CUDA could not {action}: {reason}")]
    Call {
        /// The action that failed.
        action: String,
        /// The driver's message.
        reason: String,
    },
    /// A tensor has the wrong kind, shape or device for a kernel.
    #[error("{kernel}: {tensor} must be {expected}, but is {got}")]
    Tensor {
        /// Name of the kernel.
        kernel: &'static str,
        /// Name of the tensor.
        tensor: &'static str,
        /// Kind, shape and device that the kernel needs.
        expected: String,
        /// Kind, shape and device of the given tensor.
        got: String,
    },
    /// libtorch failed.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl Error {
    pub(crate) fn call<E: std::fmt::Display>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |error| Self::Call { action, reason: error.to_string() }
    }

    /// Returns the error for a tensor that is not what a kernel needs.
    pub(super) fn tensor(kernel: &'static str, tensor: &'static str, expected: &str, got: &Tensor) -> Self {
        let layout = if got.is_contiguous() { "contiguous" } else { "not contiguous" };
        let got = format!("{:?} {:?} on {:?}, {layout}", got.kind(), got.size(), got.device());
        Self::Tensor { kernel, tensor, expected: expected.to_owned(), got }
    }
}

/// Conversion for callers that return only libtorch's errors.
impl From<Error> for TchError {
    fn from(error: Error) -> Self {
        match error {
            Error::Torch(error) => error,
            error => TchError::Io(std::io::Error::other(error)),
        }
    }
}
