//! GGUF files (version 2 and 3): metadata, tensors, and the tokenizer and chat template inside.
//!
//! The file is untrusted: every length is checked against what is left of it before anything is read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tch::Tensor;

use crate::hub::map_file;
use crate::quant::Format;
use crate::{Config, Error, Model, Weights, gguf_tokenizer};

/// A metadata value. Numbers of all widths are widened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meta {
    Uint(u64),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Meta>),
}

impl Meta {
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[Meta]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Uint(n) => i64::try_from(*n).ok(),
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(*x),
            other => other.int().map(|n| n as f64),
        }
    }
}

/// Where a tensor lies.
#[derive(Debug)]
struct Info {
    /// As in memory: slowest dimension first.
    shape: Vec<i64>,
    format: u32,
    /// From the start of the tensor data.
    offset: u64,
}

/// A file's header.
pub(crate) struct Header {
    pub(crate) metadata: HashMap<String, Meta>,
    tensors: HashMap<String, Info>,
    /// Where tensor data starts.
    data: usize,
}

/// Loads a model; `keep` puts each tensor where it shall stay.
pub(crate) fn load(path: &Path, keep: impl Fn(Tensor) -> Result<Tensor, Error>) -> Result<Model, Error> {
    let bytes = map_file(path)?;
    let header = Header::parse(&bytes, path)?;
    let config = header.config(path)?;
    let name = path.display().to_string();
    let (tokenizer, template) = gguf_tokenizer::build(&header.metadata, &config, &name, path)?;
    let weights =
        Weights::build(&config, path, |tensor| keep(header.tensor(&bytes, path, &config, tensor)?))?;
    Ok(Model {
        config,
        weights,
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        hash: blake3::hash(&bytes).to_hex().to_string(),
    })
}

