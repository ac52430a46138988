//! A model's dimensions and their `config.json`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;
use crate::network::rope_scaling::RopeScaling;

/// Largest allowed number of layers and length of sequences: far above any model, and low enough that the
/// tables of a damaged file can't fill the memory.
const MAX_LAYERS: usize = 10_000;
const MAX_POSITIONS: usize = 1 << 24;

/// A model family. Families differ only in biases and norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Llama 1 to 3, and models of the same architecture: SmolLM, `TinyLlama`.
    #[default]
    Llama,
    /// Qwen2 and Qwen2.5: biases on the query, key and value projections.
    Qwen2,
    /// Qwen3 (dense): each query and key head is RMS-normed before rotation.
    Qwen3,
}

impl Family {
    const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// Returns the name in `model_type` of a `config.json` and in `general.architecture` of a GGUF file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// Returns the name of the class in transformers.
    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    /// List of the supported families.
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|family| family.name() == name)
            .ok_or("models of type llama, qwen2 and qwen3 can be loaded")
    }
}

/// Dimensions of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Model family.
    pub family: Family,
    /// Number of tokens in the vocabulary: rows of the embedding.
    pub vocab: i64,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Number of query heads.
    pub heads: i64,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: i64,
    /// Width of one head.
    pub head_dim: i64,
    /// Width of the feed-forward layer.
    pub ffn: i64,
    /// Summand of the mean square in RMS norms.
    pub rms_eps: f64,
    /// Base of the rotary embedding's frequencies.
    pub rope_theta: f64,
    /// Change of these frequencies.
    pub rope_scaling: RopeScaling,
    /// Length of the longest sequence, including prompt and completion.
    pub max_positions: usize,
    /// True if the embedding is the output matrix too.
    pub tied: bool,
    /// Id of the beginning-of-sequence token, if the model has one.
    pub bos: Option<u32>,
    /// Ids of the tokens that end a completion, according to the model's files.
    pub eos: Vec<u32>,
}

