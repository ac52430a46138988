//! Attention of sequences that continue by one token.

use pl_kernels::cuda;
use pl_kernels::cuda::paged::{GatheredSequences, PagedAttention, PagedSequences};
use tch::{Device, Kind, TchError, Tensor};

/// The attention of one row for each sequence, prepared for all layers of a step.
pub(super) enum SingleRowAttention {
    Paged {
        kernels: PagedAttention,
        /// Blocks of each sequence, `[n, blocks]`, i32.
        tables: Tensor,
        /// Number of tokens of each sequence, `[n]`, i32.
        lengths: Tensor,
        longest: usize,
    },
    /// On devices without open kernels, and for number formats that these don't support.
    Gathered(GatheredSequences),
}

impl SingleRowAttention {
    /// Returns true if sequences are attended to where they are.
    pub(super) fn is_paged(device: Device, kind: Kind, head_dim: i64) -> bool {
        PagedAttention::supports(kind, head_dim) && cuda::opened(device).is_some()
    }

    /// Prepares sequences of at most `longest` tokens, of a model that computes in `kind`.
    pub(super) fn new(
        tables: Tensor,
        lengths: Tensor,
        longest: usize,
        kind: Kind,
        head_dim: i64,
    ) -> Result<Self, TchError> {
        let kernels = cuda::opened(tables.device()).filter(|_| PagedAttention::supports(kind, head_dim));
        Ok(match kernels {
            Some(kernels) => Self::Paged { kernels: PagedAttention::new(kernels), tables, lengths, longest },
            None => {
                let sequences = PagedSequences { tables: &tables, lengths: &lengths, longest };
                Self::Gathered(GatheredSequences::new(&sequences, kind)?)
            }
        })
    }

    /// Computes the attention `[n, heads, D]` of queries of the same shape.
    pub(super) fn attend(&self, q: &Tensor, cache: &Tensor) -> Result<Tensor, TchError> {
        let q = q.f_contiguous()?;
        let mixed = match self {
            Self::Paged { kernels, tables, lengths, longest } => {
                kernels.attend(&q, cache, &PagedSequences { tables, lengths, longest: *longest })
            }
            Self::Gathered(sequences) => sequences.attend(&q, cache),
        };
        Ok(mixed?)
    }
}
