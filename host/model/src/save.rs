//! Writing models as Hugging Face folders.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::{Dtype, View};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::{ChatTemplate, Config, Error, Tokenizer, Weights};

impl Weights {
    /// Writes a folder that transformers (and [`Model::load`](crate::Model::load)) loads: `config.json`,
    /// `model.safetensors` (f32), `tokenizer.json`, `tokenizer_config.json` with the chat template.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn save_folder(
        &self,
        folder: &Path,
        config: &Config,
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
    ) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        write_json(&folder.join("config.json"), &config.to_json("float32"))?;
        let path = folder.join("tokenizer.json");
        fs::write(&path, tokenizer.to_json()?).map_err(Error::io(&path))?;
        let mut settings = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.max_positions,
            "clean_up_tokenization_spaces": false,
        });
        let extra = [
            ("bos_token", template.bos()),
            ("eos_token", template.eos()),
            ("chat_template", template.source()),
        ];
        for (key, value) in extra {
            if let Some(value) = value {
                settings[key] = value.into();
            }
        }
        write_json(&folder.join("tokenizer_config.json"), &settings)?;
        write_tensors(&folder.join("model.safetensors"), self.parameters())
    }
}

pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), Error> {
    fs::write(path, format!("{value:#}\n")).map_err(Error::io(path))
}

/// Writes a safetensors file, f32.
pub(crate) fn write_tensors(path: &Path, tensors: Vec<(String, Tensor)>) -> Result<(), Error> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        stored.push((name, Stored::new(&tensor)?));
    }
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(stored, Some(about), path)
        .map_err(|e| Error::format(path, format!("could not be written: {e}")))
}

/// A tensor that is copied out only while it is written.
struct Stored {
    tensor: Tensor,
    shape: Vec<usize>,
}

impl Stored {
    fn new(tensor: &Tensor) -> Result<Self, Error> {
        let tensor = tensor.detach().f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?;
        let shape = tensor.size().iter().map(|n| *n as usize).collect();
        Ok(Self { tensor, shape })
    }
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0u8; self.data_len()];
        self.tensor.view([-1]).view_dtype(Kind::Uint8).copy_data(&mut bytes, self.data_len());
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * 4
    }
}
