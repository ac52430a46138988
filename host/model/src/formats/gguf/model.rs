//! Models in GGUF files: dimensions from the metadata, and tensors with the names and the order of rows of
//! Hugging Face folders.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use pl_types::{ModelDtype, SourcePath};
use tch::Tensor;

use crate::error::Error;
use crate::formats::gguf::file::{Header, MetadataValue};
use crate::formats::gguf::tokenizer;
use crate::formats::mapped_file::MappedFile;
use crate::formats::matrix_form::MatrixForm;
use crate::model::Model;
use crate::network::config::{Config, Family};
use crate::network::rope_scaling::{RopeScaling, mscale};
use crate::network::weight_matrix::WeightMatrix;
use crate::network::weights::{WeightSource, Weights};
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// Tensor with a divisor for each rotary frequency.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Loads a model.
pub(crate) fn load(source: &SourcePath, form: &MatrixForm) -> Result<Model, Error> {
    let (bytes, path) = (MappedFile::open(source)?, source.path());
    let header = Header::parse(&bytes, path)?;
    let config = ConfigReader { header: &header, bytes: &bytes, path }.config()?;
    let name = path.display().to_string();
    let (tokenizer, template) = tokenizer::build(&header.metadata, &config, &name, path)?;
    let weights = {
        let source = GgufWeights { header: &header, bytes: &bytes, path, config: &config, form };
        Weights::build(&config, path, source)?
    };

    let mut hasher = blake3::Hasher::new();
    bytes.hash(&mut hasher)?;
    let known: HashSet<String> = weights.sizes().iter().map(|(name, _)| stored_name(name)).collect();
    let unused =
        header.tensors.keys().filter(|name| name.starts_with("blk.") && !known.contains(*name)).min();
    if let Some(name) = unused {
        let reason = format!("the tensor `{name}` does not belong to a {} model", config.family);
        return Err(Error::format(path, reason));
    }
    Ok(Model {
        config,
        weights,
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        dtype: form.dtype,
        hash: hasher.finalize().to_hex().to_string(),
    })
}

/// Tensors of a file.
struct GgufWeights<'a> {
    header: &'a Header,
    bytes: &'a MappedFile,
    path: &'a Path,
    config: &'a Config,
    form: &'a MatrixForm,
}

impl WeightSource for GgufWeights<'_> {
    fn vector(&mut self, name: &str) -> Result<Tensor, Error> {
        self.form.tensor(&self.header.tensor(self.bytes, self.path, &stored_name(name))?)
    }

    fn matrix(&mut self, name: &str) -> Result<WeightMatrix, Error> {
        let Self { header, bytes, path, config, form } = self;
        let stored = stored_name(name);
        let heads = alternating_heads(config, &stored);
        if let (ModelDtype::File, Some(cpu)) = (form.dtype, form.packing()) {
            let data = header.data(bytes, path, &stored)?;
            let stored = |row| heads.map_or(row, |heads| stored_row(config, heads, data.rows, row));
            let matrix = data.pack(cpu, stored);
            bytes.release(data.bytes);
            return Ok(WeightMatrix::Packed(Arc::new(matrix)));
        }
        let tensor = header.tensor(bytes, path, &stored)?;
        form.matrix(&match heads {
            Some(heads) => unpermute(config, heads, tensor)?,
            None => tensor,
        })
    }
}

/// Returns the size of the matrices as [`ModelDtype::File`] packs them.
pub(crate) fn packed_bytes(source: &SourcePath) -> Result<u64, Error> {
    let (bytes, path) = (MappedFile::open(source)?, source.path());
    let header = Header::parse(&bytes, path)?;
    let matrices = header.tensors.iter().filter(|(_, info)| info.shape.len() == 2);
    let sizes = matrices.map(|(name, _)| Ok(header.data(&bytes, path, name)?.packed_bytes() as u64));
    sizes.sum()
}

/// Loads everything but the weights, of which only the hash is computed.
pub(crate) fn load_without_weights(source: &SourcePath, dtype: ModelDtype) -> Result<Model, Error> {
    let (bytes, path) = (MappedFile::open(source)?, source.path());
    let header = Header::parse(&bytes, path)?;
    let config = ConfigReader { header: &header, bytes: &bytes, path }.config()?;
    let (tokenizer, template) =
        tokenizer::build(&header.metadata, &config, &path.display().to_string(), path)?;
    let mut hasher = blake3::Hasher::new();
    bytes.hash(&mut hasher)?;
    Ok(Model {
        config,
        weights: Weights::empty(),
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        dtype,
        hash: hasher.finalize().to_hex().to_string(),
    })
}

