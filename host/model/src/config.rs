//! A Llama model's measures, as `config.json` of a Hugging Face folder states them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Error;

/// The measures of a model of the Llama architecture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Tokens in the vocabulary: rows of the embedding.
    pub vocab: i64,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Transformer blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: i64,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: i64,
    /// Width of one head.
    pub head_dim: i64,
    /// Width of the feed-forward layer.
    pub ffn: i64,
    /// Added to the mean square in RMS norms.
    pub rms_eps: f64,
    /// Base of the rotary embedding's frequencies.
    pub rope_theta: f64,
    /// Longest sequence, prompt and completion together.
    pub max_positions: usize,
    /// Whether the embedding is the output matrix too.
    pub tied: bool,
    /// The beginning-of-sequence token's id, where the model has one.
    pub bos: Option<u32>,
    /// Ids of the tokens that end a completion, as the model's own files name them.
    pub eos: Vec<u32>,
}

impl Config {
    /// Reads a `config.json`. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Format`] when a value is missing or out of range, or when the model needs something that is
    /// not there yet: another architecture, biases, scaled rotary embedding, another activation.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, Error> {
        let json: Value =
            serde_json::from_str(text).map_err(|e| Error::format(path, format!("not JSON: {e}")))?;
        let kind = json["model_type"].as_str().unwrap_or("nothing");
        if kind != "llama" {
            return Err(Error::format(
                path,
                format!("`model_type` is {kind}; only models of type llama can be loaded"),
            ));
        }
        for bias in ["attention_bias", "mlp_bias"] {
            if json[bias].as_bool() == Some(true) {
                return Err(Error::format(path, format!("`{bias}` is set; biases are not supported")));
            }
        }
        if let Some(act) = json["hidden_act"].as_str().filter(|act| *act != "silu") {
            return Err(Error::format(path, format!("`hidden_act` is {act}; only silu is supported")));
        }
        // Newer files nest the rotary settings in `rope_parameters`, older ones have two separate keys.
        let rope = &json["rope_parameters"];
        for scaling in [rope, &json["rope_scaling"]] {
            let kind = scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default");
            if kind != "default" {
                let reason =
                    format!("rotary embedding of type {kind} is not supported, only the default one");
                return Err(Error::format(path, reason));
            }
        }
        let need = |key: &str| {
            json[key].as_i64().filter(|n| *n > 0).ok_or_else(|| {
                Error::format(path, format!("`{key}` is missing or not a positive whole number"))
            })
        };
        let hidden = need("hidden_size")?;
        let heads = need("num_attention_heads")?;
        let config = Self {
            vocab: need("vocab_size")?,
            hidden,
            layers: need("num_hidden_layers")? as usize,
            heads,
            kv_heads: json["num_key_value_heads"].as_i64().unwrap_or(heads),
            head_dim: json["head_dim"].as_i64().unwrap_or(hidden / heads),
            ffn: need("intermediate_size")?,
            rms_eps: json["rms_norm_eps"].as_f64().unwrap_or(1e-6),
            rope_theta: rope["rope_theta"].as_f64().or(json["rope_theta"].as_f64()).unwrap_or(10_000.0),
            max_positions: need("max_position_embeddings")? as usize,
            tied: json["tie_word_embeddings"].as_bool().unwrap_or(false),
            bos: json["bos_token_id"].as_u64().map(|id| id as u32),
            eos: ids(&json["eos_token_id"]),
        };
        config.check(path)?;
        Ok(config)
    }

    /// Whether the measures fit each other.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Error> {
        let fail = |reason: String| Err(Error::format(path, reason));
        if self.kv_heads <= 0 || self.heads % self.kv_heads != 0 {
            return fail(format!(
                "{} query heads can't be shared among {} key-value heads",
                self.heads, self.kv_heads
            ));
        }
        if self.head_dim <= 0 || self.head_dim % 2 != 0 {
            return fail(format!(
                "a head is {} wide; rotary embedding needs a positive even width",
                self.head_dim
            ));
        }
        if !(self.rms_eps > 0.0 && self.rope_theta > 0.0) {
            return fail("the norm's epsilon and the rotary base must be positive".into());
        }
        if let Some(id) = self.eos.iter().chain(&self.bos).find(|id| i64::from(**id) >= self.vocab) {
            return fail(format!("special token {id} is outside the vocabulary of {}", self.vocab));
        }
        Ok(())
    }

    /// The `config.json` that transformers reads.
    pub fn to_json(&self) -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "float32",
            "torch_dtype": "float32",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.ffn,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_eps,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": self.tied,
            "attention_bias": false,
            "mlp_bias": false,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
        })
    }

    /// Columns of the query projection's output.
    pub fn q_width(&self) -> i64 {
        self.heads * self.head_dim
    }

    /// Columns of the key or value projection's output.
    pub fn kv_width(&self) -> i64 {
        self.kv_heads * self.head_dim
    }
}

/// A token id or a list of them.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
        one => one.as_u64().map(|id| id as u32).into_iter().collect(),
    }
}
