//! CUDA: libtorch's half of it, and kernels, compiled where they run.
//!
//! Nothing of CUDA is linked. [`device::choose`] loads libtorch's CUDA half where it can work; [`open`] compiles the kernels with NVRTC for a
//! device ([`Compiler`], with a cache on disk) and keeps them for the process; [`opened`] is where others find them.
//! Kernels run in the device's primary context, which libtorch uses too, and on the default stream, which is the
//! stream of all of libtorch's work here (tch offers no other): they come after what was asked of libtorch before,
//! and before what is asked of it later, without any waiting in between. Memory is libtorch's, as tensors.
//!
//! [`head`] is the first of them. A kernel's source is tested without a GPU: `emulated.h` lets a C++ compiler make a
//! library of it in which the threads of a block take turns.

mod compile;
pub mod device;
mod driver;
#[cfg(test)]
mod emulated;
mod error;
pub mod head;
mod launch;
mod library;

pub use compile::{Compiler, Source};
pub use driver::{Driver, LEAST_DRIVER, driver};
pub use error::Error;
pub use launch::{Kernels, Settings, open, opened};
pub use library::{load, loaded};
