//! The number formats that a model's matrices are kept in.

use std::fmt;
use std::str::FromStr;

use tch::Kind;

use crate::Error;

/// A number format of matrices and embeddings. Norms and biases are f32 whatever the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dtype {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, 10 of them mantissa (IEEE 754 half).
    F16,
    /// 16 bits, 7 of them mantissa: the range of f32.
    Bf16,
}

impl Dtype {
    const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// As workflows and Hugging Face files' tools write it for short.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// libtorch's name.
    pub fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::F16 => Kind::Half,
            Self::Bf16 => Kind::BFloat16,
        }
    }

    /// Bytes of one number.
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

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| Error::Dtype(format!("`{name}` is no number format; there are f32, f16 and bf16")))
    }
}
