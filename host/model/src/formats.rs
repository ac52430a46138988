//! File formats of models: Hugging Face folders of safetensors, GGUF files, PEFT adapters.

mod delta;
mod gguf;
mod hf_folder;
mod mapped_file;
mod matrix_form;
mod peft;
mod save;
mod shards;

use pl_types::{ModelDtype, SourcePath};
use tch::Device;

use crate::error::Error;
use crate::formats::matrix_form::MatrixForm;
use crate::libtorch::choose_vector_kernels;
use crate::model::Model;
use crate::network::config::Config;
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// Largest settings, index of shards or chat template of a model folder, in bytes. The index of a model with a hundred
/// thousand tensors has some ten megabytes.
pub(crate) const LARGEST_SETTINGS: u64 = 64 << 20;

/// Largest `tokenizer.json`, in bytes. Those of vocabularies with hundreds of thousands of tokens have some ten megabytes.
pub(crate) const LARGEST_TOKENIZER: u64 = 256 << 20;

impl Model {
    /// Loads a Hugging Face folder or a GGUF file onto `device`, with the matrices in the form `dtype`: tensors as
    /// [`Weights::round_to`](crate::Weights::round_to) stores them, or packed. Tensors are converted one at a time, directly
    /// from the mapped file.
    ///
    /// # Errors
    /// If a file can't be read or is invalid, if the model is not supported, if packed matrices are asked for on a GPU, and if
    /// the device's memory runs out.
    pub fn load(
        source: impl Into<SourcePath>,
        device: Device,
        dtype: impl Into<ModelDtype>,
    ) -> Result<Self, Error> {
        choose_vector_kernels();
        let source = source.into();
        let form = MatrixForm::new(dtype.into(), device, source.path())?;
        if source.path().is_dir() {
            hf_folder::load(&source, &form)
        } else {
            gguf::model::load(&source, &form)
        }
    }

    /// Returns the size in bytes of a model's matrices as they are packed with [`ModelDtype::File`], from the headers of its
    /// files.
    ///
    /// # Errors
    /// If a file can't be read or is invalid.
    pub fn packed_bytes(source: impl Into<SourcePath>) -> Result<u64, Error> {
        let source = source.into();
        if source.path().is_dir() {
            hf_folder::packed_bytes(&source)
        } else {
            gguf::model::packed_bytes(&source)
        }
    }

    /// Loads a model that other machines run: everything but the weights, which are empty. The hash is that of
    /// [`Self::load`].
    ///
    /// # Errors
    /// If a file can't be read or is invalid.
    pub fn load_without_weights(
        source: impl Into<SourcePath>,
        dtype: impl Into<ModelDtype>,
    ) -> Result<Self, Error> {
        let (source, dtype) = (source.into(), dtype.into());
        if source.path().is_dir() {
            hf_folder::load_without_weights(&source, dtype)
        } else {
            gguf::model::load_without_weights(&source, dtype)
        }
    }

    /// Loads the tokenizer and the chat template, without the weights.
    ///
    /// # Errors
    /// If one of the files that are read is missing or invalid.
    pub fn text(source: impl Into<SourcePath>) -> Result<(Tokenizer, ChatTemplate), Error> {
        let source = source.into();
        if !source.path().is_dir() {
            return gguf::model::text(&source);
        }
        let (_, tokenizer, template) = hf_folder::text(&source, &mut blake3::Hasher::new())?;
        Ok((tokenizer, template))
    }
}

impl Config {
    /// Reads the dimensions of a model on disk (a Hugging Face folder or a GGUF file) without its weights.
    ///
    /// # Errors
    /// If a file can't be read or is invalid, and in the cases of [`Config::from_json`].
    pub fn read(source: impl Into<SourcePath>) -> Result<Self, Error> {
        let source = source.into();
        if !source.path().is_dir() {
            return gguf::model::config(&source);
        }
        let file = source.join("config.json");
        let json = file.read_at_most(LARGEST_SETTINGS).map_err(Error::io(file.path()))?;
        Self::from_json(&String::from_utf8_lossy(&json), file.path())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pl_types::Dtype;

    use super::*;

    #[test]
    fn a_model_without_weights_has_the_same_hash() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let whole = Model::load(&path, Device::Cpu, Dtype::F32).unwrap();
        let model = Model::load_without_weights(&path, Dtype::F32).unwrap();
        assert_eq!((&model.hash, model.config.vocab), (&whole.hash, whole.config.vocab));
        assert!(model.weights.layers.is_empty());
    }
}
