//! Steps of sequences that continue by one token, recorded once for each shape and replayed.
//!
//! A batch is padded to a number of rows and of blocks of a sequence that many batches share. The second batch of such a shape is
//! recorded; then it and later ones only write its inputs and replay it. The recorded part ends with the hidden states: logits and
//! tokens are computed from them as in every other step, also where grammars restrict the tokens. All other batches (prompts,
//! scoring, more rows than [`ROWS`] has, adapters that are too many or not finite) take the plain way.
//!
//! A recorded step reads the weights and the cache where they are. It is dropped when a model has new weights in other memory,
//! and when the cache gives its memory back. Adapters are copied to slots that stay where they are ([`PlacedAdapters`]), so
//! that new versions of them need no new recordings.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::paged::SPAN;
use pl_kernels::cuda::upload;
use pl_model::{Adapter, Config};
use tch::{TchError, Tensor};

use super::decode_work::{DecodeInputs, DecodeWork, row_scales};
use super::graph_recorder::{GraphRecorder, RecordedWork};
use super::placed_adapters::{BatchSlots, PlacedAdapters, Placement};
use super::{LoadedAdapter, ModelTensors};
use crate::executor::TokenBatch;
use crate::stats::Counters;

/// Numbers of rows of recorded steps. A step takes as long as its weights take to be read, whatever its rows are, so that a
/// third more rows cost little, and each number more costs recordings and memory.
const ROWS: [usize; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];

/// Tokens of the longest sequences of recorded steps: this number, four times it, and so on. Sequences of one span of keys have
/// no sums to merge; spans past a sequence's end cost a block of threads that ends at once.
const SHORTEST: usize = SPAN as usize;

/// Largest size of the sums of attention's parts in bytes.
const ATTENTION_SUMS: usize = 256 << 20;

/// Largest number of recorded steps of a model; the one that was replayed longest ago is dropped.
const GRAPHS: usize = 32;

/// Memory of the device for the nodes of a graph, in bytes; not measured yet.
const GRAPH: u64 = 8 << 20;

/// Returns the memory that recorded steps take at most for a model with a number of sequences at a time, in bytes, besides that
/// of the adapters' slots. Measured nowhere yet.
pub fn graph_bytes(config: &Config, slots: usize) -> u64 {
    let rows = ROWS.into_iter().find(|rows| *rows >= slots).unwrap_or(ROWS[ROWS.len() - 1]) as u64;
    let [hidden, ffn, q] = [config.hidden, config.ffn, config.q_width()].map(|width| width as u64);
    // Tensors of a block of the model that exist at a time, in f32. Graphs share their memory.
    let block = rows * 4 * (8 * hidden + 3 * ffn + 4 * q);
    let positions = config.max_positions.max(1).div_ceil(SHORTEST) * SHORTEST;
    let sums = attention_sums(config, rows as usize, positions).min(ATTENTION_SUMS);
    // The work runs once before it is recorded, and the allocator keeps its memory for the stream of recordings.
    2 * (block + sums as u64) + GRAPHS as u64 * GRAPH
}

/// Returns the size of the sums of attention's parts for rows with sequences of a number of tokens, in bytes. Sequences of one
/// part have none.
fn attention_sums(config: &Config, rows: usize, tokens: usize) -> usize {
    let spans = if tokens > SPAN as usize { tokens.div_ceil(SPAN as usize) } else { 0 };
    rows * config.heads as usize * spans * (config.head_dim as usize + 2) * 4
}

/// Dimensions of a recorded step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DecodeShape {
    pub(super) rows: usize,
    /// Number of blocks of a sequence.
    pub(super) blocks: usize,
    /// True if rows may have adapters.
    pub(super) adapters: bool,
}

impl DecodeShape {
    /// Returns the shape to which a batch is padded. Returns `None` if it takes the plain way. Sequences have at most `positions`
    /// tokens.
    pub(super) fn new(
        batch: &TokenBatch<'_, LoadedAdapter>,
        config: &Config,
        positions: usize,
    ) -> Option<Self> {
        let segments = &batch.segments;
        let adapters = segments.iter().filter_map(|segment| segment.adapter);
        if segments.iter().any(|segment| segment.tokens.len() != 1) || !adapters.clone().all(|own| own.finite)
        {
            return None;
        }
        let rows = ROWS.into_iter().find(|rows| *rows >= segments.len())?;
        let longest = segments.iter().map(|segment| segment.position + 1).max()?;
        let mut tokens = SHORTEST;
        while tokens < longest {
            tokens *= 4;
        }
        let tokens = tokens.min(positions);
        (attention_sums(config, rows, tokens) <= ATTENTION_SUMS).then(|| Self {
            rows,
            blocks: tokens.div_ceil(BLOCK),
            adapters: adapters.count() > 0,
        })
    }
}

/// The recorded steps of one model.
pub(super) struct DecodeGraphs {
    recorder: Rc<dyn GraphRecorder>,
    counters: Arc<Counters>,
    /// A block of the cache that no sequence has.
    scratch: u32,
    /// [`ModelTensors::number`] of the weights of the recorded steps.
    model: u64,
    adapters: PlacedAdapters,
    steps: Vec<RecordedStep>,
    /// Shapes of batches so far.
    seen: HashSet<DecodeShape>,
    replays: u64,
    /// True during a recording, and after one that failed.
    failed: bool,
}

struct RecordedStep {
    shape: DecodeShape,
    inputs: DecodeInputs,
    work: Box<dyn RecordedWork>,
    last_use: u64,
}

