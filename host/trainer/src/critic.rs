//! Critics: a linear value head on the hidden states of a model.
//!
//! With the hidden state `h` (after the final norm) of the token before, the value of the state in which a token
//! is sampled is `v = w · h + b`; at the end of a prompt it is the value of the turn. The head is f32 and starts
//! at 0, so that the first advantages are discounted returns.
//!
//! The hidden states are those of the policy, or the critic has a network of its own (`CriticNetwork`). A
//! step's values are computed once, before the first optimiser step; advantages and value targets follow from
//! them ([`crate::gae`]). The update then moves the critic, and with `on = shared` the policy's weights too,
//! towards the targets ([`loss`]).

mod head;
pub mod loss;
mod model;
mod values;

use pl_dsl::workflow::Lora;
use pl_dsl::workflow::objective::{Advantage, Critic as CriticSettings, CriticBase, PolicyTraining};
use pl_model::{Adapter, Config, Projection, TensorSet, Weights};
use pl_types::ValueHeadWeights;
use tch::{TchError, Tensor};

pub use self::model::CriticModel;

pub(crate) use self::head::ValueHead;
pub(crate) use self::values::{PredictedValues, ValueSequences};

use self::head::master_kind;
use crate::error::Error;
use crate::optimizer::{AdamW, Decay, OptimizerStep};
use crate::seeds::critic_adapter_seed;

/// A critic with its optimiser.
#[derive(Debug)]
pub struct Critic {
    settings: CriticSettings,
    pub(crate) head: ValueHead,
    pub(crate) network: CriticNetwork,
    /// State of its optimiser, over the network's tensors and the head's.
    pub optimizer: AdamW,
    max_grad_norm: f64,
}

/// Source of the hidden states that a critic's value head reads.
#[derive(Debug)]
pub(crate) enum CriticNetwork {
    /// The policy, in its own passes.
    Policy,
    /// An adapter on the learner's frozen base, in the passes of the policies' adapters.
    Adapter(Adapter),
    /// A model with passes of its own.
    Model(Box<CriticModel>),
}

/// Weights of a learner that a critic may be on.
#[derive(Clone, Copy)]
pub(crate) struct LearnerBase<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    /// True if a policy trains the weights.
    pub is_trained: bool,
    /// The run's seed.
    pub seed: u64,
}

impl Critic {
    /// The critic that a policy's settings ask for. `model` is that of a critic with a model of its own. `None` if
    /// the policy's advantages need no critic.
    ///
    /// # Errors
    /// If advantages need a critic and there are no settings or no model for it; if an adapter's settings do not
    /// fit the model; if memory runs out.
    pub(crate) fn for_policy(
        policy: &str,
        training: &PolicyTraining,
        model: Option<CriticModel>,
        base: LearnerBase<'_>,
    ) -> Result<Option<Self>, Error> {
        if training.objective.advantage != Advantage::Gae {
            return Ok(None);
        }
        let Some(settings) = training.critic.clone() else {
            let problem = "`advantage = gae` needs a critic: add `critic { }` to the policy";
            return Err(Error::policy(policy, problem));
        };
        let network = match (settings.on, model) {
            (CriticBase::Policy | CriticBase::Shared, _) => CriticNetwork::Policy,
            (_, Some(model)) => CriticNetwork::Model(Box::new(model)),
            (CriticBase::Adapter, None) => {
                let adapter = new_adapter(policy, &settings, base)?;
                if base.is_trained {
                    // Passes of the policy would train its weights by the value loss too.
                    let model = CriticModel::adapter(base.config.clone(), base.weights.shallow(), adapter)
                        .map_err(Error::torch(format!("critic of policy `{policy}`")))?;
                    CriticNetwork::Model(Box::new(model))
                } else {
                    CriticNetwork::Adapter(adapter)
                }
            }
            (CriticBase::Model, None) => {
                return Err(Error::policy(policy, "the model of its critic was not loaded"));
            }
        };
        let critic = Self::new(settings, network, training, base);
        critic.map(Some).map_err(Error::torch(format!("critic of policy `{policy}`")))
    }

    /// A critic with a new value head.
    fn new(
        settings: CriticSettings,
        network: CriticNetwork,
        training: &PolicyTraining,
        base: LearnerBase<'_>,
    ) -> Result<Self, TchError> {
        let (width, norm) = match &network {
            CriticNetwork::Model(model) => (model.config().hidden, &model.weights().norm),
            CriticNetwork::Policy | CriticNetwork::Adapter(_) => (base.config.hidden, &base.weights.norm),
        };
        let head = ValueHead::new(&settings, width, norm)?;
        let mut parameters = network.parameters();
        parameters.extend(head.parameters());
        // Decay would pull values towards 0, which is no neutral value.
        let decay = Decay { weights: 0.0, ..Decay::from(&training.optimizer) };
        let optimizer = AdamW::new(parameters, decay)?;
        let max_grad_norm = training.optimizer.max_grad_norm;
        Ok(Self { settings, head, network, optimizer, max_grad_norm })
    }

