//! Models on this program's CPU kernels.
//!
//! Computes the same function as the transformer on libtorch, with weights packed so that a step reads them
//! once, and adapters added as further terms of each product. Each row's result is independent of the other
//! rows: the composition of a batch, the split of a prompt into steps and the sharing of blocks change no bit
//! of it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use pl_kernels::cpu::{
    Attention, BLOCK, Cpu, Epilogue, Heads, KvCache, Matrix, Product, Query, RmsNorm, Rotation, Term,
    WeightFormat,
};
use pl_model::{Adapter, Config, Projection, Rope, WeightMatrix, Weights};
use pl_types::Dtype;
use tch::{Device, Kind, TchError, Tensor};

use crate::config::BaseModel;
use crate::executor::{Executor, ExecutorError, TokenBatch};
use crate::sampler::{SampleBuffers, SampleRequest, SampledToken, sample_token};

/// Executor on the CPU.
pub(crate) struct Native {
    cpu: Cpu,
    /// Memory of the logits of the last pass. Taken anew from the system, it would be cleared page by page.
    logits: Cell<Vec<f32>>,
}

/// Largest number of logits whose memory is kept (64 MiB): a pass that scores a prompt has more than one that samples.
const KEPT_LOGITS: usize = 16 << 20;

impl Native {
    pub(crate) fn new(threads: usize) -> Result<Self, ExecutorError> {
        Ok(Self { cpu: Cpu::new(threads).map_err(ExecutorError::Threads)?, logits: Cell::default() })
    }
}

/// Weights of a base model, packed in panels.
pub(crate) struct PackedWeights {
    heads: Heads,
    hidden: usize,
    ffn: usize,
    eps: f32,
    cos: Vec<f32>,
    sin: Vec<f32>,
    embed: Arc<Matrix>,
    layers: Vec<PackedLayer>,
    norm: Vec<f32>,
    /// `None` if the embedding is also the output matrix.
    head: Option<Arc<Matrix>>,
}

struct PackedLayer {
    attention_norm: Vec<f32>,
    q: Linear,
    k: Linear,
    v: Linear,
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
    o: Linear,
    ffn_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
}

struct Linear {
    matrix: Arc<Matrix>,
    bias: Option<Vec<f32>>,
}

/// An adapter, packed in panels. The A factors of projections that read the same input form one matrix.
pub(crate) struct PackedAdapter {
    /// Entries per layer and element of [`INPUTS`].
    layers: Vec<[Option<Factors>; 4]>,
}

/// Projections, grouped by their input.
const INPUTS: [&[Projection]; 4] = [
    &[Projection::Q, Projection::K, Projection::V],
    &[Projection::O],
    &[Projection::Gate, Projection::Up],
    &[Projection::Down],
];

struct Factors {
    /// `[sum of ranks, in]`.
    a: Matrix,
    /// Factors of each projection: offset of its part of the inner product, and its B factor `[out, rank]`, scaled by
    /// alpha / rank.
    b: Vec<(Projection, usize, Matrix)>,
}

/// Logits `[rows, vocab]` and the hidden states `[rows, hidden]` that they come from.
pub(crate) struct Logits {
    values: Vec<f32>,
    vocab: usize,
    states: Vec<f32>,
    hidden: usize,
}

impl Executor for Native {
    type Weights = PackedWeights;
    type Adapter = PackedAdapter;
    type Cache = KvCache;
    type Logits = Logits;
    type Tokens = Vec<Option<SampledToken>>;

