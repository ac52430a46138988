//! A matrix of a model: a tensor, or packed for the products of the CPU's kernels.
//!
//! Packed matrices keep the numbers of a model's file, or 8-bit codes. Generation on the CPU computes with them as they are.
//! Training unpacks a part at a time for products of f32, so both compute with the very same numbers.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use pl_kernels::cpu::Matrix;
use tch::{Device, Kind, TchError, Tensor};

use crate::network::matmul::{add_linear, linear, logits};
use crate::network::parallel::parallel_for;

/// Largest size in bytes of the part of a packed matrix that is unpacked at a time.
pub const UNPACKED_BYTES: usize = 32 << 20;

/// A matrix `[out, in]`.
#[derive(Debug)]
pub enum WeightMatrix {
    /// Numbers in libtorch's memory.
    Tensor(Tensor),
    /// Constant numbers or codes in the CPU's memory.
    Packed(Arc<Matrix>),
}

impl WeightMatrix {
    /// Returns the number of rows and of columns.
    pub fn size(&self) -> Vec<i64> {
        match self {
            Self::Tensor(tensor) => tensor.size(),
            Self::Packed(matrix) => vec![matrix.outputs() as i64, matrix.inputs() as i64],
        }
    }

    /// Returns the number format of products.
    pub fn kind(&self) -> Kind {
        self.tensor().map_or(Kind::Float, Tensor::kind)
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.tensor().map_or(Device::Cpu, Tensor::device)
    }

    /// Returns the tensor. Returns `None` if the matrix is packed.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Packed(_) => None,
        }
    }

    /// Computes `x wᵀ` for `x` `[T, in]`, outside any gradient graph.
    ///
    /// # Errors
    /// If shapes do not match or memory runs out.
    pub fn linear(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Tensor(tensor) => linear(x, tensor),
            Self::Packed(matrix) => packed_linear(matrix, x),
        }
    }

    /// Computes `dy w`, the gradient with respect to `x`, for `dy` `[T, out]`.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn linear_backward(&self, dy: &Tensor) -> Result<Tensor, TchError> {
        let matrix = match self {
            Self::Tensor(tensor) => return linear(dy, &tensor.f_tr()?),
            Self::Packed(matrix) => matrix,
        };
        let mut dx: Option<Tensor> = None;
        for rows in parts(matrix) {
            let dy = dy.f_narrow(1, rows.start as i64, rows.len() as i64)?;
            let part = linear(&dy, &unpack(matrix, rows)?.f_tr()?)?;
            dx = Some(match dx {
                Some(mut dx) => dx.f_add_(&part)?,
                None => part,
            });
        }
        match dx {
            Some(dx) => Ok(dx),
            None => Tensor::f_zeros([dy.size()[0], matrix.inputs() as i64], (Kind::Float, dy.device())),
        }
    }

    /// Adds `dy w` to `dx` `[T, in]`, whose memory may become that of the sum.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn add_linear_backward(&self, dy: &Tensor, dx: Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Tensor(tensor) => {
                add_linear(&dx, dy, &tensor.f_tr()?)?;
                Ok(dx)
            }
            Self::Packed(_) => self.linear_backward(dy)?.f_add_(&dx),
        }
    }

    /// Computes logits in f32, as [`logits`] does.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn logits(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Tensor(tensor) => logits(x, tensor),
            Self::Packed(matrix) => packed_linear(matrix, x),
        }
    }

    /// Returns rows, for example embeddings of tokens: `[T, in]` for `ids` `[T]` int64.
    ///
    /// # Errors
    /// If there is no such row or memory runs out.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor, TchError> {
        let matrix = match self {
            Self::Tensor(tensor) => return tensor.f_index_select(0, ids),
            Self::Packed(matrix) => matrix,
        };
        let ids = Vec::<i64>::try_from(ids)?;
        let rows: Option<Vec<usize>> =
            ids.iter().map(|id| usize::try_from(*id).ok().filter(|id| *id < matrix.outputs())).collect();
        let rows =
            rows.ok_or_else(|| TchError::Torch(format!("a row of {} is missing", matrix.outputs())))?;
        filled(rows.len(), matrix.inputs(), |values| {
            for_each_part(values, matrix.inputs(), |i, to| matrix.row(rows[i], to));
        })
    }

    /// Returns the matrix as a tensor. A packed one is unpacked to f32.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn to_tensor(&self) -> Result<Tensor, TchError> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.shallow_clone()),
            Self::Packed(matrix) => unpack(matrix, 0..matrix.outputs()),
        }
    }

    /// Applies a function to the tensor. A packed matrix is shared.
    pub(crate) fn try_map<E>(&self, f: impl FnOnce(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        Ok(match self {
            Self::Tensor(tensor) => Self::Tensor(f(tensor)?),
            Self::Packed(matrix) => Self::Packed(Arc::clone(matrix)),
        })
    }
}

