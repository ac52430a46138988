//! Writing models as Hugging Face folders.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pl_types::Dtype;
use safetensors::View;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::dtype::TorchDtype;
use crate::error::Error;
use crate::network::config::Config;
use crate::network::tensor_set::TensorSet;
use crate::network::weights::Weights;
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

impl Weights {
    /// Writes a folder that transformers (and [`Model::load`](crate::Model::load)) loads: `config.json`,
    /// `model.safetensors` (all tensors in `dtype`: f32 keeps what was trained), `tokenizer.json`,
    /// `tokenizer_config.json` with the chat template.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn save_folder(
        &self,
        folder: &Path,
        config: &Config,
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        dtype: Dtype,
    ) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        write_json(&folder.join("config.json"), &config.to_json(torch_name(dtype)))?;
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
        write_tensors(&folder.join("model.safetensors"), self.unpacked()?.parameters(), dtype)
    }
}

pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), Error> {
    fs::write(path, format!("{value:#}\n")).map_err(Error::io(path))
}

/// Writes a safetensors file of tensors in one number format.
pub(crate) fn write_tensors(path: &Path, tensors: Vec<(String, Tensor)>, dtype: Dtype) -> Result<(), Error> {
    let stored = tensors.into_iter().map(|(name, tensor)| {
        let shape = tensor.size().iter().map(|n| *n as usize).collect();
        (name, LazyTensor { tensor: tensor.detach(), dtype, shape })
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    write_safetensors(path, stored, metadata)
}

/// Writes a safetensors file, with the permissions that the user's mask leaves.
pub(crate) fn write_safetensors<N, V>(
    path: &Path,
    tensors: impl IntoIterator<Item = (N, V)>,
    metadata: HashMap<String, String>,
) -> Result<(), Error>
where
    N: AsRef<str> + Ord + Display,
    V: View,
{
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = permissions_by_mask(folder).map_err(Error::io(folder))?;
    // The library renames a temporary file, which its owner alone may read.
    safetensors::serialize_to_file(tensors, Some(metadata), path)
        .map_err(|e| Error::format(path, format!("could not be written: {e}")))?;
    fs::set_permissions(path, permissions).map_err(Error::io(path))
}

/// Returns the permissions that the user's mask leaves to a new file in `folder`.
fn permissions_by_mask(folder: &Path) -> io::Result<Permissions> {
    let not_created = |error: io::Error| {
        io::Error::new(error.kind(), format!("no file can be created in the folder: {error}"))
    };
    // The umask can only be read by setting it, for all threads: a file that is made and removed shows it.
    let file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(not_created)?;
    let permissions = file.as_file().metadata()?.permissions();
    // Dropping it would ignore an error, and a file that stays would become a part of the folder.
    file.close()?;
    Ok(permissions)
}

/// Returns PyTorch's name of a number format.
fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
    }
}

/// A tensor that is converted only while it is written.
struct LazyTensor {
    tensor: Tensor,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl View for LazyTensor {
    fn dtype(&self) -> safetensors::Dtype {
        match self.dtype {
            Dtype::F32 => safetensors::Dtype::F32,
            Dtype::F16 => safetensors::Dtype::F16,
            Dtype::Bf16 => safetensors::Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0u8; self.data_len()];
        let plain = self.tensor.to_kind(self.dtype.kind()).to_device(Device::Cpu).contiguous();
        plain.view([-1]).view_dtype(Kind::Uint8).copy_data(&mut bytes, self.data_len());
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_files_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("missing");
        let error = write_tensors(&folder.join("model.safetensors"), Vec::new(), Dtype::F32).unwrap_err();
        let message = error.to_string();
        let expected = format!("{}: no file can be created in the folder: ", folder.display());
        assert!(message.starts_with(&expected), "{message}");
        assert!(matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound));
    }
}
