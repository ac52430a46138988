//! Models on libtorch: any device that it supports, mainly CUDA.
//!
//! The transformer is [`pl_model::forward_with_attention`]. Keys and values stay in blocks on the device; sequences that
//! continue by one token attend to them where they are, on GPUs with open kernels ([`PagedAttention`]). Tokens are
//! sampled there too, and only their ids and log-probabilities are copied back, unless a request needs the
//! whole row of logits (truncation, penalties, the likeliest tokens).

use std::ops::Range;

use pl_kernels::cpu::{BLOCK, SimdLevel};
use pl_kernels::cuda;
use pl_kernels::cuda::paged::{GatheredSequences, PagedAttention, PagedSequences};
use pl_model::{
    Adapter, AdapterRows, AdapterRun, Config, Rope, TensorSet, Weights, forward_with_attention, logits,
};
use tch::{Device, IndexOp, Kind, TchError, Tensor};

use crate::config::BaseModel;
use crate::executor::{Executor, ExecutorError, TokenBatch};
use crate::logits::LogitProcessing;
use crate::sampler::{SampleRequest, SampledToken, TokenChoice, sample_token};

/// Executor on one device of libtorch.
pub(crate) struct Libtorch {
    device: Device,
}

impl Libtorch {
    pub(crate) fn new(device: Device) -> Self {
        Self { device }
    }
}

pub(crate) struct LoadedModel {
    config: Config,
    weights: Weights,
    rope: Rope,
}

/// An adapter on the device.
pub(crate) struct LoadedAdapter {
    factors: Adapter,
    /// Result of [`Adapter::is_finite`].
    finite: bool,
}

/// KV cache of one base model.
pub(crate) struct KvCacheTensors {
    /// One tensor `[blocks * BLOCK, 2, kv_heads, D]` per layer: a token's key, then its value.
    layers: Vec<Tensor>,
    /// Number of blocks that the tensors have when their memory is taken.
    blocks: usize,
}

