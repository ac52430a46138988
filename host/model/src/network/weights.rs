//! A model's weights, with Hugging Face's names of the tensors.

use std::convert::Infallible;
use std::path::Path;

use pl_types::Dtype;
use tch::{Device, Kind, TchError, Tensor};

use crate::dtype::TorchDtype;
use crate::error::Error;
use crate::network::adapter::Projection;
use crate::network::config::{Config, Family};
use crate::network::tensor_set::TensorSet;

/// One transformer block. Projections are stored `[out, in]`; `H` is the width of the residual stream.
#[derive(Debug)]
pub struct Layer {
    /// Norm before attention, `[H]`.
    pub attention_norm: Tensor,
    /// Query projection.
    pub q: Tensor,
    /// Key projection.
    pub k: Tensor,
    /// Value projection.
    pub v: Tensor,
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
    pub o: Tensor,
    /// Norm before the feed-forward layer, `[H]`.
    pub ffn_norm: Tensor,
    /// Gate of the feed-forward layer.
    pub gate: Tensor,
    /// Up projection of the feed-forward layer.
    pub up: Tensor,
    /// Down projection of the feed-forward layer.
    pub down: Tensor,
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    /// Embedding `[V, H]`.
    pub embed: Tensor,
    /// Blocks, first to last.
    pub layers: Vec<Layer>,
    /// Final norm `[H]`.
    pub norm: Tensor,
    /// Output matrix `[V, H]`; `None` if the embedding is the output matrix too.
    pub head: Option<Tensor>,
}

impl Layer {
    /// Returns the matrix of a projection.
    pub fn projection(&self, projection: Projection) -> &Tensor {
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

    /// Returns the tensors with their names in the block, in a fixed order.
    fn parts(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        [
            ("input_layernorm.weight", Some(&self.attention_norm)),
            ("self_attn.q_proj.weight", Some(&self.q)),
            ("self_attn.q_proj.bias", self.q_bias.as_ref()),
            ("self_attn.k_proj.weight", Some(&self.k)),
            ("self_attn.k_proj.bias", self.k_bias.as_ref()),
            ("self_attn.v_proj.weight", Some(&self.v)),
            ("self_attn.v_proj.bias", self.v_bias.as_ref()),
            ("self_attn.q_norm.weight", self.q_norm.as_ref()),
            ("self_attn.k_norm.weight", self.k_norm.as_ref()),
            ("self_attn.o_proj.weight", Some(&self.o)),
            ("post_attention_layernorm.weight", Some(&self.ffn_norm)),
            ("mlp.gate_proj.weight", Some(&self.gate)),
            ("mlp.up_proj.weight", Some(&self.up)),
            ("mlp.down_proj.weight", Some(&self.down)),
        ]
        .into_iter()
        .filter_map(|(name, tensor)| Some((name, tensor?)))
    }
}

impl Weights {
    /// Builds the weights from the tensors that `get` returns for Hugging Face's names, in a fixed order, and
    /// checks each shape against `config`. Messages name `path`.
    pub(crate) fn build(
        config: &Config,
        path: &Path,
        mut get: impl FnMut(&str) -> Result<Tensor, Error>,
    ) -> Result<Self, Error> {
        let mut take = |name: &str, shape: &[i64]| {
            let tensor = get(name)?;
            if tensor.size() == shape {
                return Ok(tensor);
            }
            Err(Error::Shape {
                path: path.to_path_buf(),
                tensor: name.to_owned(),
                expected: shape.to_vec(),
                got: tensor.size(),
            })
        };
        let (h, q, kv, f) = (config.hidden, config.q_width(), config.kv_width(), config.ffn);
        let embed = take("model.embed_tokens.weight", &[config.vocab, h])?;
        let (biased, normed) = (config.family == Family::Qwen2, config.family == Family::Qwen3);
        // Without capacity, because the number of layers comes from an untrusted file.
        let mut layers = Vec::new();
        for i in 0..config.layers {
            let mut part = |name: &str, shape: &[i64]| take(&format!("model.layers.{i}.{name}"), shape);
            layers.push(Layer {
                attention_norm: part("input_layernorm.weight", &[h])?,
                q: part("self_attn.q_proj.weight", &[q, h])?,
                k: part("self_attn.k_proj.weight", &[kv, h])?,
                v: part("self_attn.v_proj.weight", &[kv, h])?,
                q_bias: biased.then(|| part("self_attn.q_proj.bias", &[q])).transpose()?,
                k_bias: biased.then(|| part("self_attn.k_proj.bias", &[kv])).transpose()?,
                v_bias: biased.then(|| part("self_attn.v_proj.bias", &[kv])).transpose()?,
                q_norm: normed.then(|| part("self_attn.q_norm.weight", &[config.head_dim])).transpose()?,
                k_norm: normed.then(|| part("self_attn.k_norm.weight", &[config.head_dim])).transpose()?,
                o: part("self_attn.o_proj.weight", &[h, q])?,
                ffn_norm: part("post_attention_layernorm.weight", &[h])?,
                gate: part("mlp.gate_proj.weight", &[f, h])?,
                up: part("mlp.up_proj.weight", &[f, h])?,
                down: part("mlp.down_proj.weight", &[h, f])?,
            });
        }
        let norm = take("model.norm.weight", &[h])?;
        let head = if config.tied { None } else { Some(take("lm_head.weight", &[config.vocab, h])?) };
        Ok(Self { embed, layers, norm, head })
    }

