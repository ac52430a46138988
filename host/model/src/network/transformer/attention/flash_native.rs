//! All sequences of a part by this program's kernels for CPUs, in f32.

use pl_kernels::cpu::{FlashAttention, FlashGradients, FlashResults, FlashSequence, Heads};
use tch::{Device, Kind, TchError, Tensor};

use super::gradient::AttentionGradient;
use super::parts::Part;
use crate::network::parallel::workers;
use crate::network::values::{values, values_mut};

/// Returns true if there is a kernel for heads of this width.
pub(super) fn supports(width: i64) -> bool {
    usize::try_from(width).is_ok_and(FlashAttention::supports)
}

/// Computes the attention of queries `[n, heads, D]` to keys and values `[m, kv_heads, D]`, and its logarithms of sums
/// `[heads, n]`.
pub(super) fn attend(part: &Part, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let sequences = sequences(part);
    let [q, k, v] = [q.f_contiguous()?, k.f_contiguous()?, v.f_contiguous()?];
    let out = q.f_empty_like()?;
    let logsumexp = Tensor::f_empty([q.size()[1], q.size()[0]], (Kind::Float, Device::Cpu))?;
    // SAFETY: contiguous f32 tensors on the CPU; the results are new, and nothing else refers to them.
    unsafe {
        let attention = attention(part, &sequences, &q, &k, &v);
        attention.forward(workers(), values_mut(&out), values_mut(&logsumexp));
    }
    Ok((out, logsumexp))
}

/// Returns the gradients of queries, keys and values.
pub(super) fn gradients(part: &Part, all: &AttentionGradient) -> Result<[Tensor; 3], TchError> {
    let sequences = sequences(part);
    let [q, k, v] = [all.q.f_contiguous()?, all.k.f_contiguous()?, all.v.f_contiguous()?];
    let (out, gradient) = (all.out.f_contiguous()?, all.gradient.f_contiguous()?);
    let logsumexp = all.logsumexp.f_contiguous()?;
    let sums = [q.f_zeros_like()?, k.f_zeros_like()?, v.f_zeros_like()?];
    // SAFETY: as above.
    unsafe {
        let attention = attention(part, &sequences, &q, &k, &v);
        let results =
            FlashResults { out: values(&out), gradient: values(&gradient), logsumexp: values(&logsumexp) };
        let [dq, dk, dv] = &sums;
        let gradients = FlashGradients { q: values_mut(dq), k: values_mut(dk), v: values_mut(dv) };
        attention.backward(workers(), &results, gradients);
    }
    Ok(sums)
}

/// # Safety
/// As [`values`], of all three tensors.
unsafe fn attention<'a>(
    part: &Part,
    sequences: &'a [FlashSequence],
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
) -> FlashAttention<'a> {
    let size = |x: &Tensor, dim: usize| x.size().get(dim).map_or(0, |n| *n as usize);
    let heads = Heads { heads: size(q, 1), kv_heads: size(k, 1), dim: size(q, 2) };
    // SAFETY: guaranteed by the caller.
    let [q, k, v] = unsafe { [values(q), values(k), values(v)] };
    FlashAttention { heads, causal: part.causal, sequences, q, k, v }
}

/// Returns the rows of each sequence, which follow each other.
fn sequences(part: &Part) -> Vec<FlashSequence> {
    let [mut query, mut key] = [0, 0];
    let next = |start: &mut usize, length: i64| {
        let rows = *start..*start + length as usize;
        *start = rows.end;
        rows
    };
    let lengths = part.lengths.iter();
    lengths
        .map(|&[queries, keys]| FlashSequence {
            queries: next(&mut query, queries),
            keys: next(&mut key, keys),
        })
        .collect()
}