impl KvCacheTensors {
    /// Replaces the tensors by new ones of a number of blocks.
    fn resize(&mut self, blocks: usize) -> Result<(), TchError> {
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

    fn load_weights(
        &self,
        base: &BaseModel,
        positions: usize,
        share: bool,
    ) -> Result<LoadedModel, ExecutorError> {
        let config = base.config.clone();
        let rope = Rope::new(&config, positions, self.device);
        let weights = base.weights.to_device(self.device);
        Ok(LoadedModel { weights: if share { weights } else { weights.copy() }, config, rope })
    }

    fn load_adapter(&self, _: &Config, adapter: &Adapter) -> Result<LoadedAdapter, ExecutorError> {
        let factors = adapter.copy().to_device(self.device);
        Ok(LoadedAdapter { finite: factors.is_finite()?, factors })
    }

    fn block_bytes(&self, base: &BaseModel) -> usize {
        let config = &base.config;
        let token = 2 * config.layers * (config.kv_heads * config.head_dim) as usize;
        token * BLOCK * base.weights.embed.kind().elt_size_in_bytes()
    }

    fn new_cache(&self, base: &BaseModel, blocks: usize) -> Result<KvCacheTensors, ExecutorError> {
        let config = &base.config;
        let size = [(blocks * BLOCK) as i64, 2, config.kv_heads, config.head_dim];
        let kind = base.weights.embed.kind();
        let layers = (0..config.layers)
            .map(|_| Tensor::f_zeros(size, (kind, self.device)))
            .collect::<Result<_, _>>()
            .map_err(|source| ExecutorError::CacheAllocation { blocks, source })?;
        Ok(KvCacheTensors { layers, blocks })
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
        Ok(BatchTensors::new(loaded, batch, self.device)?.run(cache)?)
    }

    fn sample(
        &self,
        step: StepTensors,
        requests: &[SampleRequest<'_>],
    ) -> Result<Vec<Option<SampledToken>>, ExecutorError> {
        let plain = |request: &SampleRequest<'_>| {
            !request.sampling.edits_logits()
                && !request.sampling.truncates()
                && request.mask.is_none()
                && request.top == 0
        };
        let sampled = if requests.iter().all(plain) {
            sample_on_device(&step.logits, requests)
        } else {
            sample_on_cpu(&step.logits, requests)
        }?;
        Ok(with_values(sampled, requests, &step.hidden)?)
    }
}

/// Results of a step: logits `[rows, vocab]` and the hidden states `[rows, hidden]` that they come from.
pub(crate) struct StepTensors {
    logits: Tensor,
    hidden: Tensor,
}

/// Tensors of one batch.
struct BatchTensors<'a> {
    loaded: &'a LoadedModel,
    device: Device,
    tokens: Tensor,
    positions: Tensor,
    /// Cache slot of each row's key and value.
    slots: Tensor,
    /// The adapters, each with its range of rows.
    adapter_runs: Vec<(Range<usize>, &'a LoadedAdapter)>,
    /// Segments of one row, whose attention is one operation.
    single_rows: Option<SingleRows>,
    /// Segments of several rows.
    segments: Vec<LongSegment>,
    /// Rows whose logits are needed.
    logit_rows: Tensor,
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

enum SingleRowAttention {
    Paged {
        kernels: PagedAttention,
        /// Blocks of each sequence, `[n, blocks]`.
        tables: Tensor,
        /// Number of tokens of each sequence, `[n]`.
        lengths: Tensor,
        longest: usize,
    },
    /// On devices without open kernels, and for number formats that these don't support.
    Gathered(GatheredSequences),
}

/// A segment of several rows of one sequence.
struct LongSegment {
    rows: Range<i64>,
    /// Cache slots of all tokens of the sequence so far.
    context: Tensor,
    /// `[rows, context]`: true where a row attends to a token.
    mask: Tensor,
}

impl<'a> BatchTensors<'a> {
    fn new(
        loaded: &'a LoadedModel,
        batch: &TokenBatch<'a, LoadedAdapter>,
        device: Device,
    ) -> Result<Self, TchError> {
        let to_device = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        let (mut tokens, mut positions, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut single: Vec<SingleRow<'_>> = Vec::new();
        let mut segments = Vec::new();
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
                let context: Vec<i64> = (0..end).map(slot).collect();
                let mask = Tensor::f_ones([count as i64, end as i64], (Kind::Bool, device))?
                    .f_tril(segment.position as i64)?;
                segments.push(LongSegment {
                    rows: first..first + count as i64,
                    context: to_device(&context)?,
                    mask,
                });
            }
        }
        let all = segments.is_empty();
        let single_rows =
            if single.is_empty() { None } else { Some(SingleRows::new(&single, all, loaded, device)?) };
        let logit_rows: Vec<i64> = batch.logit_rows().into_iter().map(|row| row as i64).collect();
        Ok(Self {
            loaded,
            device,
            tokens: to_device(&tokens)?,
            positions: to_device(&positions)?,
            slots: to_device(&slots)?,
            adapter_runs: batch.adapter_runs(),
            single_rows,
            segments,
            logit_rows: to_device(&logit_rows)?,
        })
    }

    /// Runs the model. Returns the logits of the requested rows.
    fn run(&self, cache: &mut KvCacheTensors) -> Result<StepTensors, TchError> {
        let LoadedModel { config, weights, rope } = self.loaded;
        let rope = rope.select(&self.positions);
        let run = |(rows, own): &(Range<usize>, &'a LoadedAdapter)| AdapterRun {
            rows: rows.clone(),
            adapter: &own.factors,
            finite: own.finite,
        };
        let adapters = AdapterRows::new(self.adapter_runs.iter().map(run).collect())?;
        let attend = |layer: usize, q: &Tensor, k: &Tensor, v: &Tensor| {
            self.attend(&mut cache.layers[layer], config, q, k, &v.f_view_as(k)?)
        };
        let hidden = forward_with_attention(config, weights, adapters, &self.tokens, rope, attend)?;
        let hidden = hidden.f_index_select(0, &self.logit_rows)?;
        let logits = logits(&hidden, weights.unembed())?;
        Ok(StepTensors { logits, hidden })
    }

    fn attend(
        &self,
        layer_cache: &mut Tensor,
        config: &Config,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<Tensor, TchError> {
        let _ = layer_cache.f_index_copy_(0, &self.slots, &Tensor::f_stack(&[k, v], 1)?)?;
        if let Some(single @ SingleRows { rows: None, .. }) = &self.single_rows {
            return single.attend(q, layer_cache)?.f_flatten(1, 2);
        }
        let out = Tensor::f_empty([self.tokens.size()[0], config.q_width()], (q.kind(), self.device))?;
        let group = config.heads / config.kv_heads;
        if let Some(single @ SingleRows { rows: Some(rows), .. }) = &self.single_rows {
            let mixed = single.attend(q, layer_cache)?.f_flatten(1, 2)?;
            let _ = out.shallow_clone().f_index_copy_(0, rows, &mixed)?;
        }
        for segment in &self.segments {
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

impl SingleRows {
    /// Prepares rows with the blocks and the number of tokens of their sequences. `all` is true if the batch has no others.
    fn new(rows: &[SingleRow<'_>], all: bool, model: &LoadedModel, device: Device) -> Result<Self, TchError> {
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
        let (tables, lengths) =
            (tables.f_to_device(device)?, Tensor::f_from_slice(&lengths)?.f_to_device(device)?);
        let kind = model.weights.embed.kind();
        let kernels = cuda::opened(device).filter(|_| PagedAttention::supports(kind, model.config.head_dim));
        let attention = match kernels {
            Some(kernels) => {
                SingleRowAttention::Paged { kernels: PagedAttention::new(kernels), tables, lengths, longest }
            }
            None => {
                let sequences = PagedSequences { tables: &tables, lengths: &lengths, longest };
                SingleRowAttention::Gathered(GatheredSequences::new(&sequences, kind)?)
            }
        };
        let rows: Vec<i64> = rows.iter().map(|row| row.row).collect();
        let rows = if all { None } else { Some(Tensor::f_from_slice(&rows)?.f_to_device(device)?) };
        Ok(Self { rows, attention })
    }

    /// Computes the attention `[n, heads, D]` of the rows of `q`, `[T, heads, D]`.
    fn attend(&self, q: &Tensor, cache: &Tensor) -> Result<Tensor, TchError> {
        let q = match &self.rows {
            Some(rows) => q.f_index_select(0, rows)?,
            None => q.f_contiguous()?,
        };
        let mixed = match &self.attention {
            SingleRowAttention::Paged { kernels, tables, lengths, longest } => {
                kernels.attend(&q, cache, &PagedSequences { tables, lengths, longest: *longest })
            }
            SingleRowAttention::Gathered(sequences) => sequences.attend(&q, cache),
        };
        Ok(mixed?)
    }
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor) -> Result<Tensor, TchError> {
    Tensor::f_scaled_dot_product_attention(q, k, v, Some(mask), 0.0, false, None, false)
}

/// Samples on the device of the logits; copies only ids and log-probabilities back.
fn sample_on_device(
    logits: &Tensor,
    requests: &[SampleRequest<'_>],
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let device = logits.device();
    let rows: Vec<i64> = requests.iter().map(|request| request.row as i64).collect();
    let column = |value: &dyn Fn(&SampleRequest<'_>) -> f64| {
        let values: Vec<f64> = requests.iter().map(value).collect();
        Tensor::f_from_slice(&values)?.f_view([-1, 1])?.f_to_device(device)
    };
    let temperature = column(&|request| {
        if request.sampling.temperature > 0.0 { request.sampling.temperature } else { 1.0 }
    })?;
    let quantile =
        column(&|request| if let TokenChoice::Quantile(quantile) = request.choice { quantile } else { 0.0 })?;
    // Negative values stand for tokens that are chosen here.
    let given = column(&|request| match request.choice {
        TokenChoice::Quantile(_) => -1.0,
        TokenChoice::Greedy => -2.0,
        TokenChoice::Given(token) => f64::from(token),
    })?
    .f_to_kind(Kind::Int64)?;
    let logprobs = logits
        .f_index_select(0, &Tensor::f_from_slice(&rows)?.f_to_device(device)?)?
        .f_div(&temperature.f_to_kind(Kind::Float)?)?
        .f_log_softmax(-1, Kind::Float)?;
    let vocab = logprobs.size()[1];
    let sums = logprobs.f_exp()?.f_cumsum(-1, Kind::Double)?;
    let target = quantile.f_mul(&sums.f_narrow(1, vocab - 1, 1)?)?;
    let at = target.f_searchsorted(&sums, false, true, "right", None::<&Tensor>)?.f_clamp_max(vocab - 1)?;
    let likeliest = logprobs.f_argmax(-1, true)?;
    let ids = at.f_where_self(&given.f_eq(-1)?, &likeliest.f_where_self(&given.f_eq(-2)?, &given)?)?;
    let found = logprobs.f_gather(1, &ids, false)?.f_to_kind(Kind::Double)?;
    let both: Vec<f64> = Tensor::f_cat(&[ids.f_to_kind(Kind::Double)?, found], 1)?
        .f_view(-1)?
        .f_to_device(Device::Cpu)?
        .try_into()?;
    Ok(both
        .chunks_exact(2)
        .zip(requests)
        .map(|(pair, request)| {
            let valid =
                pair[1].is_finite() || (matches!(request.choice, TokenChoice::Given(_)) && !pair[1].is_nan());
            valid.then(|| SampledToken {
                token: pair[0] as u32,
                logprob: pair[1] as f32,
                support: None,
                top: Vec::new(),
                value: None,
            })
        })
        .collect())
}

/// Adds the values of the states that tokens were sampled in. Copies these states to the CPU, if a request has a value
/// head.
fn with_values(
    sampled: Vec<Option<SampledToken>>,
    requests: &[SampleRequest<'_>],
    hidden: &Tensor,
) -> Result<Vec<Option<SampledToken>>, TchError> {
    if requests.iter().all(|request| request.value_head.is_none()) {
        return Ok(sampled);
    }
    let width = hidden.size()[1] as usize;
    let mut states = vec![0f32; hidden.numel()];
    let count = states.len();
    let on_cpu = hidden.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_contiguous()?;
    on_cpu.f_copy_data(&mut states, count)?;
    let value = |request: &SampleRequest<'_>| {
        request.value_head.map(|head| head.value(&states[request.row * width..][..width]))
    };
    let tokens = sampled.into_iter().zip(requests);
    Ok(tokens.map(|(token, own)| token.map(|token| SampledToken { value: value(own), ..token })).collect())
}

/// Copies the logits to the CPU and samples there.
fn sample_on_cpu(
    logits: &Tensor,
    requests: &[SampleRequest<'_>],
) -> Result<Vec<Option<SampledToken>>, TchError> {
    let vocab = logits.size()[1] as usize;
    let mut values = vec![0f32; logits.numel()];
    let count = values.len();
    logits.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut values, count)?;
    let (mut own, mut weights) = (Vec::new(), vec![0f32; vocab]);
    Ok(requests
        .iter()
        .map(|request| {
            own.clear();
            own.extend_from_slice(&values[request.row * vocab..][..vocab]);
            sample_token(SimdLevel::detect(), &mut own, &mut weights, request)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pl_types::Sampling;

    #[test]
    fn tokens_sampled_on_the_device_equal_those_of_the_cpu() {
        tch::manual_seed(5);
        let logits = Tensor::randn([3, 1000], (Kind::Float, Device::Cpu)) * 3.0;
        let sampling = [
            Sampling::with_temperature(1.0),
            Sampling::with_temperature(0.6),
            Sampling::with_temperature(0.0),
        ];
        let choices = [
            TokenChoice::Quantile(0.0),
            TokenChoice::Quantile(0.37),
            TokenChoice::Quantile(0.999),
            TokenChoice::Given(17),
            TokenChoice::Greedy,
        ];
        let mut requests = Vec::new();
        for row in 0..3 {
            for choice in choices {
                let sampling = &sampling[if choice == TokenChoice::Greedy { 2 } else { row % 2 }];
                requests.push(SampleRequest {
                    row,
                    sampling,
                    mask: None,
                    prompt: &[],
                    completion: &[],
                    choice,
                    top: 0,
                    value_head: None,
                });
            }
        }
        let device = sample_on_device(&logits, &requests).unwrap();
        let on_cpu = sample_on_cpu(&logits, &requests).unwrap();
        for (device, cpu) in device.into_iter().zip(on_cpu) {
            let (device, cpu) = (device.unwrap(), cpu.unwrap());
            assert_eq!(device.token, cpu.token);
            assert!((device.logprob - cpu.logprob).abs() < 1e-5, "{device:?} {cpu:?}");
        }
    }
}
