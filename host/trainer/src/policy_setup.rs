//! Weights of each policy at the start of a run.

use std::sync::Arc;

use pl_dsl::workflow::objective::{Advantage, Critic, CriticBase};
use pl_dsl::workflow::{Lora, Policy, PolicyTraining, Workflow};
use pl_model::{Adapter, Config, Model, Projection, TensorSet, Weights};
use pl_types::{Dtype, ModelDtype, SourcePath};
use tch::Device;

use crate::critic::{CriticModel, critic_adapter};
use crate::error::Error;
use crate::seeds::adapter_seed;

/// The file that distinguishes a PEFT adapter folder from a model folder.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Initial weights of a policy. `base` is an index into the base models.
pub(crate) enum PolicySetup {
    /// Used as it is.
    Frozen { base: usize, adapter: Option<Adapter> },
    /// Trains an adapter.
    TrainedAdapter { base: usize, adapter: Adapter, training: PolicyTraining },
    /// Trains the weights of its base, which no other policy uses.
    TrainedWeights { base: usize, dtype: Dtype, training: PolicyTraining },
}

/// Initial weights of all policies and critics.
pub(crate) struct InitialWeights {
    /// Base models of the policies.
    pub bases: Vec<Model>,
    /// One per policy.
    pub setups: Vec<PolicySetup>,
    /// Per policy, the network of its critic, if that has a model of its own.
    pub critics: Vec<Option<CriticModel>>,
}

/// Checks that gradients can be computed in a model's form. On a GPU, those of f16 underflow: the gradient of a
/// logit is a probability divided by the number of tokens, and f16 has nothing below 6e-8.
pub(crate) fn can_train(dtype: ModelDtype, device: Device) -> Result<(), &'static str> {
    match (device, dtype) {
        (Device::Cpu, _) => Ok(()),
        (_, ModelDtype::F16) => Err(
            "on a GPU, a model in f16 can't be trained, nor an adapter on it: small gradients become 0; set `dtype = bf16` \
             or `dtype = f32` in its `model`",
        ),
        _ => Ok(()),
    }
}

/// Returns the number format of a model whose weights are trained.
fn trained_dtype(policy: &Policy, model: &Model) -> Result<Dtype, Error> {
    let problem = || {
        let own = model.dtype;
        Error::policy(
            &policy.name,
            format!(
                "weights with `dtype = {own}` can't be trained: set `dtype = f32` or `dtype = bf16` in its `model`, or train \
                 an adapter with a `lora` block"
            ),
        )
    };
    model.dtype.tensors().ok_or_else(problem)
}

/// Loads or creates the initial weights of all policies and critics.
pub(crate) fn set_up_policies(
    workflow: &Workflow,
    starts: impl Fn(&str) -> SourcePath,
    models: Vec<Model>,
    seed: u64,
    device: Device,
) -> Result<InitialWeights, Error> {
    let mut bases = BaseModels::new(workflow, models, device);
    let mut setups = Vec::new();
    for policy in &workflow.policies {
        let training = policy.training.as_ref().filter(|_| workflow.train.is_some());
        if let Some(training) = training {
            let models = [Some(policy.model), training.critic.as_ref().and_then(|critic| critic.model)];
            for model in models.into_iter().flatten() {
                can_train(bases.models[model].dtype, device)
                    .map_err(|problem| Error::policy(&policy.name, problem))?;
            }
        }
        let start = PolicyStart::read(policy, &starts, &bases.models[policy.model], device)?;
        if let (PolicyStart::BaseModel, None, Some(training)) = (&start, &policy.lora, training) {
            let dtype = trained_dtype(policy, &bases.models[policy.model])?;
            let base = bases.add_exclusive(policy.model);
            setups.push(PolicySetup::TrainedWeights { base, dtype, training: training.clone() });
            continue;
        }
        setups.push(match (start, &policy.lora) {
            (PolicyStart::Model(_), Some(_)) => {
                let problem = "`from` is a model folder, but the policy has a `lora` block: point `from` to an \
                               adapter, or load that folder with a `model` line";
                return Err(Error::policy(&policy.name, problem));
            }
            (PolicyStart::Adapter(source), None) if training.is_some() => {
                let problem = format!(
                    "`from` is an adapter ({}), but the policy has no `lora` block: add one of the same rank, or set \
                     `train = false`",
                    source.path().display()
                );
                return Err(Error::policy(&policy.name, problem));
            }
            (PolicyStart::Model(model), None) => {
                let base = bases.add_loaded(policy, *model)?;
                match training.cloned() {
                    Some(training) => {
                        let dtype = trained_dtype(policy, &bases.bases[base])?;
                        PolicySetup::TrainedWeights { base, dtype, training }
                    }
                    None => PolicySetup::Frozen { base, adapter: None },
                }
            }
            (start, lora) => {
                let base = bases.shared_base(policy.model);
                let config = &bases.bases[base].config;
                let adapter = match (&start, lora) {
                    (PolicyStart::Adapter(source), _) => Some(load_adapter(policy, source, config)?),
                    (_, Some(lora)) if training.is_some() => Some(new_adapter(policy, lora, config, seed)?),
                    _ => None,
                };
                match (adapter.map(|adapter| adapter.to_device(device)), training.cloned()) {
                    (Some(adapter), Some(training)) => PolicySetup::TrainedAdapter { base, adapter, training },
                    (adapter, _) => PolicySetup::Frozen { base, adapter },
                }
            }
        });
    }
    let critics = workflow.policies.iter().map(|policy| match own_critic(workflow, policy) {
        Some((critic, model)) => bases.critic(policy, critic, model, seed).map(Some),
        None => Ok(None),
    });
    let critics = critics.collect::<Result<Vec<_>, Error>>()?;
    Ok(InitialWeights { bases: bases.bases, setups, critics })
}

