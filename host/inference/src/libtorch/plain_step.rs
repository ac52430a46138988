//! A step of any batch, whose tensors are made for it.

use std::ops::Range;

use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::upload;
use pl_model::{AdapterRows, AdapterRun, Config, ContextAttention, forward_cached};
use tch::{Device, IndexOp, Kind, TchError, Tensor};

use super::placed_adapters::BatchSlots;
use super::single_rows::SingleRowAttention;
use super::{LoadedAdapter, ModelTensors};
use crate::executor::TokenBatch;

/// Tensors of one batch.
pub(super) struct PlainStep<'a> {
    model: &'a ModelTensors,
    device: Device,
    tokens: Tensor,
    positions: Tensor,
    /// Cache slot of each row's key and value.
    slots: Tensor,
    /// The adapters, each with its range of rows.
    adapter_runs: Vec<(Range<usize>, &'a LoadedAdapter)>,
    /// The adapters' slots, if they have any.
    slots_of_adapters: Option<BatchSlots>,
    /// Segments of one row, whose attention is one operation.
    single_rows: Option<SingleRows>,
    /// Segments of several rows.
    segments: LongSegments,
}

/// Segments of several rows.
enum LongSegments {
    /// Together.
    Batched(BatchedSegments),
    /// One after another, on devices without a kernel for all.
    Each(Vec<LongSegment>),
}

/// Segments whose attention is one operation.
struct BatchedSegments {
    /// Their rows; `None` if these are all rows of the batch.
    rows: Option<Tensor>,
    /// Cache slots of all tokens of the sequences so far.
    context: Tensor,
    attention: ContextAttention,
}

/// A row of a sequence that continues by one token.
struct SingleRow<'a> {
    row: i64,
    blocks: &'a [u32],
    /// Number of tokens with this one.
    length: usize,
}

/// Segments with one row each.
struct SingleRows {
    /// `[n]`: rows in the batch; `None` if these are all rows of it.
    rows: Option<Tensor>,
    attention: SingleRowAttention,
}

/// A segment of several rows of one sequence.
struct LongSegment {
    rows: Range<i64>,
    /// Cache slots of all tokens of the sequence so far.
    context: Tensor,
    /// `[rows, context]`: true where a row attends to a token.
    mask: Tensor,
}

