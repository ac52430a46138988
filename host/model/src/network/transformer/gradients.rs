//! Buffers of gradients.

use tch::{TchError, no_grad};

use crate::network::adapter::Adapter;
use crate::network::tensor_set::TensorSet;
use crate::network::weights::Weights;

/// Buffers that gradients are added to.
#[derive(Debug)]
pub struct Gradients {
    /// Gradients of all weights, if they are trained.
    pub weights: Option<Weights>,
    /// Gradients of the adapters, in the order in which a pass gets them.
    pub adapters: Vec<Adapter>,
}

impl Gradients {
    /// Allocates zeros for weights or for adapters.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn zeros(weights: Option<&Weights>, adapters: &[&Adapter]) -> Result<Self, TchError> {
        let gradients = Self {
            weights: weights.map(Weights::copy),
            adapters: adapters.iter().map(|adapter| adapter.copy()).collect(),
        };
        gradients.clear()?;
        Ok(gradients)
    }

    /// Sets all gradients to zero.
    ///
    /// # Errors
    /// If libtorch fails.
    pub fn clear(&self) -> Result<(), TchError> {
        let weights = self.weights.iter().flat_map(Weights::parameters);
        let mut all = weights.chain(self.adapters.iter().flat_map(Adapter::parameters));
        no_grad(|| all.try_for_each(|(_, mut tensor)| tensor.f_zero_().map(drop)))
    }
}