/// The critic of a policy that has a model of its own, and the index of that model. `None` for other policies.
fn own_critic<'w>(workflow: &Workflow, policy: &'w Policy) -> Option<(&'w Critic, usize)> {
    let training = policy.training.as_ref().filter(|_| workflow.train.is_some())?;
    let critic = training.critic.as_ref().filter(|_| training.objective.advantage == Advantage::Gae)?;
    match critic.on {
        CriticBase::Policy | CriticBase::Shared => None,
        CriticBase::Adapter => Some((critic, critic.model?)),
        CriticBase::Model => Some((critic, critic.model.unwrap_or(policy.model))),
    }
}

/// Source of a policy's initial weights.
enum PolicyStart {
    /// The policy's model.
    BaseModel,
    Adapter(SourcePath),
    Model(Box<Model>),
}

impl PolicyStart {
    /// Reads the policy's `from`. A model folder is loaded in the number format of the policy's `model`.
    fn read(
        policy: &Policy,
        starts: impl Fn(&str) -> SourcePath,
        model: &Model,
        device: Device,
    ) -> Result<Self, Error> {
        let Some(from) = &policy.from else { return Ok(PolicyStart::BaseModel) };
        let source = starts(from);
        let path = source.path();
        if path.join(ADAPTER_CONFIG).is_file() {
            return Ok(PolicyStart::Adapter(source));
        }
        if !path.exists() {
            let problem = format!("`from` names {}, which does not exist; correct the path", path.display());
            return Err(Error::policy(&policy.name, problem));
        }
        let model = Model::load(&source, device, model.dtype).map_err(Error::model(&policy.name))?;
        Ok(PolicyStart::Model(Box::new(model)))
    }
}

/// Base models while policies are assigned to them.
struct BaseModels {
    /// The workflow's models.
    models: Vec<Model>,
    /// Per model, true if a policy uses its weights unchanged.
    is_shared: Vec<bool>,
    /// Per model, number of fully trained policies and critics that have no weights yet.
    unassigned: Vec<usize>,
    /// Per model, index of the base that policies share, if there is one.
    shared_bases: Vec<Option<usize>>,
    /// Base models of the policies.
    bases: Vec<Model>,
}

impl BaseModels {
    fn new(workflow: &Workflow, mut models: Vec<Model>, device: Device) -> Self {
        for model in &mut models {
            model.weights = model.weights.to_device(device);
        }
        let (mut is_shared, mut unassigned) = (vec![false; models.len()], vec![0; models.len()]);
        for policy in &workflow.policies {
            let is_trained = policy.training.is_some() && workflow.train.is_some();
            if !is_trained || policy.lora.is_some() {
                is_shared[policy.model] = true;
            } else if policy.from.is_none() {
                unassigned[policy.model] += 1;
            }
            match own_critic(workflow, policy) {
                Some((Critic { on: CriticBase::Model, .. }, model)) => unassigned[model] += 1,
                Some((_, model)) => is_shared[model] = true,
                None => {}
            }
        }
        let shared_bases = vec![None; models.len()];
        Self { models, is_shared, unassigned, shared_bases, bases: Vec::new() }
    }

    /// Index of the base shared by all policies of `model` without weights of their own.
    fn shared_base(&mut self, model: usize) -> usize {
        if let Some(base) = self.shared_bases[model] {
            return base;
        }
        let weights = self.models[model].weights.shallow();
        let base = self.add(model, weights);
        self.shared_bases[model] = Some(base);
        base
    }

    /// Adds a base for one policy to train.
    fn add_exclusive(&mut self, model: usize) -> usize {
        let weights = self.exclusive_weights(model);
        self.add(model, weights)
    }

    /// Weights of a model for one policy or critic to train. The last of these takes the original weights if they
    /// are not shared.
    fn exclusive_weights(&mut self, model: usize) -> Weights {
        self.unassigned[model] -= 1;
        let original = &self.models[model].weights;
        if self.unassigned[model] == 0 && !self.is_shared[model] {
            original.shallow()
        } else {
            original.copy()
        }
    }

