//! Attention over a forest of spans, forward and backward.
//!
//! A token attends to the tokens before it in its span, and to all tokens of the span's ancestors. No mask and no copy of a
//! prefix is needed, because the attention is computed in parts: each span to itself, and, for each depth of the forest, the
//! descendants of the spans at that depth to these spans. Siblings of a prefix are one sequence of queries. With the scores
//! `s = q k / sqrt(D)`, part i has
//!
//! ```text
//! l_i = log sum exp s        o_i = sum exp(s - l_i) v        over its own keys
//! ```
//!
//! and the attention to all keys is
//!
//! ```text
//! l = log sum exp l_i        o = sum exp(l_i - l) o_i        over the parts
//! ```
//!
//! The gradients with respect to a key, a value and a query's share of a part are
//!
//! ```text
//! p = exp(s - l)    dv = sum p do    ds = p (do v - do o)    dk = sum ds q / sqrt(D)    dq = sum ds k / sqrt(D)
//! ```
//!
//! which know of the other parts by `l` and `o` alone. A kernel's backward pass (Dao 2023, arXiv:2307.08691) computes exactly
//! this from the `l` and `o` that it is given, so that with those of all keys it returns a part's exact gradients, as in ring
//! attention (Liu et al. 2023, arXiv:2310.01889).

mod by_sequence;
mod flash_cpu;
mod flash_native;
mod flash_varlen;
mod gradient;
mod kernel;
mod parts;
mod plain;
#[cfg(test)]
mod tests;

use tch::{Kind, TchError, Tensor};

use gradient::AttentionGradient;
use kernel::AttentionKernel;

pub use flash_varlen::ContextAttention;
pub(super) use parts::AttentionParts;

/// Attention of a block, with the tensors that its gradient needs.
pub(super) struct AttentionBlock {
    /// `[T, heads, D]`.
    q: Tensor,
    /// `[T, kv_heads, D]`.
    k: Tensor,
    /// `[T, kv_heads, D]`.
    v: Tensor,
    /// `[T, heads, D]`.
    out: Tensor,
    /// Logarithms of the sums of exponentiated scores, `[heads, T]`, at least in f32.
    logsumexp: Tensor,
}

impl AttentionBlock {
    /// Computes the attention of queries `[T, heads, D]` to keys `[T, kv_heads, D]` and values `[T, kv_heads x D]`.
    pub(super) fn new(parts: &AttentionParts, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Self, TchError> {
        let v = v.f_view_as(k)?;
        let kernel = AttentionKernel::forward(q);
        let (mut out, logsumexp) = kernel.attend(&parts.own, q, k, &v)?;
        if !parts.prefixes.is_empty() {
            // Sums of several parts are rounded once.
            let total = out.f_to_kind(logsumexp.kind())?;
            for part in &parts.prefixes {
                let (q, k, v) =
                    (part.queries.select(q, 0)?, part.keys.select(k, 0)?, part.keys.select(&v, 0)?);
                let (other, other_logsumexp) = kernel.attend(part, &q, &k, &v)?;
                let (own, own_logsumexp) =
                    (part.queries.select(&total, 0)?, part.queries.select(&logsumexp, 1)?);
                let share = other_logsumexp.f_sub(&own_logsumexp)?.f_sigmoid()?.f_tr()?.f_unsqueeze(-1)?;
                let merged = own.f_lerp_tensor(&other.f_to_kind(total.kind())?, &share)?;
                part.queries.assign(&total, 0, &merged)?;
                part.queries.assign(&logsumexp, 1, &own_logsumexp.f_logaddexp(&other_logsumexp)?)?;
            }
            out = total.f_to_kind(out.kind())?;
        }
        Ok(Self { q: q.shallow_clone(), k: k.shallow_clone(), v, out, logsumexp })
    }

    /// Returns the attention's output `[T, heads x D]`.
    pub(super) fn output(&self) -> Result<Tensor, TchError> {
        self.out.f_flatten(1, 2)
    }

    /// Returns the gradients of queries, keys and values, given the gradient `[T, heads x D]` of the output.
    pub(super) fn backward(self, parts: &AttentionParts, gradient: &Tensor) -> Result<[Tensor; 3], TchError> {
        let Self { q, k, v, out, logsumexp } = self;
        let kernel = AttentionKernel::backward(&q);
        let gradient = gradient.f_view_as(&out)?;
        let all = AttentionGradient { gradient, q, k, v, out, logsumexp };
        let total = kernel.gradients(&parts.own, &all)?;
        for part in &parts.prefixes {
            let [dq, dk, dv] = kernel.gradients(part, &all.select(part)?)?;
            part.queries.add(&total[0], &dq)?;
            part.keys.add(&total[1], &dk)?;
            part.keys.add(&total[2], &dv)?;
        }
        let [dq, dk, dv] = total;
        Ok([dq.f_flatten(1, 2)?, dk.f_flatten(1, 2)?, dv.f_flatten(1, 2)?])
    }
}

/// Returns the number format of sums of a format's products.
fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}
