//! Inputs of the gradients of a part of the attention.

use tch::{TchError, Tensor};

use super::parts::Part;

/// Gradient of a part's output, and the tensors that the gradients of its inputs follow from: its own queries `[n, heads, D]`
/// and keys and values `[m, kv_heads, D]`, and the queries' results over the keys of all parts.
pub(super) struct AttentionGradient {
    /// `[n, heads, D]`.
    pub(super) gradient: Tensor,
    pub(super) q: Tensor,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    /// `[n, heads, D]`.
    pub(super) out: Tensor,
    /// `[heads, n]`.
    pub(super) logsumexp: Tensor,
}

impl AttentionGradient {
    /// Returns the rows of a part.
    pub(super) fn select(&self, part: &Part) -> Result<Self, TchError> {
        let Part { queries, keys, .. } = part;
        Ok(Self {
            gradient: queries.select(&self.gradient, 0)?,
            q: queries.select(&self.q, 0)?,
            k: keys.select(&self.k, 0)?,
            v: keys.select(&self.v, 0)?,
            out: queries.select(&self.out, 0)?,
            logsumexp: queries.select(&self.logsumexp, 1)?,
        })
    }
}