/// Loads only a model's tokenizer and chat template.
pub(crate) fn text(source: &SourcePath) -> Result<(Tokenizer, ChatTemplate), Error> {
    let (bytes, path) = (MappedFile::open(source)?, source.path());
    let header = Header::parse(&bytes, path)?;
    let config = ConfigReader { header: &header, bytes: &bytes, path }.config()?;
    tokenizer::build(&header.metadata, &config, &path.display().to_string(), path)
}

/// Reads only a model's dimensions.
pub(crate) fn config(source: &SourcePath) -> Result<Config, Error> {
    let (bytes, path) = (MappedFile::open(source)?, source.path());
    let header = Header::parse(&bytes, path)?;
    ConfigReader { header: &header, bytes: &bytes, path }.config()
}

/// Reader of a model's dimensions.
struct ConfigReader<'a> {
    header: &'a Header,
    bytes: &'a MappedFile,
    path: &'a Path,
}

impl ConfigReader<'_> {
    fn config(&self) -> Result<Config, Error> {
        let name = self
            .header
            .metadata
            .get("general.architecture")
            .and_then(MetadataValue::text)
            .unwrap_or("nothing");
        let family: Family = name
            .parse()
            .map_err(|supported| self.error(format!("a model of the architecture {name}; {supported}")))?;
        self.check_features(family)?;
        let hidden = self.required(family, "embedding_length")?;
        let heads = self.required(family, "attention.head_count")?;
        let head_dim = self.integer(family, "attention.key_length")?.unwrap_or(hidden / heads);
        for key in ["attention.value_length", "rope.dimension_count"] {
            if let Some(other) = self.integer(family, key)?.filter(|width| *width != head_dim) {
                let reason =
                    format!("`{family}.{key}` is {other} for heads {head_dim} wide; they must be equal");
                return Err(self.error(reason));
            }
        }
        let token = |key: &str| {
            self.header
                .metadata
                .get(&format!("tokenizer.ggml.{key}_token_id"))
                .and_then(MetadataValue::int)
                .and_then(|id| u32::try_from(id).ok())
        };
        let mut eos = Vec::new();
        // The ends of a text, of a turn and of a message are often the same token.
        for id in ["eos", "eot", "eom"].into_iter().filter_map(token) {
            if !eos.contains(&id) {
                eos.push(id);
            }
        }
        let embedding = self.header.info(self.path, "token_embd.weight")?;
        let config = Config {
            family,
            vocab: embedding.shape.first().copied().unwrap_or(0),
            hidden,
            layers: self.required(family, "block_count")? as usize,
            heads,
            kv_heads: self.integer(family, "attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            ffn: self.required(family, "feed_forward_length")?,
            rms_eps: self.float(family, "attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
            rope_theta: self.float(family, "rope.freq_base").unwrap_or(10_000.0),
            rope_scaling: self.rope_scaling(family)?,
            max_positions: self.required(family, "context_length")? as usize,
            tied: !self.header.tensors.contains_key("output.weight"),
            bos: token("bos"),
            eos,
        };
        config.check(self.path)?;
        Ok(config)
    }

    /// Checks that the model has only features that some supported family has.
    fn check_features(&self, family: Family) -> Result<(), Error> {
        if self.integer(family, "expert_count")?.is_some_and(|count| count > 0) {
            return Err(self.error("a mixture of experts; only dense models can be loaded"));
        }
        let window = self.integer(family, "attention.sliding_window")?.filter(|window| *window > 0);
        if let Some(window) = window.filter(|window| Some(*window) < self.context(family)) {
            return Err(
                self.error(format!("it attends over a sliding window of {window}, which is not supported"))
            );
        }
        Ok(())
    }

    fn context(&self, family: Family) -> Option<i64> {
        self.get(family, "context_length").and_then(MetadataValue::int)
    }

    fn rope_scaling(&self, family: Family) -> Result<RopeScaling, Error> {
        let factor = ["rope.scaling.factor", "rope.scale_linear"]
            .iter()
            .find_map(|key| self.float(family, key))
            // Zero means none.
            .filter(|factor| *factor != 0.0);
        let kind = self.get(family, "rope.scaling.type").and_then(MetadataValue::text);
        let scaling = match (kind.unwrap_or("linear"), factor) {
            ("none", _) | ("linear", None) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor },
            ("yarn", Some(factor)) => self.yarn(family, factor)?,
            (kind, _) => {
                let reason = format!(
                    "rotary embedding of type {kind} is not supported; none, linear and yarn (with a factor) are"
                );
                return Err(self.error(reason));
            }
        };
        if !self.header.tensors.contains_key(ROPE_FACTORS) {
            return Ok(scaling);
        }
        if scaling != RopeScaling::None {
            return Err(self.error(format!("both `{ROPE_FACTORS}` and `{family}.rope.scaling` are present")));
        }
        let factors = self.header.tensor(self.bytes, self.path, ROPE_FACTORS)?;
        Ok(RopeScaling::Factors { factors: Vec::try_from(factors.f_flatten(0, -1)?)? })
    }

    fn yarn(&self, family: Family, factor: f64) -> Result<RopeScaling, Error> {
        let float = |key: &str| self.float(family, &format!("rope.scaling.{key}"));
        // In some readers this key replaces the attention factor, in others it multiplies it.
        for key in ["yarn_ext_factor", "yarn_attn_factor"] {
            if let Some(other) = float(key).filter(|x| *x != 1.0) {
                let reason = format!(
                    "`{family}.rope.scaling.{key}` is {other}, which is not supported; use the model's Hugging Face \
                     folder"
                );
                return Err(self.error(reason));
            }
        }
        let original = self.integer(family, "rope.scaling.original_context_length")?.or(self.context(family));
        Ok(RopeScaling::Yarn {
            factor,
            original_max_positions: original.and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            beta_fast: float("yarn_beta_fast").unwrap_or(32.0),
            beta_slow: float("yarn_beta_slow").unwrap_or(1.0),
            attention_factor: mscale(factor, 1.0) * float("attn_factor").unwrap_or(1.0),
            truncate: true,
        })
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::format(self.path, reason)
    }

    fn get(&self, family: Family, key: &str) -> Option<&MetadataValue> {
        self.header.metadata.get(&format!("{family}.{key}"))
    }

    fn float(&self, family: Family, key: &str) -> Option<f64> {
        self.get(family, key).and_then(MetadataValue::float)
    }

    /// Returns an integer. Returns `None` if the key is missing.
    fn integer(&self, family: Family, key: &str) -> Result<Option<i64>, Error> {
        self.get(family, key)
            .map(|value| {
                value.int().ok_or_else(|| {
                    self.error(format!("`{family}.{key}` is not one whole number for all layers"))
                })
            })
            .transpose()
    }

    fn required(&self, family: Family, key: &str) -> Result<i64, Error> {
        self.integer(family, key)?
            .filter(|n| *n > 0)
            .ok_or_else(|| self.error(format!("`{family}.{key}` is missing or not a positive whole number")))
    }
}

