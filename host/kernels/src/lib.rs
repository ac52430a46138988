//! Kernels written by hand where a library leaves too much of the machine unused.
//!
//! [`cpu`] holds what generation needs on a processor: products with weights packed once, attention over paged
//! keys and values, norms, rotary embedding, softmax. Every row of an output is computed by the same
//! instructions in the same order whatever else is in the batch and however many threads there are, so that a
//! row's bits depend on its own inputs alone.
//!
//! [`cuda`] holds what training needs on a GPU beyond libtorch: the output head without its logits in memory.

pub mod cpu;
pub mod cuda;
