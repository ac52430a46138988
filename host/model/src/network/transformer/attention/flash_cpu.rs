//! One sequence by libtorch's flash attention for CPUs.
//!
//! It wants as many heads of keys as of queries. The query heads of a group are in the batch dimension, so that they share
//! keys and values without a copy.

use tch::{TchError, Tensor};

use super::gradient::AttentionGradient;

/// Computes the attention of queries `[n, heads, D]` to keys and values `[m, kv_heads, D]`, and its logarithms of sums
/// `[heads, n]`.
pub(super) fn attend(causal: bool, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let (groups, shape) = (Groups::new(q, k), q.size());
    let (q, k, v) = (groups.split(q)?, groups.expand(k)?, groups.expand(v)?);
    let mask = None::<&Tensor>;
    let (out, logsumexp) =
        Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(&q, &k, &v, 0.0, causal, mask, None)?;
    let logsumexp = logsumexp.f_transpose(0, 1)?.f_reshape([groups.kv_heads * groups.group, -1])?;
    Ok((out.f_permute([2, 1, 0, 3])?.f_reshape(shape)?, logsumexp))
}

/// Returns the gradients of queries, keys and values.
pub(super) fn gradients(causal: bool, all: &AttentionGradient) -> Result<[Tensor; 3], TchError> {
    let AttentionGradient { gradient, q, k, v, out, logsumexp } = all;
    let groups = Groups::new(q, k);
    let logsumexp = logsumexp.f_reshape([groups.kv_heads, groups.group, -1])?.f_transpose(0, 1)?;
    let (dq, dk, dv) = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu_backward(
        &groups.split(gradient)?,
        &groups.split(q)?,
        &groups.expand(k)?,
        &groups.expand(v)?,
        &groups.split(out)?,
        &logsumexp,
        0.0,
        causal,
        None::<&Tensor>,
        None,
    )?;
    let sum = |x: Tensor| x.f_sum_dim_intlist([0i64].as_slice(), false, None)?.f_transpose(0, 1);
    Ok([dq.f_permute([2, 1, 0, 3])?.f_reshape(q.size())?, sum(dk)?, sum(dv)?])
}

/// Heads of keys, and query heads for each.
struct Groups {
    kv_heads: i64,
    group: i64,
}

impl Groups {
    fn new(q: &Tensor, k: &Tensor) -> Self {
        let heads = |x: &Tensor| x.size().get(1).copied().unwrap_or(1);
        Self { kv_heads: heads(k), group: heads(q) / heads(k).max(1) }
    }

    /// Returns a view `[group, kv_heads, n, D]` of `[n, heads, D]`.
    fn split(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let size = x.size();
        let (count, width) = (size[0], size[2]);
        x.f_view([count, self.kv_heads, self.group, width])?.f_permute([2, 1, 0, 3])
    }

    /// Returns a view `[group, kv_heads, m, D]` of `[m, kv_heads, D]`.
    fn expand(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let size = x.size();
        x.f_transpose(0, 1)?.f_unsqueeze(0)?.f_expand([self.group, size[1], size[0], size[2]], false)
    }
}