/// Returns the number of heads of Q and K of the Llama architecture: stored, the rows of a head's two halves alternate; the
/// rotate-half embedding needs one half after the other. Returns `None` for other matrices.
fn alternating_heads(config: &Config, stored: &str) -> Option<i64> {
    match stored {
        _ if config.family != Family::Llama => None,
        name if name.ends_with("attn_q.weight") => Some(config.heads),
        name if name.ends_with("attn_k.weight") => Some(config.kv_heads),
        _ => None,
    }
}

/// Returns the stored row of a row, if rows alternate as in [`alternating_heads`].
fn stored_row(config: &Config, heads: i64, rows: usize, row: usize) -> usize {
    let width = config.head_dim as usize;
    if rows as i64 != heads * config.head_dim {
        // The caller reports the wrong shape together with the right one.
        return row;
    }
    let (head, within) = (row / width, row % width);
    head * width + within % (width / 2) * 2 + within / (width / 2)
}

/// Reorders the rows of a tensor in the same way.
fn unpermute(config: &Config, heads: i64, tensor: Tensor) -> Result<Tensor, Error> {
    let shape = tensor.size();
    let &[rows, columns] = shape.as_slice() else { return Ok(tensor) };
    if rows != heads * config.head_dim {
        // The caller reports the wrong shape together with the right one.
        return Ok(tensor);
    }
    Ok(tensor
        .f_view([heads, config.head_dim / 2, 2, columns])?
        .f_transpose(1, 2)?
        .f_reshape([rows, columns])?)
}

/// Returns GGUF's name of a tensor.
fn stored_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".into(),
        "model.norm.weight" => return "output_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        _ => {}
    }
    let parts = [
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    parts.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}
