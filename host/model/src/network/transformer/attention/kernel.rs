//! Choice of the kernel that computes a part of the attention.

use tch::{Device, Kind, TchError, Tensor};

use super::gradient::AttentionGradient;
use super::parts::Part;
use super::{by_sequence, flash_cpu, flash_native, flash_varlen, plain};
use crate::libtorch;

/// A kernel for parts of the attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionKernel {
    /// This program's flash attention for CPUs in f32, all sequences together.
    FlashNative,
    /// libtorch's flash attention for CPUs, sequence by sequence.
    FlashCpu,
    /// libtorch's flash attention for GPUs, all sequences in one launch.
    FlashVarlen,
    /// Products and sums of libtorch on any device, sequence by sequence.
    Plain,
}

impl AttentionKernel {
    /// Returns the kernel for the forward pass with queries `[n, heads, D]`.
    pub(super) fn forward(q: &Tensor) -> Self {
        let width = q.size().last().copied().unwrap_or(0);
        match (q.device(), q.kind()) {
            (Device::Cpu, Kind::Float) if flash_native::supports(width) => Self::FlashNative,
            (Device::Cpu, _) => Self::FlashCpu,
            (Device::Cuda(_), Kind::Half | Kind::BFloat16) if flash_varlen::supports(width) => {
                Self::FlashVarlen
            }
            _ => Self::Plain,
        }
    }

    /// Returns the kernel for the backward pass. Flash attention's on a GPU adds the gradients of queries in the order in which
    /// its threads come; its deterministic variant needs a mode of libtorch in which other operations fail.
    pub(super) fn backward(q: &Tensor) -> Self {
        match Self::forward(q) {
            Self::FlashVarlen if libtorch::uses_deterministic_algorithms() => Self::Plain,
            kernel => kernel,
        }
    }

    /// Computes a part for its queries `[n, heads, D]` and its keys and values `[m, kv_heads, D]`. Returns the output
    /// `[n, heads, D]` and the logarithms of the sums of exponentiated scores `[heads, n]`.
    pub(super) fn attend(
        self,
        part: &Part,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<(Tensor, Tensor), TchError> {
        match self {
            Self::FlashNative => flash_native::attend(part, q, k, v),
            Self::FlashCpu => by_sequence::attend(part, q, k, v, flash_cpu::attend),
            Self::FlashVarlen => flash_varlen::attend(part, q, k, v),
            Self::Plain => by_sequence::attend(part, q, k, v, plain::attend),
        }
    }

    /// Returns the gradients of a part's queries, keys and values, in their shapes.
    pub(super) fn gradients(self, part: &Part, all: &AttentionGradient) -> Result<[Tensor; 3], TchError> {
        match self {
            Self::FlashNative => flash_native::gradients(part, all),
            Self::FlashCpu => by_sequence::gradients(part, all, flash_cpu::gradients),
            Self::FlashVarlen => flash_varlen::gradients(part, all),
            Self::Plain => by_sequence::gradients(part, all, plain::gradients),
        }
    }
}
