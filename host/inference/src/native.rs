//! Models on the processor's own kernels.
//!
//! The same transformer as [`pl_model::transform`], with weights packed for reading once a step and adapters
//! added as further terms of each product. Every row is computed as it would be alone, so that what is in a
//! batch, where a prompt is cut into steps and which blocks are shared changes nothing.

use std::ops::Range;

use pl_kernels::cpu::{
    Attention, BLOCK, Cpu, Epilogue, Format, Heads, KeyValues, Matrix, Product, Query, RmsNorm, Rotation,
    Term,
};
use pl_model::{Adapter, Config, Dtype, Projection, Rope, Weights};
use tch::{Device, Kind, Tensor};

use crate::Base;
use crate::draw::{Draw, Drawn, draw};
use crate::executor::{Batch, Executor};

/// The processor.
pub(crate) struct Native {
    cpu: Cpu,
}

impl Native {
    pub(crate) fn new(threads: usize) -> Result<Self, String> {
        let cpu = Cpu::new(threads).map_err(|e| format!("no threads for it: {e}"))?;
        Ok(Self { cpu })
    }
}

/// A base's weights in panels.
pub(crate) struct PackedWeights {
    heads: Heads,
    hidden: usize,
    ffn: usize,
    eps: f32,
    cos: Vec<f32>,
    sin: Vec<f32>,
    embed: Matrix,
    layers: Vec<PackedLayer>,
    norm: Vec<f32>,
    /// None where the embedding is the output matrix too.
    head: Option<Matrix>,
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
    matrix: Matrix,
    bias: Option<Vec<f32>>,
}

/// An adapter in panels: per layer, the first factors of projections that read the same input are one matrix.
pub(crate) struct PackedAdapter {
    layers: Vec<[Option<Factors>; 4]>,
}

/// Projections by what they read.
const INPUTS: [&[Projection]; 4] = [
    &[Projection::Q, Projection::K, Projection::V],
    &[Projection::O],
    &[Projection::Gate, Projection::Up],
    &[Projection::Down],
];

struct Factors {
    /// `[sum of ranks, in]`.
    a: Matrix,
    /// Per projection: where its part of the inner product begins, and its second factor `[out, rank]`, scaled.
    b: Vec<(Projection, usize, Matrix)>,
}

/// Logits `[rows, vocab]`.
pub(crate) struct Logits {
    values: Vec<f32>,
    vocab: usize,
}

impl Executor for Native {
    type Weights = PackedWeights;
    type Adapter = PackedAdapter;
    type Cache = KeyValues;
    type Logits = Logits;

