//! Sessions: a checked workflow with its models loaded and its policies served, ready to play episodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::Source;
use pl_dsl::workflow::{Faults, Policy, Train, Workflow};
use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_model::{ChatTemplate, Config, Model, NaiveDate, TensorSet, Tokenizer, libtorch};
use pl_rollout::{AgentRuntime, EpisodeSetup};
use pl_trainer::{Learner, ServedPolicy, Trainer};
use pl_types::{Generate, SourcePath};
use tch::Device;

use crate::chat::{ChatFormat, ChatFormats, today};
use crate::checkpoints;
use crate::diagnostics::Diagnostics;
use crate::dtype::model_dtype;
use crate::error::Error;
use crate::generation::{
    CurrentWeights, EngineLayout, PolicyRouter, Pool, RuntimeAdapters, RuntimeControl, connect,
    conversation_template, is_hosted,
};
use crate::granted_policies::GrantedPolicies;
use crate::host::Host;
use crate::kv_cache::kv_cache;
use crate::locate::{self, LocatedModel};
use crate::memory::MemoryEstimate;
use crate::placement::{Placement, training_cores};
use crate::player::Player;
use crate::progress::{Activity, Notice};
use crate::workflow::CheckedWorkflow;

/// Options of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Seed of every random stream.
    pub seed: u64,
    /// Checkpoint to load, or a run folder, whose newest checkpoint is loaded.
    pub checkpoint: Option<PathBuf>,
    /// Gives each policy without an adapter weights of its own in the engine, so that [`RuntimeControl`] can replace
    /// them.
    pub own_weights: bool,
}

/// Seed, date and kind of weights of a new session.
pub(crate) struct SessionStart {
    pub seed: u64,
    /// Date that chat templates see as today.
    pub date: NaiveDate,
    /// As in [`SessionOptions::own_weights`].
    pub own_weights: bool,
}

/// A policy of a session, with the tokenizer and the template of its prompts.
#[derive(Debug, Clone)]
pub struct SessionPolicy {
    /// Index in the workflow.
    pub policy: usize,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Arc<ChatTemplate>,
    /// Largest number of tokens of a prompt with its completion.
    pub max_positions: usize,
    /// Name of its model in the workflow.
    pub model: String,
    /// Hash of the model's files. Empty if the policy is a trained copy of the model.
    pub model_hash: String,
    /// True if the policy is an adapter on the model.
    pub has_adapter: bool,
}

/// A scenario of a session, ready to be played.
pub(crate) struct SessionScenario {
    pub environment: Arc<pl_plugin::Environment>,
    pub setup: Arc<EpisodeSetup>,
}

/// Loaded workflow whose policies are served.
pub struct Session {
    pub(crate) trainer: Trainer,
    pub(crate) router: Arc<PolicyRouter>,
    /// In the order of the workflow's scenarios.
    pub(crate) scenarios: Vec<SessionScenario>,
    pub(crate) memory: MemoryEstimate,
    /// Device that the policies are trained on.
    pub(crate) device: Device,
    /// Cores of each learner. Empty for all of them.
    pub(crate) learner_cores: Vec<Vec<u32>>,
    /// Hash of each model by its name in the workflow.
    pub(crate) model_hashes: BTreeMap<String, String>,
    /// Number format of each model's matrices by its name in the workflow.
    pub(crate) model_dtypes: BTreeMap<String, String>,
    /// Name of each policy's model.
    model_names: Vec<String>,
    layout: EngineLayout,
    /// Source of each of the workflow's models, with the commit that was loaded.
    pub(crate) model_sources: Vec<String>,
    pub(crate) seed: u64,
    /// Date that chat templates see as today.
    pub(crate) date: NaiveDate,
    pub(crate) formats: ChatFormats,
}

