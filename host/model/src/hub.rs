//! Hugging Face model folders: `config.json`, safetensors (one file or an index of shards), `tokenizer.json`,
//! `tokenizer_config.json`, `chat_template.jinja`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::config::ids;
use crate::{ChatTemplate, Config, Error, Model, Tokenizer, Weights};

/// Loads a model folder; `keep` puts each tensor where it shall stay.
pub(crate) fn load(folder: &Path, keep: impl Fn(Tensor) -> Result<Tensor, Error>) -> Result<Model, Error> {
    let mut hasher = blake3::Hasher::new();
    let mut read = |name: &str| -> Result<Option<Vec<u8>>, Error> {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => {
                absorb(&mut hasher, name, &bytes);
                Ok(Some(bytes))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&path)(e)),
        }
    };
    let need = |name: &str, bytes: Option<Vec<u8>>| {
        bytes.ok_or_else(|| {
            Error::format(folder, format!("the folder has no {name}; it is not a whole Hugging Face model"))
        })
    };
    let config_json = need("config.json", read("config.json")?)?;
    let tokenizer_json = need("tokenizer.json", read("tokenizer.json")?)?;
    let settings = json(folder, "tokenizer_config.json", read("tokenizer_config.json")?)?;
    let generation = json(folder, "generation_config.json", read("generation_config.json")?)?;
    let jinja = read("chat_template.jinja")?;

    let config = Config::from_json(&String::from_utf8_lossy(&config_json), &folder.join("config.json"))?;
    let name = folder.display().to_string();
    let mut eos = config.eos.clone();
    eos.extend(ids(&generation["eos_token_id"]));
    let tokenizer = Tokenizer::from_json(name.as_str(), &tokenizer_json, &eos)?;
    let source = match jinja {
        Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        None => template_source(&settings["chat_template"]),
    };
    let template = ChatTemplate::new(
        name,
        source,
        token_text(&settings["bos_token"]),
        token_text(&settings["eos_token"]),
    )?;

    let shards = Shards::open(folder)?;
    for (file, map) in &shards.files {
        absorb(&mut hasher, file, map);
    }
    let weights = Weights::build(&config, folder, |tensor| keep(shards.tensor(folder, tensor)?))?;
    Ok(Model {
        config,
        weights,
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        hash: hasher.finalize().to_hex().to_string(),
    })
}

/// Adds a file to a hash so that no two sets of files look alike.
fn absorb(hasher: &mut blake3::Hasher, name: &str, bytes: &[u8]) {
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn json(folder: &Path, name: &str, bytes: Option<Vec<u8>>) -> Result<Value, Error> {
    bytes.map_or(Ok(Value::Null), |bytes| {
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::format(&folder.join(name), format!("not JSON: {e}")))
    })
}

/// A template as a string, or the default one of several named ones.
fn template_source(value: &Value) -> Option<String> {
    match value {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str())
            .map(str::to_owned),
        _ => None,
    }
}

/// A special token is written as its text or as an object around it.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or(value["content"].as_str()).map(str::to_owned)
}

/// The safetensors files of a folder, mapped into memory.
struct Shards {
    files: BTreeMap<String, Mmap>,
    /// Tensor name to file name.
    places: BTreeMap<String, String>,
}

impl Shards {
    fn open(folder: &Path) -> Result<Self, Error> {
        let index = folder.join("model.safetensors.index.json");
        let mut places = BTreeMap::new();
        if index.exists() {
            let text = fs::read(&index).map_err(Error::io(&index))?;
            let json: Value =
                serde_json::from_slice(&text).map_err(|e| Error::format(&index, format!("not JSON: {e}")))?;
            let map = json["weight_map"]
                .as_object()
                .ok_or_else(|| Error::format(&index, "it has no `weight_map` object"))?;
            for (tensor, file) in map {
                let file = file.as_str().filter(|file| !file.contains(['/', '\\'])).ok_or_else(|| {
                    Error::format(&index, format!("`{tensor}` is not in a file of this folder"))
                })?;
                places.insert(tensor.clone(), file.to_owned());
            }
        } else {
            let file = "model.safetensors";
            let path = folder.join(file);
            if !path.exists() {
                let reason = "the folder has no model.safetensors (nor an index of shards)";
                return Err(Error::format(folder, reason));
            }
            let map = map_file(&path)?;
            for tensor in parse(&path, &map)?.names() {
                places.insert(tensor.to_owned(), file.to_owned());
            }
        }
        let mut files = BTreeMap::new();
        for file in places.values() {
            if !files.contains_key(file) {
                files.insert(file.clone(), map_file(&folder.join(file))?);
            }
        }
        Ok(Self { files, places })
    }

    fn tensor(&self, folder: &Path, name: &str) -> Result<Tensor, Error> {
        let missing = || Error::MissingTensor { path: folder.to_path_buf(), tensor: name.to_owned() };
        let file = self.places.get(name).ok_or_else(missing)?;
        let map = self.files.get(file).ok_or_else(missing)?;
        let path = folder.join(file);
        let view = parse(&path, map)?;
        let view = view.tensor(name).map_err(|_| missing())?;
        to_tensor(&path, name, view.dtype(), view.shape(), view.data())
    }
}

/// Maps a file into memory.
pub(crate) fn map_file(path: &Path) -> Result<Mmap, Error> {
    let file = fs::File::open(path).map_err(Error::io(path))?;
    // SAFETY: the map is read once, while loading; a file that another program cuts short meanwhile would end
    // this one with SIGBUS, which no way of reading large files without copies avoids.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, Error> {
    SafeTensors::deserialize(bytes)
        .map_err(|e| Error::format(path, format!("not a whole safetensors file ({e}); fetch it again")))
}

/// A stored tensor on the CPU, in its own number format.
fn to_tensor(path: &Path, name: &str, dtype: Dtype, shape: &[usize], data: &[u8]) -> Result<Tensor, Error> {
    let kind = match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F64 => Kind::Double,
        other => {
            let reason =
                format!("the tensor `{name}` is of type {other:?}; F32, F16, BF16 and F64 can be read");
            return Err(Error::format(path, reason));
        }
    };
    let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
    Ok(Tensor::f_from_data_size(data, &shape, kind)?)
}

/// Reads all tensors of one safetensors file as f32.
pub(crate) fn read_all(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let map = map_file(path)?;
    let parsed = parse(path, &map)?;
    parsed
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let tensor = to_tensor(path, &name, view.dtype(), view.shape(), view.data())?;
            Ok((name, tensor.f_to_kind(Kind::Float)?))
        })
        .collect()
}
