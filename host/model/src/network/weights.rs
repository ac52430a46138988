//! A model's weights, with Hugging Face's names of the tensors.

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::Path;

use pl_types::Dtype;
use tch::{Device, Kind, TchError, Tensor};

use crate::dtype::TorchDtype;
use crate::error::Error;
use crate::network::adapter::Projection;
use crate::network::config::{Config, Family};
use crate::network::tensor_set::TensorSet;
use crate::network::weight_matrix::{WeightMatrix, place_together};

/// One transformer block. Projections are stored `[out, in]`; `H` is the width of the residual stream.
#[derive(Debug)]
pub struct Layer {
    /// Norm before attention, `[H]`.
    pub attention_norm: Tensor,
    /// Query projection.
    pub q: WeightMatrix,
    /// Key projection.
    pub k: WeightMatrix,
    /// Value projection.
    pub v: WeightMatrix,
    /// Bias of the query projection, `[out]` (Qwen2).
    pub q_bias: Option<Tensor>,
    /// Bias of the key projection, `[out]` (Qwen2).
    pub k_bias: Option<Tensor>,
    /// Bias of the value projection, `[out]` (Qwen2).
    pub v_bias: Option<Tensor>,
    /// RMS norm of each query head before rotation, `[head_dim]` (Qwen3).
    pub q_norm: Option<Tensor>,
    /// RMS norm of each key head before rotation, `[head_dim]` (Qwen3).
    pub k_norm: Option<Tensor>,
    /// Output projection of the attention.
    pub o: WeightMatrix,
    /// Norm before the feed-forward layer, `[H]`.
    pub ffn_norm: Tensor,
    /// Gate of the feed-forward layer.
    pub gate: WeightMatrix,
    /// Up projection of the feed-forward layer.
    pub up: WeightMatrix,
    /// Down projection of the feed-forward layer.
    pub down: WeightMatrix,
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    /// Embedding `[V, H]`.
    pub embed: WeightMatrix,
    /// Blocks, first to last.
    pub layers: Vec<Layer>,
    /// Final norm `[H]`.
    pub norm: Tensor,
    /// Output matrix `[V, H]`; `None` if the embedding is the output matrix too.
    pub head: Option<WeightMatrix>,
}

impl Layer {
    /// Returns the matrix of a projection.
    pub fn projection(&self, projection: Projection) -> &WeightMatrix {
        match projection {
            Projection::Q => &self.q,
            Projection::K => &self.k,
            Projection::V => &self.v,
            Projection::O => &self.o,
            Projection::Gate => &self.gate,
            Projection::Up => &self.up,
            Projection::Down => &self.down,
        }
    }

    /// Returns the bias of a projection, if the family has one.
    pub fn bias(&self, projection: Projection) -> Option<&Tensor> {
        match projection {
            Projection::Q => self.q_bias.as_ref(),
            Projection::K => self.k_bias.as_ref(),
            Projection::V => self.v_bias.as_ref(),
            Projection::O | Projection::Gate | Projection::Up | Projection::Down => None,
        }
    }

    /// Returns the parts with their names in the block, in a fixed order.
    fn parts(&self) -> impl Iterator<Item = (&'static str, Part<'_>)> {
        [
            ("input_layernorm.weight", Some(Part::Vector(&self.attention_norm))),
            ("self_attn.q_proj.weight", Some(Part::Matrix(&self.q))),
            ("self_attn.q_proj.bias", self.q_bias.as_ref().map(Part::Vector)),
            ("self_attn.k_proj.weight", Some(Part::Matrix(&self.k))),
            ("self_attn.k_proj.bias", self.k_bias.as_ref().map(Part::Vector)),
            ("self_attn.v_proj.weight", Some(Part::Matrix(&self.v))),
            ("self_attn.v_proj.bias", self.v_bias.as_ref().map(Part::Vector)),
            ("self_attn.q_norm.weight", self.q_norm.as_ref().map(Part::Vector)),
            ("self_attn.k_norm.weight", self.k_norm.as_ref().map(Part::Vector)),
            ("self_attn.o_proj.weight", Some(Part::Matrix(&self.o))),
            ("post_attention_layernorm.weight", Some(Part::Vector(&self.ffn_norm))),
            ("mlp.gate_proj.weight", Some(Part::Matrix(&self.gate))),
            ("mlp.up_proj.weight", Some(Part::Matrix(&self.up))),
            ("mlp.down_proj.weight", Some(Part::Matrix(&self.down))),
        ]
        .into_iter()
        .filter_map(|(name, part)| Some((name, part?)))
    }

