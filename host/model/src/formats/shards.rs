//! Reading safetensors: one file, or the shards of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use pl_types::SourcePath;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::formats::LARGEST_SETTINGS;
use crate::formats::mapped_file::MappedFile;
use crate::formats::matrix_form::MatrixForm;
use crate::network::weight_matrix::WeightMatrix;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Location and type of a tensor.
#[derive(Debug)]
struct TensorEntry {
    file: usize,
    kind: Kind,
    shape: Vec<i64>,
    bytes: Range<usize>,
}

/// Safetensors files and the tensors in them.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Vec<MappedFile>,
    entries: BTreeMap<String, TensorEntry>,
}

impl Shards {
    /// Opens the weights of a model folder: the files that its index names, or its only file.
    pub(crate) fn open_folder(folder: &SourcePath) -> Result<Self, Error> {
        let index = folder.join(INDEX);
        if index.path().exists() {
            let files_by_tensor = read_index(&index)?;
            let names: BTreeSet<&String> = files_by_tensor.values().collect();
            let files = names.into_iter().map(|name| MappedFile::open(&folder.join(name)));
            let mut shards = Self::parse(files.collect::<Result<_, _>>()?)?;
            shards.entries.retain(|name, _| files_by_tensor.contains_key(name));
            return Ok(shards);
        }
        let path = folder.join(SINGLE);
        if !path.path().exists() {
            let reason = format!(
                "the folder has no {SINGLE} (nor an index of shards); models in other formats must be \
                 converted to safetensors"
            );
            return Err(Error::format(folder.path(), reason));
        }
        Self::open(&path)
    }

    /// Opens one file.
    pub(crate) fn open(path: &SourcePath) -> Result<Self, Error> {
        Self::parse(vec![MappedFile::open(path)?])
    }

    fn parse(files: Vec<MappedFile>) -> Result<Self, Error> {
        let mut entries = BTreeMap::new();
        for (file, map) in files.iter().enumerate() {
            let parsed = SafeTensors::deserialize(map).map_err(|e| {
                Error::format(map.path(), format!("not a complete safetensors file ({e}); download it again"))
            })?;
            for (name, view) in parsed.tensors() {
                let kind = kind(map.path(), &name, view.dtype())?;
                let start = view.data().as_ptr() as usize - map.as_ptr() as usize;
                let bytes = start..start + view.data().len();
                let shape: Result<Vec<i64>, _> = view.shape().iter().map(|n| i64::try_from(*n)).collect();
                let shape = shape.map_err(|_| {
                    Error::format(map.path(), format!("the tensor `{name}` has a size that no memory has"))
                })?;
                entries.insert(name, TensorEntry { file, kind, shape, bytes });
            }
        }
        Ok(Self { files, entries })
    }

    /// Returns the files, by name.
    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// Returns the names of all tensors, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// Converts a tensor with `store`, which gets it in the memory of the mapped file. The result has memory
    /// of its own. Returns `None` if the tensor does not exist.
    pub(crate) fn take(
        &self,
        name: &str,
        store: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Option<Tensor>, Error> {
        self.read(name, |stored| {
            let converted = store(stored)?;
            if converted.data_ptr() != stored.data_ptr() {
                return Ok(converted);
            }
            let mut own = stored.f_empty_like()?;
            own.f_copy_(stored)?;
            Ok(own)
        })
    }

    /// Converts a matrix to a form. The result has memory of its own. Returns `None` if the tensor does not exist.
    pub(crate) fn take_matrix(&self, name: &str, form: &MatrixForm) -> Result<Option<WeightMatrix>, Error> {
        if let Some(packed) = self.read(name, |stored| form.pack(stored))?.flatten() {
            return Ok(Some(packed));
        }
        Ok(self.take(name, |stored| form.tensor(stored))?.map(WeightMatrix::from))
    }

    /// Returns the shapes and kinds of all tensors.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&[i64], Kind)> {
        self.entries.values().map(|entry| (entry.shape.as_slice(), entry.kind))
    }

    /// Passes a tensor in the memory of the mapped file to `convert`, whose result has memory of its own. Returns `None` if
    /// the tensor does not exist.
    fn read<T>(
        &self,
        name: &str,
        convert: impl FnOnce(&Tensor) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let map = &self.files[entry.file];
        let data = &map[entry.bytes.clone()];
        let stored = if data.as_ptr().addr().is_multiple_of(entry.kind.elt_size_in_bytes()) {
            // SAFETY: the data has the length of the shape (the parser checks that) and the alignment of its numbers, the
            // map outlives the tensor, and all tensors in this memory are dropped before this function returns.
            unsafe { Tensor::f_from_blob(data.as_ptr(), &entry.shape, &[], entry.kind, Device::Cpu) }?
        } else {
            // The header has an odd length. This copies.
            Tensor::f_from_data_size(data, &entry.shape, entry.kind)?
        };
        let converted = convert(&stored)?;
        map.release(data);
        Ok(Some(converted))
    }
}

/// Reads an index: the file name of each tensor.
fn read_index(source: &SourcePath) -> Result<BTreeMap<String, String>, Error> {
    let index = source.path();
    let text = source.read_at_most(LARGEST_SETTINGS).map_err(Error::io(index))?;
    let json: Value =
        serde_json::from_slice(&text).map_err(|e| Error::format(index, format!("not JSON: {e}")))?;
    let map = json["weight_map"]
        .as_object()
        .ok_or_else(|| Error::format(index, "it has no `weight_map` object"))?;
    map.iter()
        .map(|(tensor, file)| {
            let file = file
                .as_str()
                .filter(|file| !file.contains(['/', '\\']))
                .ok_or_else(|| Error::format(index, format!("`{tensor}` is not in a file of this folder")))?;
            Ok((tensor.clone(), file.to_owned()))
        })
        .collect()
}

/// Returns libtorch's kind of a number format.
fn kind(path: &Path, name: &str, dtype: Dtype) -> Result<Kind, Error> {
    Ok(match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F64 => Kind::Double,
        other => {
            let reason = format!(
                "the tensor `{name}` is of type {other:?}; F32, F16, BF16 and F64 can be read. Use the model in one \
                 of these"
            );
            return Err(Error::format(path, reason));
        }
    })
}
