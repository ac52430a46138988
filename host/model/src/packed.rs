//! Training's forward pass: several sequences in one row of tokens, each with its own adapter or none.
//!
//! The base's projections run once over all tokens. Attention stays within a sequence, and so do the
//! adapters: each sees only the rows of its own sequences, so that its gradients are those of training it
//! alone.

use tch::{Device, Tensor};

use crate::{Adapter, Config, Deltas, Projection, Rope, Weights, transform};

/// Sequences laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Token ids of all sequences.
    pub tokens: Vec<u32>,
    /// The sequences: they cover all tokens, in order, without gaps.
    pub spans: Vec<Span>,
}

/// One sequence of a [`Packed`] row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first token.
    pub start: usize,
    /// Its tokens.
    pub len: usize,
    /// Index into the adapters given with the row; none: the base alone.
    pub adapter: Option<usize>,
}

impl Packed {
    /// Appends a sequence.
    pub fn push(&mut self, tokens: &[u32], adapter: Option<usize>) {
        self.spans.push(Span { start: self.tokens.len(), len: tokens.len(), adapter });
        self.tokens.extend_from_slice(tokens);
    }
}

/// The hidden states `[T, H]` after the final norm of a packed row; differentiable. Attention is causal within
/// each span, positions start at 0 in each. Rows of spans of one adapter that stand side by side cost no
/// copying.
///
/// # Panics
/// When spans leave gaps or overlap, or name an adapter that is not in `adapters`: the caller's mistake.
pub fn hidden_states(config: &Config, weights: &Weights, adapters: &[&Adapter], packed: &Packed) -> Tensor {
    let device = weights.device();
    let spans: Vec<Span> = packed.spans.iter().filter(|span| span.len > 0).copied().collect();
    let covered = spans.iter().fold(0, |at, span| {
        assert_eq!(span.start, at, "spans must follow each other");
        assert!(span.adapter.is_none_or(|a| a < adapters.len()), "a span names an adapter that is not there");
        at + span.len
    });
    assert_eq!(covered, packed.tokens.len(), "spans must cover all tokens");

    let ids: Vec<i64> = packed.tokens.iter().map(|id| i64::from(*id)).collect();
    let tokens = Tensor::from_slice(&ids).to_device(device);
    let positions: Vec<i64> = spans.iter().flat_map(|span| 0..span.len as i64).collect();
    let longest = spans.iter().map(|span| span.len).max().unwrap_or(0);
    let rope = Rope::new(config, longest, device).at(&Tensor::from_slice(&positions).to_device(device));

    let routed = Routed::new(adapters, &spans, device);
    transform(config, weights, &tokens, &rope, &routed, &mut |_, q, k, v| {
        let parts: Vec<Tensor> = spans
            .iter()
            .map(|span| {
                let rows = |x: &Tensor| x.narrow(0, span.start as i64, span.len as i64);
                causal_attention(config, &rows(&q), &rows(&k), &rows(&v))
            })
            .collect();
        Tensor::cat(&parts, 0)
    })
}

/// Causal attention of one sequence: queries `[T, heads, D]`, keys and values `[T, kv_heads, D]` to
/// `[T, heads x D]`.
pub fn causal_attention(config: &Config, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let count = q.size()[0];
    let group = config.heads / config.kv_heads;
    let query = q.transpose(0, 1).unsqueeze(0);
    // Expanded by hand: libtorch's fused CPU attention takes equal head counts only.
    let expand = |x: &Tensor| {
        x.transpose(0, 1)
            .unsqueeze(1)
            .expand([config.kv_heads, group, count, config.head_dim], false)
            .reshape([1, config.heads, count, config.head_dim])
    };
    Tensor::scaled_dot_product_attention(
        &query,
        &expand(k),
        &expand(v),
        None::<&Tensor>,
        0.0,
        true,
        None,
        false,
    )
    .squeeze_dim(0)
    .transpose(0, 1)
    .reshape([count, config.q_width()])
}

/// Adapters by rows: neighbouring spans of one adapter make a run.
struct Routed<'a> {
    runs: Vec<Run>,
    adapters: Vec<(usize, &'a Adapter)>,
    device: Device,
}

struct Run {
    start: i64,
    len: i64,
    adapter: Option<usize>,
}

impl<'a> Routed<'a> {
    fn new(adapters: &[&'a Adapter], spans: &[Span], device: Device) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for span in spans {
            match runs.last_mut() {
                Some(run) if run.adapter == span.adapter => run.len += span.len as i64,
                _ => runs.push(Run { start: span.start as i64, len: span.len as i64, adapter: span.adapter }),
            }
        }
        let used = adapters
            .iter()
            .enumerate()
            .filter(|(i, _)| runs.iter().any(|run| run.adapter == Some(*i)))
            .map(|(i, adapter)| (i, *adapter))
            .collect();
        Self { runs, adapters: used, device }
    }
}

impl Deltas for Routed<'_> {
    fn add(&self, layer: usize, projection: Projection, x: &Tensor, y: Tensor) -> Tensor {
        // Per run, the adapter's part of its rows; rows without one get zeros.
        let mut parts: Vec<Option<Tensor>> = self.runs.iter().map(|_| None).collect();
        let mut any = false;
        for (index, adapter) in &self.adapters {
            let Some(part) = adapter.part(layer, projection) else { continue };
            any = true;
            let own: Vec<usize> =
                (0..self.runs.len()).filter(|i| self.runs[*i].adapter == Some(*index)).collect();
            let rows: Vec<Tensor> =
                own.iter().map(|i| x.narrow(0, self.runs[*i].start, self.runs[*i].len)).collect();
            let rows = if let [one] = rows.as_slice() { one.shallow_clone() } else { Tensor::cat(&rows, 0) };
            let delta = (rows.matmul(&part.a.tr()) * adapter.scale()).matmul(&part.b.tr());
            let mut at = 0;
            for i in own {
                parts[i] = Some(delta.narrow(0, at, self.runs[i].len));
                at += self.runs[i].len;
            }
        }
        if !any {
            return y;
        }
        if let [Some(all)] = parts.as_slice() {
            return y + all;
        }
        let width = y.size()[1];
        let parts: Vec<Tensor> = parts
            .into_iter()
            .zip(&self.runs)
            .map(|(part, run)| {
                part.unwrap_or_else(|| Tensor::zeros([run.len, width], (y.kind(), self.device)))
            })
            .collect();
        y + Tensor::cat(&parts, 0)
    }
}
