//! From a workflow file to a team that can play: checked, loaded, served.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::{self, Evaluation, Tasks, Workflow};
use pl_dsl::{Diagnostic, Override, Source, Sources};
use pl_inference::{Base, Engine, EngineConfig, Generate, PolicyWeights};
use pl_kernels::cuda::device::{self, ThisMachine, Wish};
use pl_kernels::cuda::{self, Settings};
use pl_model::{ChatTemplate, Dtype, Model, Tokenizer};
use pl_plugin::Services;
use pl_rollout::{Cast, Player, TaskFile, TaskSource};
use pl_sandbox::Sandbox;
use pl_trainer::{Served, Trainer};
use tch::Device;
use tokio::runtime::Runtime;

use crate::arguments::{DeviceChoice, Format, Machine, Source as Given};
use crate::catalog::Plugins;
use crate::exit::Stop;
use crate::memory::Estimate;
use crate::places::Found;
use crate::text::ModelText;
use crate::workers::LazyWorkers;
use crate::{checkpoints, places, progress, sampling};

/// A checked workflow with its plugins.
pub struct Loaded {
    pub workflow: Workflow,
    /// As written.
    pub text: String,
    /// Where paths in the file start from.
    pub folder: PathBuf,
    pub plugins: Plugins,
}

impl Loaded {
    /// Reads and checks a file. Diagnostics go to stderr.
    pub fn open(runtime: &Runtime, file: &Path, overrides: &[Override]) -> Result<Loaded, Stop> {
        Loaded::check(runtime, file, overrides, Format::Human, |_, _| Vec::new())
    }

    /// Reads and checks a file. Diagnostics, and what `more` has to say of a workflow that is right, go to stderr in
    /// the form that is asked for.
    pub fn check(
        runtime: &Runtime,
        file: &Path,
        overrides: &[Override],
        format: Format,
        more: impl FnOnce(&Workflow, &Path) -> Vec<Diagnostic>,
    ) -> Result<Loaded, Stop> {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Stop::input(format!("cannot read {}: {e}", file.display())))?;
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let plugins = Plugins::new(&folder, runtime.handle())?;
        let source = Source { name: file.display().to_string(), text: text.clone() };
        let mut checked = pl_dsl::check(&source, overrides, &plugins);
        if let Some(workflow) = &checked.workflow {
            checked.diagnostics.extend(more(workflow, &folder));
        }
        show(&checked.diagnostics, &checked.sources, format);
        let workflow = checked.workflow.ok_or(Stop::Diagnosed)?;
        for model in &workflow.models {
            places::check_model(&model.source)
                .map_err(|e| Stop::input(format!("model {}: {e}", model.name)))?;
        }
        Ok(Loaded { workflow, text, folder, plugins })
    }

    /// A workflow that was checked when its run began.
    pub fn resolved(
        runtime: &Runtime,
        workflow: Workflow,
        text: String,
        folder: PathBuf,
    ) -> Result<Loaded, Stop> {
        let plugins = Plugins::new(&folder, runtime.handle())?;
        Ok(Loaded { workflow, text, folder, plugins })
    }

    fn plugin(&self, index: usize) -> Result<pl_plugin::Plugin, Stop> {
        let wanted = &self.workflow.plugins[index];
        self.plugins.get(wanted).map_err(|e| Stop::input(format!("plugin {}: {e}", wanted.name)))
    }

    pub fn environment(&self) -> Result<pl_plugin::Environment, Stop> {
        self.environment_on(LazyWorkers::find(&self.workflow.sandbox, &self.folder)?)
    }

    /// The environment on a sandbox of the caller's.
    pub fn environment_on(&self, sandbox: Arc<dyn Sandbox>) -> Result<pl_plugin::Environment, Stop> {
        let wanted = &self.workflow.scenarios[0].environment;
        pl_plugin::Environment::new(
            &self.plugin(wanted.plugin)?,
            &wanted.item,
            wanted.settings.clone(),
            Services { sandbox },
        )
        .map_err(|e| Stop::input(format!("environment {}: {e}", wanted.name)))
    }

    pub fn agent(&self, index: usize) -> Result<pl_plugin::Agent, Stop> {
        let wanted = &self.workflow.agents[index];
        pl_plugin::Agent::new(&self.plugin(wanted.plugin)?, &wanted.item, wanted.settings.clone())
            .map_err(|e| Stop::input(format!("agent {}: {e}", wanted.name)))
    }

    pub fn reward(&self) -> Result<pl_plugin::Reward, Stop> {
        let wanted = &self.workflow.scenarios[0].reward;
        pl_plugin::Reward::new(&self.plugin(wanted.plugin)?, &wanted.item, wanted.settings.clone())
            .map_err(|e| Stop::input(format!("reward {}: {e}", wanted.name)))
    }

    /// Opens a source of tasks; a file is read and checked whole.
    pub async fn tasks(
        &self,
        tasks: &Tasks,
        environment: &Arc<pl_plugin::Environment>,
        shuffle: Option<u64>,
    ) -> Result<TaskSource, Stop> {
        match tasks {
            Tasks::File(path) => {
                let path = places::tasks(&self.folder, path).map_err(Stop::input)?;
                let file = TaskFile::read(&path, environment.as_ref(), shuffle).await.map_err(Stop::input)?;
                Ok(TaskSource::File(Arc::new(file)))
            }
            Tasks::Generated { split, level } => Ok(TaskSource::Generated {
                environment: self.workflow.scenarios[0].environment.name.clone(),
                generator: environment.clone(),
                split: split.clone(),
                level: *level,
            }),
        }
    }

    /// Files of tasks that the workflow names, by their setting.
    pub fn task_files(&self) -> Vec<(String, PathBuf)> {
        let named = |name: &str, tasks: &Tasks| match tasks {
            Tasks::File(path) => Some((name.to_owned(), places::tasks(&self.folder, path).ok()?)),
            Tasks::Generated { .. } => None,
        };
        let environment = &self.workflow.scenarios[0].environment;
        let evaluations = self.workflow.evaluations.iter();
        std::iter::once(named(&environment.name, &environment.tasks))
            .chain(evaluations.map(|e: &Evaluation| named(&e.name, &e.tasks)))
            .flatten()
            .collect()
    }
}