    /// Returns weights without numbers, for a model that other machines run.
    pub(crate) fn empty() -> Self {
        let none = || Tensor::zeros([0], (Kind::Float, Device::Cpu));
        Self { embed: none(), layers: Vec::new(), norm: none(), head: None }
    }

    /// Returns the output matrix, from hidden states to logits, `[V, H]`.
    pub fn unembed(&self) -> &Tensor {
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

    fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        let mut layer = |l: &Layer| {
            let mut optional = |t: &Option<Tensor>| t.as_ref().map(&mut f).transpose();
            let (q_bias, k_bias, v_bias) = (optional(&l.q_bias)?, optional(&l.k_bias)?, optional(&l.v_bias)?);
            let (q_norm, k_norm) = (optional(&l.q_norm)?, optional(&l.k_norm)?);
            Ok(Layer {
                attention_norm: f(&l.attention_norm)?,
                q: f(&l.q)?,
                k: f(&l.k)?,
                v: f(&l.v)?,
                q_bias,
                k_bias,
                v_bias,
                q_norm,
                k_norm,
                o: f(&l.o)?,
                ffn_norm: f(&l.ffn_norm)?,
                gate: f(&l.gate)?,
                up: f(&l.up)?,
                down: f(&l.down)?,
            })
        };
        let layers = self.layers.iter().map(&mut layer).collect::<Result<_, _>>()?;
        let head = self.head.as_ref().map(&mut f).transpose()?;
        Ok(Self { embed: f(&self.embed)?, layers, norm: f(&self.norm)?, head })
    }
}

impl TensorSet for Weights {
    /// The names are Hugging Face's.
    fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = vec![("model.embed_tokens.weight".to_owned(), self.embed.shallow_clone())];
        for (i, layer) in self.layers.iter().enumerate() {
            let parts = layer.parts();
            all.extend(parts.map(|(name, t)| (format!("model.layers.{i}.{name}"), t.shallow_clone())));
        }
        all.push(("model.norm.weight".to_owned(), self.norm.shallow_clone()));
        if let Some(head) = &self.head {
            all.push(("lm_head.weight".to_owned(), head.shallow_clone()));
        }
        all
    }

    fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Self {
        let Ok(weights) = self.try_map(|t| Ok::<_, Infallible>(f(t)));
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
