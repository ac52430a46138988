//! All sequences of a part by libtorch's flash attention for GPUs (FlashAttention-2), forward and backward one launch each.

use std::ffi::{CStr, c_char};

use pl_kernels::cuda::upload;
use tch::{Device, Kind, TchError, Tensor};
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
    attend_sequences([q, k, v], &part.offsets, longest(part), part.causal)
}

/// Computes the attention of sequences of queries, each to a sequence of keys, with the offsets of both, `[sequences + 1]`, i32.
/// The last query of a sequence attends to all keys, each one before, if it is causal, to one key less.
fn attend_sequences(
    [q, k, v]: [&Tensor; 3],
    [query_offsets, key_offsets]: &[Tensor; 2],
    [longest_query, longest_key]: [i64; 2],
    causal: bool,
) -> Result<(Tensor, Tensor), TchError> {
    let (mut out, mut logsumexp) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut reason = [0; 1024];
    // SAFETY: all are live tensors, and the caller's offsets are those of rows that these have. The two tensors that are set
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
            causal,
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

/// Attention of the newest tokens of sequences to all tokens of these so far, in one launch on a GPU.
pub struct ContextAttention {
    offsets: [Tensor; 2],
    longest: [i64; 2],
}

impl ContextAttention {
    /// Returns true if there is a kernel for heads of `width` numbers of a kind.
    pub fn supports(device: Device, kind: Kind, width: i64) -> bool {
        device.is_cuda() && matches!(kind, Kind::Half | Kind::BFloat16) && supports(width)
    }

    /// Prepares sequences by their numbers of new tokens and of all tokens.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(lengths: &[[i64; 2]], device: Device) -> Result<Self, TchError> {
        let offsets = |side: usize| {
            let mut end = 0;
            let ends = lengths.iter().map(|length| {
                end += length[side] as i32;
                end
            });
            let offsets: Vec<i32> = [0].into_iter().chain(ends).collect();
            upload(&Tensor::f_from_slice(&offsets)?, device)
        };
        let longest = |side: usize| lengths.iter().map(|length| length[side]).max().unwrap_or(0);
        // As in `longest`.
        Ok(Self { offsets: [offsets(0)?, offsets(1)?], longest: [longest(0).max(2), longest(1)] })
    }

    /// Computes the attention `[n, heads, D]` of the new tokens' queries `[n, heads, D]` to the keys and values
    /// `[m, kv_heads, D]` of all tokens, both sequence after sequence.
    ///
    /// # Errors
    /// If libtorch fails.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, TchError> {
        Ok(attend_sequences([q, k, v], &self.offsets, self.longest, true)?.0)
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
