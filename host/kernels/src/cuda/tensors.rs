//! Checks of the tensors that kernels get.

use tch::{Device, Kind, Tensor};

use super::error::Error;

/// Checks that a tensor has the kind, shape and device that a kernel needs, and is contiguous.
pub(super) fn expect(
    kernel: &'static str,
    name: &'static str,
    tensor: &Tensor,
    kind: Kind,
    shape: &[i64],
    device: Device,
) -> Result<(), Error> {
    let valid = tensor.kind() == kind
        && tensor.size() == shape
        && tensor.device() == device
        && tensor.is_contiguous();
    if valid {
        return Ok(());
    }
    let expected = format!("{kind:?} {shape:?} on {device:?}, contiguous");
    Err(Error::tensor(kernel, name, &expected, tensor))
}
