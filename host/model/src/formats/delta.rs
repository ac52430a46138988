//! Differences of two versions of a model's weights, and checksums of weights.
//!
//! A delta is a safetensors file with an entry for each tensor that changed, under the tensor's name: the f32 values
//! of both versions, combined by exclusive or, so that equal bits are zero. The bytes are sorted by significance (all
//! lowest bytes first) and compressed with Zstandard: after a small update, sign, exponent and the first bits of most
//! values are equal. The metadata have the checksums of both versions.

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::formats::save::write_safetensors;
use crate::network::config::Config;
use crate::network::tensor_set::TensorSet;
use crate::network::weight_matrix::WeightMatrix;
use crate::network::weights::{WeightSource, Weights};

/// Value of the key `format` of the metadata.
const FORMAT: &str = "pl-host-delta-1";

/// Compression level: higher ones take several times as long for a few percent.
const LEVEL: i32 = 1;

/// Number of bytes of a value.
const WIDTH: usize = 4;

impl Weights {
    /// Returns the BLAKE3 of the names, shapes and f32 values of all tensors, in hexadecimal.
    ///
    /// # Errors
    /// [`Error::Torch`] if a tensor can't be copied to the CPU.
    pub fn checksum(&self) -> Result<String, Error> {
        let mut hasher = blake3::Hasher::new();
        for (name, tensor) in self.unpacked()?.parameters() {
            let shape = tensor.size();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&(shape.len() as u64).to_le_bytes());
            for dimension in shape {
                hasher.update(&dimension.to_le_bytes());
            }
            let bytes: Vec<u8> = bits(&tensor)?.into_iter().flat_map(u32::to_le_bytes).collect();
            hasher.update_rayon(&bytes);
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Writes the difference from `before` to these weights. `checksums` are those of `before` and of these.
    ///
    /// # Errors
    /// If the weights are not of one model, or the file can't be written.
    pub fn save_delta(&self, before: &Weights, checksums: (&str, &str), path: &Path) -> Result<(), Error> {
        let mut changed: Vec<(String, Vec<u8>)> = Vec::new();
        let old: HashMap<String, Tensor> = before.unpacked()?.parameters().into_iter().collect();
        for (name, tensor) in self.unpacked()?.parameters() {
            let Some(old) = old.get(&name).filter(|old| old.size() == tensor.size()) else {
                return Err(Error::format(path, format!("the versions differ in the form of `{name}`")));
            };
            let difference: Vec<u32> =
                bits(old)?.into_iter().zip(bits(&tensor)?).map(|(old, new)| old ^ new).collect();
            if difference.iter().any(|bits| *bits != 0) {
                let packed = zstd::bulk::compress(&planes(&difference), LEVEL).map_err(Error::io(path))?;
                changed.push((name, packed));
            }
        }
        let views = changed
            .iter()
            .map(|(name, bytes)| {
                let view = TensorView::new(safetensors::Dtype::U8, vec![bytes.len()], bytes)
                    .map_err(|error| Error::format(path, format!("could not be written: {error}")))?;
                Ok((name.as_str(), view))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let metadata = [("format", FORMAT), ("from", checksums.0), ("to", checksums.1)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        write_safetensors(path, views, HashMap::from(metadata))
    }

    /// Returns the weights that a delta makes of these, whose checksum is `checksum`.
    ///
    /// # Errors
    /// [`Error::OtherVersion`] if the delta begins at other weights, [`Error::Format`] if it is not a delta of this model
    /// or the result has not the checksum that the delta names.
    pub fn apply_delta(&self, config: &Config, checksum: &str, path: &Path) -> Result<Weights, Error> {
        let file = std::fs::read(path).map_err(Error::io(path))?;
        let invalid = |reason: String| Error::format(path, reason);
        let not_safetensors =
            |error: safetensors::SafeTensorError| invalid(format!("not safetensors: {error}"));
        let (_, header) = SafeTensors::read_metadata(&file).map_err(not_safetensors)?;
        let tensors = SafeTensors::deserialize(&file).map_err(not_safetensors)?;
        let field = |key: &str| header.metadata().as_ref().and_then(|fields| fields.get(key)).cloned();
        if field("format").as_deref() != Some(FORMAT) {
            return Err(invalid(format!("it is not a delta of weights ({FORMAT})")));
        }
        let from = field("from").unwrap_or_default();
        if from != checksum {
            return Err(Error::OtherVersion {
                path: path.to_path_buf(),
                expected: from,
                got: checksum.to_owned(),
            });
        }
        let mut changed: HashMap<&str, &[u8]> =
            tensors.iter().map(|(name, view)| (name, view.data())).collect();
        let old: HashMap<String, Tensor> = self.unpacked()?.parameters().into_iter().collect();
        let patched = PatchedWeights { path, old: &old, changed: &mut changed };
        let weights = Weights::build(config, path, patched)?;
        if let Some(name) = changed.keys().next() {
            return Err(invalid(format!("the model has no tensor `{name}`")));
        }
        let (expected, got) = (field("to").unwrap_or_default(), weights.checksum()?);
        if expected != got {
            return Err(invalid(format!("the result has the checksum {got}, not {expected}")));
        }
        Ok(weights)
    }
}

/// Weights with a delta applied.
struct PatchedWeights<'a, 'd> {
    path: &'a Path,
    old: &'a HashMap<String, Tensor>,
    /// Compressed differences that are not applied yet.
    changed: &'a mut HashMap<&'d str, &'d [u8]>,
}

impl WeightSource for PatchedWeights<'_, '_> {
    fn vector(&mut self, name: &str) -> Result<Tensor, Error> {
        let missing = || Error::MissingTensor { path: self.path.to_path_buf(), tensor: name.to_owned() };
        let tensor = self.old.get(name).ok_or_else(missing)?;
        match self.changed.remove(name) {
            Some(difference) => patch(tensor, difference, self.path),
            None => Ok(tensor.shallow_clone()),
        }
    }

    fn matrix(&mut self, name: &str) -> Result<WeightMatrix, Error> {
        self.vector(name).map(WeightMatrix::from)
    }
}

/// Returns a tensor with the packed difference applied.
fn patch(tensor: &Tensor, packed: &[u8], path: &Path) -> Result<Tensor, Error> {
    let old = bits(tensor)?;
    let length = old.len() * WIDTH;
    let bytes = zstd::bulk::decompress(packed, length).map_err(Error::io(path))?;
    if bytes.len() != length {
        let reason = format!("a difference has {} bytes, and its tensor {length}", bytes.len());
        return Err(Error::format(path, reason));
    }
    let values: Vec<f32> =
        old.iter().zip(words(&bytes)).map(|(old, difference)| f32::from_bits(old ^ difference)).collect();
    let new = Tensor::f_from_slice(&values)?.f_view(tensor.size().as_slice())?;
    Ok(new.f_to_kind(tensor.kind())?.f_to_device(tensor.device())?)
}

/// Returns the bits of a tensor's values as f32.
fn bits(tensor: &Tensor) -> Result<Vec<u32>, Error> {
    let plain = tensor.detach().f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut values = vec![0_f32; plain.numel()];
    let count = values.len();
    plain.f_copy_data(&mut values, count)?;
    Ok(values.into_iter().map(f32::to_bits).collect())
}

/// Returns the bytes of numbers sorted by significance.
fn planes(words: &[u32]) -> Vec<u8> {
    (0..WIDTH).flat_map(|plane| words.iter().map(move |word| (word >> (8 * plane)) as u8)).collect()
}

/// Returns the numbers of which [`planes`] returns these bytes.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let count = bytes.len() / WIDTH;
    let byte = move |plane: usize, index: usize| {
        u32::from(bytes.get(plane * count + index).copied().unwrap_or_default()) << (8 * plane)
    };
    (0..count).map(move |index| (0..WIDTH).map(|plane| byte(plane, index)).fold(0, |all, part| all | part))
}

#[cfg(test)]
mod tests {
    use pl_types::Dtype;

    use super::*;
    use crate::Model;

    fn tiny() -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        Model::load(&path, Device::Cpu, Dtype::F32).unwrap()
    }

    /// Weights after a small update of one matrix, and of one value of a norm.
    fn updated(weights: &Weights) -> Weights {
        let new = weights.copy();
        let mut matrix = new.layers[0].q.to_tensor().unwrap();
        let _ = matrix.f_mul_(&Tensor::from(1.0 + 1e-4)).unwrap();
        let _ = new.norm.get(3).f_add_(&Tensor::from(0.5)).unwrap();
        new
    }

    #[test]
    fn a_delta_makes_the_new_weights_of_the_old_ones() {
        let model = tiny();
        let new = updated(&model.weights);
        let (from, to) = (model.weights.checksum().unwrap(), new.checksum().unwrap());
        assert_ne!(from, to);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v1.delta");
        new.save_delta(&model.weights, (&from, &to), &path).unwrap();
        let applied = model.weights.apply_delta(&model.config, &from, &path).unwrap();
        assert_eq!(applied.checksum().unwrap(), to);
        let changed = model.weights.layers[0].q.to_tensor().unwrap().numel() * WIDTH;
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(size < changed as u64, "{size} bytes for {changed}");

        // Weights of another version, and a file that was cut or changed.
        let error = new.apply_delta(&model.config, &to, &path).unwrap_err();
        assert!(matches!(error, Error::OtherVersion { .. }), "{error}");
        let mut bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        assert!(model.weights.apply_delta(&model.config, &from, &path).is_err());
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(model.weights.apply_delta(&model.config, &from, &path).is_err());
    }

    #[test]
    fn bytes_are_sorted_by_significance_and_back() {
        let numbers = [0x0102_0304, 0xffee_ddcc, 7];
        let bytes = planes(&numbers);
        assert_eq!(bytes[..3], [0x04, 0xcc, 7]);
        assert_eq!(words(&bytes).collect::<Vec<u32>>(), numbers);
    }
}
