//! A model's weights: f32 tensors under the names that Hugging Face gives them.

use std::path::Path;

use tch::{Device, Tensor};

use crate::{Config, Error, Projection};

/// One transformer block. Projections are stored `[out, in]`.
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
    /// Output projection of the attention.
    pub o: Tensor,
    /// Norm before the feed-forward layer, `[H]`.
    pub ffn_norm: Tensor,
    /// Gate of the feed-forward layer.
    pub gate: Tensor,
    /// Its way up.
    pub up: Tensor,
    /// Its way down.
    pub down: Tensor,
}

/// All weights of a model.
#[derive(Debug)]
pub struct Weights {
    /// Embedding `[V, H]`.
    pub embed: Tensor,
    /// The blocks, first to last.
    pub layers: Vec<Layer>,
    /// Final norm `[H]`.
    pub norm: Tensor,
    /// Output matrix `[V, H]`; none where the embedding is the output matrix too.
    pub head: Option<Tensor>,
}

impl Layer {
    /// The matrix of a projection.
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
}

impl Weights {
    /// Builds the weights by asking `get` for each tensor by its Hugging Face name, in a fixed order, and
    /// checks each shape against `config`. `path` is for messages.
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
        let mut layers = Vec::with_capacity(config.layers);
        for i in 0..config.layers {
            let mut part =
                |name: &str, shape: &[i64]| take(&format!("model.layers.{i}.{name}.weight"), shape);
            layers.push(Layer {
                attention_norm: part("input_layernorm", &[h])?,
                q: part("self_attn.q_proj", &[q, h])?,
                k: part("self_attn.k_proj", &[kv, h])?,
                v: part("self_attn.v_proj", &[kv, h])?,
                o: part("self_attn.o_proj", &[h, q])?,
                ffn_norm: part("post_attention_layernorm", &[h])?,
                gate: part("mlp.gate_proj", &[f, h])?,
                up: part("mlp.up_proj", &[f, h])?,
                down: part("mlp.down_proj", &[h, f])?,
            });
        }
        let norm = take("model.norm.weight", &[h])?;
        let head = if config.tied { None } else { Some(take("lm_head.weight", &[config.vocab, h])?) };
        Ok(Self { embed, layers, norm, head })
    }

    /// The matrix that turns hidden states into logits, `[V, H]`.
    pub fn unembed(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Every weight under its Hugging Face name, in a fixed order; the tensors share memory with the model's.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = vec![("model.embed_tokens.weight".to_owned(), self.embed.shallow_clone())];
        for (i, layer) in self.layers.iter().enumerate() {
            let parts = [
                ("input_layernorm", &layer.attention_norm),
                ("self_attn.q_proj", &layer.q),
                ("self_attn.k_proj", &layer.k),
                ("self_attn.v_proj", &layer.v),
                ("self_attn.o_proj", &layer.o),
                ("post_attention_layernorm", &layer.ffn_norm),
                ("mlp.gate_proj", &layer.gate),
                ("mlp.up_proj", &layer.up),
                ("mlp.down_proj", &layer.down),
            ];
            for (name, tensor) in parts {
                all.push((format!("model.layers.{i}.{name}.weight"), tensor.shallow_clone()));
            }
        }
        all.push(("model.norm.weight".to_owned(), self.norm.shallow_clone()));
        if let Some(head) = &self.head {
            all.push(("lm_head.weight".to_owned(), head.shallow_clone()));
        }
        all
    }

    /// The same weights in memory of their own, outside any gradient graph.
    pub fn copy(&self) -> Self {
        self.map(|t| tch::no_grad(|| t.detach().copy()))
    }

    /// The same weights in the same memory.
    pub fn shallow(&self) -> Self {
        self.map(Tensor::shallow_clone)
    }

    /// The same weights on another device (shared where they are there already).
    pub fn to_device(&self, device: Device) -> Self {
        self.map(|t| t.to_device(device))
    }

    /// Whether gradients are wanted for the weights.
    pub fn set_trainable(&self, trainable: bool) {
        for (_, tensor) in self.parameters() {
            let _ = tensor.set_requires_grad(trainable);
        }
    }

    /// The device that the weights are on.
    pub fn device(&self) -> Device {
        self.embed.device()
    }

    fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Self {
        Self {
            embed: f(&self.embed),
            layers: self
                .layers
                .iter()
                .map(|l| Layer {
                    attention_norm: f(&l.attention_norm),
                    q: f(&l.q),
                    k: f(&l.k),
                    v: f(&l.v),
                    o: f(&l.o),
                    ffn_norm: f(&l.ffn_norm),
                    gate: f(&l.gate),
                    up: f(&l.up),
                    down: f(&l.down),
                })
                .collect(),
            norm: f(&self.norm),
            head: self.head.as_ref().map(f),
        }
    }
}
