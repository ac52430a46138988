//! The policies of a workflow, ready to be served and trained.
//!
//! Which learners there are follows from the policies: all trained adapters on one model share a learner and its
//! frozen weights; a policy without `lora` trains weights of its own; a policy with `train = false` has no
//! learner. A model whose only user is one fully trained policy is not copied.

use std::path::{Path, PathBuf};

use pl_dsl::workflow::{Lora, Policy, Train, Workflow};
use pl_model::{Adapter, Config, Model, Projection, Weights};
use pl_record::transition::Transition;
use tch::Device;

use crate::error::Error;
use crate::learner::{AdapterPolicy, Learner, Member, Sample, Settings};
use crate::lr::learning_rate;
use crate::metrics::StepMetrics;
use crate::stream;

/// The file by which a PEFT adapter folder is told from a model folder.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// A policy as inference needs it.
#[derive(Debug)]
pub struct Served {
    /// Index into the workflow's policies.
    pub policy: usize,
    /// Index into [`Trainer::bases`].
    pub base: usize,
    /// The adapter, which shares memory with the one that is trained; none: the base's weights alone.
    pub adapter: Option<Adapter>,
    /// Version of what is served; 0 before the first update.
    pub version: u64,
}

/// How far an update is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Packed batches run.
    pub done: u64,
    /// Packed batches to run in all.
    pub total: u64,
}

/// Where a policy's weights are.
#[derive(Debug)]
enum Place {
    /// Used as it is.
    Fixed { base: usize, adapter: Option<Adapter> },
    /// Trained: by which learner, as which of its members.
    Trained { base: usize, learner: usize, member: usize },
}

/// All policies of a workflow and the learners of those that are trained.
#[derive(Debug)]
pub struct Trainer {
    bases: Vec<Model>,
    places: Vec<Place>,
    learners: Vec<Learner>,
    names: Vec<String>,
    train: Option<Train>,
}

impl Trainer {
    /// Sets up the policies of `workflow`. `models` are its models, in its order, loaded; `folder` is where paths
    /// in the file start from; `seed` is the run's.
    ///
    /// Without a `train` block every policy is used as it is.
    ///
    /// # Errors
    /// When a `from` can't be read or does not fit its policy, or an adapter's settings do not fit the model.
    pub fn new(
        workflow: &Workflow,
        folder: &Path,
        models: Vec<Model>,
        seed: u64,
        device: Device,
    ) -> Result<Self, Error> {
        if models.len() != workflow.models.len() {
            let (got, expected) = (models.len(), workflow.models.len());
            let problem = format!("{got} models were loaded for the {expected} of the workflow");
            return Err(Error::policy(&names(workflow).join("`, `"), problem));
        }
        let trains = |policy: &Policy| policy.train && workflow.train.is_some();
        let mut bases = Bases::new(workflow, models, device);
        let mut places = Vec::new();
        let mut learners = Vec::new();
        // Per shared base, the adapters to train on it.
        let mut adapters: Vec<(usize, Vec<AdapterPolicy>)> = Vec::new();
        let mut full = Vec::new();
        for (index, policy) in workflow.policies.iter().enumerate() {
            let start = Start::read(policy, folder, &bases.models[policy.model], device)?;
            let lora = policy.lora.as_ref();
            let place = match (start, lora) {
                (Start::Model(_), Some(_)) => {
                    let problem = "`from` is a model folder, but the policy has a `lora` block: point `from` to an \
                                   adapter, or load that folder with a `model` line";
                    return Err(Error::policy(&policy.name, problem));
                }
                (Start::Adapter(path), None) if trains(policy) => {
                    let problem = format!(
                        "`from` is an adapter ({}), but the policy has no `lora` block: give it one of the same \
                         rank, or say `train = false`",
                        path.display()
                    );
                    return Err(Error::policy(&policy.name, problem));
                }
                (Start::Model(model), None) => {
                    let base = bases.start(policy, *model)?;
                    if trains(policy) {
                        full.push((index, base))
                    }
                    Place::Fixed { base, adapter: None }
                }
                (Start::Nothing, None) if trains(policy) => {
                    let base = bases.own(policy.model);
                    full.push((index, base));
                    Place::Fixed { base, adapter: None }
                }
                (start, lora) => {
                    let base = bases.common(policy.model);
                    let config = &bases.list[base].config;
                    let adapter = match (&start, lora) {
                        (Start::Adapter(path), _) => Some(load_adapter(policy, path, config)?),
                        (_, Some(lora)) if trains(policy) => Some(new_adapter(policy, lora, config, seed)?),
                        _ => None,
                    };
                    let adapter = adapter.map(|adapter| adapter.to_device(device));
                    match adapter {
                        Some(adapter) if trains(policy) => {
                            let at = adapters.iter().position(|(b, _)| *b == base).unwrap_or_else(|| {
                                adapters.push((base, Vec::new()));
                                adapters.len() - 1
                            });
                            adapters[at].1.push((index, policy.name.clone(), adapter));
                            Place::Fixed { base, adapter: None }
                        }
                        adapter => Place::Fixed { base, adapter },
                    }
                }
            };
            places.push(place);
        }
        let bases = bases.list;
        if let Some(train) = &workflow.train {
            let settings = Settings::new(train, seed);
            for (base, policies) in adapters {
                let Model { config, weights, .. } = &bases[base];
                learners
                    .push((base, Learner::adapters(config.clone(), weights.shallow(), policies, settings)?));
            }
            for (index, base) in full {
                let Model { config, weights, dtype, .. } = &bases[base];
                let name = workflow.policies[index].name.clone();
                let (config, weights) = (config.clone(), weights.shallow());
                let learner = Learner::full(config, weights, *dtype, index, name, settings)?;
                learners.push((base, learner));
            }
        }
        for (learner, (base, trained)) in learners.iter().enumerate() {
            for (member, Member { policy, .. }) in trained.members().iter().enumerate() {
                places[*policy] = Place::Trained { base: *base, learner, member };
            }
        }
        let learners = learners.into_iter().map(|(_, learner)| learner).collect();
        let names = names(workflow);
        Ok(Trainer { bases, places, learners, names, train: workflow.train.clone() })
    }

