//! A step of sequences that continue by one token, over tensors that stay where they are.

use std::rc::{Rc, Weak};

use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::upload;
use pl_model::{AdapterRows, AdapterSlots, forward_cached};
use tch::{Device, Kind, TchError, Tensor};

use super::single_rows::SingleRowAttention;
use super::{LoadedAdapter, ModelTensors};
use crate::executor::TokenBatch;

/// Number of numbers of a row in [`DecodeInputs::numbers`] besides its blocks: token, position, cache slot, length.
const COLUMNS: usize = 4;

/// Inputs of a step of `rows` rows, some of which may be unused.
pub(super) struct DecodeInputs {
    rows: usize,
    /// Number of blocks of a sequence.
    blocks: usize,
    /// The rows' tokens, positions, cache slots and lengths, then their tables of blocks, i32. One tensor, so that one copy
    /// writes all of them.
    numbers: Tensor,
    /// Scales of the rows' adapters in slots, `[rows, ranks]`, f32.
    scales: Option<Tensor>,
    /// A block that no sequence has. Unused rows are sequences of one token in it.
    scratch: u32,
}

impl DecodeInputs {
    /// Takes memory for inputs with adapters of `ranks` in all slots, if there are any.
    pub(super) fn new(
        [rows, blocks]: [usize; 2],
        ranks: Option<usize>,
        scratch: u32,
        device: Device,
    ) -> Result<Self, TchError> {
        let numbers = Tensor::f_zeros([(rows * (COLUMNS + blocks)) as i64], (Kind::Int, device))?;
        let scales = |ranks: usize| Tensor::f_zeros([rows as i64, ranks as i64], (Kind::Float, device));
        Ok(Self { rows, blocks, numbers, scales: ranks.map(scales).transpose()?, scratch })
    }

    /// Writes a batch, which has at most as many rows and blocks. `first_rank` returns the first rank of an adapter's slot.
    pub(super) fn write(
        &mut self,
        batch: &TokenBatch<'_, LoadedAdapter>,
        first_rank: impl Fn(&LoadedAdapter) -> usize,
    ) -> Result<(), TchError> {
        let Self { rows, blocks, scratch, .. } = *self;
        let mut numbers = vec![0i32; rows * (COLUMNS + blocks)];
        let (columns, tables) = numbers.split_at_mut(rows * COLUMNS);
        let slot = |block: u32, position: usize| block as i32 * BLOCK as i32 + (position % BLOCK) as i32;
        for row in 0..rows {
            let table = &mut tables[row * blocks..][..blocks];
            let column = match batch.segments.get(row) {
                Some(segment) => {
                    let position = segment.position;
                    let used = position / BLOCK + 1;
                    for (to, block) in table.iter_mut().zip(&segment.blocks[..used]) {
                        *to = *block as i32;
                    }
                    let token = segment.tokens[0] as i32;
                    let slot = slot(segment.blocks[used - 1], position);
                    [token, position as i32, slot, position as i32 + 1]
                }
                None => {
                    table[0] = scratch as i32;
                    [0, 0, slot(scratch, 0), 1]
                }
            };
            for (index, value) in column.into_iter().enumerate() {
                columns[index * rows + row] = value;
            }
        }
        let device = self.numbers.device();
        self.numbers.f_copy_(&upload(&Tensor::f_from_slice(&numbers)?, device)?)?;
        if let Some(tokens) = &batch.next_tokens {
            self.numbers.f_narrow(0, 0, batch.segments.len() as i64)?.f_copy_(tokens)?;
        }
        if let Some(scales) = &mut self.scales {
            let values = row_scales(batch, rows, scales.size()[1] as usize, first_rank)?;
            scales.f_copy_(&upload(&values, device)?)?;
        }
        Ok(())
    }

    /// Returns the same inputs in the same memory.
    fn shallow(&self) -> Self {
        Self {
            numbers: self.numbers.shallow_clone(),
            scales: self.scales.as_ref().map(Tensor::shallow_clone),
            ..*self
        }
    }
}

/// Returns the scales of a batch's adapters in slots, `[rows, ranks]`, f32, on the CPU. `rows` may be more than the batch has.
pub(super) fn row_scales(
    batch: &TokenBatch<'_, LoadedAdapter>,
    rows: usize,
    ranks: usize,
    first_rank: impl Fn(&LoadedAdapter) -> usize,
) -> Result<Tensor, TchError> {
    let mut values = vec![0f32; rows * ranks];
    for (range, own) in batch.adapter_runs() {
        let first = first_rank(own);
        for row in range {
            values[row * ranks + first..][..own.factors.rank].fill(own.factors.scale() as f32);
        }
    }
    Tensor::f_from_slice(&values)?.f_view([rows as i64, ranks as i64])
}

/// The work of a step. It owns all tensors that it reads, except those of the model.
pub(super) struct DecodeWork {
    model: Weak<ModelTensors>,
    /// Keys and values of each layer.
    cache: Vec<Tensor>,
    adapters: Option<Rc<AdapterSlots>>,
    inputs: DecodeInputs,
}

impl DecodeWork {
    pub(super) fn new(
        model: &Rc<ModelTensors>,
        cache: &[Tensor],
        adapters: Option<Rc<AdapterSlots>>,
        inputs: &DecodeInputs,
    ) -> Self {
        let cache = cache.iter().map(Tensor::shallow_clone).collect();
        Self { model: Rc::downgrade(model), cache, adapters, inputs: inputs.shallow() }
    }

    /// Runs the step: writes the rows' keys and values to the cache, and returns their states `[rows, hidden]` after the final
    /// norm.
    pub(super) fn run(&self) -> Result<Tensor, TchError> {
        let gone = || TchError::Torch("the model of a recorded step is gone".to_owned());
        let model = self.model.upgrade().ok_or_else(gone)?;
        let ModelTensors { config, weights, rope, .. } = &*model;
        let (rows, blocks) = (self.inputs.rows as i64, self.inputs.blocks as i64);
        let numbers = &self.inputs.numbers;
        let ids = numbers.f_narrow(0, 0, 3 * rows)?.f_to_kind(Kind::Int64)?;
        let (tokens, positions) = (ids.f_narrow(0, 0, rows)?, ids.f_narrow(0, rows, rows)?);
        let slots = ids.f_narrow(0, 2 * rows, rows)?;
        let lengths = numbers.f_narrow(0, 3 * rows, rows)?;
        let tables = numbers.f_narrow(0, COLUMNS as i64 * rows, rows * blocks)?.f_view([rows, blocks])?;
        let (kind, longest) = (weights.embed.kind(), self.inputs.blocks * BLOCK);
        let attention = SingleRowAttention::new(tables, lengths, longest, kind, config.head_dim)?;
        let adapters = match (&self.adapters, &self.inputs.scales) {
            (Some(slots), Some(scales)) => AdapterRows::in_slots(slots, scales),
            _ => AdapterRows::new(Vec::new())?,
        };
        let attend = |layer: usize, q: &Tensor| attention.attend(q, &self.cache[layer])?.f_flatten(1, 2);
        let rope = rope.select(&positions);
        forward_cached(config, weights, adapters, &tokens, rope, &self.cache, &slots, attend)
    }
}
