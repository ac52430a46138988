//! One sequence by products and sums, on any device and in any number format. It computes in f32 at least, and keeps the
//! scores of some queries at a time.

use tch::{TchError, Tensor};

use super::gradient::AttentionGradient;
use super::wide;

/// Number of queries whose scores are in memory at a time.
const QUERIES: i64 = 512;

/// Computes the attention of queries `[n, heads, D]` to keys and values `[m, kv_heads, D]`, and its logarithms of sums
/// `[heads, n]`.
pub(super) fn attend(causal: bool, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let (mut outs, mut sums) = (Vec::new(), Vec::new());
    for chunk in chunks(causal, q, k) {
        let queries = chunk.queries(q)?;
        let scores = chunk.scores(&queries, &chunk.keys(k)?)?;
        let logsumexp = scores.f_logsumexp([-1i64].as_slice(), true)?;
        let out = scores.f_sub(&logsumexp)?.f_exp_()?.f_bmm(&chunk.keys(v)?)?;
        outs.push(chunk.merge(&out)?);
        sums.push(logsumexp.f_reshape([chunk.kv_heads * chunk.group, chunk.count])?);
    }
    Ok((Tensor::f_cat(&outs, 0)?.f_to_kind(q.kind())?, Tensor::f_cat(&sums, 1)?))
}

/// Returns the gradients of queries, keys and values.
pub(super) fn gradients(causal: bool, all: &AttentionGradient) -> Result<[Tensor; 3], TchError> {
    let AttentionGradient { gradient, q, k, v, out, logsumexp } = all;
    let mut dq = Vec::new();
    let zeros = |x: &Tensor| x.f_transpose(0, 1)?.f_to_kind(wide(x.kind()))?.f_zeros_like();
    let (dk, dv) = (zeros(k)?, zeros(v)?);
    for chunk in chunks(causal, q, k) {
        let (queries, keys, values) = (chunk.queries(q)?, chunk.keys(k)?, chunk.keys(v)?);
        let d_out = chunk.queries(gradient)?;
        let logsumexp = logsumexp.f_narrow(1, chunk.start, chunk.count)?;
        let p =
            chunk.scores(&queries, &keys)?.f_sub(&logsumexp.f_reshape([chunk.kv_heads, -1, 1])?)?.f_exp_()?;
        let mean = d_out.f_mul(&chunk.queries(out)?)?.f_sum_dim_intlist([-1i64].as_slice(), true, None)?;
        let ds =
            d_out.f_bmm(&values.f_transpose(1, 2)?)?.f_sub_(&mean)?.f_mul_(&p)?.f_mul_scalar_(chunk.scale)?;
        let add = |total: &Tensor, part: Tensor| total.f_narrow(1, 0, chunk.seen)?.f_add_(&part).map(drop);
        add(&dv, p.f_transpose(1, 2)?.f_bmm(&d_out)?)?;
        add(&dk, ds.f_transpose(1, 2)?.f_bmm(&queries)?)?;
        dq.push(chunk.merge(&ds.f_bmm(&keys)?)?);
    }
    let by_row = |x: Tensor, like: &Tensor| x.f_transpose(0, 1)?.f_to_kind(like.kind());
    Ok([Tensor::f_cat(&dq, 0)?.f_to_kind(q.kind())?, by_row(dk, k)?, by_row(dv, v)?])
}

/// Some queries of a sequence, and the keys that they attend to.
struct Chunk {
    causal: bool,
    start: i64,
    count: i64,
    /// Number of keys.
    seen: i64,
    kv_heads: i64,
    /// Number of query heads for each head of keys.
    group: i64,
    scale: f64,
}

fn chunks(causal: bool, q: &Tensor, k: &Tensor) -> impl Iterator<Item = Chunk> {
    let (queries, keys) = (q.size(), k.size());
    let (kv_heads, group) = (keys[1], queries[1] / keys[1].max(1));
    let scale = 1.0 / (queries[2] as f64).sqrt();
    let [total, all_keys] = [queries[0], keys[0]];
    (0..total).step_by(QUERIES as usize).map(move |start| {
        let count = QUERIES.min(total - start);
        let seen = if causal { start + count } else { all_keys };
        Chunk { causal, start, count, seen, kv_heads, group, scale }
    })
}

impl Chunk {
    /// Returns the chunk's rows of `[n, heads, D]` as `[kv_heads, group x count, D]`.
    fn queries(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_narrow(0, self.start, self.count)?
            .f_to_kind(wide(x.kind()))?
            .f_reshape([self.count, self.kv_heads, self.group, -1])?
            .f_permute([1, 2, 0, 3])?
            .f_reshape([self.kv_heads, self.group * self.count, -1])
    }

    /// Returns the rows of `[m, kv_heads, D]` that the chunk's queries attend to as `[kv_heads, seen, D]`.
    fn keys(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_narrow(0, 0, self.seen)?.f_to_kind(wide(x.kind()))?.f_transpose(0, 1)
    }

    /// Returns the scores `[kv_heads, group x count, seen]`, minus infinity for later keys.
    fn scores(&self, queries: &Tensor, keys: &Tensor) -> Result<Tensor, TchError> {
        let scores = queries.f_bmm(&keys.f_transpose(1, 2)?)?.f_mul_scalar_(self.scale)?;
        if self.causal {
            let mask =
                Tensor::f_full([self.count, self.seen], f64::NEG_INFINITY, (scores.kind(), scores.device()))?;
            let by_query = scores.f_view([self.kv_heads * self.group, self.count, self.seen])?;
            let _ = by_query.shallow_clone().f_add_(&mask.f_triu(self.start + 1)?)?;
        }
        Ok(scores)
    }

    /// Returns the chunk's rows `[count, heads, D]` of `[kv_heads, group x count, D]`.
    fn merge(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_view([self.kv_heads, self.group, self.count, -1])?.f_permute([2, 0, 1, 3])?.f_reshape([
            self.count,
            self.kv_heads * self.group,
            -1,
        ])
    }
}
