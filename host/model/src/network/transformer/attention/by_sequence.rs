//! Parts of the attention sequence by sequence, for kernels that take one.

use tch::{TchError, Tensor};

use super::gradient::AttentionGradient;
use super::parts::Part;

/// Computes a part with `attend(causal, q, k, v)`, which takes and returns the tensors of one sequence.
pub(super) fn attend(
    part: &Part,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    attend: impl Fn(bool, &Tensor, &Tensor, &Tensor) -> Result<(Tensor, Tensor), TchError>,
) -> Result<(Tensor, Tensor), TchError> {
    let (mut outs, mut sums) =
        (Vec::with_capacity(part.lengths.len()), Vec::with_capacity(part.lengths.len()));
    let [mut query, mut key] = [0, 0];
    for &[queries, keys] in &part.lengths {
        let rows = |x: &Tensor, start: i64, len: i64| x.f_narrow(0, start, len);
        let (out, logsumexp) =
            attend(part.causal, &rows(q, query, queries)?, &rows(k, key, keys)?, &rows(v, key, keys)?)?;
        outs.push(out);
        sums.push(logsumexp);
        query += queries;
        key += keys;
    }
    Ok((concatenate(outs, 0)?, concatenate(sums, 1)?))
}

/// Returns a part's gradients with `gradients(causal, sequence)`, which takes and returns the tensors of one sequence.
pub(super) fn gradients(
    part: &Part,
    all: &AttentionGradient,
    gradients: impl Fn(bool, &AttentionGradient) -> Result<[Tensor; 3], TchError>,
) -> Result<[Tensor; 3], TchError> {
    let mut parts: [Vec<Tensor>; 3] = Default::default();
    let [mut query, mut key] = [0, 0];
    for &[queries, keys] in &part.lengths {
        let own = AttentionGradient {
            gradient: all.gradient.f_narrow(0, query, queries)?,
            q: all.q.f_narrow(0, query, queries)?,
            k: all.k.f_narrow(0, key, keys)?,
            v: all.v.f_narrow(0, key, keys)?,
            out: all.out.f_narrow(0, query, queries)?,
            logsumexp: all.logsumexp.f_narrow(1, query, queries)?,
        };
        for (parts, own) in parts.iter_mut().zip(gradients(part.causal, &own)?) {
            parts.push(own);
        }
        query += queries;
        key += keys;
    }
    let [dq, dk, dv] = parts;
    Ok([concatenate(dq, 0)?, concatenate(dk, 0)?, concatenate(dv, 0)?])
}

/// Concatenates tensors; one alone is returned as it is.
fn concatenate(mut tensors: Vec<Tensor>, dim: i64) -> Result<Tensor, TchError> {
    match tensors.pop() {
        Some(one) if tensors.is_empty() => Ok(one),
        last => {
            tensors.extend(last);
            Tensor::f_cat(&tensors, dim)
        }
    }
}