    fn load_weights(
        &self,
        base: &BaseModel,
        positions: usize,
        _: bool,
    ) -> Result<PackedWeights, ExecutorError> {
        let config = &base.config;
        let format = match base.dtype {
            Dtype::F32 => WeightFormat::F32,
            Dtype::F16 => WeightFormat::F16,
            Dtype::Bf16 => WeightFormat::Bf16,
        };
        // Packed weights are shared with training.
        let pack = |matrix: &WeightMatrix| match matrix {
            WeightMatrix::Tensor(tensor) => pack(&self.cpu, tensor, 1.0, format).map(Arc::new),
            WeightMatrix::Packed(matrix) => Ok(Arc::clone(matrix)),
        };
        let (cos, sin) = {
            let rope = Rope::new(config, positions, Device::Cpu);
            let (cos, sin) = rope.tables();
            (values(cos)?, values(sin)?)
        };
        let weights: &Weights = &base.weights;
        let layers = weights
            .layers
            .iter()
            .map(|layer| {
                let optional = |tensor: &Option<Tensor>| tensor.as_ref().map(values).transpose();
                let linear = |projection: Projection| {
                    let bias = layer.bias(projection).map(values).transpose()?;
                    Ok::<_, ExecutorError>(Linear { matrix: pack(layer.projection(projection))?, bias })
                };
                Ok(PackedLayer {
                    attention_norm: values(&layer.attention_norm)?,
                    q: linear(Projection::Q)?,
                    k: linear(Projection::K)?,
                    v: linear(Projection::V)?,
                    q_norm: optional(&layer.q_norm)?,
                    k_norm: optional(&layer.k_norm)?,
                    o: linear(Projection::O)?,
                    ffn_norm: values(&layer.ffn_norm)?,
                    gate: linear(Projection::Gate)?,
                    up: linear(Projection::Up)?,
                    down: linear(Projection::Down)?,
                })
            })
            .collect::<Result<_, ExecutorError>>()?;
        Ok(PackedWeights {
            heads: heads(config),
            hidden: config.hidden as usize,
            ffn: config.ffn as usize,
            eps: config.rms_eps as f32,
            cos,
            sin,
            embed: pack(&weights.embed)?,
            layers,
            norm: values(&weights.norm)?,
            head: weights.head.as_ref().map(pack).transpose()?,
        })
    }

    fn load_adapter(&self, config: &Config, adapter: &Adapter) -> Result<PackedAdapter, ExecutorError> {
        let factors = |layer: usize, inputs: &[Projection]| {
            let parts: Vec<_> = inputs.iter().filter_map(|p| Some((*p, adapter.part(layer, *p)?))).collect();
            if parts.is_empty() {
                return Ok(None);
            }
            let a: Vec<&Tensor> = parts.iter().map(|(_, part)| &part.a).collect();
            let a = Tensor::f_cat(&a, 0)?;
            let b = parts.iter().enumerate().map(|(i, (projection, part))| {
                let matrix = pack(&self.cpu, &part.b, adapter.scale() as f32, WeightFormat::F32)?;
                Ok((*projection, i * adapter.rank, matrix))
            });
            let b = b.collect::<Result<_, ExecutorError>>()?;
            Ok::<_, ExecutorError>(Some(Factors { a: pack(&self.cpu, &a, 1.0, WeightFormat::F32)?, b }))
        };
        let layers = (0..config.layers)
            .map(|layer| {
                let [qkv, o, ffn, down] = INPUTS.map(|inputs| factors(layer, inputs));
                Ok([qkv?, o?, ffn?, down?])
            })
            .collect::<Result<_, ExecutorError>>()?;
        Ok(PackedAdapter { layers })
    }

    fn block_bytes(&self, base: &BaseModel) -> usize {
        KvCache::new(heads(&base.config), base.config.layers).block_bytes()
    }

    fn new_cache(&self, base: &BaseModel, _: usize) -> Result<KvCache, ExecutorError> {
        Ok(KvCache::new(heads(&base.config), base.config.layers))
    }

    fn release_cache(&self, cache: &mut KvCache) {
        cache.clear();
        self.logits.take();
    }

    fn restore_cache(&self, _cache: &mut KvCache) -> Result<(), ExecutorError> {
        // Memory is taken block by block, as it is needed.
        Ok(())
    }

    fn copy_block(&self, cache: &mut KvCache, from: u32, to: u32) -> Result<(), ExecutorError> {
        cache.copy(from, to);
        Ok(())
    }

