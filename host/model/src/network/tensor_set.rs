//! Operations on sets of tensors that are copied and moved as a whole.

use tch::{Device, Tensor};

/// A set of named tensors: a model's weights, or an adapter.
pub trait TensorSet: Sized {
    /// Returns all tensors with their names in files, in a fixed order. They share memory with the set.
    fn parameters(&self) -> Vec<(String, Tensor)>;

    /// Applies a function to all tensors.
    fn map(&self, f: impl FnMut(&Tensor) -> Tensor) -> Self;

    /// Returns a copy in memory of its own, outside any gradient graph.
    fn copy(&self) -> Self {
        self.map(|t| tch::no_grad(|| t.detach().copy()))
    }

    /// Returns the same set in the same memory.
    fn shallow(&self) -> Self {
        self.map(Tensor::shallow_clone)
    }

    /// Returns the same set on a device. Tensors that are already there are shared.
    fn to_device(&self, device: Device) -> Self {
        self.map(|t| t.to_device(device))
    }

    /// Sets whether libtorch's autograd computes gradients for the tensors.
    fn set_trainable(&self, trainable: bool) {
        for (_, tensor) in self.parameters() {
            let _ = tensor.set_requires_grad(trainable);
        }
    }
}
