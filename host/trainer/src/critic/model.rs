//! A critic's network with passes of its own: a model whose weights are all trained, or weights that the critic
//! does not change and an adapter on them.

use pl_model::{Adapter, Checkpointing, Config, Gradients, Packed, Pass, Sequence, TensorSet, Weights};
use pl_types::Dtype;
use tch::{TchError, Tensor};

use crate::base_weights::BaseWeights;

/// A critic's network with passes of its own.
#[derive(Debug)]
pub struct CriticModel {
    config: Config,
    base: BaseWeights,
    /// `None` if the weights are trained.
    adapter: Option<Adapter>,
    /// Gradients of the current mini-batch; zero between mini-batches.
    gradients: Gradients,
}

impl CriticModel {
    /// A model whose weights are trained in place. `dtype` is their number format. It has no output head.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn trained(config: Config, mut weights: Weights, dtype: Dtype) -> Result<Self, pl_model::Error> {
        // A saved folder without an output head is that of a model with tied embeddings.
        weights.head = None;
        let config = Config { tied: true, ..config };
        let base = BaseWeights::trained(weights, dtype)?;
        let gradients = Gradients::zeros(Some(base.masters().unwrap_or(base.working())), &[])?;
        Ok(Self { config, base, adapter: None, gradients })
    }

    /// An adapter on weights that the critic does not change. They may be shared.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn adapter(config: Config, weights: Weights, adapter: Adapter) -> Result<Self, TchError> {
        let gradients = Gradients::zeros(None, &[&adapter])?;
        Ok(Self { config, base: BaseWeights::frozen(weights), adapter: Some(adapter), gradients })
    }

    /// Dimensions of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Weights that a pass computes with.
    pub fn weights(&self) -> &Weights {
        self.base.working()
    }

    /// Weights that the optimiser changes, or `None` if they are not trained.
    pub(crate) fn trained_weights(&self) -> Option<&Weights> {
        self.base.masters()
    }

    /// The trained adapter, or `None` if the weights are trained.
    pub(crate) fn trained_adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// Adapters of a pass.
    pub(crate) fn adapters(&self) -> Vec<&Adapter> {
        self.adapter.iter().collect()
    }

    /// Index into the adapters of a pass.
    pub(crate) fn adapter_index(&self) -> Option<usize> {
        self.adapter.is_some().then_some(0)
    }

    /// Trained tensors by name, as shallow clones.
    pub(crate) fn parameters(&self) -> Vec<(String, Tensor)> {
        match (&self.adapter, self.base.masters()) {
            (Some(adapter), _) => adapter.parameters(),
            (None, masters) => masters.map(Weights::parameters).unwrap_or_default(),
        }
    }

    /// Gradients of the trained tensors, in the order of the parameters.
    pub(crate) fn gradients(&self) -> Vec<(String, Tensor)> {
        let weights = self.gradients.weights.iter().flat_map(Weights::parameters);
        weights.chain(self.gradients.adapters.iter().flat_map(Adapter::parameters)).collect()
    }

    /// Runs a forward pass over sequences of tokens, then a backward pass from the gradient `[rows, H]` that
    /// `loss` returns, with the rows of the packed batch that it belongs to. `loss` gets the hidden states of the
    /// packed batch and the rows of each sequence's tokens.
    ///
    /// # Errors
    /// Errors of libtorch and of `loss`.
    pub(crate) fn forward_backward(
        &self,
        sequences: &[&[u32]],
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Tensor, &[Vec<usize>]) -> Result<(Tensor, Tensor), pl_model::Error>,
    ) -> Result<(), pl_model::Error> {
        let adapter = self.adapter_index();
        let sequences: Vec<Sequence<'_>> =
            sequences.iter().map(|tokens| Sequence { tokens, adapter }).collect();
        let (packed, rows) = Packed::forest(&sequences);
        let adapters = self.adapters();
        let pass = Pass::forward(&self.config, self.weights(), &adapters, &packed, checkpointing)?;
        let (rows, slopes) = loss(pass.hidden(), &rows)?;
        let mut gradient = pass.hidden().f_zeros_like()?;
        let _ = gradient.f_index_add_(0, &rows, &slopes.f_to_kind(gradient.kind())?)?;
        Ok(pass.backward(&gradient, &self.gradients)?)
    }

    /// Copies trained weights, rounded, to those that passes compute with.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn publish(&self) -> Result<(), pl_model::Error> {
        self.base.publish()
    }
}