impl DecodeGraphs {
    pub(super) fn new(recorder: Rc<dyn GraphRecorder>, scratch: u32, counters: Arc<Counters>) -> Self {
        Self {
            recorder,
            counters,
            scratch,
            model: 0,
            adapters: PlacedAdapters::default(),
            steps: Vec::new(),
            seen: HashSet::new(),
            replays: 0,
            failed: false,
        }
    }

    /// Drops all recorded steps with their memory.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.seen.clear();
        self.adapters = PlacedAdapters::default();
    }

    /// Computes a batch's hidden states `[rows, hidden]` after the final norm by a recorded step. They stay until the next
    /// step. Returns `None` if the batch takes the plain way.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn step(
        &mut self,
        model: &Rc<ModelTensors>,
        cache: &[Tensor],
        batch: &TokenBatch<'_, LoadedAdapter>,
    ) -> Result<Option<Tensor>, TchError> {
        // Sequences finish with earlier weights while others have newer ones.
        if self.failed || model.number < self.model {
            return Ok(None);
        }
        let Some(shape) = DecodeShape::new(batch, &model.config, model.positions()) else { return Ok(None) };
        if model.number > self.model {
            self.steps.clear();
            self.seen.clear();
            self.model = model.number;
        }
        self.failed = true;
        let recorded = match self.prepare(shape, model, cache, batch) {
            Ok(recorded) => recorded,
            Err(error) => {
                let error = pl_model::libtorch::first_line(&error);
                tracing::warn!(%error, "steps can't be recorded as CUDA graphs; all take the plain way from now on");
                self.clear();
                return Ok(None);
            }
        };
        self.failed = false;
        let Some(index) = recorded else { return Ok(None) };
        let step = &mut self.steps[index];
        self.replays += 1;
        step.last_use = self.replays;
        // SAFETY: the step owns what it reads, except the tensors of the model. That is the model of the recording: it has the
        // same number.
        let hidden = unsafe { step.work.replay() }?;
        self.counters.replayed_steps.fetch_add(1, Ordering::Relaxed);
        hidden.f_narrow(0, 0, batch.segments.len() as i64).map(Some)
    }

    /// Places the adapters of a batch that takes the plain way. Returns `None` if it has none, or they don't fit.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn slots(
        &mut self,
        model: &ModelTensors,
        batch: &TokenBatch<'_, LoadedAdapter>,
    ) -> Result<Option<BatchSlots>, TchError> {
        let adapters = batch.adapter_runs();
        let finite = adapters.iter().all(|(_, own)| own.finite);
        if adapters.is_empty() || !finite || !self.place_adapters(model, batch)? {
            return Ok(None);
        }
        let Some(slots) = self.adapters.slots() else { return Ok(None) };
        let first_rank = |own: &LoadedAdapter| self.adapters.first_rank(&own.factors);
        let scales = row_scales(batch, batch.rows(), slots.ranks(), first_rank)?;
        Ok(Some(BatchSlots { slots, scales: upload(&scales, model.weights.embed.device())? }))
    }

    /// Gives all adapters of a batch a place. Returns false if they don't fit.
    fn place_adapters(
        &mut self,
        model: &ModelTensors,
        batch: &TokenBatch<'_, LoadedAdapter>,
    ) -> Result<bool, TchError> {
        let embed = &model.weights.embed;
        let adapters: Vec<&Rc<Adapter>> =
            batch.adapter_runs().into_iter().map(|(_, own)| &own.factors).collect();
        match self.adapters.place(&model.config, &adapters, (embed.kind(), embed.device()))? {
            Placement::Same => {}
            Placement::Moved => self.steps.retain(|step| !step.shape.adapters),
            Placement::TooMany => return Ok(false),
        }
        Ok(true)
    }

    /// Writes the inputs of a batch. Returns the index of its recorded step, or `None` if it takes the plain way.
    fn prepare(
        &mut self,
        shape: DecodeShape,
        model: &Rc<ModelTensors>,
        cache: &[Tensor],
        batch: &TokenBatch<'_, LoadedAdapter>,
    ) -> Result<Option<usize>, TchError> {
        if shape.adapters && !self.place_adapters(model, batch)? {
            return Ok(None);
        }
        let Self { adapters, .. } = self;
        let first_rank = |own: &LoadedAdapter| adapters.first_rank(&own.factors);
        if let Some(index) = self.steps.iter().position(|step| step.shape == shape) {
            self.steps[index].inputs.write(batch, first_rank)?;
            return Ok(Some(index));
        }
        if self.seen.insert(shape) {
            return Ok(None);
        }
        let slots = adapters.slots().filter(|_| shape.adapters);
        let ranks = slots.as_ref().map(|slots| slots.ranks());
        let device = model.weights.embed.device();
        let mut inputs = DecodeInputs::new([shape.rows, shape.blocks], ranks, self.scratch, device)?;
        inputs.write(batch, first_rank)?;
        let work = DecodeWork::new(model, cache, slots, &inputs);
        let work = self.recorder.record(Rc::new(move || work.run()))?;
        if self.steps.len() >= GRAPHS {
            let oldest = self.steps.iter().map(|step| step.last_use).min();
            self.steps.retain(|step| Some(step.last_use) != oldest);
        }
        self.steps.push(RecordedStep { shape, inputs, work, last_use: self.replays });
        Ok(Some(self.steps.len() - 1))
    }
}