    fn weights(&self, base: &Base, _: bool) -> Result<PackedWeights, String> {
        let config = &base.config;
        let format = match base.dtype {
            Dtype::F32 => Format::F32,
            Dtype::F16 => Format::F16,
            Dtype::Bf16 => Format::Bf16,
        };
        let pack = |tensor: &Tensor| pack(&self.cpu, tensor, 1.0, format);
        let (cos, sin) = {
            let rope = Rope::new(config, config.max_positions, Device::Cpu);
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
                    Ok::<_, String>(Linear { matrix: pack(layer.projection(projection))?, bias })
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
            .collect::<Result<_, String>>()?;
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

    fn adapter(&self, config: &Config, adapter: &Adapter) -> Result<PackedAdapter, String> {
        let factors = |layer: usize, inputs: &[Projection]| {
            let parts: Vec<_> = inputs.iter().filter_map(|p| Some((*p, adapter.part(layer, *p)?))).collect();
            if parts.is_empty() {
                return Ok(None);
            }
            let a: Vec<&Tensor> = parts.iter().map(|(_, part)| &part.a).collect();
            let a = Tensor::f_cat(&a, 0).map_err(|e| e.to_string())?;
            let b = parts.iter().enumerate().map(|(i, (projection, part))| {
                let matrix = pack(&self.cpu, &part.b, adapter.scale() as f32, Format::F32)?;
                Ok((*projection, i * adapter.rank, matrix))
            });
            let b = b.collect::<Result<_, String>>()?;
            Ok::<_, String>(Some(Factors { a: pack(&self.cpu, &a, 1.0, Format::F32)?, b }))
        };
        let layers = (0..config.layers)
            .map(|layer| {
                let [qkv, o, ffn, down] = INPUTS.map(|inputs| factors(layer, inputs));
                Ok([qkv?, o?, ffn?, down?])
            })
            .collect::<Result<_, String>>()?;
        Ok(PackedAdapter { layers })
    }

    fn block_bytes(&self, base: &Base) -> usize {
        KeyValues::new(heads(&base.config), base.config.layers).block_bytes()
    }

    fn cache(&self, base: &Base, _: usize) -> Result<KeyValues, String> {
        Ok(KeyValues::new(heads(&base.config), base.config.layers))
    }

    fn copy(&self, cache: &mut KeyValues, from: u32, to: u32) -> Result<(), String> {
        cache.copy(from, to);
        Ok(())
    }

    fn step(
        &self,
        weights: &PackedWeights,
        cache: &mut KeyValues,
        batch: &Batch<'_, PackedAdapter>,
    ) -> Result<Logits, String> {
        Ok(Pass::new(&self.cpu, weights, batch).run(cache))
    }

    fn draw(&self, logits: Logits, draws: &[Draw<'_>]) -> Result<Vec<Option<Drawn>>, String> {
        let Logits { values, vocab } = logits;
        let drawn: Vec<std::sync::OnceLock<Option<Drawn>>> =
            draws.iter().map(|_| std::sync::OnceLock::new()).collect();
        let level = self.cpu.level();
        self.cpu.each(draws.len(), |i| {
            thread_local! {
                static ROOM: std::cell::RefCell<(Vec<f32>, Vec<f32>)> = const {
                    std::cell::RefCell::new((Vec::new(), Vec::new()))
                };
            }
            ROOM.with_borrow_mut(|(own, weights)| {
                own.clear();
                own.extend_from_slice(&values[draws[i].row * vocab..][..vocab]);
                weights.resize(vocab, 0.0);
                let _ = drawn[i].set(draw(level, own, weights, &draws[i]));
            });
        });
        Ok(drawn.into_iter().map(|cell| cell.into_inner().flatten()).collect())
    }
}

fn heads(config: &Config) -> Heads {
    Heads { heads: config.heads as usize, kv_heads: config.kv_heads as usize, dim: config.head_dim as usize }
}

/// A tensor's values, row after row.
fn values(tensor: &Tensor) -> Result<Vec<f32>, String> {
    let read = || {
        let tensor = tensor.detach().f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_contiguous()?;
        let mut values = vec![0f32; tensor.numel()];
        let count = values.len();
        tensor.f_copy_data(&mut values, count)?;
        Ok::<_, tch::TchError>(values)
    };
    read().map_err(|e| e.to_string())
}

/// A matrix `[out, in]`, scaled.
fn pack(cpu: &Cpu, tensor: &Tensor, scale: f32, format: Format) -> Result<Matrix, String> {
    let [outputs, inputs] = tensor.size()[..] else {
        return Err(format!("{:?} is no matrix", tensor.size()));
    };
    let mut values = values(tensor)?;
    if scale != 1.0 {
        values.iter_mut().for_each(|x| *x *= scale);
    }
    Ok(Matrix::pack(cpu, &values, outputs as usize, inputs as usize, format))
}

/// One pass of a batch through the blocks.
struct Pass<'a> {
    cpu: &'a Cpu,
    weights: &'a PackedWeights,
    rows: usize,
    runs: Vec<(Range<usize>, &'a PackedAdapter)>,
    /// Block and position of every row.
    places: Vec<(u32, usize)>,
    queries: Vec<Query<'a>>,
    /// Rows whose logits are wanted.
    wanted: Vec<usize>,
    /// Residual stream `[rows, hidden]`.
    x: Vec<f32>,
    /// Inner products of the adapters, `[rows, width]`.
    inner: Vec<f32>,
    inner_width: usize,
}

impl<'a> Pass<'a> {
    fn new(cpu: &'a Cpu, weights: &'a PackedWeights, batch: &Batch<'a, PackedAdapter>) -> Self {
        let rows = batch.rows();
        let mut x = vec![0f32; rows * weights.hidden];
        let mut places = Vec::with_capacity(rows);
        let mut queries = Vec::with_capacity(rows);
        let tokens = batch.segments.iter().flat_map(|segment| segment.tokens);
        for (token, x) in tokens.zip(x.chunks_exact_mut(weights.hidden)) {
            weights.embed.row(*token as usize, x);
        }
        for segment in &batch.segments {
            for position in segment.position..segment.position + segment.tokens.len() {
                places.push((segment.blocks[position / BLOCK], position));
                queries.push(Query { blocks: segment.blocks, length: position + 1 });
            }
        }
        let runs = batch.runs();
        let widths = runs
            .iter()
            .flat_map(|(_, adapter)| adapter.layers.iter().flatten().flatten())
            .map(|factors| factors.a.outputs());
        let inner_width = widths.max().unwrap_or(0);
        Self {
            cpu,
            weights,
            rows,
            runs,
            places,
            queries,
            wanted: batch.wanted(),
            x,
            inner: vec![0f32; rows * inner_width],
            inner_width,
        }
    }

    /// Logits of the rows wanted.
    fn run(mut self, cache: &mut KeyValues) -> Logits {
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
        self.logits()
    }

    fn norm(&self, weight: &'a [f32]) -> RmsNorm<'a> {
        RmsNorm { weight, eps: self.weights.eps }
    }

    /// Projections, rotation and attention of one layer, into `mixed`.
    fn attend(
        &mut self,
        index: usize,
        layer: &PackedLayer,
        normed: &[f32],
        qkv: &mut [f32],
        mixed: &mut [f32],
        cache: &mut KeyValues,
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
            q_norm: layer.q_norm.as_deref().map(|weight| self.norm_of(weight)),
            k_norm: layer.k_norm.as_deref().map(|weight| self.norm_of(weight)),
        };
        self.cpu.rotate(rotation, heads, qkv, &self.places, index, cache);
        let attention = Attention { cache, layer: index, q: qkv, stride, queries: &self.queries };
        self.cpu.attend(&attention, mixed);
    }

    fn norm_of<'b>(&self, weight: &'b [f32]) -> RmsNorm<'b> {
        RmsNorm { weight, eps: self.weights.eps }
    }

    /// Gate and way up of the feed-forward layer, into `gated`.
    fn gate(&mut self, index: usize, layer: &PackedLayer, normed: &[f32], gated: &mut [f32]) {
        self.inner_products(index, 2, normed);
        let terms = self.terms(index, 2, Projection::Gate, &layer.gate, normed);
        let up = self.terms(index, 2, Projection::Up, &layer.up, normed);
        let product = Product { rows: 0..self.rows, terms: &terms, epilogue: Epilogue::Gate(&up), offset: 0 };
        self.cpu.products(&[product], gated, self.weights.ffn);
    }

    /// Adds a projection (the only one of its `input`) to the residual stream.
    fn add(&mut self, index: usize, input: usize, linear: &Linear, from: &[f32]) {
        self.inner_products(index, input, from);
        let mut x = std::mem::take(&mut self.x);
        let terms = self.terms(index, input, INPUTS[input][0], linear, from);
        let product = Product { rows: 0..self.rows, terms: &terms, epilogue: Epilogue::Add, offset: 0 };
        self.cpu.products(&[product], &mut x, self.weights.hidden);
        self.x = x;
    }

    /// First factors of all adapters that have a part on this input.
    fn inner_products(&mut self, index: usize, input: usize, x: &[f32]) {
        if self.inner_width == 0 {
            return;
        }
        let mut inner = std::mem::take(&mut self.inner);
        let terms: Vec<[Term<'_>; 1]> = self
            .runs
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

    /// The base's weights on all rows, and second factors of adapters on theirs.
    fn terms<'b>(
        &'b self,
        index: usize,
        input: usize,
        projection: Projection,
        linear: &'b Linear,
        x: &'b [f32],
    ) -> Vec<Term<'b>> {
        let matrix = &linear.matrix;
        let base = Term { rows: 0..self.rows, x, stride: matrix.inputs(), offset: 0, matrix };
        let adapters = self.runs.iter().filter_map(|(rows, adapter)| {
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

    fn logits(self) -> Logits {
        let Self { cpu, weights, wanted, x, .. } = self;
        let hidden = weights.hidden;
        let mut last = Vec::with_capacity(wanted.len() * hidden);
        wanted.iter().for_each(|row| last.extend_from_slice(&x[row * hidden..][..hidden]));
        let mut normed = vec![0f32; last.len()];
        cpu.rms_norm(RmsNorm { weight: &weights.norm, eps: weights.eps }, &last, &mut normed);
        let matrix = weights.head.as_ref().unwrap_or(&weights.embed);
        let rows = 0..wanted.len();
        let mut logits = vec![0f32; wanted.len() * matrix.outputs()];
        let term = Term { rows: rows.clone(), x: &normed, stride: hidden, offset: 0, matrix };
        let product = Product { rows, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
        cpu.products(&[product], &mut logits, matrix.outputs());
        Logits { values: logits, vocab: matrix.outputs() }
    }
}
