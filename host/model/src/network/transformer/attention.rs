//! Attention over a forest of spans, forward and backward.
//!
//! Attention is the only part of a block that is left to libtorch's autograd: queries, keys and values enter
//! a small graph per block as leaves, one set per span, and libtorch picks its kernel. Separate leaves keep
//! this cheap: a view of one large tensor would get a gradient of that tensor's size per span.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tch::{Device, Kind, TchError, Tensor};

use crate::network::config::Config;
use crate::network::packed::Packed;

/// Rows and masks of all spans: each token attends to the tokens before it in its span and in the span's
/// ancestors.
pub(super) struct SpanMask {
    spans: Vec<AttentionSpan>,
    /// Masks by number of tokens and of tokens before them: the summand of the scores of a span that continues
    /// another.
    masks: BTreeMap<(usize, usize), Tensor>,
}

struct AttentionSpan {
    start: i64,
    len: i64,
    /// Indices of the spans that this one continues, root first.
    ancestors: Vec<usize>,
    /// Number of tokens of the ancestors.
    prefix: usize,
}

impl SpanMask {
    pub(super) fn new(packed: &Packed, kind: Kind, device: Device) -> Result<Self, TchError> {
        let mut spans: Vec<AttentionSpan> = Vec::with_capacity(packed.spans.len());
        let mut masks = BTreeMap::new();
        for (span, prefix) in packed.spans.iter().zip(packed.first_positions()) {
            let mut ancestors = Vec::new();
            if let Some(parent) = span.parent {
                ancestors.extend_from_slice(&spans[parent].ancestors);
                ancestors.push(parent);
                if let Entry::Vacant(entry) = masks.entry((span.len, prefix)) {
                    entry.insert(mask(span.len as i64, prefix as i64, kind, device)?);
                }
            }
            spans.push(AttentionSpan { start: span.start as i64, len: span.len as i64, ancestors, prefix });
        }
        Ok(Self { spans, masks })
    }
}

/// Returns `[len, prefix + len]`: 0 where a token attends to another, minus infinity for later tokens.
fn mask(len: i64, prefix: i64, kind: Kind, device: Device) -> Result<Tensor, TchError> {
    Tensor::f_full([len, prefix + len], f64::NEG_INFINITY, (kind, device))?.f_triu(prefix + 1)
}

/// Attention of a block, with the tensors that its gradient needs.
pub(super) struct AttentionBlock {
    /// Queries, keys and values of each span.
    leaves: Vec<[Tensor; 3]>,
    /// Tensors `[group, kv_heads, tokens, D]`, one per span.
    outputs: Vec<Tensor>,
}

impl AttentionBlock {
    /// Computes the attention of queries `[T, heads, D]` to keys `[T, kv_heads, D]` and values
    /// `[T, kv_heads x D]`.
    pub(super) fn new(
        config: &Config,
        mask: &SpanMask,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        differentiable: bool,
    ) -> Result<Self, TchError> {
        let mut leaves: Vec<[Tensor; 3]> = Vec::with_capacity(mask.spans.len());
        let mut outputs = Vec::with_capacity(mask.spans.len());
        for span in &mask.spans {
            let leaf = |x: &Tensor, heads: i64| {
                x.f_narrow(0, span.start, span.len)?
                    .f_detach()?
                    .f_view([span.len, heads, config.head_dim])?
                    .f_set_requires_grad(differentiable)
            };
            leaves.push([leaf(q, config.heads)?, leaf(k, config.kv_heads)?, leaf(v, config.kv_heads)?]);
            let attend = || attend(config, mask, span, &leaves);
            outputs.push(if differentiable { tch::with_grad(attend)? } else { attend()? });
        }
        Ok(Self { leaves, outputs })
    }

    /// Returns the attention's output `[T, heads x D]`, outside any gradient graph.
    pub(super) fn output(&self, config: &Config) -> Result<Tensor, TchError> {
        let rows = self
            .outputs
            .iter()
            .map(|output| {
                let len = output.size()[2];
                output.f_detach()?.f_permute([2, 1, 0, 3])?.f_reshape([len, config.q_width()])
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let [one] = rows.as_slice() { Ok(one.shallow_clone()) } else { Tensor::f_cat(&rows, 0) }
    }

    /// Returns the gradients of queries, keys and values, given the gradient `[T, heads x D]` of the output.
    pub(super) fn backward(
        self,
        config: &Config,
        mask: &SpanMask,
        gradient: &Tensor,
    ) -> Result<[Tensor; 3], TchError> {
        let group = config.heads / config.kv_heads;
        tch::with_grad(|| {
            let mut losses = Vec::with_capacity(self.outputs.len());
            for (span, output) in mask.spans.iter().zip(&self.outputs) {
                let gradient = gradient
                    .f_narrow(0, span.start, span.len)?
                    .f_view([span.len, config.kv_heads, group, config.head_dim])?
                    .f_permute([2, 1, 0, 3])?;
                // The gradient of this loss with respect to the output is the given gradient.
                losses.push(output.f_mul(&gradient)?.f_sum(output.kind())?);
            }
            Tensor::f_stack(&losses, 0)?.f_sum(gradient.kind())?.f_backward()
        })?;
        let collect = |part: usize, width: i64| {
            let rows = self
                .leaves
                .iter()
                .map(|leaves| leaves[part].f_grad()?.f_reshape([-1, width]))
                .collect::<Result<Vec<_>, _>>()?;
            if let [one] = rows.as_slice() { Ok(one.shallow_clone()) } else { Tensor::f_cat(&rows, 0) }
        };
        Ok([collect(0, config.q_width())?, collect(1, config.kv_width())?, collect(2, config.kv_width())?])
    }
}

/// Computes the attention of one span. The last of the `leaves` are the span's own.
fn attend(
    config: &Config,
    mask: &SpanMask,
    span: &AttentionSpan,
    leaves: &[[Tensor; 3]],
) -> Result<Tensor, TchError> {
    let Some((own, _)) = leaves.split_last() else { return Ok(Tensor::new()) };
    let group = config.heads / config.kv_heads;
    let query =
        own[0].f_view([span.len, config.kv_heads, group, config.head_dim])?.f_permute([2, 1, 0, 3])?;
    let context = |part: usize| {
        let rows: Vec<&Tensor> =
            span.ancestors.iter().map(|&ancestor| &leaves[ancestor][part]).chain([&own[part]]).collect();
        let rows = if let [one] = rows.as_slice() { one.shallow_clone() } else { Tensor::f_cat(&rows, 0)? };
        // The query heads of a group are in the batch dimension, so that they share keys and values without a
        // copy.
        let [count, heads, width] = [rows.size()[0], config.kv_heads, config.head_dim];
        rows.f_permute([1, 0, 2])?.f_unsqueeze(0)?.f_expand([group, heads, count, width], false)
    };
    let mask = mask.masks.get(&(span.len as usize, span.prefix)).filter(|_| !span.ancestors.is_empty());
    Tensor::f_scaled_dot_product_attention(
        &query,
        &context(1)?,
        &context(2)?,
        mask,
        0.0,
        mask.is_none(),
        None,
        false,
    )
}