/// Writes diagnostics to stderr.
pub fn show(diagnostics: &[Diagnostic], sources: &Sources, format: Format) {
    if diagnostics.is_empty() {
        return;
    }
    let rendered = match format {
        Format::Human => pl_dsl::render::human(diagnostics, sources, std::io::stderr().is_terminal()),
        Format::Short => pl_dsl::render::short(diagnostics, sources),
        Format::Json => format!("{:#}\n", pl_dsl::render::json(diagnostics, sources)),
    };
    eprint!("{rendered}");
    if let (Format::Human, Some(more)) = (format, pl_dsl::explain::more(diagnostics)) {
        eprintln!("{more}");
    }
}

/// A loaded workflow whose models are at hand, on their way to a device.
pub struct Located {
    /// Of each of the workflow's models, in their order.
    places: Vec<Found>,
    device: Device,
    memory: Estimate,
}

impl Located {
    /// Finds the models, those of a hub by fetching them, and warns where the machine is too small for them.
    pub fn find(loaded: &Loaded, device: Device) -> Result<Located, Stop> {
        let mut downloads = progress::Downloads::default();
        let models = &loaded.workflow.models;
        let places = models
            .iter()
            .map(|model| {
                places::model(&loaded.folder, &model.source, &mut |p| downloads.follow(p))
                    .map_err(|e| Stop::input(format!("model {}: {e}", model.name)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        downloads.finish();
        let paths: Vec<PathBuf> = places.iter().map(|place| place.path.clone()).collect();
        let memory = Estimate::new(&loaded.workflow, &loaded.folder, &paths, device).map_err(Stop::input)?;
        let source = Source { name: loaded.workflow.name.clone(), text: loaded.text.clone() };
        show(&memory.doubts(), &source.into(), Format::Human);
        Ok(Located { places, device, memory })
    }
}

/// A loaded workflow whose policies are served.
pub struct Team {
    pub trainer: Trainer,
    pub engine: Engine,
    pub environment: Arc<pl_plugin::Environment>,
    pub cast: Arc<Cast>,
    /// What it takes.
    pub memory: Estimate,
    /// Of each of the workflow's models, by name.
    pub model_hashes: BTreeMap<String, String>,
    /// Of each of the workflow's models, by name: the number format of its matrices.
    pub model_dtypes: BTreeMap<String, String>,
    /// Of each of the workflow's models, in their order: the source with the commit that was loaded.
    pub model_sources: Vec<String>,
}

impl Team {
    /// Loads the models and starts generation.
    pub fn assemble(loaded: &Loaded, located: Located, seed: u64) -> Result<Team, Stop> {
        let workflow = &loaded.workflow;
        let Located { places, device, memory } = located;
        let spinner = progress::spinner("loading models");
        let models = workflow
            .models
            .iter()
            .zip(&places)
            .map(|(model, place)| {
                Model::load(&place.path, device, dtype(model, device))
                    .map_err(|e| Stop::input(format!("model {}: {e}", model.name)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let names = || workflow.models.iter().map(|model| model.name.clone());
        let model_hashes = names().zip(models.iter().map(|model| model.hash.clone())).collect();
        let model_dtypes = names().zip(models.iter().map(|model| model.dtype.to_string())).collect();
        let trainer = Trainer::new(workflow, &loaded.folder, models, seed, device).map_err(Stop::input)?;
        let engine = start_engine(&trainer, &workflow.inference)?;
        spinner.finish_and_clear();
        let environment = Arc::new(loaded.environment()?);
        let text = |served: Served| {
            let model = &trainer.bases()[served.base];
            (Arc::clone(&model.tokenizer), Arc::clone(&model.template))
        };
        let texts: Vec<Text> = trainer.policies().into_iter().map(text).collect();
        let cast = Arc::new(cast(loaded, &texts, environment.clone(), Arc::new(engine.clone()))?);
        let model_sources = places.into_iter().map(|place| place.source).collect();
        Ok(Team { trainer, engine, environment, cast, memory, model_hashes, model_dtypes, model_sources })
    }
}

/// The number format of a model's matrices on a device: the one that is written, or what the device computes in.
pub fn dtype(model: &workflow::Model, device: Device) -> Dtype {
    match model.dtype {
        Some(workflow::Dtype::F32) => Dtype::F32,
        Some(workflow::Dtype::F16) => Dtype::F16,
        Some(workflow::Dtype::Bf16) => Dtype::Bf16,
        None if device == Device::Cpu => Dtype::F32,
        None => Dtype::Bf16,
    }
}

fn start_engine(trainer: &Trainer, inference: &workflow::Inference) -> Result<Engine, Stop> {
    let bases = trainer
        .bases()
        .iter()
        .map(|model| Base {
            config: model.config.clone(),
            weights: model.weights.shallow(),
            tokenizer: Arc::clone(&model.tokenizer),
            dtype: model.dtype,
        })
        .collect();
    let weights = |s: Served| PolicyWeights { base: s.base, adapter: s.adapter, version: s.version };
    let policies = trainer.policies().into_iter().map(weights).collect();
    let usual = EngineConfig::default();
    let config = EngineConfig {
        slots: inference.slots as usize,
        kv_cache: inference.kv_cache,
        threads: inference.threads.map_or(usual.threads, |threads| threads as usize),
        ..usual
    };
    Engine::start(bases, policies, config).map_err(Stop::failed)
}

/// What a policy's model reads and writes.
pub type Text = (Arc<Tokenizer>, Arc<ChatTemplate>);

/// A workflow's cast: `texts` by policy, and what is asked for completions.
pub fn cast(
    loaded: &Loaded,
    texts: &[Text],
    environment: Arc<pl_plugin::Environment>,
    generator: Arc<dyn Generate>,
) -> Result<Cast, Stop> {
    let scenario = &loaded.workflow.scenarios[0];
    let mut players = Vec::new();
    for (index, agent) in loaded.workflow.agents.iter().enumerate() {
        let (tokenizer, template) = &texts[agent.policy];
        let text = ModelText {
            tokenizer: Arc::clone(tokenizer),
            template: Arc::clone(template),
            thinking: agent.thinking,
        };
        players.push(Player {
            name: agent.name.clone(),
            agent: Arc::new(loaded.agent(index)?),
            encoder: Arc::new(text),
            policy: agent.policy,
            sampling: sampling::of(&agent.sampling),
            max_tokens: agent.max_tokens,
            stop: agent.stop.clone(),
        });
    }
    Ok(Cast {
        environment,
        players,
        reward: Arc::new(loaded.reward()?),
        team_weight: scenario.reward.team,
        local_weight: scenario.reward.local,
        turns: scenario.turns.clone(),
        generator,
        listener: None,
    })
}

impl Team {
    /// The text of some of a policy's tokens, special ones left out.
    pub fn text(&self, policy: usize, tokens: &[u32]) -> String {
        let model = self.trainer.served(policy).and_then(|served| self.trainer.bases().get(served.base));
        model.map(|model| model.tokenizer.decode(tokens, true)).unwrap_or_default()
    }
}

/// A workflow's team, ready to play, under its own weights or those of a checkpoint.
pub fn open(
    runtime: &Runtime,
    source: &Given,
    machine: &Machine,
    checkpoint: Option<&Path>,
) -> Result<(Loaded, Team), Stop> {
    let mut loaded = Loaded::open(runtime, &source.file, &source.given.all()?)?;
    let located = Located::find(&loaded, device(machine.device)?)?;
    let team = match checkpoint {
        Some(checkpoint) => {
            let mut team = Team::assemble(&loaded, located, machine.seed)?;
            checkpoints::restore(&mut team, checkpoint)?;
            team
        }
        None => {
            // Nothing is trained and nothing restored: no copies of weights for that.
            let train = loaded.workflow.train.take();
            let team = Team::assemble(&loaded, located, machine.seed)?;
            loaded.workflow.train = train;
            team
        }
    };
    Ok((loaded, team))
}

/// The device that was asked for, ready to be used. To be called before anything is asked of libtorch.
pub fn device(choice: DeviceChoice) -> Result<Device, Stop> {
    let wish = match choice {
        DeviceChoice::Auto => Wish::Auto,
        DeviceChoice::Cpu => Wish::Cpu,
        DeviceChoice::Cuda => Wish::Cuda,
    };
    let chosen = device::choose(wish, &ThisMachine)
        .map_err(|refusal| Stop::input(format!("--device cuda: {refusal}")))?;
    if let Some(refusal) = chosen.passed_over {
        eprintln!("running on the CPU: {refusal}");
    }
    if let Device::Cuda(ordinal) = chosen.device {
        // libtorch does what these kernels do, with more memory and time.
        if let Err(error) = cuda::open(ordinal, &Settings::new(&places::cache()?)) {
            eprintln!("warning: going on without kernels of our own: {error}");
        }
    }
    Ok(chosen.device)
}
