//! The GGUF container (versions 2 and 3): metadata and tensors.
//!
//! The file is untrusted: every length is checked against the rest of the file before it is read.

use std::collections::HashMap;
use std::path::Path;

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::formats::gguf::quant::{GgmlType, READABLE, format_name};
use crate::formats::mapped_file::MappedFile;

/// Largest number of metadata values, those of lists included. Each takes up to 32 times its size in the file. The
/// largest vocabularies have some two million.
const MOST_VALUES: u64 = 8 << 20;

/// Largest number of tensors. The largest models have some tens of thousands.
const MOST_TENSORS: u64 = 1 << 20;

/// A metadata value. Numbers of all widths are widened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetadataValue {
    Uint(u64),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<MetadataValue>),
}

impl MetadataValue {
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[MetadataValue]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Uint(n) => i64::try_from(*n).ok(),
            Self::Int(n) => Some(*n),
            _ => None,
        }
    }

    pub(crate) fn float(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(*x),
            other => other.int().map(|n| n as f64),
        }
    }
}

/// Shape, number format and offset of a tensor.
#[derive(Debug)]
pub(crate) struct TensorInfo {
    /// Shape in the order of libtorch: slowest dimension first.
    pub(crate) shape: Vec<i64>,
    /// GGML's number of the number format.
    format: u32,
    /// Offset from the start of the tensor data.
    offset: u64,
}

/// Header of a GGUF file.
pub(crate) struct Header {
    pub(crate) metadata: HashMap<String, MetadataValue>,
    pub(crate) tensors: HashMap<String, TensorInfo>,
    /// Offset of the tensor data.
    data: usize,
}

impl Header {
    /// Reads the header from the bytes of a file. Messages name `path`.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let mut reader = Reader { bytes, offset: 0, path, values: 0 };
        if reader.take(4)? != b"GGUF" {
            return Err(Error::format(path, "not a GGUF file (a model is a GGUF file or a folder)"));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(Error::format(path, format!("GGUF version {version}; 2 and 3 can be read")));
        }
        let tensor_count = reader.u64()?;
        let entries = reader.u64()?;
        if tensor_count > MOST_TENSORS {
            return Err(Error::format(path, format!("{tensor_count} tensors are more than any model has")));
        }
        let mut metadata = HashMap::new();
        for _ in 0..entries {
            let key = reader.string()?;
            let kind = reader.u32()?;
            metadata.insert(key, reader.value(kind, 0)?);
        }
        let mut tensors = HashMap::new();
        for _ in 0..tensor_count {
            let name = reader.string()?;
            let dimensions = reader.u32()?;
            if dimensions > 4 {
                return Err(Error::format(path, format!("the tensor `{name}` has {dimensions} dimensions")));
            }
            let mut shape = Vec::new();
            for _ in 0..dimensions {
                let n = i64::try_from(reader.u64()?)
                    .map_err(|_| Error::format(path, format!("the tensor `{name}` is too large")))?;
                shape.insert(0, n);
            }
            let format = reader.u32()?;
            let offset = reader.u64()?;
            tensors.insert(name, TensorInfo { shape, format, offset });
        }
        let alignment = metadata
            .get("general.alignment")
            .and_then(MetadataValue::int)
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0)
            .unwrap_or(32);
        let data = reader
            .offset
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| Error::format(path, format!("its data can't be aligned to {alignment}")))?;
        Ok(Self { metadata, tensors, data })
    }

    /// Returns the shape, number format and offset of a tensor.
    pub(crate) fn info(&self, path: &Path, name: &str) -> Result<&TensorInfo, Error> {
        self.tensors
            .get(name)
            .ok_or_else(|| Error::MissingTensor { path: path.to_path_buf(), tensor: name.to_owned() })
    }

    /// Returns the stored bytes of a tensor of one or two dimensions, none of which is 0.
    pub(crate) fn data<'a>(
        &self,
        bytes: &'a MappedFile,
        path: &Path,
        name: &str,
    ) -> Result<TensorData<'a>, Error> {
        let info = self.info(path, name)?;
        let fail = |reason: &str| Err(Error::format(path, format!("the tensor `{name}` {reason}")));
        let Some(format) = GgmlType::from_id(info.format) else {
            return fail(&format!(
                "is stored as {}; {READABLE} can be read. Use the model in one of these, or its Hugging Face \
                 folder",
                format_name(info.format)
            ));
        };
        let size = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        let (rows, columns) = match info.shape[..] {
            [columns] => (1, size(columns)),
            [rows, columns] => (size(rows), size(columns)),
            _ => {
                return fail(&format!(
                    "has {} dimensions; supported models have at most two",
                    info.shape.len()
                ));
            }
        };
        if rows == 0 || columns == 0 {
            // The file has no bytes that would bound its other size.
            return fail(&format!("has no values: its shape is {:?}", info.shape));
        }
        let Some(length) = format.bytes(rows, columns) else {
            return fail(&format!("has rows of {columns} values, which its number format does not allow"));
        };
        let data = usize::try_from(info.offset)
            .ok()
            .and_then(|offset| offset.checked_add(self.data))
            .and_then(|start| bytes.get(start..start.checked_add(length)?));
        match data {
            Some(bytes) => Ok(TensorData { format, rows, columns, bytes }),
            None => fail("reaches past the end of the file; fetch it again"),
        }
    }

    /// Reads a tensor of at most two dimensions, unpacked to f32 on the CPU.
    pub(crate) fn tensor(&self, bytes: &MappedFile, path: &Path, name: &str) -> Result<Tensor, Error> {
        let TensorData { format, rows, columns, bytes: data } = self.data(bytes, path, name)?;
        let shape = self.info(path, name)?.shape.as_slice();
        let tensor = Tensor::f_zeros(shape, (Kind::Float, Device::Cpu))?;
        // SAFETY: a new contiguous f32 tensor of rows x columns values, at least one (they fit into memory, as their
        // stored bytes do, and were allocated), which nothing else refers to yet.
        let values =
            unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), rows * columns) };
        format.unpack(data, values);
        bytes.release(data);
        Ok(tensor)
    }
}

