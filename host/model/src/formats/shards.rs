//! Reading safetensors: one file, or the shards of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::formats::mapped_file::MappedFile;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where a tensor lies.
#[derive(Debug)]
struct Entry {
    file: usize,
    kind: Kind,
    shape: Vec<i64>,
    bytes: Range<usize>,
}

/// Safetensors files and the tensors in them.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Vec<MappedFile>,
    entries: BTreeMap<String, Entry>,
}

impl Shards {
    /// The weights of a model folder: those that its index names, or its only file.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, Error> {
        let index = folder.join(INDEX);
        if index.exists() {
            let places = places(&index)?;
            let names: BTreeSet<&String> = places.values().collect();
            let files = names.into_iter().map(|name| MappedFile::open(&folder.join(name)));
            let mut shards = Self::parse(files.collect::<Result<_, _>>()?)?;
            shards.entries.retain(|name, _| places.contains_key(name));
            return Ok(shards);
        }
        let path = folder.join(SINGLE);
        if !path.exists() {
            let reason = format!(
                "the folder has no {SINGLE} (nor an index of shards); models stored in other ways have to be \
                 converted to safetensors"
            );
            return Err(Error::format(folder, reason));
        }
        Self::open(&path)
    }

    /// One file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Self::parse(vec![MappedFile::open(path)?])
    }

    fn parse(files: Vec<MappedFile>) -> Result<Self, Error> {
        let mut entries = BTreeMap::new();
        for (file, map) in files.iter().enumerate() {
            let parsed = SafeTensors::deserialize(map).map_err(|e| {
                Error::format(map.path(), format!("not a whole safetensors file ({e}); fetch it again"))
            })?;
            for (name, view) in parsed.tensors() {
                let kind = kind(map.path(), &name, view.dtype())?;
                let start = view.data().as_ptr() as usize - map.as_ptr() as usize;
                let bytes = start..start + view.data().len();
                let shape = view.shape().iter().map(|n| *n as i64).collect();
                entries.insert(name, Entry { file, kind, shape, bytes });
            }
        }
        Ok(Self { files, entries })
    }

    /// The files, by name.
    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// The names of all tensors, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// What `keep` makes of a tensor. It gets it as it is stored, in the file's memory; what it returns has
    /// memory of its own. None: there is no such tensor.
    pub(crate) fn take(
        &self,
        name: &str,
        keep: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<Option<Tensor>, Error> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let map = &self.files[entry.file];
        let data = &map[entry.bytes.clone()];
        // SAFETY: the tensor is as long as its shape says (the parser checked), outlived by the map, and
        // dropped with all that shares its memory before this function returns.
        let stored =
            unsafe { Tensor::f_from_blob(data.as_ptr(), &entry.shape, &[], entry.kind, Device::Cpu) }?;
        let kept = keep(&stored)?;
        let own = if kept.data_ptr() == stored.data_ptr() {
            let mut own = stored.f_empty_like()?;
            own.f_copy_(&stored)?;
            own
        } else {
            kept
        };
        map.release(data);
        Ok(Some(own))
    }
}

/// Tensor name to file name, as an index has them.
fn places(index: &Path) -> Result<BTreeMap<String, String>, Error> {
    let text = fs::read(index).map_err(Error::io(index))?;
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

/// libtorch's name of a number format.
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
