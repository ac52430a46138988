//! Attention over a forest of spans, forwards and backwards.
//!
//! Attention alone is left to libtorch's autograd, in an island per block: queries, keys and values enter as
//! leaves, a set per span, and libtorch picks its kernel. The sizes of the leaves are what makes it cheap: a view
//! of one large tensor would get a gradient of that tensor's size per span.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tch::{Device, Kind, TchError, Tensor};

use crate::{Config, Packed};

/// Which tokens see which.
pub(super) struct Reach {
    spans: Vec<Seen>,
    /// By tokens and tokens before them: what is added to the scores of a span that goes on from another.
    masks: BTreeMap<(usize, usize), Tensor>,
}

struct Seen {
    start: i64,
    len: i64,
    /// The spans that it goes on from, root first.
    before: Vec<usize>,
    /// Their tokens.
    prefix: usize,
}

impl Reach {
    pub(super) fn new(packed: &Packed, kind: Kind, device: Device) -> Result<Self, TchError> {
        let mut spans: Vec<Seen> = Vec::with_capacity(packed.spans.len());
        let mut masks = BTreeMap::new();
        for (span, prefix) in packed.spans.iter().zip(packed.first_positions()) {
            let mut before = Vec::new();
            if let Some(parent) = span.parent {
                before.extend_from_slice(&spans[parent].before);
                before.push(parent);
                if let Entry::Vacant(place) = masks.entry((span.len, prefix)) {
                    place.insert(mask(span.len as i64, prefix as i64, kind, device)?);
                }
            }
            spans.push(Seen { start: span.start as i64, len: span.len as i64, before, prefix });
        }
        Ok(Self { spans, masks })
    }
}

/// `[len, prefix + len]`: 0 where a token sees another, minus infinity where that one comes after it.
fn mask(len: i64, prefix: i64, kind: Kind, device: Device) -> Result<Tensor, TchError> {
    Tensor::f_full([len, prefix + len], f64::NEG_INFINITY, (kind, device))?.f_triu(prefix + 1)
}

/// A block's attention and what its gradient needs.
pub(super) struct Island {
    leaves: Vec<[Tensor; 3]>,
    /// Per span, `[group, kv_heads, tokens, D]`.
    outputs: Vec<Tensor>,
}

impl Island {
    /// Attends: queries `[T, heads x D]`, keys and values `[T, kv_heads x D]`.
    pub(super) fn new(
        config: &Config,
        reach: &Reach,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        differentiable: bool,
    ) -> Result<Self, TchError> {
        let mut leaves: Vec<[Tensor; 3]> = Vec::with_capacity(reach.spans.len());
        let mut outputs = Vec::with_capacity(reach.spans.len());
        for span in &reach.spans {
            let leaf = |x: &Tensor, heads: i64| {
                x.f_narrow(0, span.start, span.len)?
                    .f_detach()?
                    .f_view([span.len, heads, config.head_dim])?
                    .f_set_requires_grad(differentiable)
            };
            leaves.push([leaf(q, config.heads)?, leaf(k, config.kv_heads)?, leaf(v, config.kv_heads)?]);
            let attend = || attend(config, reach, span, &leaves);
            outputs.push(if differentiable { tch::with_grad(attend)? } else { attend()? });
        }
        Ok(Self { leaves, outputs })
    }

    /// What was attended to, `[T, heads x D]`, outside any gradient graph.
    pub(super) fn mixed(&self, config: &Config) -> Result<Tensor, TchError> {
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

    /// From the gradient `[T, heads x D]` of what was attended to, those of queries, keys and values.
    pub(super) fn backward(
        self,
        config: &Config,
        reach: &Reach,
        gradient: &Tensor,
    ) -> Result<[Tensor; 3], TchError> {
        let group = config.heads / config.kv_heads;
        tch::with_grad(|| {
            let mut losses = Vec::with_capacity(self.outputs.len());
            for (span, output) in reach.spans.iter().zip(&self.outputs) {
                let gradient = gradient
                    .f_narrow(0, span.start, span.len)?
                    .f_view([span.len, config.kv_heads, group, config.head_dim])?
                    .f_permute([2, 1, 0, 3])?;
                // Its gradient with respect to the output is the gradient that came in.
                losses.push(output.f_mul(&gradient)?.f_sum(output.kind())?);
            }
            Tensor::f_stack(&losses, 0)?.f_sum(gradient.kind())?.f_backward()
        })?;
        let part = |at: usize, width: i64| {
            let rows = self
                .leaves
                .iter()
                .map(|leaves| leaves[at].f_grad()?.f_reshape([-1, width]))
                .collect::<Result<Vec<_>, _>>()?;
            if let [one] = rows.as_slice() { Ok(one.shallow_clone()) } else { Tensor::f_cat(&rows, 0) }
        };
        Ok([part(0, config.q_width())?, part(1, config.kv_width())?, part(2, config.kv_width())?])
    }
}

/// One span's attention. `leaves` ends with its own.
fn attend(config: &Config, reach: &Reach, span: &Seen, leaves: &[[Tensor; 3]]) -> Result<Tensor, TchError> {
    let Some((own, _)) = leaves.split_last() else { return Ok(Tensor::new()) };
    let group = config.heads / config.kv_heads;
    let query =
        own[0].f_view([span.len, config.kv_heads, group, config.head_dim])?.f_permute([2, 1, 0, 3])?;
    let seen = |at: usize| {
        let rows: Vec<&Tensor> =
            span.before.iter().map(|&before| &leaves[before][at]).chain([&own[at]]).collect();
        let rows = if let [one] = rows.as_slice() { one.shallow_clone() } else { Tensor::f_cat(&rows, 0)? };
        // The query heads of a group lie along the batch, where one set of keys and values serves them all
        // without a copy.
        let [count, heads, width] = [rows.size()[0], config.kv_heads, config.head_dim];
        rows.f_permute([1, 0, 2])?.f_unsqueeze(0)?.f_expand([group, heads, count, width], false)
    };
    let mask = reach.masks.get(&(span.len as usize, span.prefix)).filter(|_| !span.before.is_empty());
    Tensor::f_scaled_dot_product_attention(
        &query,
        &seen(1)?,
        &seen(2)?,
        mask,
        0.0,
        mask.is_none(),
        None,
        false,
    )
}
