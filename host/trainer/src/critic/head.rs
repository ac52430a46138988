//! The value head, and the gradient of the value loss through it.

use pl_dsl::workflow::objective::{Critic as CriticSettings, CriticBase};
use tch::{Kind, TchError, Tensor, no_grad};

use super::loss::value_loss;
use crate::token_columns::ValueRows;

/// A linear layer from a hidden state to a value.
#[derive(Debug)]
pub(crate) struct ValueHead {
    /// `[1, H]`, as of a linear layer.
    pub weight: Tensor,
    /// `[1]`
    pub bias: Tensor,
    /// Gradients of the current mini-batch in the order of the parameters; zero between mini-batches.
    pub gradients: [Tensor; 2],
    /// Largest distance of a value from the value before the update that lowers the loss. 0 turns it off.
    pub clip: f64,
    /// Factor of the gradient with respect to the hidden states. `None` if it stops at them.
    pub hidden_factor: Option<f64>,
}

/// Result of a value loss.
#[derive(Debug)]
pub(crate) struct ValueLoss {
    /// `[N]`, weighted losses, whose sum is the loss.
    pub loss: Tensor,
    /// `[N]`, boolean: true if the clipped value's loss was the larger one.
    pub clipped: Tensor,
    /// `[N, H]`, gradient with respect to the hidden states. `None` if it stops at them.
    pub hidden_gradient: Option<Tensor>,
}

impl ValueHead {
    /// A head of zeros for hidden states of a width, on the device of the norm that they come from.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(settings: &CriticSettings, width: i64, norm: &Tensor) -> Result<Self, TchError> {
        let zeros = |shape: &[i64]| Tensor::f_zeros(shape, (master_kind(norm), norm.device()));
        let (weight, bias) = (zeros(&[1, width])?, zeros(&[1])?);
        let gradients = [weight.f_zeros_like()?, bias.f_zeros_like()?];
        let hidden_factor = match settings.on {
            CriticBase::Policy => None,
            CriticBase::Shared => Some(settings.weight),
            CriticBase::Adapter | CriticBase::Model => Some(1.0),
        };
        Ok(Self { weight, bias, gradients, clip: settings.clip, hidden_factor })
    }

    /// Weight and bias, as shallow clones.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        vec![
            ("weight".to_owned(), self.weight.shallow_clone()),
            ("bias".to_owned(), self.bias.shallow_clone()),
        ]
    }

    /// Gradients of the current mini-batch, as shallow clones.
    pub fn gradients(&self) -> [Tensor; 2] {
        self.gradients.each_ref().map(Tensor::shallow_clone)
    }

    /// Values `[N]` of hidden states `[N, H]`.
    ///
    /// # Errors
    /// If libtorch fails.
    pub fn values(&self, hidden: &Tensor) -> Result<Tensor, TchError> {
        no_grad(|| {
            let hidden = hidden.f_to_kind(self.weight.kind())?;
            hidden.f_mv(&self.weight.f_squeeze_dim(0)?)?.f_add(&self.bias)
        })
    }

    /// Computes the loss of some rows and adds the head's gradient to that of the mini-batch. Without
    /// `to_hidden`, no gradient goes on to the hidden states.
    ///
    /// # Errors
    /// If libtorch fails.
    pub fn forward_backward(&self, rows: &ValueRows<'_>, to_hidden: bool) -> Result<ValueLoss, TchError> {
        let values = self.values(rows.hidden)?.f_set_requires_grad(true)?;
        let result = value_loss(&values, rows.old_values, rows.returns, self.clip)?;
        let loss = result.loss.f_mul(rows.loss_weights)?;
        loss.f_sum(loss.kind())?.f_backward()?;
        let slopes = values.f_grad()?;
        no_grad(|| {
            let [mut weight, mut bias] = self.gradients();
            let hidden = rows.hidden.f_to_kind(self.weight.kind())?;
            let _ = weight.f_add_(&hidden.f_tr()?.f_mv(&slopes)?.f_unsqueeze(0)?)?;
            let _ = bias.f_add_(&slopes.f_sum(slopes.kind())?)?;
            let hidden_gradient = self
                .hidden_factor
                .filter(|_| to_hidden)
                .map(|factor| slopes.f_unsqueeze(1)?.f_mul(&self.weight)?.f_mul_scalar(factor))
                .transpose()?;
            Ok(ValueLoss { loss: loss.f_detach()?, clipped: result.clipped, hidden_gradient })
        })
    }
}

/// Number format of trained tensors beside a model with this norm: f32, or f64 if the model has it.
pub(super) fn master_kind(norm: &Tensor) -> Kind {
    if norm.kind() == Kind::Double { Kind::Double } else { Kind::Float }
}
