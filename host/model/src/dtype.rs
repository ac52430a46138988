//! Conversion of number formats to libtorch.

use pl_types::Dtype;
use tch::Kind;

/// Conversion of a number format to libtorch.
pub trait TorchDtype {
    /// Returns libtorch's kind of the format.
    fn kind(self) -> Kind;
}

impl TorchDtype for Dtype {
    fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::F16 => Kind::Half,
            Self::Bf16 => Kind::BFloat16,
        }
    }
}