    fn step(
        &self,
        weights: &PackedWeights,
        cache: &mut KvCache,
        batch: &TokenBatch<'_, PackedAdapter>,
    ) -> Result<Logits, ExecutorError> {
        Ok(Pass::new(&self.cpu, weights, batch).run(cache, self.logits.take()))
    }

    fn sample(&self, logits: Logits, requests: &[SampleRequest<'_>]) -> Result<Self::Tokens, ExecutorError> {
        let Logits { values, vocab, states, hidden } = logits;
        let sampled: Vec<OnceLock<Option<SampledToken>>> = requests.iter().map(|_| OnceLock::new()).collect();
        let level = self.cpu.level();
        self.cpu.parallel_for(requests.len(), |i| {
            thread_local! {
                static BUFFERS: RefCell<SampleBuffers> = RefCell::default();
            }
            let request = &requests[i];
            let state = &states[request.row * hidden..][..hidden];
            let value = request.value_head.map(|head| head.value(state));
            let logits = &values[request.row * vocab..][..vocab];
            let token = BUFFERS.with_borrow_mut(|buffers| sample_token(level, logits, buffers, request));
            let _ = sampled[i].set(token.map(|token| SampledToken { value, ..token }));
        });
        if values.capacity() <= KEPT_LOGITS {
            self.logits.set(values);
        }
        Ok(sampled.into_iter().map(|cell| cell.into_inner().flatten()).collect())
    }

    fn read(&self, tokens: Self::Tokens) -> Result<Vec<Option<SampledToken>>, ExecutorError> {
        Ok(tokens)
    }
}

fn heads(config: &Config) -> Heads {
    Heads { heads: config.heads as usize, kv_heads: config.kv_heads as usize, dim: config.head_dim as usize }
}

/// Values of a tensor as f32, in row-major order.
fn values(tensor: &Tensor) -> Result<Vec<f32>, TchError> {
    let tensor = tensor.detach().f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_contiguous()?;
    let mut values = vec![0f32; tensor.numel()];
    let count = values.len();
    tensor.f_copy_data(&mut values, count)?;
    Ok(values)
}

/// Packs a matrix `[out, in]` multiplied by `scale`.
fn pack(cpu: &Cpu, tensor: &Tensor, scale: f32, format: WeightFormat) -> Result<Matrix, ExecutorError> {
    let [outputs, inputs] = tensor.size()[..] else {
        return Err(ExecutorError::NotMatrix { shape: tensor.size() });
    };
    let mut values = values(tensor)?;
    if scale != 1.0 {
        values.iter_mut().for_each(|x| *x *= scale);
    }
    Ok(Matrix::pack(cpu, &values, outputs as usize, inputs as usize, format))
}

/// One pass of a batch through the model.
struct Pass<'a> {
    cpu: &'a Cpu,
    weights: &'a PackedWeights,
    rows: usize,
    /// Adapters, each with its range of rows.
    adapter_runs: Vec<(Range<usize>, &'a PackedAdapter)>,
    /// Cache block and position of every row.
    positions: Vec<(u32, usize)>,
    queries: Vec<Query<'a>>,
    /// Rows whose logits are needed.
    logit_rows: Vec<usize>,
    /// Residual stream `[rows, hidden]`.
    x: Vec<f32>,
    /// Products with the adapters' A factors, `[rows, inner_width]`.
    inner: Vec<f32>,
    inner_width: usize,
}

impl<'a> Pass<'a> {
    fn new(cpu: &'a Cpu, weights: &'a PackedWeights, batch: &TokenBatch<'a, PackedAdapter>) -> Self {
        let rows = batch.rows();
        let mut x = vec![0f32; rows * weights.hidden];
        let mut positions = Vec::with_capacity(rows);
        let mut queries = Vec::with_capacity(rows);
        let tokens = batch.segments.iter().flat_map(|segment| segment.tokens);
        for (token, x) in tokens.zip(x.chunks_exact_mut(weights.hidden)) {
            weights.embed.row(*token as usize, x);
        }
        for segment in &batch.segments {
            for position in segment.position..segment.position + segment.tokens.len() {
                positions.push((segment.blocks[position / BLOCK], position));
                queries.push(Query { blocks: segment.blocks, length: position + 1 });
            }
        }
        let adapter_runs = batch.adapter_runs();
        let widths = adapter_runs
            .iter()
            .flat_map(|(_, adapter)| adapter.layers.iter().flatten().flatten())
            .map(|factors| factors.a.outputs());
        let inner_width = widths.max().unwrap_or(0);
        Self {
            cpu,
            weights,
            rows,
            adapter_runs,
            positions,
            queries,
            logit_rows: batch.logit_rows(),
            x,
            inner: vec![0f32; rows * inner_width],
            inner_width,
        }
    }

