//! The attention in plain libtorch, over keys and values that are gathered and padded to the longest sequence.

use tch::{Kind, Tensor, no_grad};

use super::PagedSequences;
use crate::cpu::BLOCK;
use crate::cuda::error::Error;

/// Sequences of a step, prepared for the attention of all layers, on any device and in any number format.
#[derive(Debug)]
pub struct GatheredSequences {
    /// Slots of each sequence's tokens, `[rows x longest]`; 0 past its end.
    slots: Tensor,
    /// `[rows, 1, 1, longest]`: 0, and minus infinity past a sequence's end.
    mask: Tensor,
}

impl GatheredSequences {
    /// Prepares sequences for queries of a kind.
    ///
    /// # Errors
    /// If libtorch fails.
    pub fn new(sequences: &PagedSequences<'_>, kind: Kind) -> Result<Self, Error> {
        let PagedSequences { tables, lengths, longest } = sequences;
        let (longest, block, device) = (*longest as i64, BLOCK as i64, tables.device());
        let positions = Tensor::f_arange(longest, (Kind::Int64, device))?;
        let past = positions.f_unsqueeze(0)?.f_ge_tensor(&lengths.f_unsqueeze(1)?)?;
        let slots = tables
            .f_to_kind(Kind::Int64)?
            .f_index_select(1, &positions.f_divide_scalar_mode(block, "floor")?)?
            .f_mul_scalar(block)?
            .f_add_(&positions.f_remainder(block)?)?
            .f_masked_fill_(&past, 0)?
            .f_view(-1)?;
        let mask = Tensor::f_zeros(past.size(), (kind, device))?
            .f_masked_fill_(&past, f64::NEG_INFINITY)?
            .f_view([-1, 1, 1, longest])?;
        Ok(Self { slots, mask })
    }

    /// Computes what [`PagedAttention::attend`](super::PagedAttention::attend) does.
    ///
    /// # Errors
    /// If shapes don't fit, or memory runs out.
    pub fn attend(&self, queries: &Tensor, cache: &Tensor) -> Result<Tensor, Error> {
        let (queries_size, cache_size) = (queries.size(), cache.size());
        let (&[rows, heads, width], &[_, _, kv_heads, _]) = (queries_size.as_slice(), cache_size.as_slice())
        else {
            return Err(Error::tensor(
                "paged",
                "the queries",
                "of three dimensions, the cache of four",
                queries,
            ));
        };
        no_grad(|| {
            // [rows, longest, 2, kv_heads, width] to [2, rows, kv_heads, longest, width].
            let context = cache
                .f_index_select(0, &self.slots)?
                .f_view([rows, -1, 2, kv_heads, width])?
                .f_permute([2, 0, 3, 1, 4])?;
            // The query heads that share a head of keys become that head's queries.
            let grouped = queries.f_view([rows, kv_heads, heads / kv_heads, width])?;
            let [keys, values] = [context.f_select(0, 0)?, context.f_select(0, 1)?];
            let out = Tensor::f_scaled_dot_product_attention(
                &grouped,
                &keys,
                &values,
                Some(&self.mask),
                0.0,
                false,
                None,
                false,
            )?;
            Ok(out.f_reshape([rows, heads, width])?)
        })
    }
}