    /// Moves the matrices of projections with the same input together, so that generation computes them by one product.
    pub(crate) fn place_together(&mut self) {
        let Self { q, k, v, gate, up, .. } = self;
        place_together([q, k, v]);
        place_together([gate, up]);
    }

    /// Does [`place_together`](Self::place_together) on a GPU, where the number of launches counts.
    fn placed(mut self) -> Self {
        if self.q.device().is_cuda() {
            self.place_together();
        }
        self
    }

    fn matrices_mut(&mut self) -> [&mut WeightMatrix; 7] {
        let Self { q, k, v, o, gate, up, down, .. } = self;
        [q, k, v, o, gate, up, down]
    }
}

/// A norm or bias, or a matrix.
#[derive(Clone, Copy)]
enum Part<'a> {
    Vector(&'a Tensor),
    Matrix(&'a WeightMatrix),
}

impl Part<'_> {
    /// Returns the tensor. Returns `None` if it is packed.
    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Vector(tensor) => Some(tensor),
            Self::Matrix(matrix) => matrix.tensor(),
        }
    }

    fn size(&self) -> Vec<i64> {
        match self {
            Self::Vector(tensor) => tensor.size(),
            Self::Matrix(matrix) => matrix.size(),
        }
    }
}

/// Source of a model's tensors, by Hugging Face's names.
pub(crate) trait WeightSource {
    /// Reads a norm or bias.
    fn vector(&mut self, name: &str) -> Result<Tensor, Error>;
    /// Reads a matrix.
    fn matrix(&mut self, name: &str) -> Result<WeightMatrix, Error>;
}

impl Weights {
    /// Builds the weights from a source, in a fixed order, and checks each shape against `config`. Messages name `path`.
    pub(crate) fn build(config: &Config, path: &Path, mut source: impl WeightSource) -> Result<Self, Error> {
        let check = |name: &str, got: Vec<i64>, shape: &[i64]| {
            if got == shape {
                return Ok(());
            }
            let (path, tensor) = (path.to_path_buf(), name.to_owned());
            Err(Error::Shape { path, tensor, expected: shape.to_vec(), got })
        };
        let source = RefCell::new(&mut source);
        let vector = |name: &str, length: i64| {
            let tensor = source.borrow_mut().vector(name)?;
            check(name, tensor.size(), &[length]).map(|()| tensor)
        };
        let matrix = |name: &str, outputs: i64, inputs: i64| {
            let matrix = source.borrow_mut().matrix(name)?;
            check(name, matrix.size(), &[outputs, inputs]).map(|()| matrix)
        };
        let (h, q, kv, f) = (config.hidden, config.q_width(), config.kv_width(), config.ffn);
        let embed = matrix("model.embed_tokens.weight", config.vocab, h)?;
        let (biased, normed) = (config.family == Family::Qwen2, config.family == Family::Qwen3);
        // Without capacity, because the number of layers comes from an untrusted file.
        let mut layers = Vec::new();
        for i in 0..config.layers {
            let full = |name: &str| format!("model.layers.{i}.{name}");
            let vector = |name: &str, length: i64| vector(&full(name), length);
            let matrix = |name: &str, outputs: i64, inputs: i64| matrix(&full(name), outputs, inputs);
            let layer = Layer {
                attention_norm: vector("input_layernorm.weight", h)?,
                q: matrix("self_attn.q_proj.weight", q, h)?,
                k: matrix("self_attn.k_proj.weight", kv, h)?,
                v: matrix("self_attn.v_proj.weight", kv, h)?,
                q_bias: biased.then(|| vector("self_attn.q_proj.bias", q)).transpose()?,
                k_bias: biased.then(|| vector("self_attn.k_proj.bias", kv)).transpose()?,
                v_bias: biased.then(|| vector("self_attn.v_proj.bias", kv)).transpose()?,
                q_norm: normed.then(|| vector("self_attn.q_norm.weight", config.head_dim)).transpose()?,
                k_norm: normed.then(|| vector("self_attn.k_norm.weight", config.head_dim)).transpose()?,
                o: matrix("self_attn.o_proj.weight", h, q)?,
                ffn_norm: vector("post_attention_layernorm.weight", h)?,
                gate: matrix("mlp.gate_proj.weight", f, h)?,
                up: matrix("mlp.up_proj.weight", f, h)?,
                down: matrix("mlp.down_proj.weight", h, f)?,
            };
            // Layer by layer, so that the memory of the single matrices becomes that of the next layer's.
            layers.push(layer.placed());
        }
        let norm = vector("model.norm.weight", h)?;
        let head = if config.tied { None } else { Some(matrix("lm_head.weight", config.vocab, h)?) };
        Ok(Self { embed, layers, norm, head })
    }