    /// Runs all layers. Returns the logits of the requested rows, in `memory`.
    fn run(mut self, cache: &mut KvCache, memory: Vec<f32>) -> Logits {
        let weights = self.weights;
        let (hidden, width) = (weights.hidden, weights.heads.heads * weights.heads.dim);
        let mut normed = vec![0f32; self.rows * hidden];
        let mut qkv = vec![0f32; self.rows * weights.heads.stride()];
        let mut mixed = vec![0f32; self.rows * width];
        let mut gated = vec![0f32; self.rows * weights.ffn];
        for (index, layer) in weights.layers.iter().enumerate() {
            self.cpu.rms_norm(self.norm(&layer.attention_norm), &self.x, &mut normed);
            self.attend(index, layer, &normed, &mut qkv, &mut mixed, cache);
            self.add(index, 1, &layer.o, &mixed);
            self.cpu.rms_norm(self.norm(&layer.ffn_norm), &self.x, &mut normed);
            self.gate(index, layer, &normed, &mut gated);
            self.add(index, 3, &layer.down, &gated);
        }
        self.logits(memory)
    }

    /// Computes projections, rotary embedding and attention of one layer into `mixed`.
    fn attend(
        &mut self,
        index: usize,
        layer: &PackedLayer,
        normed: &[f32],
        qkv: &mut [f32],
        mixed: &mut [f32],
        cache: &mut KvCache,
    ) {
        let heads = self.weights.heads;
        let stride = heads.stride();
        self.inner_products(index, 0, normed);
        let parts = [
            (Projection::Q, &layer.q, 0),
            (Projection::K, &layer.k, heads.heads * heads.dim),
            (Projection::V, &layer.v, (heads.heads + heads.kv_heads) * heads.dim),
        ];
        let terms = parts.map(|(projection, linear, _)| self.terms(index, 0, projection, linear, normed));
        let products: Vec<Product<'_>> = parts
            .iter()
            .zip(&terms)
            .map(|((_, linear, offset), terms)| Product {
                rows: 0..self.rows,
                terms,
                epilogue: linear.bias.as_deref().map_or(Epilogue::Store, Epilogue::Bias),
                offset: *offset,
            })
            .collect();
        self.cpu.products(&products, qkv, stride);
        let rotation = Rotation {
            cos: &self.weights.cos,
            sin: &self.weights.sin,
            q_norm: layer.q_norm.as_deref().map(|weight| self.norm(weight)),
            k_norm: layer.k_norm.as_deref().map(|weight| self.norm(weight)),
        };
        self.cpu.rotate(rotation, heads, qkv, &self.positions, index, cache);
        let attention = Attention { cache, layer: index, q: qkv, stride, queries: &self.queries };
        self.cpu.attend(&attention, mixed);
    }