    /// The network of a policy's critic that has a model of its own.
    fn critic(
        &mut self,
        policy: &Policy,
        critic: &Critic,
        model: usize,
        seed: u64,
    ) -> Result<CriticModel, Error> {
        check_critic_model(policy, &self.models[policy.model], &self.models[model])?;
        let config = self.models[model].config.clone();
        match &critic.lora {
            Some(lora) => {
                let weights = self.models[model].weights.shallow();
                let adapter = critic_adapter(&policy.name, lora, &config, &weights, seed)?;
                CriticModel::adapter(config, weights, adapter)
                    .map_err(Error::torch(format!("critic of policy `{}`", policy.name)))
            }
            None => {
                let dtype = trained_dtype(policy, &self.models[model])?;
                CriticModel::trained(config, self.exclusive_weights(model), dtype)
                    .map_err(Error::model(&policy.name))
            }
        }
    }

    /// Adds a model that `policy` starts from instead of its own.
    fn add_loaded(&mut self, policy: &Policy, model: Model) -> Result<usize, Error> {
        let expected = &self.models[policy.model].config;
        // Begin and end tokens are not dimensions.
        let got = Config { bos: expected.bos, eos: expected.eos.clone(), ..model.config.clone() };
        if got != *expected {
            let problem = format!(
                "`from` is a model of other dimensions than the policy's own: {} layers of width {} and {} tokens, not \
                 {}, {} and {}; start from a trained copy of the same model",
                got.layers, got.hidden, got.vocab, expected.layers, expected.hidden, expected.vocab
            );
            return Err(Error::policy(&policy.name, problem));
        }
        self.bases.push(model);
        Ok(self.bases.len() - 1)
    }

    fn add(&mut self, model: usize, weights: Weights) -> usize {
        let Model { config, tokenizer, template, dtype, hash, .. } = &self.models[model];
        self.bases.push(Model {
            config: config.clone(),
            weights,
            tokenizer: tokenizer.clone(),
            template: template.clone(),
            dtype: *dtype,
            hash: hash.clone(),
        });
        self.bases.len() - 1
    }
}

/// Checks that a critic's model can read the tokens of a policy: it has the same tokens, and as many positions.
fn check_critic_model(policy: &Policy, own: &Model, critic: &Model) -> Result<(), Error> {
    let refuse = |problem: &str| {
        let advice = "give its critic a model of the same family, or set `on = adapter` without `model`";
        Err(Error::policy(&policy.name, format!("{problem}; {advice}")))
    };
    if critic.config.max_positions < own.config.max_positions {
        let (got, needed) = (critic.config.max_positions, own.config.max_positions);
        return refuse(&format!(
            "the model of its critic has {got} positions, fewer than the {needed} of its own"
        ));
    }
    if Arc::ptr_eq(&own.tokenizer, &critic.tokenizer) || own.hash == critic.hash {
        return Ok(());
    }
    let text = |model: &Model, id: u32| model.tokenizer.decode(&[id], false);
    let is_same = |id: u32| text(own, id) == text(critic, id);
    let ids = u32::try_from(own.tokenizer.len()).unwrap_or(u32::MAX);
    if critic.config.vocab < own.config.vocab || !(0..ids).all(is_same) {
        return refuse("the model of its critic has other tokens than its own");
    }
    Ok(())
}

fn new_adapter(policy: &Policy, lora: &Lora, config: &Config, seed: u64) -> Result<Adapter, Error> {
    let targets = targets(policy, lora)?;
    let seed = adapter_seed(seed, &policy.name);
    Adapter::new(config, lora.rank as usize, lora.alpha, &targets, seed).map_err(Error::model(&policy.name))
}

/// Loads the adapter that a policy starts from. A `lora` block must match it.
fn load_adapter(policy: &Policy, source: &SourcePath, config: &Config) -> Result<Adapter, Error> {
    let adapter = Adapter::load(source, config).map_err(Error::model(&policy.name))?;
    let Some(lora) = &policy.lora else { return Ok(adapter) };
    let mut wanted = targets(policy, lora)?;
    wanted.sort_unstable();
    wanted.dedup();
    let same =
        adapter.rank == lora.rank as usize && adapter.alpha == lora.alpha && adapter.targets() == wanted;
    if same {
        return Ok(adapter);
    }
    let list = |targets: &[Projection]| {
        let names: Vec<&str> = targets.iter().map(|target| target.name()).collect();
        names.join(" ")
    };
    let problem = format!(
        "the adapter {} has rank {}, alpha {} on {}; the policy's `lora` block says rank {}, alpha {} on {}: make them \
         equal",
        source.path().display(),
        adapter.rank,
        adapter.alpha,
        list(adapter.targets()),
        lora.rank,
        lora.alpha,
        list(&wanted),
    );
    Err(Error::policy(&policy.name, problem))
}

fn targets(policy: &Policy, lora: &Lora) -> Result<Vec<Projection>, Error> {
    let parse = |name: &String| name.parse::<Projection>().map_err(Error::model(&policy.name));
    lora.targets.iter().map(parse).collect()
}