    /// Returns weights without numbers, for a model that other machines run.
    pub(crate) fn empty() -> Self {
        let none = || Tensor::zeros([0], (Kind::Float, Device::Cpu));
        Self { embed: none().into(), layers: Vec::new(), norm: none(), head: None }
    }

    /// Returns the output matrix, from hidden states to logits, `[V, H]`.
    pub fn unembed(&self) -> &WeightMatrix {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Returns the device of the weights.
    pub fn device(&self) -> Device {
        self.embed.device()
    }

    /// Returns a copy, in memory of its own and outside any gradient graph, with matrices rounded to `dtype`.
    /// On CUDA they are stored in it; on the CPU, which computes fastest in f32, they are f32 tensors of
    /// rounded values, which an engine may store in 16 bits without changing a result. Norms and biases are
    /// f32.
    ///
    /// # Errors
    /// [`Error::Torch`] if the device's memory runs out.
    pub fn round_to(&self, dtype: Dtype) -> Result<Self, Error> {
        self.try_map(|t| {
            tch::no_grad(|| {
                let stored = store(&t.detach(), dtype, t.device())?;
                if stored.data_ptr() != t.data_ptr() {
                    return Ok(stored);
                }
                let mut own = stored.f_empty_like()?;
                own.f_copy_(&stored)?;
                Ok(own)
            })
        })
    }

    /// Returns true if a matrix is packed.
    pub fn is_packed(&self) -> bool {
        self.parts().any(|(_, part)| part.tensor().is_none())
    }

    /// Returns the names and shapes of all parts.
    pub fn sizes(&self) -> Vec<(String, Vec<i64>)> {
        self.parts().map(|(name, part)| (name, part.size())).collect()
    }

    /// Returns the same weights with all packed matrices unpacked to f32.
    ///
    /// # Errors
    /// [`Error::Torch`] if memory runs out.
    pub fn unpacked(&self) -> Result<Self, Error> {
        let mut own = self.shallow();
        let Self { embed, layers, head, .. } = &mut own;
        let ends = [embed].into_iter().chain(head.as_mut());
        for matrix in ends.chain(layers.iter_mut().flat_map(Layer::matrices_mut)) {
            *matrix = matrix.to_tensor()?.into();
        }
        Ok(own)
    }

    /// Returns the parts with Hugging Face's names, in a fixed order.
    fn parts(&self) -> impl Iterator<Item = (String, Part<'_>)> {
        let layers = self.layers.iter().enumerate().flat_map(|(i, layer)| {
            layer.parts().map(move |(name, part)| (format!("model.layers.{i}.{name}"), part))
        });
        let first = ("model.embed_tokens.weight".to_owned(), Part::Matrix(&self.embed));
        let norm = ("model.norm.weight".to_owned(), Part::Vector(&self.norm));
        let head = self.head.iter().map(|head| ("lm_head.weight".to_owned(), Part::Matrix(head)));
        [first].into_iter().chain(layers).chain([norm]).chain(head)
    }

    fn try_map<E>(&self, f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        self.try_map_layers(f, |layer| layer)
    }

    /// Applies a function to all tensors, and then another one to each new layer.
    fn try_map_layers<E>(
        &self,
        mut f: impl FnMut(&Tensor) -> Result<Tensor, E>,
        mut complete: impl FnMut(Layer) -> Layer,
    ) -> Result<Self, E> {
        let mut layer = |l: &Layer| {
            let mut optional = |t: &Option<Tensor>| t.as_ref().map(&mut f).transpose();
            let (q_bias, k_bias, v_bias) = (optional(&l.q_bias)?, optional(&l.k_bias)?, optional(&l.v_bias)?);
            let (q_norm, k_norm) = (optional(&l.q_norm)?, optional(&l.k_norm)?);
            Ok(Layer {
                attention_norm: f(&l.attention_norm)?,
                q: l.q.try_map(&mut f)?,
                k: l.k.try_map(&mut f)?,
                v: l.v.try_map(&mut f)?,
                q_bias,
                k_bias,
                v_bias,
                q_norm,
                k_norm,
                o: l.o.try_map(&mut f)?,
                ffn_norm: f(&l.ffn_norm)?,
                gate: l.gate.try_map(&mut f)?,
                up: l.up.try_map(&mut f)?,
                down: l.down.try_map(&mut f)?,
            })
        };
        let layers = self.layers.iter().map(|l| layer(l).map(&mut complete)).collect::<Result<_, _>>()?;
        let head = self.head.as_ref().map(|head| head.try_map(&mut f)).transpose()?;
        Ok(Self { embed: self.embed.try_map(&mut f)?, layers, norm: f(&self.norm)?, head })
    }
}

impl TensorSet for Weights {
    /// The names are Hugging Face's. Packed matrices, which are constant, are left out.
    fn parameters(&self) -> Vec<(String, Tensor)> {
        let tensors = self.parts().filter_map(|(name, part)| Some((name, part.tensor()?.shallow_clone())));
        tensors.collect()
    }

    fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Self {
        let Ok(weights) = self.try_map(|t| Ok::<_, Infallible>(f(t)));
        weights
    }

    fn copy(&self) -> Self {
        let copy = |t: &Tensor| Ok::<_, Infallible>(tch::no_grad(|| t.detach().copy()));
        let Ok(weights) = self.try_map_layers(copy, Layer::placed);
        weights
    }

    fn to_device(&self, device: Device) -> Self {
        if self.device() == device {
            // Memory that others share stays where it is.
            return self.map(|t| t.to_device(device));
        }
        let Ok(weights) = self.try_map_layers(|t| Ok::<_, Infallible>(t.to_device(device)), Layer::placed);
        weights
    }
}

/// Converts a tensor to its stored form on a device, as in [`Weights::round_to`]. An unchanged tensor shares
/// its memory.
pub(crate) fn store(tensor: &Tensor, dtype: Dtype, device: Device) -> Result<Tensor, TchError> {
    let dtype = if tensor.dim() >= 2 { dtype } else { Dtype::F32 };
    let rounded = match tensor.kind() {
        // f64 is rounded to 16 bits through f32, as in every other reader.
        Kind::Double => tensor.f_to_kind(Kind::Float)?.f_to_kind(dtype.kind())?,
        _ => tensor.f_to_kind(dtype.kind())?,
    };
    match device {
        Device::Cpu => rounded.f_to_kind(Kind::Float),
        _ => rounded.f_to_device(device),
    }
}
