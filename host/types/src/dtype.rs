//! Number formats of a model's matrices.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number format of matrices and embeddings. Norms and biases are f32 in every format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, 10 of them mantissa (IEEE 754 half).
    F16,
    /// 16 bits, 7 of them mantissa, with the range of f32.
    Bf16,
}

impl Dtype {
    const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The short name, as in workflows: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Size of one number in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Form of a loaded model's matrices and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelDtype {
    /// 32 bits.
    F32,
    /// 16 bits, 10 of them mantissa (IEEE 754 half).
    F16,
    /// 16 bits, 7 of them mantissa, with the range of f32.
    Bf16,
    /// 8 bits, in groups of 32 with a common scale. For weights that are not trained.
    Q8,
    /// As in the model's file. For weights that are not trained.
    File,
}

impl ModelDtype {
    const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Q8, Self::File];

    /// The short name, as in workflows.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
            Self::File => "file",
        }
    }

    /// Number format of the tensors. `None` if the matrices are packed.
    pub fn tensors(self) -> Option<Dtype> {
        match self {
            Self::F32 => Some(Dtype::F32),
            Self::F16 => Some(Dtype::F16),
            Self::Bf16 => Some(Dtype::Bf16),
            Self::Q8 | Self::File => None,
        }
    }
}

impl From<Dtype> for ModelDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}

impl fmt::Display for ModelDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ModelDtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| UnknownDtype(name.to_owned()))
    }
}

/// An unknown name of a number format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown number format `{0}`; the formats are f32, f16 and bf16, and for models also q8 and file")]
pub struct UnknownDtype(pub String);

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| UnknownDtype(name.to_owned()))
    }
}
