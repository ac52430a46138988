//! Loading a model from disk, whatever its form.

use std::path::Path;
use std::sync::Arc;

use tch::Device;

use crate::{ChatTemplate, Config, Error, Tokenizer, Weights, gguf, hub};

/// A language model: weights and everything needed to talk to it.
#[derive(Debug)]
pub struct Model {
    /// Its measures.
    pub config: Config,
    /// Its weights, f32.
    pub weights: Weights,
    /// Text to token ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Messages to text.
    pub template: Arc<ChatTemplate>,
    /// BLAKE3 of the files that it was loaded from, hexadecimal.
    pub hash: String,
}

impl Model {
    /// Loads a Hugging Face folder or a GGUF file; all weights become f32 on `device`.
    ///
    /// # Errors
    /// When a file can't be read, is not what it should be, or holds a model that is not supported.
    pub fn load(path: &Path, device: Device) -> Result<Self, Error> {
        let mut model = if path.is_dir() { hub::load(path)? } else { gguf::load(path)? };
        if device != Device::Cpu {
            model.weights = model.weights.to_device(device);
        }
        Ok(model)
    }
}