    fn norm<'b>(&self, weight: &'b [f32]) -> RmsNorm<'b> {
        RmsNorm { weight, eps: self.weights.eps }
    }

    /// Computes the gate and up projections of the feed-forward layer into `gated`.
    fn gate(&mut self, index: usize, layer: &PackedLayer, normed: &[f32], gated: &mut [f32]) {
        self.inner_products(index, 2, normed);
        let terms = self.terms(index, 2, Projection::Gate, &layer.gate, normed);
        let up = self.terms(index, 2, Projection::Up, &layer.up, normed);
        let product = Product { rows: 0..self.rows, terms: &terms, epilogue: Epilogue::Gate(&up), offset: 0 };
        self.cpu.products(&[product], gated, self.weights.ffn);
    }

    /// Adds a projection (the only one of its group in [`INPUTS`]) to the residual stream.
    fn add(&mut self, index: usize, input: usize, linear: &Linear, from: &[f32]) {
        self.inner_products(index, input, from);
        let mut x = std::mem::take(&mut self.x);
        let terms = self.terms(index, input, INPUTS[input][0], linear, from);
        let product = Product { rows: 0..self.rows, terms: &terms, epilogue: Epilogue::Add, offset: 0 };
        self.cpu.products(&[product], &mut x, self.weights.hidden);
        self.x = x;
    }

    /// Multiplies `x` by the A factors of all adapters that target a projection of this input.
    fn inner_products(&mut self, index: usize, input: usize, x: &[f32]) {
        if self.inner_width == 0 {
            return;
        }
        let mut inner = std::mem::take(&mut self.inner);
        let terms: Vec<[Term<'_>; 1]> = self
            .adapter_runs
            .iter()
            .filter_map(|(rows, adapter)| {
                let matrix = &adapter.layers[index][input].as_ref()?.a;
                Some([Term { rows: rows.clone(), x, stride: matrix.inputs(), offset: 0, matrix }])
            })
            .collect();
        let products: Vec<Product<'_>> = terms
            .iter()
            .map(|terms| Product { rows: terms[0].rows.clone(), terms, epilogue: Epilogue::Store, offset: 0 })
            .collect();
        self.cpu.products(&products, &mut inner, self.inner_width);
        self.inner = inner;
    }

    /// Terms of a projection: the base's weights on all rows, and each adapter's B factor on its rows.
    fn terms<'b>(
        &'b self,
        index: usize,
        input: usize,
        projection: Projection,
        linear: &'b Linear,
        x: &'b [f32],
    ) -> Vec<Term<'b>> {
        let matrix = &*linear.matrix;
        let base = Term { rows: 0..self.rows, x, stride: matrix.inputs(), offset: 0, matrix };
        let adapters = self.adapter_runs.iter().filter_map(|(rows, adapter)| {
            let factors = adapter.layers[index][input].as_ref()?;
            let (_, offset, matrix) = factors.b.iter().find(|(own, _, _)| *own == projection)?;
            Some(Term {
                rows: rows.clone(),
                x: &self.inner,
                stride: self.inner_width,
                offset: *offset,
                matrix,
            })
        });
        std::iter::once(base).chain(adapters).collect()
    }

    fn logits(self, mut logits: Vec<f32>) -> Logits {
        let Self { cpu, weights, logit_rows, x, .. } = self;
        let hidden = weights.hidden;
        let mut last = Vec::with_capacity(logit_rows.len() * hidden);
        logit_rows.iter().for_each(|row| last.extend_from_slice(&x[row * hidden..][..hidden]));
        let mut normed = vec![0f32; last.len()];
        cpu.rms_norm(RmsNorm { weight: &weights.norm, eps: weights.eps }, &last, &mut normed);
        let matrix = &**weights.head.as_ref().unwrap_or(&weights.embed);
        let rows = 0..logit_rows.len();
        logits.resize(logit_rows.len() * matrix.outputs(), 0.0);
        let term = Term { rows: rows.clone(), x: &normed, stride: hidden, offset: 0, matrix };
        let product = Product { rows, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
        cpu.products(&[product], &mut logits, matrix.outputs());
        Logits { values: logits, vocab: matrix.outputs(), states: normed, hidden }
    }
}