impl Config {
    /// Reads a `config.json`. Messages name `path`.
    ///
    /// # Errors
    /// [`Error::Format`] if a value is missing or out of range, or if the model needs an unsupported feature:
    /// another family, quantised weights, biases or heads that its family does not have, sliding windows,
    /// another kind of rotary embedding, another activation.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, Error> {
        let json: Value =
            serde_json::from_str(text).map_err(|e| Error::format(path, format!("not JSON: {e}")))?;
        let kind = json["model_type"].as_str().unwrap_or("nothing");
        let family: Family = kind
            .parse()
            .map_err(|supported| Error::format(path, format!("`model_type` is {kind}; {supported}")))?;
        check_features(&json, path)?;
        let need = |key: &str| {
            json[key].as_i64().filter(|n| *n > 0).ok_or_else(|| {
                Error::format(path, format!("`{key}` is missing or not a positive whole number"))
            })
        };
        let hidden = need("hidden_size")?;
        let heads = need("num_attention_heads")?;
        let layers = need("num_hidden_layers")? as usize;
        check_windows(&json, layers, path)?;
        let max_positions = need("max_position_embeddings")? as usize;
        // The default of Qwen3's own configuration class.
        let head_dim = if family == Family::Qwen3 { 128 } else { hidden / heads };
        let config = Self {
            family,
            vocab: need("vocab_size")?,
            hidden,
            layers,
            heads,
            kv_heads: json["num_key_value_heads"].as_i64().unwrap_or(heads),
            head_dim: json["head_dim"].as_i64().unwrap_or(head_dim),
            ffn: need("intermediate_size")?,
            rms_eps: json["rms_norm_eps"].as_f64().unwrap_or(1e-6),
            rope_theta: RopeScaling::theta(&json),
            rope_scaling: RopeScaling::from_json(&json, max_positions, path)?,
            max_positions,
            tied: json["tie_word_embeddings"].as_bool().unwrap_or(false),
            bos: json["bos_token_id"].as_u64().map(|id| id as u32),
            eos: ids(&json["eos_token_id"]),
        };
        config.check(path)?;
        Ok(config)
    }

    /// Checks that the dimensions match each other.
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
        if self.heads.checked_mul(self.head_dim).is_none_or(|width| width > i64::from(i32::MAX)) {
            return fail(format!("{} heads of {} are wider than in any model", self.heads, self.head_dim));
        }
        if self.layers > MAX_LAYERS || self.max_positions > MAX_POSITIONS {
            return fail(format!(
                "{} layers for {} positions are more than any model has ({MAX_LAYERS} and {MAX_POSITIONS} are allowed)",
                self.layers, self.max_positions
            ));
        }
        if !(self.rms_eps > 0.0 && self.rope_theta > 1.0 && self.rope_theta.is_finite()) {
            return fail("the norm's epsilon must be positive, the rotary base above 1".into());
        }
        if let Some(reason) = self.rope_scaling.invalid_reason(self.head_dim) {
            return fail(reason);
        }
        if let Some(id) = self.eos.iter().chain(&self.bos).find(|id| i64::from(**id) >= self.vocab) {
            return fail(format!("special token {id} is outside the vocabulary of {}", self.vocab));
        }
        Ok(())
    }

    /// Returns the `config.json` for transformers, with matrices stored as `dtype` (the name in torch).
    pub(crate) fn to_json(&self, dtype: &str) -> Value {
        let mut json = json!({
            "architectures": [self.family.class()],
            "model_type": self.family.name(),
            "dtype": dtype,
            "torch_dtype": dtype,
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
            "rope_scaling": self.rope_scaling.to_json(self.max_positions),
            "max_position_embeddings": self.max_positions,
            "tie_word_embeddings": self.tied,
            "bos_token_id": self.bos,
            "eos_token_id": self.eos,
        });
        let family: &[&str] = match self.family {
            Family::Llama => &["attention_bias", "mlp_bias"],
            Family::Qwen2 => &["use_sliding_window"],
            Family::Qwen3 => &["attention_bias", "use_sliding_window"],
        };
        for key in family {
            json[key] = false.into();
        }
        json
    }

    /// Returns the width of the query projection's output.
    pub fn q_width(&self) -> i64 {
        self.heads * self.head_dim
    }

    /// Returns the width of the key or value projection's output.
    pub fn kv_width(&self) -> i64 {
        self.kv_heads * self.head_dim
    }
}

/// Checks that the model has only features that some supported family has.
fn check_features(json: &Value, path: &Path) -> Result<(), Error> {
    for bias in ["attention_bias", "mlp_bias"] {
        if json[bias].as_bool() == Some(true) {
            let reason =
                format!("`{bias}` is set; the only biases supported are those that every Qwen2 model has");
            return Err(Error::format(path, reason));
        }
    }
    if let Some(act) = json["hidden_act"].as_str().filter(|act| *act != "silu") {
        return Err(Error::format(path, format!("`hidden_act` is {act}; only silu is supported")));
    }
    if json["quantization_config"].is_object() {
        let method = json["quantization_config"]["quant_method"].as_str().unwrap_or("an unnamed method");
        let reason = format!(
            "the weights are quantised ({method}); use the model's unquantised folder, or a GGUF file of it"
        );
        return Err(Error::format(path, reason));
    }
    Ok(())
}

/// Checks that no layer attends over a sliding window. A file may name a window and switch it off.
fn check_windows(json: &Value, layers: usize, path: &Path) -> Result<(), Error> {
    let slides = match json["layer_types"].as_array() {
        Some(kinds) => kinds.iter().any(|kind| kind != "full_attention"),
        None => {
            json["use_sliding_window"].as_bool() == Some(true)
                && !json["sliding_window"].is_null()
                && json["max_window_layers"].as_u64().is_none_or(|first| first < layers as u64)
        }
    };
    if slides {
        let reason = "it attends over sliding windows, which are not supported; set `use_sliding_window` to false \
                      (and leave out `layer_types`) if the sequences stay shorter than the window";
        return Err(Error::format(path, reason));
    }
    Ok(())
}

/// Reads a token id or a list of token ids.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
        one => one.as_u64().map(|id| id as u32).into_iter().collect(),
    }
}
