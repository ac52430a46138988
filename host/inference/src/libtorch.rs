//! Models on libtorch: any device that it supports, mainly CUDA.
//!
//! The transformer is [`pl_model::forward_cached`]. Keys and values stay in blocks on the device; sequences that
//! continue by one token attend to them where they are, on GPUs with open kernels ([`pl_kernels::cuda::paged`]), where their
//! steps are also replayed as CUDA graphs ([`DecodeGraphs`]). Tokens are sampled there too, where the next step reads them, and
//! only their ids and log-probabilities are copied back, unless a request needs the whole row of logits (truncation, penalties,
//! the likeliest tokens).

mod decode_graphs;
mod decode_work;
mod graph_recorder;
mod placed_adapters;
mod plain_step;
mod sampling;
mod single_rows;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::{Graphs, upload};
use pl_model::{Adapter, Config, Rope, TensorSet, Weights};
use tch::{Device, TchError, Tensor};

use crate::config::BaseModel;
use crate::executor::{Executor, ExecutorError, TokenBatch};
use crate::sampler::{SampleRequest, SampledToken};
use crate::stats::Counters;

use decode_graphs::DecodeGraphs;
use graph_recorder::GraphRecorder;
use plain_step::PlainStep;
use sampling::StepTokens;

pub use decode_graphs::graph_bytes;

/// Executor on one device of libtorch.
pub(crate) struct Libtorch {
    device: Device,
    /// `None` if all steps take the plain way.
    recorder: Option<Rc<dyn GraphRecorder>>,
    /// True if steps begin before the tokens of the one before are read.
    ahead: bool,
    counters: Arc<Counters>,
    /// Number of models that were loaded.
    loaded: Cell<u64>,
}

impl Libtorch {
    /// Creates an executor. With `enforce_eager`, no steps are recorded.
    pub(crate) fn new(device: Device, enforce_eager: bool, counters: Arc<Counters>) -> Self {
        let recorder: Option<Rc<dyn GraphRecorder>> = match device {
            Device::Cuda(ordinal) if !enforce_eager => match Graphs::new(ordinal) {
                Ok(graphs) => Some(Rc::new(graphs)),
                Err(error) => {
                    tracing::warn!(%error, "steps are not recorded as CUDA graphs");
                    None
                }
            },
            _ => None,
        };
        Self { device, recorder, ahead: device.is_cuda(), counters, loaded: Cell::new(0) }
    }
}

/// A base model on the device.
pub(crate) struct LoadedModel(Rc<ModelTensors>);

struct ModelTensors {
    config: Config,
    weights: Weights,
    rope: Rope,
    /// Higher than those of models that were loaded earlier.
    number: u64,
}

impl ModelTensors {
    /// Returns the length of the longest sequence.
    fn positions(&self) -> usize {
        self.rope.tables().0.size().first().map_or(0, |count| *count as usize)
    }
}

/// An adapter on the device.
pub(crate) struct LoadedAdapter {
    factors: Rc<Adapter>,
    /// Result of [`Adapter::is_finite`].
    finite: bool,
}

/// KV cache of one base model.
pub(crate) struct KvCacheTensors {
    /// One tensor `[blocks * BLOCK, 2, kv_heads, D]` per layer: a token's key, then its value.
    layers: Vec<Tensor>,
    /// Number of blocks that the tensors have when their memory is taken.
    blocks: usize,
    /// `None` if all steps take the plain way.
    graphs: Option<DecodeGraphs>,
}

impl KvCacheTensors {
    /// Replaces the tensors by new ones of a number of blocks.
    fn resize(&mut self, blocks: usize) -> Result<(), TchError> {
        // They own the tensors too.
        self.graphs.iter_mut().for_each(DecodeGraphs::clear);
        for layer in &mut self.layers {
            let size = layer.size();
            let rows = (blocks * BLOCK) as i64;
            let size: Vec<i64> = [rows].into_iter().chain(size.into_iter().skip(1)).collect();
            let options = (layer.kind(), layer.device());
            // The old tensor goes first: both may not fit.
            *layer = Tensor::f_zeros([0], options)?;
            *layer = Tensor::f_zeros(size, options)?;
        }
        Ok(())
    }
}

impl Executor for Libtorch {
    type Weights = LoadedModel;
    type Adapter = LoadedAdapter;
    type Cache = KvCacheTensors;
    /// `[rows, V]`, f32.
    type Logits = StepTensors;
    type Tokens = StepTokens;

    fn load_weights(
        &self,
        base: &BaseModel,
        positions: usize,
        share: bool,
    ) -> Result<LoadedModel, ExecutorError> {
        let config = base.config.clone();
        let rope = Rope::new(&config, positions, self.device);
        if self.device != Device::Cpu && base.weights.is_packed() {
            return Err(ExecutorError::Packed);
        }
        let weights = base.weights.to_device(self.device);
        let number = self.loaded.get() + 1;
        self.loaded.set(number);
        let weights = if share { weights } else { weights.copy() };
        Ok(LoadedModel(Rc::new(ModelTensors { config, weights, rope, number })))
    }

