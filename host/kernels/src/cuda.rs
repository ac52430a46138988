//! CUDA: libtorch's CUDA libraries, and kernels that are compiled on the machine that runs them.
//!
//! Nothing of CUDA is linked. [`load`] loads libtorch's CUDA libraries ([`find_libtorch_cuda`]); [`open`]
//! compiles the kernels for a device with NVRTC ([`Compiler`], with a cache on disk) and keeps them until the
//! process ends; [`opened`] returns them. Kernels run in the device's primary context, which libtorch uses
//! too, and on the stream that libtorch's work of the same thread goes to: the default one, unless it is recorded
//! ([`Graphs`]). Therefore a kernel runs after all earlier and before all later work of libtorch, and nothing waits in
//! between. Memory is allocated by libtorch, as tensors.
//!
//! [`head`] has the kernels of the output head, [`paged`] those of generation's attention, [`elementwise`] the operations between
//! the matrix products, [`lora`] those of adapters, [`sampling`] the sampling of tokens. Their source is tested without
//! a GPU: `emulated.h` lets a C++ compiler make a library of it in which the threads of a block run one at a time.
//! [`nccl`] sums over the GPUs of several processes.

mod compile;
mod driver;
pub mod elementwise;
#[cfg(test)]
mod emulated;
mod error;
mod graphs;
pub mod head;
mod launch;
mod library;
pub mod lora;
pub mod nccl;
pub mod paged;
mod registry;
pub mod sampling;
mod tensors;
mod transfer;

pub use compile::{Compiler, KernelSource};
pub use driver::{Driver, MIN_DRIVER_VERSION, device_memory, driver};
pub use error::Error;
pub use graphs::{Graph, Graphs};
pub use launch::{KernelSettings, Kernels};
pub use library::{LIBTORCH_CUDA_VARIABLE, find_libtorch_cuda, load, loaded};
pub use registry::{first_gpu, open, opened};
pub use transfer::{Download, upload};
