//! Critics: a linear value head on the hidden states of a policy's model.
//!
//! With the hidden state `h` (after the final norm) of the token before, the value of the state in which a token
//! is sampled is `v = w · h + b`; at the end of a prompt it is the value of the turn. Weights are f32 and start
//! at 0, so that the first advantages are discounted returns.
//!
//! A step's values are computed once, before the first optimiser step; advantages and value targets follow from
//! them ([`crate::gae`]). The update then moves the head, and with `on = shared` the policy's weights too, towards
//! the targets ([`loss`]).

pub mod loss;
mod values;

use pl_dsl::workflow::objective::{Advantage, Critic, CriticBase, PolicyTraining};
use tch::{Device, Kind, TchError, Tensor, no_grad};

pub(crate) use self::values::PredictedValues;

use self::loss::value_loss;
use crate::error::Error;
use crate::optimizer::{AdamW, Decay, OptimizerStep};

/// A critic with its optimiser.
#[derive(Debug)]
pub struct ValueHead {
    settings: Critic,
    /// `[1, H]`, as of a linear layer.
    weight: Tensor,
    /// `[1]`
    bias: Tensor,
    /// Gradients of the current mini-batch in the order of the parameters; zero between mini-batches.
    gradients: [Tensor; 2],
    /// State of its optimiser.
    pub optimizer: AdamW,
    max_grad_norm: f64,
}

/// Columns of the value loss, floats of one element per row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueRows<'a> {
    /// `[N, H]`, hidden states after the final norm.
    pub hidden: &'a Tensor,
    /// Values before the update.
    pub old_values: &'a Tensor,
    pub returns: &'a Tensor,
    /// Weights in the mean over tokens.
    pub loss_weights: &'a Tensor,
}

/// Result of a value loss.
#[derive(Debug)]
pub(crate) struct ValueLoss {
    /// `[N]`, weighted losses, whose sum is the loss.
    pub loss: Tensor,
    /// `[N]`, boolean: true if the clipped value's loss was the larger one.
    pub clipped: Tensor,
    /// `[N, H]`, gradient with respect to the hidden states in units of the policy's loss. `None` if it stops
    /// at the hidden states.
    pub hidden_gradient: Option<Tensor>,
}

impl ValueHead {
    /// The critic that a policy's settings ask for. `None` if its advantages need none. `hidden` is the width of
    /// the model.
    ///
    /// # Errors
    /// If advantages need a critic and there are no settings for it, or if it is of a kind that does not exist
    /// yet; if memory runs out.
    pub(crate) fn for_policy(
        policy: &str,
        training: &PolicyTraining,
        hidden: i64,
        device: Device,
    ) -> Result<Option<Self>, Error> {
        if training.objective.advantage != Advantage::Gae {
            return Ok(None);
        }
        let Some(settings) = &training.critic else {
            return Err(Error::policy(
                policy,
                "`advantage = gae` needs a critic: add `critic { }` to the policy",
            ));
        };
        if settings.on == CriticBase::Adapter {
            let problem =
                "`critic { on = adapter }` is not supported yet: write `on = policy` or `on = shared`";
            return Err(Error::policy(policy, problem));
        }
        let head = Self::new(settings.clone(), training, hidden, device);
        head.map(Some).map_err(Error::torch(format!("critic of policy `{policy}`")))
    }

    fn new(
        settings: Critic,
        training: &PolicyTraining,
        hidden: i64,
        device: Device,
    ) -> Result<Self, TchError> {
        let zeros = |shape: &[i64]| Tensor::f_zeros(shape, (Kind::Float, device));
        let (weight, bias) = (zeros(&[1, hidden])?, zeros(&[1])?);
        let gradients = [weight.f_zeros_like()?, bias.f_zeros_like()?];
        let parameters =
            vec![("weight".to_owned(), weight.shallow_clone()), ("bias".to_owned(), bias.shallow_clone())];
        // Decay would pull values towards 0, which is no neutral value.
        let decay = Decay { weights: 0.0, ..Decay::from(&training.optimizer) };
        let optimizer = AdamW::new(parameters, decay)?;
        let max_grad_norm = training.optimizer.max_grad_norm;
        Ok(Self { settings, weight, bias, gradients, optimizer, max_grad_norm })
    }

    /// Its settings.
    pub fn settings(&self) -> &Critic {
        &self.settings
    }

    /// Weight `[1, H]` and bias `[1]`, as shallow clones.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        self.optimizer.parameters().map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone())).collect()
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

    /// Computes the loss of some rows and adds the head's gradient to that of the mini-batch. With `shares`, the
    /// gradient goes on to the hidden states if the settings say so.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(crate) fn forward_backward(&self, rows: &ValueRows<'_>, shares: bool) -> Result<ValueLoss, TchError> {
        let values = self.values(rows.hidden)?.f_set_requires_grad(true)?;
        let result = value_loss(&values, rows.old_values, rows.returns, self.settings.clip)?;
        let loss = result.loss.f_mul(rows.loss_weights)?;
        loss.f_sum(loss.kind())?.f_backward()?;
        let slopes = values.f_grad()?;
        no_grad(|| {
            let [mut weight, mut bias] = self.gradients.each_ref().map(Tensor::shallow_clone);
            let hidden = rows.hidden.f_to_kind(self.weight.kind())?;
            let _ = weight.f_add_(&hidden.f_tr()?.f_mv(&slopes)?.f_unsqueeze(0)?)?;
            let _ = bias.f_add_(&slopes.f_sum(slopes.kind())?)?;
            let shares = shares && self.settings.on == CriticBase::Shared;
            let hidden_gradient = shares
                .then(|| slopes.f_unsqueeze(1)?.f_mul(&self.weight)?.f_mul_scalar(self.settings.weight))
                .transpose()?;
            Ok(ValueLoss { loss: loss.f_detach()?, clipped: result.clipped, hidden_gradient })
        })
    }

    /// Takes an optimiser step with the gradient of the mini-batch, which is zero afterwards.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(crate) fn step(&mut self) -> Result<OptimizerStep, TchError> {
        let gradients = self.gradients.each_ref().map(Tensor::shallow_clone);
        self.optimizer.step(gradients.into(), self.settings.learning_rate, self.max_grad_norm)
    }
}

#[cfg(test)]
mod tests;