impl Header {
    fn parse(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let mut reader = Reader { bytes, at: 0, path };
        if reader.take(4)? != b"GGUF" {
            return Err(Error::format(path, "not a GGUF file (a model is a GGUF file or a folder)"));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(Error::format(path, format!("GGUF version {version}; 2 and 3 can be read")));
        }
        let tensor_count = reader.u64()?;
        let entries = reader.u64()?;
        let mut metadata = HashMap::new();
        for _ in 0..entries {
            let key = reader.string()?;
            let kind = reader.u32()?;
            metadata.insert(key, reader.value(kind, 0)?);
        }
        let mut tensors = HashMap::new();
        for _ in 0..tensor_count {
            let name = reader.string()?;
            let dimensions = reader.u32()?;
            if dimensions > 4 {
                return Err(Error::format(path, format!("the tensor `{name}` has {dimensions} dimensions")));
            }
            let mut shape = Vec::new();
            for _ in 0..dimensions {
                let n = i64::try_from(reader.u64()?)
                    .map_err(|_| Error::format(path, format!("the tensor `{name}` is too large")))?;
                shape.insert(0, n);
            }
            let format = reader.u32()?;
            let offset = reader.u64()?;
            tensors.insert(name, Info { shape, format, offset });
        }
        let alignment = metadata
            .get("general.alignment")
            .and_then(Meta::int)
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0)
            .unwrap_or(32);
        let data = reader.at.div_ceil(alignment) * alignment;
        Ok(Self { metadata, tensors, data })
    }

    fn config(&self, path: &Path) -> Result<Config, Error> {
        let architecture =
            self.metadata.get("general.architecture").and_then(Meta::text).unwrap_or("nothing");
        if architecture != "llama" {
            let reason = format!("a model of the architecture {architecture}; only llama can be loaded");
            return Err(Error::format(path, reason));
        }
        let get = |key: &str| self.metadata.get(&format!("llama.{key}"));
        let need = |key: &str| {
            get(key).and_then(Meta::int).filter(|n| *n > 0).ok_or_else(|| {
                Error::format(path, format!("`llama.{key}` is missing or not a positive whole number"))
            })
        };
        if let Some(kind) = get("rope.scaling.type").and_then(Meta::text).filter(|kind| *kind != "none") {
            let reason = format!("rotary embedding of type {kind} is not supported, only the default one");
            return Err(Error::format(path, reason));
        }
        if self.tensors.contains_key("rope_freqs.weight") {
            return Err(Error::format(path, "scaled rotary frequencies (rope_freqs) are not supported"));
        }
        let hidden = need("embedding_length")?;
        let heads = need("attention.head_count")?;
        let token = |key: &str| {
            self.metadata
                .get(&format!("tokenizer.ggml.{key}_token_id"))
                .and_then(Meta::int)
                .and_then(|id| u32::try_from(id).ok())
        };
        let embedding = self.info(path, "token_embd.weight")?;
        let config = Config {
            family: crate::Family::Llama,
            rope_scaling: crate::RopeScaling::None,
            vocab: embedding.shape.first().copied().unwrap_or(0),
            hidden,
            layers: need("block_count")? as usize,
            heads,
            kv_heads: get("attention.head_count_kv").and_then(Meta::int).unwrap_or(heads),
            head_dim: get("attention.key_length").and_then(Meta::int).unwrap_or(hidden / heads),
            ffn: need("feed_forward_length")?,
            rms_eps: get("attention.layer_norm_rms_epsilon").and_then(Meta::float).unwrap_or(1e-5),
            rope_theta: get("rope.freq_base").and_then(Meta::float).unwrap_or(10_000.0),
            max_positions: need("context_length")? as usize,
            tied: !self.tensors.contains_key("output.weight"),
            bos: token("bos"),
            eos: token("eos").into_iter().collect(),
        };
        config.check(path)?;
        Ok(config)
    }

    fn info(&self, path: &Path, name: &str) -> Result<&Info, Error> {
        self.tensors
            .get(name)
            .ok_or_else(|| Error::MissingTensor { path: path.to_path_buf(), tensor: name.to_owned() })
    }

    /// A tensor by its Hugging Face name, f32.
    fn tensor(&self, bytes: &[u8], path: &Path, config: &Config, name: &str) -> Result<Tensor, Error> {
        let stored = stored_name(name);
        let info = self.info(path, &stored)?;
        let format = Format::from_id(info.format).ok_or_else(|| {
            let reason = format!(
                "the tensor `{stored}` is in GGML format {}; F32, F16, BF16, Q8_0 and Q4_1 can be read",
                info.format
            );
            Error::format(path, reason)
        })?;
        let cut = || {
            Error::format(
                path,
                format!("the tensor `{stored}` reaches past the end of the file; fetch it again"),
            )
        };
        let count = info
            .shape
            .iter()
            .try_fold(1usize, |product, n| product.checked_mul(usize::try_from(*n).ok()?))
            .ok_or_else(cut)?;
        let size = format.bytes(count).ok_or_else(cut)?;
        let start = usize::try_from(info.offset)
            .ok()
            .and_then(|offset| offset.checked_add(self.data))
            .ok_or_else(cut)?;
        let data = start.checked_add(size).and_then(|end| bytes.get(start..end)).ok_or_else(cut)?;
        let tensor = Tensor::f_from_slice(&format.unpack(data))?.f_view(info.shape.as_slice())?;
        // The rows of Q and K are stored so that the two halves of a head interleave.
        let heads = if stored.ends_with("attn_q.weight") {
            config.heads
        } else if stored.ends_with("attn_k.weight") {
            config.kv_heads
        } else {
            return Ok(tensor);
        };
        let [rows, columns] = info.shape[..] else { return Ok(tensor) };
        Ok(tensor
            .f_reshape([heads, rows / heads / 2, 2, columns])?
            .f_transpose(1, 2)?
            .f_reshape([rows, columns])?)
    }
}

/// GGUF's name for a tensor.
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
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    parts.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// A cursor over the file.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end =
            end.ok_or_else(|| Error::format(self.path, "the file ends in its header; fetch it again"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn string(&mut self) -> Result<String, Error> {
        let len = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Meta, Error> {
        Ok(match kind {
            0 => Meta::Uint(u64::from(self.array::<1>()?[0])),
            1 => Meta::Int(i64::from(i8::from_le_bytes(self.array()?))),
            2 => Meta::Uint(u64::from(u16::from_le_bytes(self.array()?))),
            3 => Meta::Int(i64::from(i16::from_le_bytes(self.array()?))),
            4 => Meta::Uint(u64::from(self.u32()?)),
            5 => Meta::Int(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Meta::Float(f64::from(f32::from_le_bytes(self.array()?))),
            7 => Meta::Bool(self.array::<1>()?[0] != 0),
            8 => Meta::Text(self.string()?),
            9 if depth < 4 => {
                let kind = self.u32()?;
                let count = self.u64()?;
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(self.value(kind, depth + 1)?);
                }
                Meta::List(list)
            }
            10 => Meta::Uint(self.u64()?),
            11 => Meta::Int(i64::from_le_bytes(self.array()?)),
            12 => Meta::Float(f64::from_le_bytes(self.array()?)),
            _ => return Err(Error::format(self.path, format!("metadata of unknown type {kind}"))),
        })
    }
}
