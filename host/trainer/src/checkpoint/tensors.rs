//! Files of named tensors.

use std::collections::BTreeMap;
use std::path::Path;

use pl_model::{Adapter, Config, TensorSet};
use tch::{Device, Tensor, no_grad};

use super::OTHER_WORKFLOW;
use super::files::{damaged, file_bytes};
use crate::error::Error;

/// Weight and bias of a critic, in the folder of its policy.
pub(super) const VALUE_HEAD: &str = "value_head.safetensors";

/// Bytes that files may have besides numbers, for headers, settings, a tokenizer and a model card.
const OVERHEAD: u64 = 512 << 20;

/// Returns the number of numbers in tensors.
pub(super) fn count_numbers(tensors: &[(String, Tensor)]) -> usize {
    tensors.iter().map(|(_, tensor)| tensor.numel()).sum()
}

/// Checks that a file, or the files in a folder together, are not much larger than tensors with this number of values, so that
/// they fit in memory, whatever their headers say. Reads nothing.
pub(super) fn check_size(path: &Path, numbers: usize) -> Result<(), Error> {
    check_bytes(path, file_bytes(path)?, largest_size(numbers))
}

/// Returns the largest size of the files of tensors with this number of values, in bytes.
pub(super) fn largest_size(numbers: usize) -> u64 {
    // The widest numbers are f64.
    (numbers as u64).saturating_mul(8).saturating_add(OVERHEAD)
}

/// Checks that a file or folder with this number of bytes is not larger than `largest`.
pub(super) fn check_bytes(path: &Path, bytes: u64, largest: u64) -> Result<(), Error> {
    if bytes <= largest {
        return Ok(());
    }
    let problem = format!(
        "it has {bytes} bytes, but the tensors of the workflow take at most {largest}; {OTHER_WORKFLOW}"
    );
    Err(Error::Checkpoint { path: path.to_path_buf(), problem })
}

/// Writes named tensors as safetensors.
pub(super) fn write_tensors(path: &Path, tensors: Vec<(String, Tensor)>) -> Result<(), Error> {
    let tensors: Vec<_> =
        tensors.into_iter().map(|(name, tensor)| (name, tensor.to_device(Device::Cpu))).collect();
    Tensor::write_safetensors(&tensors, path).map_err(Error::torch(format!("writing {}", path.display())))
}

/// Reads the tensors of a safetensors file.
pub(super) fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>, Error> {
    Tensor::read_safetensors(path).map_err(|error| damaged(path, &format!("cannot be read ({error})")))
}

/// Reads the tensors of an adapter. Its products must have the scale of those of `own`.
pub(super) fn read_adapter(
    policy: &str,
    path: &Path,
    config: &Config,
    own: &Adapter,
) -> Result<Vec<(String, Tensor)>, Error> {
    let adapter = Adapter::load(path, config).map_err(Error::model(policy))?;
    if adapter.alpha != own.alpha {
        let (trained, set) = (adapter.alpha, own.alpha);
        let problem =
            format!("it was trained with alpha = {trained}, and the workflow sets {set}; {OTHER_WORKFLOW}");
        return Err(Error::Checkpoint { path: path.to_path_buf(), problem });
    }
    Ok(adapter.parameters())
}

/// Copies tensors from `saved` into `own`, in place. Names and shapes must be equal.
pub(super) fn restore_tensors(
    path: &Path,
    own: Vec<(String, Tensor)>,
    saved: Vec<(String, Tensor)>,
) -> Result<(), Error> {
    let mut saved: BTreeMap<String, Tensor> = saved.into_iter().collect();
    for (name, mut tensor) in own {
        let Some(value) = saved.remove(&name).filter(|value| value.size() == tensor.size()) else {
            let problem = format!("it has no tensor `{name}` of shape {:?}; {OTHER_WORKFLOW}", tensor.size());
            return Err(Error::Checkpoint { path: path.to_path_buf(), problem });
        };
        no_grad(|| tensor.f_copy_(&value)).map_err(Error::torch(format!("reading {}", path.display())))?;
    }
    match saved.keys().next() {
        None => Ok(()),
        Some(name) => {
            let problem = format!("it has a tensor `{name}` that the policy does not have; {OTHER_WORKFLOW}");
            Err(Error::Checkpoint { path: path.to_path_buf(), problem })
        }
    }
}