impl Session {
    /// Loads the models for playing and evaluating, with the weights that the workflow names or those of a
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::NotAllowed`]; if a model, plugin or checkpoint can't be loaded.
    pub fn open(
        host: &Host,
        checked: &CheckedWorkflow,
        device: Device,
        options: &SessionOptions,
    ) -> Result<Session, Error> {
        checked.require_permissions()?;
        let start = SessionStart { seed: options.seed, date: today(), own_weights: options.own_weights };
        let mut workflow = checked.workflow.clone();
        match &options.checkpoint {
            Some(checkpoint) => {
                drop_restored_starts(&mut workflow.policies);
                let mut session = Session::load(host, checked, &workflow, device, start)?;
                checkpoints::restore(host, &mut session.trainer, &session.router, checkpoint)?;
                checkpoints::warn_of_other_models(host, &session.trainer, &session.model_hashes, checkpoint);
                Ok(session)
            }
            None => {
                // Nothing is trained or restored: trainable copies of weights would waste memory.
                workflow.train = None;
                Session::load(host, checked, &workflow, device, start)
            }
        }
    }

    /// Loads the models and starts the inference engine. `workflow` is the checked one, possibly with fewer
    /// policies to train or to load.
    pub(crate) fn load(
        host: &Host,
        checked: &CheckedWorkflow,
        workflow: &Workflow,
        device: Device,
        start: SessionStart,
    ) -> Result<Session, Error> {
        let SessionStart { seed, date, own_weights } = start;
        let LocatedModels { models: located, placement, memory } =
            LocatedModels::find(host, checked, device)?;
        let device = placement.train;
        let deterministic = workflow.train.as_ref().is_some_and(|train| train.deterministic);
        libtorch::use_deterministic_algorithms(deterministic && device.is_cuda());
        let tracker = host.progress().start(Activity::LoadingModels);
        let models = load_models(checked, workflow, &located, device)?;
        let names = || workflow.models.iter().map(|model| model.name.clone());
        let model_hashes = names().zip(models.iter().map(|model| model.hash.clone())).collect();
        let model_dtypes = names().zip(models.iter().map(|model| model.dtype.to_string())).collect();
        let trainer =
            Trainer::new(workflow, |from| checked.start(from), models, seed, device).map_err(Error::setup)?;
        let overlaps = workflow.largest_staleness() > 0;
        let layout = EngineLayout::new(workflow, &trainer, own_weights);
        let engines = start_engines(&trainer, workflow, &layout, &placement, overlaps)?;
        drop(tracker);
        let router = Arc::new(connect(host, workflow, &trainer, engines, &layout)?);
        let environments = checked.environments(host)?;
        let format = |served: ServedPolicy| {
            let model = &trainer.bases()[served.base];
            ChatFormat {
                tokenizer: Arc::clone(&model.tokenizer),
                template: Arc::clone(&model.template),
                max_positions: model.config.max_positions,
            }
        };
        let formats = trainer.policies().into_iter().map(format).collect();
        let formats = ChatFormats::new(with_hosted_formats(workflow, formats)?, date);
        let setups = episode_setups(checked, &formats, &environments, router.clone())?;
        let scenarios = environments.into_iter().zip(setups);
        let learner_cores =
            trainer.learners().iter().map(|learner| learner_cores(learner, workflow)).collect();
        Ok(Session {
            trainer,
            router,
            scenarios: scenarios
                .map(|(environment, setup)| SessionScenario { environment, setup: Arc::new(setup) })
                .collect(),
            memory,
            device,
            learner_cores,
            model_hashes,
            model_dtypes,
            model_names: workflow
                .policies
                .iter()
                .filter_map(|policy| Some(workflow.models.get(policy.model)?.name.clone()))
                .collect(),
            layout,
            model_sources: located.into_iter().map(|model| model.source).collect(),
            seed,
            date,
            formats,
        })
    }

    /// Returns the memory estimate of the session.
    pub fn memory(&self) -> &MemoryEstimate {
        &self.memory
    }

    /// Returns the text of tokens of a policy, without special tokens. Empty if there is no such policy.
    pub fn decode(&self, policy: usize, tokens: &[u32]) -> String {
        let model = self.trainer.served(policy).and_then(|served| self.trainer.bases().get(served.base));
        model.map(|model| model.tokenizer.decode(tokens, true)).unwrap_or_default()
    }

    /// Returns all policies, in the order of the workflow's.
    pub fn policies(&self) -> Vec<SessionPolicy> {
        let policy = |served: ServedPolicy| {
            let base = &self.trainer.bases()[served.base];
            SessionPolicy {
                policy: served.policy,
                tokenizer: Arc::clone(&base.tokenizer),
                template: Arc::clone(&base.template),
                max_positions: base.config.max_positions,
                model: self.model_names.get(served.policy).cloned().unwrap_or_default(),
                // Trained weights are no longer those of the file.
                model_hash: match served.trained && served.adapter.is_none() {
                    true => String::new(),
                    false => base.hash.clone(),
                },
                has_adapter: served.adapter.is_some(),
            }
        };
        self.trainer.policies().into_iter().map(policy).collect()
    }

    /// Returns the generator of all policies.
    pub fn generator(&self) -> Arc<dyn Generate> {
        self.router.clone()
    }

    /// Returns a loader of adapters into the session's engine.
    pub fn runtime_adapters(&self) -> RuntimeAdapters {
        let bases = self.trainer.bases();
        let configs = self.trainer.policies().into_iter().map(|served| bases[served.base].config.clone());
        RuntimeAdapters::new(Arc::clone(&self.router), configs.collect())
    }

    /// Returns commands to the session's engine, with which clients of a server pause it and replace weights. The
    /// weights of a policy can be replaced if it is a model that no other policy is on.
    pub fn runtime_control(&self) -> RuntimeControl {
        let current = |served: ServedPolicy| {
            let base = &self.trainer.bases()[served.base];
            (served.adapter.is_none() && self.layout.is_alone(served.policy)).then(|| CurrentWeights {
                config: base.config.clone(),
                dtype: base.dtype,
                weights: base.weights.shallow(),
                version: served.version,
                checksum: None,
            })
        };
        let weights = self.trainer.policies().into_iter().map(current).collect();
        RuntimeControl::new(Arc::clone(&self.router), weights)
    }

    /// Returns the team, to play episodes of the scenario at a position in the workflow's. Returns `None` if there is no
    /// such scenario.
    pub fn player(&self, scenario: usize) -> Option<Player> {
        let setup = Arc::clone(&self.scenarios.get(scenario)?.setup);
        Some(Player::new(setup, self.trainer.versions().into()))
    }

    /// Returns the seed of every random stream.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the date that chat templates see as today.
    pub fn date(&self) -> NaiveDate {
        self.date
    }

    /// Returns a counter of the tokens that were generated.
    pub(crate) fn token_counter(&self) -> Arc<dyn Fn() -> u64 + Send + Sync> {
        token_counter(&self.router)
    }
}

pub(crate) fn token_counter(router: &Arc<PolicyRouter>) -> Arc<dyn Fn() -> u64 + Send + Sync> {
    let router = Arc::clone(router);
    Arc::new(move || router.generated_tokens())
}

/// Removes `from` from all trained policies: a checkpoint has all of their weights.
pub(crate) fn drop_restored_starts(policies: &mut [Policy]) {
    for policy in policies.iter_mut().filter(|policy| policy.train) {
        policy.from = None;
    }
}

/// Returns true if training goes on from a checkpoint without the policy's `from`, which is not the reference
/// policy of a KL divergence then.
pub(crate) fn is_start_restored(policy: &Policy) -> bool {
    policy.training.as_ref().is_some_and(|training| training.objective.kl == 0.0)
}

/// Models of a workflow that are on this machine, and the devices they will be used on.
struct LocatedModels {
    /// Files in the order of the workflow's models.
    models: Vec<LocatedModel>,
    placement: Placement,
    memory: MemoryEstimate,
}

impl LocatedModels {
    /// Finds the models, fetches those of a hub, and warns if the machine has too little memory.
    fn find(host: &Host, checked: &CheckedWorkflow, device: Device) -> Result<LocatedModels, Error> {
        let workflow = &checked.workflow;
        let placement = Placement::new(workflow, device)?;
        let device = placement.train;
        let models = workflow
            .models
            .iter()
            .map(|model| {
                locate::model(host, &checked.folder, &model.source).map_err(Error::locate_model(&model.name))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let located = workflow.models.iter().zip(&models);
        let sources = located.map(|(model, file)| source_of(checked, model, file));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let memory = MemoryEstimate::new(workflow, &checked.folder, &sources, device)?;
        let list = memory.warnings();
        if !list.is_empty() {
            let source = Source { name: workflow.name.clone(), text: checked.text.clone() };
            host.notify(Notice::Diagnostics(Diagnostics::new(list, source.into())));
        }
        Ok(LocatedModels { models, placement, memory })
    }
}

/// Loads the models that were found, those that only servers generate for without weights.
fn load_models(
    checked: &CheckedWorkflow,
    workflow: &Workflow,
    located: &[LocatedModel],
    device: Device,
) -> Result<Vec<Model>, Error> {
    let load = |(index, (model, file))| {
        let model: &pl_dsl::workflow::Model = model;
        let dtype = model_dtype(workflow, index, device);
        let source = source_of(checked, model, file)?;
        let loaded = match needs_weights(workflow, index) {
            true => Model::load(source, device, dtype),
            false => Model::load_without_weights(source, dtype),
        };
        loaded.map_err(Error::model(&model.name))
    };
    workflow.models.iter().zip(located).enumerate().map(load).collect()
}

/// Returns a model that was found, to be read.
fn source_of(
    checked: &CheckedWorkflow,
    model: &pl_dsl::workflow::Model,
    file: &LocatedModel,
) -> Result<SourcePath, Error> {
    checked.model_source(model, &file.path).map_err(Error::locate_model(&model.name))
}

/// Returns true unless a model's policies are only generated for on servers, which takes its tokenizer alone.
fn needs_weights(workflow: &Workflow, model: usize) -> bool {
    let is_here = |policy: &Policy| {
        let training = policy.training.as_ref().filter(|_| workflow.train.is_some());
        let of_critic = training.and_then(|training| training.critic.as_ref()?.model);
        (policy.model == model && (policy.server.is_none() || training.is_some())) || of_critic == Some(model)
    };
    workflow.policies.iter().any(is_here) || !workflow.policies.iter().any(|policy| policy.model == model)
}

/// Starts an engine for each pool with the current weights of its policies. With `overlaps`, weights are trained while the
/// engines use them, so they get their own.
fn start_engines(
    trainer: &Trainer,
    workflow: &Workflow,
    layout: &EngineLayout,
    placement: &Placement,
    overlaps: bool,
) -> Result<Vec<LlmEngine>, Error> {
    let inference = &workflow.inference;
    let whole = |served: &ServedPolicy| served.trained && served.adapter.is_none();
    let trained: Vec<usize> = trainer.policies().iter().filter(|s| whole(s)).map(|s| s.base).collect();
    let start = |(number, pool): (usize, &Pool)| {
        let (device, cores) = placement.pool(pool.devices.as_ref());
        let base = |index: &usize| {
            let model = trainer.bases().get(*index)?;
            // On a CPU, the engine packs the weights into a format of its own in any case.
            let weights = match overlaps && trained.contains(index) && device != Device::Cpu {
                true => model.weights.copy(),
                false => model.weights.shallow(),
            };
            Some(BaseModel {
                config: model.config.clone(),
                weights: weights.to_device(device),
                tokenizer: Arc::clone(&model.tokenizer),
                dtype: model.dtype.tensors().unwrap_or_default(),
            })
        };
        let bases = pool.bases.iter().filter_map(base).collect();
        let own = |served: ServedPolicy| {
            let place = layout.policies.get(served.policy).copied().flatten()?;
            let weights =
                PolicyWeights { base: place.base, adapter: served.adapter, version: served.version };
            (place.pool == number).then_some(weights)
        };
        let policies = trainer.policies().into_iter().filter_map(own).collect();
        let default = LlmEngineConfig::default();
        let threads = if cores.is_empty() { default.threads } else { cores.len() };
        let config = LlmEngineConfig {
            slots: inference.slots as usize,
            kv_cache: kv_cache(inference.kv_cache, device) * pool.bases.len() as u64 / layout.bases() as u64,
            threads: inference.threads.map_or(threads, |threads| threads as usize),
            cores: cores.to_vec(),
            enforce_eager: inference.enforce_eager,
            ..default
        };
        LlmEngine::start(bases, policies, config).map_err(Error::Engine)
    };
    layout.pools.iter().enumerate().map(start).collect()
}

/// Returns the cores of a learner, whose policies have the same.
fn learner_cores(learner: &Learner, workflow: &Workflow) -> Vec<u32> {
    let first = learner.policies().first().and_then(|trained| workflow.policies.get(trained.policy));
    first.map(training_cores).unwrap_or_default().to_vec()
}

/// Connects the agents of a workflow with their policies, for each scenario. `formats` has the chat format of each policy,
/// `environments` the environment of each scenario; completions come from `generator`.
///
/// # Errors
/// If an agent or a reward can't be created.
pub(crate) fn episode_setups(
    checked: &CheckedWorkflow,
    formats: &ChatFormats,
    environments: &[Arc<pl_plugin::Environment>],
    generator: Arc<dyn Generate>,
) -> Result<Vec<EpisodeSetup>, Error> {
    let mut setups = Vec::new();
    for (index, (scenario, environment)) in checked.workflow.scenarios.iter().zip(environments).enumerate() {
        let mut agents = Vec::new();
        for (position, agent) in checked.workflow.agents.iter().enumerate() {
            let item = checked.agent(position)?.with_services(environment.services().clone());
            let bootstraps = has_critic(&checked.workflow, agent.policy);
            agents.push(AgentRuntime { bootstraps, ..agent_runtime(agent, position as u32, item, formats) });
        }
        let plugin = checked.workflow.plugins.get(scenario.reward.plugin);
        let granted = GrantedPolicies::new(
            &checked.workflow,
            plugin.map_or(&[], |plugin| &plugin.grant.policies),
            formats,
            Arc::clone(&generator),
        );
        setups.push(EpisodeSetup {
            scenario: scenario.name.as_deref().map(Arc::from),
            design: None,
            environment: environment.clone(),
            agents,
            reward: Arc::new(checked.reward(index)?.with_policies(Arc::new(granted))),
            team_weight: scenario.reward.team,
            local_weight: scenario.reward.local,
            scores_end: scenario.reward.scores_end,
            drawings: scenario.environment.drawings,
            fault_penalty: match &checked.workflow.train {
                Some(Train { faults: Faults::Redraw, .. }) => None,
                Some(train) => Some(train.fault_penalty),
                // Nothing is trained, and a team whose plugin fails has not succeeded.
                None => Some(0.0),
            },
            turns: scenario.turns.clone(),
            generator: generator.clone(),
            observer: None,
        });
    }
    Ok(setups)
}

/// Connects an agent with its policy. `number` is its number in keys and groups.
pub(crate) fn agent_runtime(
    block: &pl_dsl::workflow::Agent,
    number: u32,
    agent: pl_plugin::Agent,
    formats: &ChatFormats,
) -> AgentRuntime {
    AgentRuntime {
        name: block.name.clone(),
        number,
        agent: Arc::new(agent),
        encoder: Arc::new(formats.encoder(block.thinking)),
        policy: block.policy,
        sampling: block.sampling.clone(),
        max_tokens: block.max_tokens,
        stop: block.stop.clone(),
        long_prompt: block.long_prompt,
        tool_rounds: block.tool_rounds,
        bootstraps: false,
    }
}

/// Returns true if a critic is trained beside a policy.
pub(crate) fn has_critic(workflow: &Workflow, policy: usize) -> bool {
    let training = workflow.policies[policy].training.as_ref();
    training.is_some_and(|training| training.critic.is_some())
}

/// Returns the chat format of each policy's model, read from disk without the weights. Templates see `date` as today.
///
/// # Errors
/// If a model is not on this machine.
pub(crate) fn chat_formats(checked: &CheckedWorkflow, date: NaiveDate) -> Result<ChatFormats, Error> {
    let read = |model: &pl_dsl::workflow::Model| -> Result<ChatFormat, Error> {
        let found = locate::model_on_disk(&checked.folder, &model.source)
            .and_then(|path| checked.model_source(model, &path));
        let source = found.map_err(Error::locate_model(&model.name))?;
        let failed = Error::model(&model.name);
        let (tokenizer, template) = Model::text(&source).map_err(&failed)?;
        Ok(ChatFormat {
            tokenizer: Arc::new(tokenizer),
            template: Arc::new(template),
            max_positions: Config::read(source).map_err(&failed)?.max_positions,
        })
    };
    let formats = checked.workflow.models.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    let formats = checked.workflow.policies.iter().map(|policy| formats[policy.model].clone()).collect();
    Ok(ChatFormats::new(with_hosted_formats(&checked.workflow, formats)?, date))
}

/// Gives the policies that are hosted models the template of conversations.
fn with_hosted_formats(workflow: &Workflow, mut formats: Vec<ChatFormat>) -> Result<Vec<ChatFormat>, Error> {
    for (format, policy) in formats.iter_mut().zip(&workflow.policies) {
        if is_hosted(workflow, policy) {
            let template = conversation_template().map_err(Error::model(&policy.name))?;
            format.template = Arc::new(template);
            // Its server knows the context.
            format.max_positions = usize::MAX;
        }
    }
    Ok(formats)
}

/// Returns an absolute path of a folder. An empty path is the working folder.
pub(crate) fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(Path::new(".").join(folder)).unwrap_or_else(|_| folder.to_path_buf())
}
