//! Hand-written kernels for operations in which a library leaves much of the machine unused.
//!
//! [`cpu`] has the operations of generation on a CPU: products with weights that are packed once, attention
//! over paged keys and values, norms, rotary embedding, softmax. Each row of an output is computed by the
//! same instructions in the same order for every batch and every number of threads, so that a row's bits
//! depend only on its own inputs.
//!
//! [`cuda`] has the operation of training on a GPU that libtorch lacks: the output head without its logits in
//! memory.

pub mod cpu;
pub mod cuda;