    /// Its settings.
    pub fn settings(&self) -> &CriticSettings {
        &self.settings
    }

    /// Trained tensors of its network by name, as shallow clones. Empty if it reads the policy's hidden states.
    pub fn network_parameters(&self) -> Vec<(String, Tensor)> {
        self.network.parameters()
    }

    /// Weight `[1, H]` and bias `[1]` of its head, as shallow clones.
    pub fn head_parameters(&self) -> Vec<(String, Tensor)> {
        self.head.parameters()
    }

    /// Copy of its head, if that reads the policy's hidden states. `None` if libtorch can't copy it, too: values are then
    /// computed before the update.
    pub fn policy_head(&self) -> Option<ValueHeadWeights> {
        let numbers = |tensor: &Tensor| Vec::<f32>::try_from(tensor.f_flatten(0, -1).ok()?).ok();
        match self.network {
            CriticNetwork::Policy => Some(ValueHeadWeights {
                weight: numbers(&self.head.weight)?,
                bias: numbers(&self.head.bias)?.first().copied()?,
            }),
            CriticNetwork::Adapter(_) | CriticNetwork::Model(_) => None,
        }
    }

    /// Its adapter in the passes of a learner of adapters, or `None` if it has no such adapter.
    pub(crate) fn learner_adapter(&self) -> Option<&Adapter> {
        match &self.network {
            CriticNetwork::Adapter(adapter) => Some(adapter),
            CriticNetwork::Policy | CriticNetwork::Model(_) => None,
        }
    }

    /// Its model with passes of its own, or `None` if it has none.
    pub(crate) fn own_model(&self) -> Option<&CriticModel> {
        match &self.network {
            CriticNetwork::Model(model) => Some(model),
            CriticNetwork::Policy | CriticNetwork::Adapter(_) => None,
        }
    }

    /// Gradients of the mini-batch in the order of the parameters, as shallow clones. `adapter` has those of its adapter in the
    /// passes of a learner, if it has one.
    pub(crate) fn gradients(&self, adapter: Option<&Adapter>) -> Vec<Tensor> {
        let network = match (&self.network, adapter) {
            (CriticNetwork::Model(model), _) => model.gradients(),
            (CriticNetwork::Adapter(_), Some(gradients)) => gradients.parameters(),
            (CriticNetwork::Policy | CriticNetwork::Adapter(_), _) => Vec::new(),
        };
        let mut gradients: Vec<Tensor> = network.into_iter().map(|(_, gradient)| gradient).collect();
        gradients.extend(self.head.gradients());
        gradients
    }

    /// Takes an optimiser step with the gradients of the mini-batch, which are zero afterwards. `adapter` has
    /// those of its adapter in the passes of a learner, if it has one.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(crate) fn step(&mut self, adapter: Option<&Adapter>) -> Result<OptimizerStep, pl_model::Error> {
        let gradients = self.gradients(adapter);
        let step = self.optimizer.step(gradients, self.settings.learning_rate, self.max_grad_norm)?;
        if let CriticNetwork::Model(model) = &self.network {
            model.publish()?;
        }
        Ok(step)
    }
}

impl CriticNetwork {
    /// Trained tensors by name, as shallow clones.
    fn parameters(&self) -> Vec<(String, Tensor)> {
        match self {
            CriticNetwork::Policy => Vec::new(),
            CriticNetwork::Adapter(adapter) => adapter.parameters(),
            CriticNetwork::Model(model) => model.parameters(),
        }
    }
}

/// A new adapter of a critic on a learner's base.
fn new_adapter(policy: &str, settings: &CriticSettings, base: LearnerBase<'_>) -> Result<Adapter, Error> {
    let Some(lora) = &settings.lora else {
        return Err(Error::policy(policy, "`critic { on = adapter }` has no rank"));
    };
    critic_adapter(policy, lora, base.config, base.weights, base.seed)
}

/// A new adapter of a policy's critic, on the device of the weights.
///
/// # Errors
/// If its settings do not fit the model.
pub(crate) fn critic_adapter(
    policy: &str,
    lora: &Lora,
    config: &Config,
    weights: &Weights,
    seed: u64,
) -> Result<Adapter, Error> {
    let targets = lora.targets.iter().map(|name| name.parse::<Projection>());
    let targets = targets.collect::<Result<Vec<_>, _>>().map_err(Error::model(policy))?;
    let seed = critic_adapter_seed(seed, policy);
    let adapter =
        Adapter::new(config, lora.rank as usize, lora.alpha, &targets, seed).map_err(Error::model(policy))?;
    let kind = master_kind(&weights.norm);
    Ok(adapter.map(|tensor| tensor.to_kind(kind)).to_device(weights.device()))
}

#[cfg(test)]
mod tests;