    fn load_adapter(&self, _: &Config, adapter: &Adapter) -> Result<LoadedAdapter, ExecutorError> {
        let factors = adapter.copy().to_device(self.device);
        Ok(LoadedAdapter { finite: factors.is_finite()?, factors: Rc::new(factors) })
    }

    fn prefill_budget(&self) -> usize {
        if self.device.is_cuda() { 2048 } else { 256 }
    }

    fn block_bytes(&self, base: &BaseModel) -> usize {
        let config = &base.config;
        let token = 2 * config.layers * (config.kv_heads * config.head_dim) as usize;
        token * BLOCK * base.weights.embed.kind().elt_size_in_bytes()
    }

    fn new_cache(&self, base: &BaseModel, blocks: usize) -> Result<KvCacheTensors, ExecutorError> {
        let config = &base.config;
        let kind = base.weights.embed.kind();
        // Recorded steps have the numbers of slots in 32 bits.
        let recorder = self.recorder.clone().filter(|recorder| {
            (blocks + 1) * BLOCK <= i32::MAX as usize && recorder.supports(self.device, kind, config.head_dim)
        });
        let graphs =
            recorder.map(|recorder| DecodeGraphs::new(recorder, blocks as u32, Arc::clone(&self.counters)));
        // One block more for the unused rows of recorded steps.
        let blocks = blocks + usize::from(graphs.is_some());
        let size = [(blocks * BLOCK) as i64, 2, config.kv_heads, config.head_dim];
        let layers = (0..config.layers)
            .map(|_| Tensor::f_zeros(size, (kind, self.device)))
            .collect::<Result<_, _>>()
            .map_err(|source| ExecutorError::CacheAllocation { blocks, source })?;
        Ok(KvCacheTensors { layers, blocks, graphs })
    }

    fn release_cache(&self, cache: &mut KvCacheTensors) {
        if let Err(error) = cache.resize(0) {
            tracing::warn!(%error, "the memory of a KV cache was not freed");
        }
    }

    fn restore_cache(&self, cache: &mut KvCacheTensors) -> Result<(), ExecutorError> {
        let blocks = cache.blocks;
        if cache.layers.iter().all(|layer| layer.size().first() == Some(&((blocks * BLOCK) as i64))) {
            return Ok(());
        }
        cache.resize(blocks).map_err(|source| ExecutorError::CacheAllocation { blocks, source })
    }

    fn copy_block(&self, cache: &mut KvCacheTensors, from: u32, to: u32) -> Result<(), ExecutorError> {
        let block =
            |layer: &Tensor, block: u32| layer.f_narrow(0, i64::from(block) * BLOCK as i64, BLOCK as i64);
        cache
            .layers
            .iter()
            .try_for_each(|layer| block(layer, to)?.f_copy_(&block(layer, from)?))
            .map_err(ExecutorError::Torch)
    }

    fn step(
        &self,
        loaded: &LoadedModel,
        cache: &mut KvCacheTensors,
        batch: &TokenBatch<'_, LoadedAdapter>,
    ) -> Result<StepTensors, ExecutorError> {
        let model = &loaded.0;
        let KvCacheTensors { layers, graphs, .. } = cache;
        let hidden = match graphs {
            Some(graphs) => graphs.step(model, layers, batch)?,
            None => None,
        };
        let hidden = match hidden {
            Some(hidden) => hidden,
            None => {
                let slots = match graphs {
                    Some(graphs) => graphs.slots(model, batch)?,
                    None => None,
                };
                PlainStep::new(model, batch, slots, self.device)?.run(layers)?
            }
        };
        let rows: Vec<i64> = batch.logit_rows().into_iter().map(|row| row as i64).collect();
        let all = rows.iter().copied().eq(0..hidden.size()[0]);
        let hidden = match all {
            true => hidden,
            false => hidden.f_index_select(0, &upload(&Tensor::f_from_slice(&rows)?, self.device)?)?,
        };
        Ok(StepTensors { logits: model.weights.unembed().logits(&hidden)?, hidden })
    }

    fn next_tokens(&self, tokens: &StepTokens, rows: &[usize]) -> Result<Option<Tensor>, ExecutorError> {
        let StepTokens::Sampled { tokens, .. } = tokens else { return Ok(None) };
        if !self.ahead {
            return Ok(None);
        }
        if rows.iter().copied().eq(0..tokens.numel()) {
            return Ok(Some(tokens.shallow_clone()));
        }
        let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let rows = upload(&Tensor::f_from_slice(&rows)?, self.device)?;
        Ok(Some(tokens.f_index_select(0, &rows)?))
    }

    fn sample(&self, step: StepTensors, requests: &[SampleRequest<'_>]) -> Result<StepTokens, ExecutorError> {
        Ok(sampling::sample(&step, requests)?)
    }

    fn read(&self, tokens: StepTokens) -> Result<Vec<Option<SampledToken>>, ExecutorError> {
        Ok(sampling::read(tokens)?)
    }
}

/// Results of a step, until the next one: logits `[rows, vocab]` and the hidden states `[rows, hidden]` that they come from.
pub(crate) struct StepTensors {
    logits: Tensor,
    hidden: Tensor,
}