/// A stored tensor.
#[derive(Clone, Copy)]
pub(crate) struct TensorData<'a> {
    pub(crate) format: GgmlType,
    /// 1 for a vector.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Rows one after the other, each of whole blocks.
    pub(crate) bytes: &'a [u8],
}

/// Reader of the header.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    path: &'a Path,
    /// Number of metadata values so far.
    values: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let end = self.offset.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end =
            end.ok_or_else(|| Error::format(self.path, "the file ends in its header; fetch it again"))?;
        let taken = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn string(&mut self) -> Result<String, Error> {
        let len = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<MetadataValue, Error> {
        self.values += 1;
        if self.values > MOST_VALUES {
            let problem = format!("it has more than {MOST_VALUES} values of metadata, more than any model");
            return Err(Error::format(self.path, problem));
        }
        Ok(match kind {
            0 => MetadataValue::Uint(u64::from(self.array::<1>()?[0])),
            1 => MetadataValue::Int(i64::from(i8::from_le_bytes(self.array()?))),
            2 => MetadataValue::Uint(u64::from(u16::from_le_bytes(self.array()?))),
            3 => MetadataValue::Int(i64::from(i16::from_le_bytes(self.array()?))),
            4 => MetadataValue::Uint(u64::from(self.u32()?)),
            5 => MetadataValue::Int(i64::from(i32::from_le_bytes(self.array()?))),
            6 => MetadataValue::Float(f64::from(f32::from_le_bytes(self.array()?))),
            7 => MetadataValue::Bool(self.array::<1>()?[0] != 0),
            8 => MetadataValue::Text(self.string()?),
            9 if depth < 4 => {
                let kind = self.u32()?;
                let count = self.u64()?;
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(self.value(kind, depth + 1)?);
                }
                MetadataValue::List(list)
            }
            10 => MetadataValue::Uint(self.u64()?),
            11 => MetadataValue::Int(i64::from_le_bytes(self.array()?)),
            12 => MetadataValue::Float(f64::from_le_bytes(self.array()?)),
            _ => return Err(Error::format(self.path, format!("metadata of unknown type {kind}"))),
        })
    }
}