impl From<Tensor> for WeightMatrix {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

/// Returns matrices as one, row after row, in their own memory. Returns `None` if they are not one after another in the same
/// allocation.
pub(crate) fn adjacent<const N: usize>(matrices: [&WeightMatrix; N]) -> Option<Tensor> {
    let first = matrices.first()?.tensor()?;
    let &[_, width] = first.size().as_slice() else { return None };
    let (mut rows, mut next) = (0, first.data_ptr() as usize);
    for matrix in matrices {
        let tensor = matrix.tensor()?;
        let &[own_rows, own_width] = tensor.size().as_slice() else { return None };
        let follows = own_width == width
            && tensor.kind() == first.kind()
            && tensor.device() == first.device()
            && tensor.is_contiguous()
            && tensor.data_ptr() as usize == next;
        if !follows {
            return None;
        }
        rows += own_rows;
        next += tensor.numel() * tensor.kind().elt_size_in_bytes();
    }
    // An error if it does not fit the allocation: then another one comes right after it.
    first.f_as_strided([rows, width].as_slice(), [width, 1].as_slice(), None::<i64>).ok()
}

/// Moves matrices to one allocation, one after another, so that [`adjacent`] finds them. They stay where they are if they are
/// not tensors of the same format, width and device, if autograd records them, or if memory runs out.
pub(crate) fn place_together<const N: usize>(matrices: [&mut WeightMatrix; N]) {
    let tensors: Option<Vec<&Tensor>> = matrices.iter().map(|matrix| matrix.tensor()).collect();
    let Some(tensors) = tensors else { return };
    let Some(first) = tensors.first() else { return };
    let alike = |tensor: &&Tensor| {
        tensor.dim() == 2
            && tensor.size().last() == first.size().last()
            && tensor.kind() == first.kind()
            && tensor.device() == first.device()
            && !tensor.requires_grad()
    };
    if !tensors.iter().all(alike) {
        return;
    }
    let place = || {
        let all = Tensor::f_cat(&tensors, 0)?;
        let mut start = 0;
        let part = |tensor: &&Tensor| {
            let rows = tensor.size()[0];
            start += rows;
            all.f_narrow(0, start - rows, rows)
        };
        tensors.iter().map(part).collect::<Result<Vec<_>, TchError>>()
    };
    if let Ok(parts) = tch::no_grad(place) {
        for (matrix, part) in matrices.into_iter().zip(parts) {
            *matrix = part.into();
        }
    }
}

/// Divides the rows of a matrix into parts of at most [`UNPACKED_BYTES`], of whole panels.
fn parts(matrix: &Matrix) -> impl Iterator<Item = Range<usize>> {
    let row = (4 * matrix.inputs()).max(1);
    let length = (UNPACKED_BYTES / row).max(1).next_multiple_of(matrix.panel());
    let outputs = matrix.outputs();
    (0..outputs).step_by(length).map(move |start| start..outputs.min(start + length))
}

fn packed_linear(matrix: &Matrix, x: &Tensor) -> Result<Tensor, TchError> {
    let mut all = parts(matrix);
    if let (Some(only), None) = (all.next(), all.next()) {
        return linear(x, &unpack(matrix, only)?);
    }
    let y = Tensor::f_empty([x.size()[0], matrix.outputs() as i64], (Kind::Float, x.device()))?;
    for rows in parts(matrix) {
        let mut part = y.f_narrow(1, rows.start as i64, rows.len() as i64)?;
        part.f_copy_(&linear(x, &unpack(matrix, rows)?)?)?;
    }
    Ok(y)
}

/// Calls `write` with each part of `length` values and its number, on the threads of products.
fn for_each_part(values: &mut [f32], length: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
    let parts: Vec<Mutex<&mut [f32]>> = values.chunks_mut(length.max(1)).map(Mutex::new).collect();
    parallel_for(parts.len(), &|i| {
        write(i, &mut parts[i].lock());
    });
}

/// Unpacks rows to f32.
fn unpack(matrix: &Matrix, rows: Range<usize>) -> Result<Tensor, TchError> {
    let (width, inputs) = (matrix.panel(), matrix.inputs());
    filled(rows.len(), inputs, |values| {
        for_each_part(values, width * inputs, |panel, to| {
            let start = rows.start + panel * width;
            matrix.unpack(start..rows.end.min(start + width), to);
        });
    })
}

/// Returns an f32 tensor `[rows, columns]` on the CPU whose values `fill` writes. They are not initialised before.
fn filled(rows: usize, columns: usize, fill: impl FnOnce(&mut [f32])) -> Result<Tensor, TchError> {
    let tensor = Tensor::f_empty([rows as i64, columns as i64], (Kind::Float, Device::Cpu))?;
    if rows > 0 && columns > 0 {
        // SAFETY: a new contiguous f32 tensor of rows x columns values, which nothing else refers to. Every bit pattern is
        // an f32.
        let values =
            unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), rows * columns) };
        fill(values);
    }
    Ok(tensor)
}