    /// The sets of weights that policies stand on. Trained ones change in place: their tensors are shared with the
    /// learners.
    pub fn bases(&self) -> &[Model] {
        &self.bases
    }

    /// All policies of the workflow, in its order, as they are now.
    pub fn policies(&self) -> Vec<Served> {
        (0..self.places.len()).filter_map(|policy| self.served(policy)).collect()
    }

    /// One policy as it is now; none if the workflow has no such policy.
    pub fn served(&self, policy: usize) -> Option<Served> {
        Some(match self.places.get(policy)? {
            Place::Fixed { base, adapter } => {
                let adapter = adapter.as_ref().map(Adapter::shallow);
                Served { policy, base: *base, adapter, version: 0 }
            }
            Place::Trained { base, learner, member } => {
                let member = &self.learners[*learner].members()[*member];
                let adapter = member.adapter.as_ref().map(Adapter::shallow);
                Served { policy, base: *base, adapter, version: member.version }
            }
        })
    }

    /// Versions of all policies, in the workflow's order.
    pub fn versions(&self) -> Vec<u64> {
        let version = |place: &Place| match place {
            Place::Fixed { .. } => 0,
            Place::Trained { learner, member, .. } => self.learners[*learner].members()[*member].version,
        };
        self.places.iter().map(version).collect()
    }

    /// The learners, for what a run says of itself.
    pub fn learners(&self) -> &[Learner] {
        &self.learners
    }

    pub(crate) fn learners_mut(&mut self) -> &mut [Learner] {
        &mut self.learners
    }

    /// The model behind a trained member, for its tokenizer and template.
    pub(crate) fn model_of(&self, policy: usize) -> &Model {
        match &self.places[policy] {
            Place::Fixed { base, .. } | Place::Trained { base, .. } => &self.bases[*base],
        }
    }

