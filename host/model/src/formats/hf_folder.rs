//! Hugging Face model folders: `config.json`, safetensors (one file or an index of shards), `tokenizer.json`,
//! `tokenizer_config.json`, `chat_template.jinja`.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use pl_types::{ModelDtype, SourcePath};
use serde_json::Value;
use tch::Tensor;

use crate::error::Error;
use crate::formats::matrix_form::{MatrixForm, stored_bytes};
use crate::formats::shards::Shards;
use crate::formats::{LARGEST_SETTINGS, LARGEST_TOKENIZER};
use crate::model::Model;
use crate::network::config::{Config, ids};
use crate::network::weight_matrix::WeightMatrix;
use crate::network::weights::{WeightSource, Weights};
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// Loads a model folder.
pub(crate) fn load(source: &SourcePath, form: &MatrixForm) -> Result<Model, Error> {
    let mut hasher = blake3::Hasher::new();
    let (config, tokenizer, template) = text(source, &mut hasher)?;
    let shards = Shards::open_folder(source)?;
    let folder = source.path();
    hash_shards(&mut hasher, &shards)?;
    let weights = Weights::build(&config, folder, FolderWeights { folder, shards: &shards, form })?;
    check_unused_tensors(folder, &config, &weights, &shards)?;
    Ok(Model {
        config,
        weights,
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        dtype: form.dtype,
        hash: hasher.finalize().to_hex().to_string(),
    })
}

/// Tensors of a folder.
struct FolderWeights<'a> {
    folder: &'a Path,
    shards: &'a Shards,
    form: &'a MatrixForm,
}

impl FolderWeights<'_> {
    fn missing(&self, name: &str) -> Error {
        Error::MissingTensor { path: self.folder.to_path_buf(), tensor: name.to_owned() }
    }
}

impl WeightSource for FolderWeights<'_> {
    fn vector(&mut self, name: &str) -> Result<Tensor, Error> {
        let stored = self.shards.take(name, |tensor| self.form.tensor(tensor))?;
        stored.ok_or_else(|| self.missing(name))
    }

    fn matrix(&mut self, name: &str) -> Result<WeightMatrix, Error> {
        self.shards.take_matrix(name, self.form)?.ok_or_else(|| self.missing(name))
    }
}

/// Returns the size of the matrices, packed in their number formats.
pub(crate) fn packed_bytes(source: &SourcePath) -> Result<u64, Error> {
    let shards = Shards::open_folder(source)?;
    let sizes = shards.shapes().filter(|(shape, _)| shape.len() == 2);
    Ok(sizes.map(|(shape, kind)| shape.iter().product::<i64>() as u64 * stored_bytes(kind) as u64).sum())
}

/// Loads everything but the weights, of which only the hash is computed.
pub(crate) fn load_without_weights(folder: &SourcePath, dtype: ModelDtype) -> Result<Model, Error> {
    let mut hasher = blake3::Hasher::new();
    let (config, tokenizer, template) = text(folder, &mut hasher)?;
    hash_shards(&mut hasher, &Shards::open_folder(folder)?)?;
    Ok(Model {
        config,
        weights: Weights::empty(),
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(template),
        dtype,
        hash: hasher.finalize().to_hex().to_string(),
    })
}

/// Adds the files of the weights to a hash.
fn hash_shards(hasher: &mut blake3::Hasher, shards: &Shards) -> Result<(), Error> {
    for file in shards.files() {
        let name = file.path().file_name().unwrap_or_default().to_string_lossy();
        hash_header(hasher, &name, file.len());
        file.hash(hasher)?;
    }
    Ok(())
}

/// Loads the files besides the weights, and adds them to `hasher`.
pub(crate) fn text(
    source: &SourcePath,
    hasher: &mut blake3::Hasher,
) -> Result<(Config, Tokenizer, ChatTemplate), Error> {
    let folder = source.path();
    let mut read = |name: &str, largest: u64| -> Result<Option<Vec<u8>>, Error> {
        let path = source.join(name);
        match path.read_at_most(largest) {
            Ok(bytes) => {
                hash_file(hasher, name, &bytes);
                Ok(Some(bytes))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(path.path())(e)),
        }
    };
    let need = |name: &str, bytes: Option<Vec<u8>>| {
        bytes.ok_or_else(|| {
            Error::format(
                folder,
                format!("the folder has no {name}; it is not a complete Hugging Face model"),
            )
        })
    };
    let config_json = need("config.json", read("config.json", LARGEST_SETTINGS)?)?;
    let tokenizer_json = need("tokenizer.json", read("tokenizer.json", LARGEST_TOKENIZER)?)?;
    let settings = read("tokenizer_config.json", LARGEST_SETTINGS)?;
    let settings = json(folder, "tokenizer_config.json", settings)?;
    let generation = read("generation_config.json", LARGEST_SETTINGS)?;
    let generation = json(folder, "generation_config.json", generation)?;
    let jinja = read("chat_template.jinja", LARGEST_SETTINGS)?;

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

    Ok((config, tokenizer, template))
}

/// Checks that all tensors of blocks are used, because ignoring one would change the model.
fn check_unused_tensors(
    folder: &Path,
    config: &Config,
    weights: &Weights,
    shards: &Shards,
) -> Result<(), Error> {
    let known: HashSet<String> = weights.sizes().into_iter().map(|(name, _)| name).collect();
    let unused = shards.names().find(|name| {
        // Old folders have the rotary frequencies, which follow from the configuration.
        name.starts_with("model.layers.") && !name.ends_with(".rotary_emb.inv_freq") && !known.contains(*name)
    });
    unused.map_or(Ok(()), |name| {
        let reason = format!("the tensor `{name}` does not belong to a {} model", config.family);
        Err(Error::format(folder, reason))
    })
}

/// Adds a file to a hash, with its name and length, so that different sets of files have different hashes.
fn hash_file(hasher: &mut blake3::Hasher, name: &str, bytes: &[u8]) {
    hash_header(hasher, name, bytes.len());
    hasher.update(bytes);
}

/// Adds a file's name and length to a hash.
fn hash_header(hasher: &mut blake3::Hasher, name: &str, len: usize) {
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(&(len as u64).to_le_bytes());
}

fn json(folder: &Path, name: &str, bytes: Option<Vec<u8>>) -> Result<Value, Error> {
    bytes.map_or(Ok(Value::Null), |bytes| {
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::format(&folder.join(name), format!("not JSON: {e}")))
    })
}

/// Returns the template, which is a string or the default of several named ones.
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

/// Returns the text of a special token, which is a string or an object with it.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or(value["content"].as_str()).map(str::to_owned)
}