impl<'a> PlainStep<'a> {
    pub(super) fn new(
        model: &'a ModelTensors,
        batch: &TokenBatch<'a, LoadedAdapter>,
        slots_of_adapters: Option<BatchSlots>,
        device: Device,
    ) -> Result<Self, TchError> {
        let to_device = |values: &[i64]| upload(&Tensor::f_from_slice(values)?, device);
        let (mut tokens, mut positions, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut single: Vec<SingleRow<'_>> = Vec::new();
        let mut long: Vec<LongRange> = Vec::new();
        for segment in &batch.segments {
            let first = tokens.len() as i64;
            let count = segment.tokens.len();
            let end = segment.position + count;
            let slot = |p: usize| i64::from(segment.blocks[p / BLOCK]) * BLOCK as i64 + (p % BLOCK) as i64;
            tokens.extend(segment.tokens.iter().map(|id| i64::from(*id)));
            positions.extend(segment.position as i64..end as i64);
            slots.extend((segment.position..end).map(slot));
            if count == 1 {
                single.push(SingleRow { row: first, blocks: segment.blocks, length: end });
            } else {
                long.push(LongRange {
                    rows: first..tokens.len() as i64,
                    context: (0..end).map(slot).collect(),
                });
            }
        }
        let all = long.is_empty();
        let single_rows =
            if single.is_empty() { None } else { Some(SingleRows::new(&single, all, model, device)?) };
        let segments = LongSegments::new(long, tokens.len(), model, device)?;
        Ok(Self {
            model,
            device,
            tokens: match &batch.next_tokens {
                Some(tokens) => tokens.f_to_kind(Kind::Int64)?,
                None => to_device(&tokens)?,
            },
            positions: to_device(&positions)?,
            slots: to_device(&slots)?,
            adapter_runs: batch.adapter_runs(),
            slots_of_adapters,
            single_rows,
            segments,
        })
    }

    /// Runs the model over a cache. Returns the states of all rows `[rows, hidden]` after the final norm.
    pub(super) fn run(&self, cache: &[Tensor]) -> Result<Tensor, TchError> {
        let ModelTensors { config, weights, rope, .. } = self.model;
        let rope = rope.select(&self.positions);
        let run = |(rows, own): &(Range<usize>, &'a LoadedAdapter)| AdapterRun {
            rows: rows.clone(),
            adapter: &own.factors,
            finite: own.finite,
        };
        let adapters = match &self.slots_of_adapters {
            Some(BatchSlots { slots, scales }) => AdapterRows::in_slots(slots, scales),
            None => AdapterRows::new(self.adapter_runs.iter().map(run).collect())?,
        };
        let attend = |layer: usize, q: &Tensor| self.attend(&cache[layer], config, q);
        forward_cached(config, weights, adapters, &self.tokens, rope, cache, &self.slots, attend)
    }

    fn attend(&self, layer_cache: &Tensor, config: &Config, q: &Tensor) -> Result<Tensor, TchError> {
        if let Some(single @ SingleRows { rows: None, .. }) = &self.single_rows {
            return single.attend(q, layer_cache)?.f_flatten(1, 2);
        }
        if let LongSegments::Batched(batched @ BatchedSegments { rows: None, .. }) = &self.segments {
            return batched.attend(q, layer_cache)?.f_flatten(1, 2);
        }
        let out = Tensor::f_empty([self.tokens.size()[0], config.q_width()], (q.kind(), self.device))?;
        let group = config.heads / config.kv_heads;
        if let Some(single @ SingleRows { rows: Some(rows), .. }) = &self.single_rows {
            let mixed = single.attend(q, layer_cache)?.f_flatten(1, 2)?;
            let _ = out.shallow_clone().f_index_copy_(0, rows, &mixed)?;
        }
        let each = match &self.segments {
            LongSegments::Each(each) => each.as_slice(),
            LongSegments::Batched(batched) => {
                let mixed = batched.attend(q, layer_cache)?.f_flatten(1, 2)?;
                if let Some(rows) = &batched.rows {
                    let _ = out.shallow_clone().f_index_copy_(0, rows, &mixed)?;
                }
                &[]
            }
        };
        for segment in each {
            let (first, count) = (segment.rows.start, segment.rows.end - segment.rows.start);
            let context = layer_cache.f_index_select(0, &segment.context)?.f_permute([1, 2, 0, 3])?;
            let length = segment.context.size()[0];
            let expand = |x: Tensor| {
                x.f_unsqueeze(1)?
                    .f_expand([config.kv_heads, group, length, config.head_dim], false)?
                    .f_reshape([1, config.heads, length, config.head_dim])
            };
            let q = q.f_narrow(0, first, count)?.f_transpose(0, 1)?.f_unsqueeze(0)?;
            let mixed = attention(&q, &expand(context.i(0))?, &expand(context.i(1))?, &segment.mask)?;
            let mixed = mixed.f_squeeze_dim(0)?.f_transpose(0, 1)?.f_reshape([count, -1])?;
            out.f_narrow(0, first, count)?.f_copy_(&mixed)?;
        }
        Ok(out)
    }
}

/// Rows of a segment, and the cache slots of all tokens of its sequence so far.
struct LongRange {
    rows: Range<i64>,
    context: Vec<i64>,
}

impl LongSegments {
    /// Prepares segments of a batch of `count` rows.
    fn new(
        ranges: Vec<LongRange>,
        count: usize,
        model: &ModelTensors,
        device: Device,
    ) -> Result<Self, TchError> {
        let (kind, head_dim) = (model.weights.embed.kind(), model.config.head_dim);
        let to_device = |values: &[i64]| upload(&Tensor::f_from_slice(values)?, device);
        if ranges.is_empty() || !ContextAttention::supports(device, kind, head_dim) {
            let each = ranges.into_iter().map(|LongRange { rows, context }| {
                let (count, end) = (rows.end - rows.start, context.len() as i64);
                let mask = Tensor::f_ones([count, end], (Kind::Bool, device))?.f_tril(end - count)?;
                Ok(LongSegment { rows, context: to_device(&context)?, mask })
            });
            return Ok(Self::Each(each.collect::<Result<_, TchError>>()?));
        }
        let lengths: Vec<[i64; 2]> = ranges
            .iter()
            .map(|range| [range.rows.end - range.rows.start, range.context.len() as i64])
            .collect();
        let rows: Vec<i64> = ranges.iter().flat_map(|range| range.rows.clone()).collect();
        let context: Vec<i64> = ranges.into_iter().flat_map(|range| range.context).collect();
        Ok(Self::Batched(BatchedSegments {
            rows: if rows.len() == count { None } else { Some(to_device(&rows)?) },
            context: to_device(&context)?,
            attention: ContextAttention::new(&lengths, device)?,
        }))
    }
}

impl BatchedSegments {
    /// Computes the attention `[n, heads, D]` of the segments' rows of `q`, `[T, heads, D]`.
    fn attend(&self, q: &Tensor, cache: &Tensor) -> Result<Tensor, TchError> {
        let context = cache.f_index_select(0, &self.context)?;
        let (k, v) = (context.f_select(1, 0)?, context.f_select(1, 1)?);
        match &self.rows {
            Some(rows) => self.attention.attend(&q.f_index_select(0, rows)?, &k, &v),
            None => self.attention.attend(q, &k, &v),
        }
    }
}

impl SingleRows {
    /// Prepares rows with the blocks and the number of tokens of their sequences. `all` is true if the batch has no others.
    fn new(
        rows: &[SingleRow<'_>],
        all: bool,
        model: &ModelTensors,
        device: Device,
    ) -> Result<Self, TchError> {
        let longest = rows.iter().map(|row| row.length).max().unwrap_or(0);
        let columns = longest.div_ceil(BLOCK);
        let mut tables = vec![0i32; rows.len() * columns];
        for (to, row) in tables.chunks_exact_mut(columns.max(1)).zip(rows) {
            for (to, block) in to.iter_mut().zip(row.blocks) {
                *to = *block as i32;
            }
        }
        let lengths: Vec<i32> = rows.iter().map(|row| row.length as i32).collect();
        let tables = Tensor::f_from_slice(&tables)?.f_view([rows.len() as i64, columns as i64])?;
        let (tables, lengths) = (upload(&tables, device)?, upload(&Tensor::f_from_slice(&lengths)?, device)?);
        let (kind, head_dim) = (model.weights.embed.kind(), model.config.head_dim);
        let attention = SingleRowAttention::new(tables, lengths, longest, kind, head_dim)?;
        let rows: Vec<i64> = rows.iter().map(|row| row.row).collect();
        let rows = if all { None } else { Some(upload(&Tensor::f_from_slice(&rows)?, device)?) };
        Ok(Self { rows, attention })
    }

    /// Computes the attention `[n, heads, D]` of the rows of `q`, `[T, heads, D]`.
    fn attend(&self, q: &Tensor, cache: &Tensor) -> Result<Tensor, TchError> {
        match &self.rows {
            Some(rows) => self.attention.attend(&q.f_index_select(0, rows)?, cache),
            None => self.attention.attend(q, cache),
        }
    }
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor) -> Result<Tensor, TchError> {
    Tensor::f_scaled_dot_product_attention(q, k, v, Some(mask), 0.0, false, None, false)
}
