//! What can go wrong with kernels on CUDA.

use std::path::PathBuf;

/// Errors of [`crate::cuda`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no CUDA driver.
    #[error("there is no CUDA driver (libcuda.so.1): install NVIDIA's driver")]
    NoDriver,
    /// NVRTC was found nowhere.
    #[error(
        "there is no NVRTC (libnvrtc.so.13), neither where the system looks for libraries nor in {}: `cargo xtask setup` fetches it",
        .folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoCompiler {
        /// Where it was looked for.
        folders: Vec<PathBuf>,
    },
    /// A library is there, but can't be loaded.
    #[error("{path} can't be loaded: {reason}", path = .path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// NVRTC refused a source, or failed.
    #[error("NVRTC can't compile {name} for {arch}: {reason}")]
    Compile {
        /// The source.
        name: &'static str,
        /// For what it was to be compiled, as in `sm_90`.
        arch: String,
        /// NVRTC's error and log.
        reason: String,
    },
    /// The device is older than the kernels allow.
    #[error("device cuda:{ordinal} has compute capability {major}.{minor}; the kernels need 8.0")]
    Device {
        /// The device.
        ordinal: usize,
        /// Its compute capability.
        major: i32,
        /// Its compute capability.
        minor: i32,
    },
    /// The driver refused.
    #[error("CUDA could not {doing}: {reason}")]
    Call {
        /// What was asked of it.
        doing: String,
        /// Its answer.
        reason: String,
    },
    /// A tensor is not what a kernel takes.
    #[error("{kernel}: {tensor} has to be {expected}, but is {got}")]
    Tensor {
        /// The kernel.
        kernel: &'static str,
        /// Which of its tensors.
        tensor: &'static str,
        /// Kind, shape and device that it takes.
        expected: String,
        /// What came.
        got: String,
    },
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

impl Error {
    pub(crate) fn call<E: std::fmt::Display>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |error| Self::Call { doing, reason: error.to_string() }
    }
}
