//! Loading a model from disk, whatever its form.

use std::path::Path;
use std::sync::Arc;

use tch::{Device, Tensor};

use crate::weights::keep;
use crate::{ChatTemplate, Config, Dtype, Error, Tokenizer, Weights, gguf_model, hub};

/// A language model: weights and everything needed to talk to it.
#[derive(Debug)]
pub struct Model {
    /// Its measures.
    pub config: Config,
    /// Its weights.
    pub weights: Weights,
    /// Text to token ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Messages to text.
    pub template: Arc<ChatTemplate>,
    /// The number format that its matrices are rounded to.
    pub dtype: Dtype,
    /// BLAKE3 of the files that it was loaded from, hexadecimal.
    pub hash: String,
}

impl Model {
    /// Loads a Hugging Face folder or a GGUF file onto `device`, its matrices in the number format `dtype` as
    /// [`Weights::round_to`] says. One tensor is converted at a time, straight from the mapped file.
    ///
    /// # Errors
    /// When a file can't be read, is not what it should be, or holds a model that is not supported, and when
    /// the device has no memory for it.
    pub fn load(path: &Path, device: Device, dtype: Dtype) -> Result<Self, Error> {
        let keep = |tensor: &Tensor| Ok(keep(tensor, dtype, device)?);
        if path.is_dir() { hub::load(path, dtype, keep) } else { gguf_model::load(path, dtype, keep) }
    }

    /// What a model needs to read and write text, without its weights.
    ///
    /// # Errors
    /// As of [`Model::load`], of the files that are read.
    pub fn text(path: &Path) -> Result<(Tokenizer, ChatTemplate), Error> {
        if !path.is_dir() {
            return gguf_model::text(path);
        }
        let (_, tokenizer, template) = hub::text(path, &mut blake3::Hasher::new())?;
        Ok((tokenizer, template))
    }
}