    /// Trains on a step's transitions, each with its advantage. Transitions of policies that are not trained are
    /// passed over. The order of the transitions does not matter: they are sorted by key first.
    ///
    /// # Errors
    /// Nothing was changed when a transition does not fit its policy or the workflow has no `train` block; after
    /// an error of libtorch the state is undefined, and the run goes on from its last checkpoint.
    pub fn update(
        &mut self,
        step: u64,
        transitions: &[Transition],
        advantages: &[f64],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<StepMetrics, Error> {
        let Some(train) = &self.train else {
            return Err(Error::policy(&self.names.join("`, `"), "the workflow has no `train` block"));
        };
        if transitions.len() != advantages.len() {
            let problem = format!("{} transitions, but {} advantages", transitions.len(), advantages.len());
            return Err(Error::policy(&self.names.join("`, `"), problem));
        }
        let rate = learning_rate(train, step);
        let mut samples: Vec<Sample<'_>> = transitions
            .iter()
            .zip(advantages)
            .map(|(transition, &advantage)| Sample { transition, advantage })
            .collect();
        samples.sort_by(|a, b| a.transition.key.cmp(&b.transition.key));
        let mut own: Vec<Vec<Sample<'_>>> = self.learners.iter().map(|_| Vec::new()).collect();
        for sample in samples {
            let policy = sample.transition.policy as usize;
            match self.places.get(policy) {
                Some(Place::Trained { learner, .. }) => own[*learner].push(sample),
                Some(Place::Fixed { .. }) => {}
                None => {
                    let t = sample.transition;
                    return Err(Error::Transition {
                        step,
                        task: t.task_id.clone(),
                        agent: t.agent.clone(),
                        turn: t.turn,
                        problem: format!("the workflow has no policy {policy}"),
                    });
                }
            }
        }
        let planned = self
            .learners
            .iter()
            .zip(own)
            .map(|(learner, samples)| learner.plan(step, samples))
            .collect::<Result<Vec<_>, _>>()?;
        let total = planned.iter().map(|planned| planned.batches()).sum();
        let fed_tokens = planned.iter().map(|planned| planned.fed_tokens()).sum();
        let mut done = 0;
        progress(Progress { done, total });
        let mut policies = Vec::new();
        for (learner, planned) in self.learners.iter_mut().zip(&planned) {
            policies.extend(learner.update(planned, rate, &mut || {
                done += 1;
                progress(Progress { done, total });
            })?);
        }
        policies.sort_by_key(|metrics| self.names.iter().position(|name| *name == metrics.policy));
        Ok(StepMetrics { policies, batches: total, fed_tokens })
    }
}

fn names(workflow: &Workflow) -> Vec<String> {
    workflow.policies.iter().map(|policy| policy.name.clone()).collect()
}

/// What a policy starts from besides its model.
enum Start {
    Nothing,
    Adapter(PathBuf),
    Model(Box<Model>),
}

impl Start {
    /// A model folder is read in the number format of the policy's `model`.
    fn read(policy: &Policy, folder: &Path, model: &Model, device: Device) -> Result<Self, Error> {
        let Some(from) = &policy.from else { return Ok(Start::Nothing) };
        let path = folder.join(from);
        if path.join(ADAPTER_CONFIG).is_file() {
            return Ok(Start::Adapter(path));
        }
        if !path.exists() {
            let problem = format!("`from` names {}, which is not there; correct the path", path.display());
            return Err(Error::policy(&policy.name, problem));
        }
        let model = Model::load(&path, device, model.dtype).map_err(Error::model(&policy.name))?;
        Ok(Start::Model(Box::new(model)))
    }
}

/// Base weights while policies are dealt out to them.
struct Bases {
    /// The workflow's models.
    models: Vec<Model>,
    /// Per model: whether a policy stands on its weights as they are.
    shared: Vec<bool>,
    /// Per model: fully trained policies that have no weights yet.
    waiting: Vec<usize>,
    /// Per model: the base that policies share, once there is one.
    common: Vec<Option<usize>>,
    /// What the policies stand on.
    list: Vec<Model>,
}

impl Bases {
    fn new(workflow: &Workflow, mut models: Vec<Model>, device: Device) -> Self {
        for model in &mut models {
            model.weights = model.weights.to_device(device);
        }
        let (mut shared, mut waiting) = (vec![false; models.len()], vec![0; models.len()]);
        for policy in &workflow.policies {
            let trained = policy.train && workflow.train.is_some();
            if !trained || policy.lora.is_some() {
                shared[policy.model] = true;
            } else if policy.from.is_none() {
                waiting[policy.model] += 1;
            }
        }
        let common = vec![None; models.len()];
        Bases { models, shared, waiting, common, list: Vec::new() }
    }

    /// The base that all policies of `model` without weights of their own stand on.
    fn common(&mut self, model: usize) -> usize {
        if let Some(base) = self.common[model] {
            return base;
        }
        let weights = self.models[model].weights.shallow();
        let base = self.add(model, weights);
        self.common[model] = Some(base);
        base
    }

    /// Weights of `model` for one policy alone to train. The last one takes the original, if nobody shares it.
    fn own(&mut self, model: usize) -> usize {
        self.waiting[model] -= 1;
        let original = &self.models[model].weights;
        let weights = if self.waiting[model] == 0 && !self.shared[model] {
            original.shallow()
        } else {
            original.copy()
        };
        self.add(model, weights)
    }

    /// The weights of a model that `policy` starts from instead of its own.
    fn start(&mut self, policy: &Policy, model: Model) -> Result<usize, Error> {
        let expected = &self.models[policy.model].config;
        // Tokens that end a completion are no part of the measures.
        let got = Config { bos: expected.bos, eos: expected.eos.clone(), ..model.config.clone() };
        if got != *expected {
            let problem = format!(
                "`from` is a model of other measures than the policy's own: {} layers of width {} and {} tokens, not \
                 {}, {} and {}; let it start from a trained copy of the same model",
                got.layers, got.hidden, got.vocab, expected.layers, expected.hidden, expected.vocab
            );
            return Err(Error::policy(&policy.name, problem));
        }
        self.list.push(model);
        Ok(self.list.len() - 1)
    }

    fn add(&mut self, model: usize, weights: Weights) -> usize {
        let Model { config, tokenizer, template, dtype, hash, .. } = &self.models[model];
        self.list.push(Model {
            config: config.clone(),
            weights,
            tokenizer: tokenizer.clone(),
            template: template.clone(),
            dtype: *dtype,
            hash: hash.clone(),
        });
        self.list.len() - 1
    }
}

fn new_adapter(policy: &Policy, lora: &Lora, config: &Config, seed: u64) -> Result<Adapter, Error> {
    let targets = targets(policy, lora)?;
    let seed = stream::adapter(seed, &policy.name);
    Adapter::new(config, lora.rank as usize, lora.alpha, &targets, seed).map_err(Error::model(&policy.name))
}

/// Reads the adapter that a policy starts from. A `lora` block must say what the adapter is.
fn load_adapter(policy: &Policy, path: &Path, config: &Config) -> Result<Adapter, Error> {
    let adapter = Adapter::load(path, config).map_err(Error::model(&policy.name))?;
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
        path.display(),
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

#[cfg(test)]
mod tests;
