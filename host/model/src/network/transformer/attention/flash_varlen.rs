//! All sequences of a part by libtorch's flash attention for GPUs (FlashAttention-2), forward and backward one launch each.

use std::ffi::{CStr, c_char};

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

use super::gradient::AttentionGradient;
use super::parts::Part;

unsafe extern "C" {
    fn pl_varlen_attention(
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        query_offsets: *const C_tensor,
        key_offsets: *const C_tensor,
        longest_query: i64,
        longest_key: i64,
        causal: bool,
        out: *mut *mut C_tensor,
        logsumexp: *mut *mut C_tensor,
        reason: *mut c_char,
        size: usize,
    ) -> bool;
}

/// Returns true if it supports heads of this width.
pub(super) fn supports(width: i64) -> bool {
    width % 8 == 0 && (8..=256).contains(&width)
}

/// Returns the numbers of queries and keys of the longest sequences, at least two queries: libtorch handles sequences of one
/// query by another kernel, whose sums are in another order of heads.
fn longest(part: &Part) -> [i64; 2] {
    let [queries, keys] = part.longest();
    [queries.max(2), keys]
}

/// Computes a part for its queries `[n, heads, D]` and its keys and values `[m, kv_heads, D]`, and its logarithms of sums
/// `[heads, n]`, f32.
pub(super) fn attend(part: &Part, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let [query_offsets, key_offsets] = &part.offsets;
    let [longest_query, longest_key] = longest(part);
    let (mut out, mut logsumexp) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut reason = [0; 1024];
    // SAFETY: all are live tensors, and the offsets are those of the rows that the part selected. The two tensors that are set
    // are owned by the caller. The reason is written within its size, which includes its final zero.
    unsafe {
        let done = pl_varlen_attention(
            q.as_ptr(),
            k.as_ptr(),
            v.as_ptr(),
            query_offsets.as_ptr(),
            key_offsets.as_ptr(),
            longest_query,
            longest_key,
            part.causal,
            &raw mut out,
            &raw mut logsumexp,
            reason.as_mut_ptr(),
            reason.len(),
        );
        if !done {
            return Err(TchError::Torch(CStr::from_ptr(reason.as_ptr()).to_string_lossy().into_owned()));
        }
        Ok((Tensor::from_ptr(out), Tensor::from_ptr(logsumexp)))
    }
}

/// Returns the gradients of a part's queries, keys and values.
pub(super) fn gradients(part: &Part, all: &AttentionGradient) -> Result<[Tensor; 3], TchError> {
    let AttentionGradient { gradient, q, k, v, out, logsumexp } = all;
    let [query_offsets, key_offsets] = &part.offsets;
    let [longest_query, longest_key] = longest(part);
    // It reads the sums as contiguous, whatever their strides are.
    let logsumexp = logsumexp.f_contiguous()?;
    // State of the random numbers of dropout, which is off.
    let (state, unused) = (query_offsets, query_offsets);
    let (dq, dk, dv) = Tensor::f_internal_flash_attention_backward(
        gradient,
        q,
        k,
        v,
        out,
        &logsumexp,
        query_offsets,
        key_offsets,
        longest_query,
        longest_key,
        0.0,
        part.causal,
        state,
        unused,
        None,
        None,
        None,
    )?;
    Ok([dq, dk, dv])
}
