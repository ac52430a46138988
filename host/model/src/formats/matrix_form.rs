//! The form of a model's matrices in memory: tensors in a number format, or packed.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use pl_kernels::cpu::{Cpu, GroupFormat, Matrix, QuantizedRow, WeightFormat};
use pl_types::{Dtype, ModelDtype};
use tch::{Device, Kind, TchError, Tensor};

use crate::error::Error;
use crate::network::weight_matrix::WeightMatrix;
use crate::network::weights::store;

/// Converts tensors to the form of a model.
pub(crate) struct MatrixForm {
    pub(crate) dtype: ModelDtype,
    device: Device,
    /// Packs matrices. `None` if they are tensors.
    cpu: Option<Cpu>,
}

impl MatrixForm {
    /// A form on a device. Messages name `path`.
    pub(crate) fn new(dtype: ModelDtype, device: Device, path: &Path) -> Result<Self, Error> {
        let cpu = match (dtype.tensors(), device) {
            (Some(_), _) => None,
            (None, Device::Cpu) => {
                let threads = available_parallelism().map_or(1, NonZero::get);
                Some(Cpu::new(threads).map_err(Error::io(path))?)
            }
            (None, _) => {
                let reason = format!("`{dtype}` is a form for CPUs; on a GPU, load the model in bf16 or f32");
                return Err(Error::format(path, reason));
            }
        };
        Ok(Self { dtype, device, cpu })
    }

    /// Returns the processor that packs matrices. Returns `None` if they are tensors.
    pub(crate) fn packing(&self) -> Option<&Cpu> {
        self.cpu.as_ref()
    }

    /// Converts a tensor that is not packed. An unchanged one shares its memory.
    pub(crate) fn tensor(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        Ok(store(tensor, self.dtype.tensors().unwrap_or_default(), self.device)?)
    }

    /// Converts a matrix. An unchanged tensor shares its memory.
    pub(crate) fn matrix(&self, tensor: &Tensor) -> Result<WeightMatrix, Error> {
        match self.pack(tensor)? {
            Some(packed) => Ok(packed),
            None => Ok(self.tensor(tensor)?.into()),
        }
    }

    /// Packs a matrix `[out, in]`. Returns `None` if the form is one of tensors, or the tensor is not a matrix.
    pub(crate) fn pack(&self, tensor: &Tensor) -> Result<Option<WeightMatrix>, Error> {
        let (Some(cpu), &[outputs, inputs]) = (&self.cpu, tensor.size().as_slice()) else { return Ok(None) };
        let (outputs, inputs) = (outputs as usize, inputs as usize);
        let values = values(tensor)?;
        let matrix = match self.dtype {
            ModelDtype::Q8 => {
                let round = |i: usize, row: &mut QuantizedRow| row.round(&values[i * inputs..][..inputs]);
                Matrix::pack_groups(cpu, GroupFormat::Q8, outputs, inputs, round)
            }
            _ => Matrix::pack(cpu, &values, outputs, inputs, stored_format(tensor.kind())),
        };
        Ok(Some(WeightMatrix::Packed(Arc::new(matrix))))
    }
}

/// Returns the packed form of stored numbers.
fn stored_format(kind: Kind) -> WeightFormat {
    match kind {
        Kind::Half => WeightFormat::F16,
        Kind::BFloat16 => WeightFormat::Bf16,
        _ => WeightFormat::F32,
    }
}

/// Returns the size in bytes of packed numbers of a kind.
pub(crate) fn stored_bytes(kind: Kind) -> usize {
    stored_format(kind).bytes()
}

/// Returns the values of a tensor in f32, row after row.
fn values(tensor: &Tensor) -> Result<Vec<f32>, TchError> {
    let plain = store(tensor, Dtype::F32, Device::Cpu)?.f_contiguous()?;
    let mut values = vec![0f32; plain.numel()];
    let count = values.len();
    plain.f_copy_data(&mut values, count)?;
    Ok(values)
}
