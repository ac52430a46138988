//! Plans: the weights, their sources and the amounts of everything that a run would use.
//!
//! Nothing is fetched, loaded or written. [`counts`] has the arithmetic.

pub mod counts;
mod designs;
mod tasks;

use std::path::{Path, PathBuf};

use pl_dsl::graph::Graph;
use pl_dsl::workflow::objective::CriticBase;
use pl_dsl::workflow::{self, Devices, Grant, Lora, Rollout, SandboxBackend, ServerKind, Train, Workflow};
use pl_model::{Config, Projection};
use pl_trainer::memory as formulas;
use serde::Serialize;
use serde_json::{Value, json};
use tch::Device;

use crate::corpus;
use crate::dtype::model_dtype;
use crate::error::Error;
use crate::host::Host;
use crate::memory::MemoryEstimate;
use crate::permissions::{PermissionRequest, flags_of};
use crate::run_folder::default_folder;
use crate::sandbox::is_python_cached;
use crate::workflow::CheckedWorkflow;

use self::counts::{EpisodeBounds, EvaluationBounds, StepBounds, TaskBounds};
use self::tasks::check_planned;

pub use self::designs::DesignPlan;
pub use self::tasks::TaskPlan;

/// Plan of a run.
#[derive(Serialize)]
pub struct RunPlan {
    pub workflow: String,
    pub device: String,
    pub layout: &'static str,
    pub layout_meaning: &'static str,
    pub models: Vec<ModelPlan>,
    pub policies: Vec<PolicyPlan>,
    pub servers: Vec<ServerPlan>,
    /// Error if a model is not on this machine.
    #[serde(skip)]
    pub memory: Result<MemoryEstimate, Error>,
    pub plugins: Vec<PluginPlan>,
    pub sandbox: SandboxPlan,
    /// Corpora that environments search.
    pub corpora: Vec<CorpusPlan>,
    pub scenarios: Vec<ScenarioPlan>,
    pub evaluations: Vec<EvaluationPlan>,
    /// `None` if the workflow has no `train` block.
    pub training: Option<TrainingPlan>,
    /// Access beyond the workflow's folder that a run needs.
    pub permissions: Vec<PermissionPlan>,
}

/// Permission of a plan.
#[derive(Serialize)]
pub struct PermissionPlan {
    /// Flag that allows it, with its value.
    pub flag: String,
    /// Place in the file, if it is known.
    pub place: Option<String>,
    /// Use of it in words.
    pub purpose: String,
    /// True if the user has allowed it.
    pub allowed: bool,
}

/// Scenario of a plan.
#[derive(Serialize)]
pub struct ScenarioPlan {
    /// `None` in a workflow without `scenario` blocks.
    pub name: Option<String>,
    /// Share of the tasks of training, at most 1.
    pub share: f64,
    pub tasks: TaskPlan,
    /// Curriculum in words, if there is one.
    pub curriculum: Option<String>,
    /// Bounds of an episode of its own team.
    pub episode: EpisodeBounds,
    /// `None` without a designer.
    pub designs: Option<DesignPlan>,
}

/// Model of a plan.
#[derive(Serialize)]
pub struct ModelPlan {
    pub name: String,
    pub source: String,
    pub dtype: String,
    /// Kind of source, in words.
    pub kind: &'static str,
    /// Path on this machine, if it exists.
    pub path: Option<PathBuf>,
    /// True if a run would fetch it.
    pub fetch: bool,
    #[serde(skip)]
    config: Option<Config>,
}

/// Servers of a plan.
#[derive(Serialize)]
pub struct ServerPlan {
    pub name: String,
    pub kind: ServerKind,
    pub addresses: Vec<String>,
    /// Requests in progress on all of them at a time.
    pub connections: u64,
    /// Environment variable with the key.
    pub key_variable: Option<String>,
    /// True if the variable is missing.
    pub lacks_key: bool,
}

/// Policy of a plan.
#[derive(Serialize)]
pub struct PolicyPlan {
    pub name: String,
    pub model: String,
    pub trained: bool,
    pub lora: Option<Lora>,
    pub from: Option<String>,
    /// Servers that generate for it. `None` for this program.
    pub server: Option<String>,
    /// Name of the model there. `None` for the base model, or an adapter on it.
    pub served: Option<String>,
    /// Devices that it is generated for and trained on.
    #[serde(skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Names of its agents and designers, and the designs that may use it.
    pub agents: Vec<String>,
    /// `None` if the model is not on this machine.
    pub trained_parameters: Option<u64>,
    /// `None` if the policy is trained without one, or not at all.
    pub critic: Option<CriticPlan>,
}

/// Critic of a policy in a plan.
#[derive(Serialize)]
pub struct CriticPlan {
    pub on: CriticBase,
    /// Model whose hidden states it reads, with the policy's weights or its own.
    pub model: String,
    pub lora: Option<Lora>,
    /// Those of its value head included. `None` if the model is not on this machine.
    pub trained_parameters: Option<u64>,
}

/// Plugin of a plan.
#[derive(Serialize)]
pub struct PluginPlan {
    pub name: String,
    /// `None` for the built-in plugin.
    pub path: Option<PathBuf>,
    /// True if the compile cache has it.
    pub cached: bool,
    pub grant: Grant,
}

/// Sandbox of a plan.
#[derive(Serialize)]
pub struct SandboxPlan {
    /// Backend and limits in words.
    pub limits: String,
    /// True if the compile cache has the embedded Python. `None` for the Docker backend.
    pub python_cached: Option<bool>,
}

/// Corpus of a plan.
#[derive(Serialize)]
pub struct CorpusPlan {
    pub name: String,
    /// Path of the file, or address of the server.
    pub source: String,
    /// True if the cache has the index. `None` for a server, or if the file can't be read.
    pub indexed: Option<bool>,
    /// Reason for which the file can't be read.
    pub problem: Option<String>,
}

/// Evaluation of a plan.
#[derive(Serialize)]
pub struct EvaluationPlan {
    pub tasks: TaskPlan,
    /// Steps between two rounds; 0 if a run does not evaluate it.
    pub every: u32,
    pub rounds: u64,
    pub round: EvaluationBounds,
}

/// Training of a plan.
#[derive(Serialize)]
pub struct TrainingPlan {
    pub steps: u64,
    /// `trees` or `episodes`.
    pub rollout: &'static str,
    pub step: StepBounds,
    /// Completions of all steps.
    pub completions: u64,
    /// Sampled tokens of all steps.
    pub tokens: u64,
    /// Sampled tokens of all rounds of all evaluations.
    pub evaluation_tokens: u64,
    pub checkpoints: CheckpointPlan,
    pub folder: PathBuf,
}

/// Checkpoints of a plan.
#[derive(Serialize)]
pub struct CheckpointPlan {
    /// Largest number that is written.
    pub count: u64,
    /// Largest number that exists at the end.
    pub kept: u64,
    /// `None` if a model is not on this machine.
    pub bytes_each: Option<u64>,
}

impl RunPlan {
    /// Plans a run of a checked workflow.
    pub fn new(host: &Host, checked: &CheckedWorkflow, device: Device) -> RunPlan {
        let workflow = &checked.workflow;
        let graph = Graph::new(workflow, 0);
        let models: Vec<ModelPlan> =
            (0..workflow.models.len()).map(|index| ModelPlan::new(checked, index, device)).collect();
        let policies: Vec<PolicyPlan> =
            (0..workflow.policies.len()).map(|index| PolicyPlan::new(workflow, index, &models)).collect();
        let scenarios = ScenarioPlan::all(checked);
        let steps = workflow.train.as_ref().map_or(0, |train| train.steps);
        let evaluations: Vec<EvaluationPlan> = workflow
            .evaluations
            .iter()
            .map(|one| {
                let tasks = TaskPlan::new(checked, &one.name, &one.tasks);
                EvaluationPlan {
                    every: one.every,
                    rounds: if workflow.train.is_some() {
                        counts::evaluation_rounds(one.every, steps)
                    } else {
                        0
                    },
                    round: EvaluationBounds::new(
                        one.limit,
                        tasks.records,
                        one.samples,
                        &scenarios[one.scenario].episode,
                    ),
                    tasks,
                }
            })
            .collect();
        let training = workflow.train.as_ref().map(|train| {
            let critics = policies.iter().flat_map(|policy| &policy.critic);
            let critics = critics.map(|critic| critic.trained_parameters);
            let own = policies.iter().map(|policy| policy.trained_parameters);
            let numbers = own.chain(critics).sum::<Option<u64>>();
            let trained = scenarios.iter().filter(|scenario| scenario.share > 0.0);
            let task = |own: &ScenarioPlan| match &own.designs {
                Some(designs) => designs.task,
                None => TaskBounds::new(train, &own.episode),
            };
            let longest = trained.map(task).reduce(TaskBounds::max);
            TrainingPlan::new(workflow, train, &longest.unwrap_or_default(), &evaluations, numbers)
        });
        RunPlan {
            workflow: workflow.name.clone(),
            device: format!("{device:?}").to_lowercase(),
            layout: graph.layout,
            layout_meaning: graph.layout_meaning,
            memory: checked.estimate_memory(device),
            plugins: workflow
                .plugins
                .iter()
                .map(|plugin| PluginPlan {
                    name: plugin.name.clone(),
                    path: checked.plugins.path(plugin),
                    cached: checked.plugins.is_cached(plugin),
                    grant: plugin.grant.clone(),
                })
                .collect(),
            sandbox: SandboxPlan {
                python_cached: (workflow.sandbox.backend == SandboxBackend::Wasm)
                    .then(|| is_python_cached(host)),
                limits: graph.sandbox,
            },
            corpora: checked.corpora().into_iter().map(|corpus| CorpusPlan::new(checked, corpus)).collect(),
            scenarios,
            models,
            servers: workflow.servers.iter().map(ServerPlan::new).collect(),
            policies,
            evaluations,
            training,
            permissions: checked
                .required_permissions()
                .into_iter()
                .map(|request| PermissionPlan::new(checked, request))
                .collect(),
        }
    }

    /// Returns the plan of a run in another folder than the default one.
    #[must_use]
    pub(crate) fn in_folder(mut self, folder: &Path) -> RunPlan {
        if let Some(training) = &mut self.training {
            training.folder = folder.to_path_buf();
        }
        self
    }

    /// Returns the plan as JSON: the fields of this struct, and `memory` in bytes, or null with the reason in
    /// `memory_unknown`.
    pub fn to_json(&self) -> Value {
        let mut plan = json!(self);
        match &self.memory {
            Ok(memory) => {
                let part = |(part, bytes): &(&str, u64)| json!({ "part": part, "bytes": bytes });
                let parts: Vec<Value> = memory.parts().iter().map(part).collect();
                let (total, sandbox) = (memory.total(), memory.sandbox());
                plan["memory"] = json!({ "parts": parts, "total": total, "sandbox_at_most": sandbox });
            }
            Err(why) => {
                plan["memory"] = Value::Null;
                plan["memory_unknown"] = json!(why.to_string());
            }
        }
        plan
    }
}

impl PermissionPlan {
    fn new(
        checked: &CheckedWorkflow,
        PermissionRequest { access, purpose, place }: PermissionRequest,
    ) -> PermissionPlan {
        PermissionPlan {
            flag: flags_of([&access]),
            place: place.map(|place| place.to_string()),
            purpose,
            allowed: checked.plugins.reads().allows(&access),
        }
    }
}

impl ModelPlan {
    fn new(checked: &CheckedWorkflow, index: usize, device: Device) -> ModelPlan {
        let model = &checked.workflow.models[index];
        let path = checked.model_on_disk(model).ok();
        let hub = model.source.starts_with("hf:");
        let kind = match &path {
            _ if hub => "from a hub",
            Some(path) if path.is_dir() => "a folder",
            Some(_) if model.source.ends_with(".gguf") => "a GGUF file",
            Some(_) => "a fetched model",
            None => "a path or the name of a fetched model",
        };
        ModelPlan {
            name: model.name.clone(),
            source: model.source.clone(),
            dtype: model_dtype(&checked.workflow, index, device).to_string(),
            kind,
            fetch: hub && path.is_none(),
            config: path
                .as_ref()
                .and_then(|path| checked.model_source(model, path).ok())
                .and_then(|source| Config::read(source).ok()),
            path,
        }
    }
}

impl ServerPlan {
    fn new(server: &workflow::Server) -> ServerPlan {
        let is_missing = |variable: &String| std::env::var_os(variable).is_none_or(|key| key.is_empty());
        ServerPlan {
            name: server.name.clone(),
            kind: server.kind,
            addresses: server.addresses.clone(),
            connections: u64::from(server.connections) * server.addresses.len() as u64,
            lacks_key: server.key_variable.as_ref().is_some_and(is_missing),
            key_variable: server.key_variable.clone(),
        }
    }
}

impl PolicyPlan {
    fn new(workflow: &Workflow, index: usize, models: &[ModelPlan]) -> PolicyPlan {
        let policy = &workflow.policies[index];
        let trained = policy.train && workflow.train.is_some();
        let model = &models[policy.model];
        let numbers = |config: &Config| match &policy.lora {
            Some(lora) => adapter_numbers(config, lora),
            None => formulas::weight_numbers(config),
        };
        let critic = policy.training.as_ref().and_then(|training| training.critic.as_ref());
        PolicyPlan {
            name: policy.name.clone(),
            model: model.name.clone(),
            trained,
            lora: policy.lora.clone(),
            from: policy.from.clone(),
            server: policy.server.and_then(|index| Some(workflow.servers.get(index)?.name.clone())),
            served: policy.served.clone(),
            devices: policy.devices.clone(),
            agents: users(workflow, index),
            trained_parameters: if trained { model.config.as_ref().map(numbers) } else { Some(0) },
            critic: critic
                .filter(|_| trained)
                .map(|critic| CriticPlan::new(critic, &models[critic.model.unwrap_or(policy.model)])),
        }
    }
}

/// Returns the names of the agents and designers of a policy, the designs that may use it, and the evaluations in which
/// other agents have it.
fn users(workflow: &Workflow, policy: usize) -> Vec<String> {
    let name = &workflow.policies[policy].name;
    let agents =
        workflow.agents.iter().filter(|agent| agent.policy == policy).map(|agent| agent.name.clone());
    let designers = workflow.designers.iter();
    let writers = designers.clone().filter(|one| one.policy == policy).map(|one| one.name.clone());
    let designed = designers.filter(|one| one.palette.policies.contains(name));
    let designed = designed.map(|one| format!("designs of {}", one.name));
    let evaluations = workflow.evaluations.iter();
    let roles = evaluations.flat_map(|one| one.roles.iter().map(move |role| (one, role)));
    let roles = roles.filter(|(_, role)| role.policy == policy);
    let roles = roles.map(|(one, role)| format!("{} in {}", workflow.agents[role.agent].name, one.name));
    agents.chain(writers).chain(designed).chain(roles).collect()
}

impl CriticPlan {
    fn new(critic: &workflow::objective::Critic, model: &ModelPlan) -> CriticPlan {
        let network = |config: &Config| match (critic.on, &critic.lora) {
            (CriticBase::Model, _) => formulas::critic_model_numbers(config),
            (_, Some(lora)) => adapter_numbers(config, lora),
            (_, None) => 0,
        };
        let numbers = |config: &Config| network(config) + formulas::value_head_numbers(config);
        CriticPlan {
            on: critic.on,
            model: model.name.clone(),
            lora: critic.lora.clone(),
            trained_parameters: model.config.as_ref().map(numbers),
        }
    }
}

/// Returns the number of weights of an adapter.
fn adapter_numbers(config: &Config, lora: &Lora) -> u64 {
    let targets: Vec<Projection> = lora.targets.iter().filter_map(|target| target.parse().ok()).collect();
    formulas::adapter_numbers(config, lora.rank as usize, &targets)
}

impl CorpusPlan {
    fn new(checked: &CheckedWorkflow, corpus: &workflow::Corpus) -> CorpusPlan {
        let path = corpus::path(&checked.corpus_place(), corpus);
        let may_read = match &path {
            Ok(Some(path)) => check_planned(checked, path),
            Ok(None) | Err(_) => Ok(()),
        };
        let (indexed, problem) =
            match may_read.and_then(|()| corpus::is_indexed(&checked.corpus_place(), corpus)) {
                Ok(indexed) => (indexed, None),
                Err(error) => (None, Some(error.to_string())),
            };
        let source = match path {
            Ok(Some(path)) => path.display().to_string(),
            Ok(None) | Err(_) => corpus.source.location().to_owned(),
        };
        CorpusPlan { name: corpus.name.clone(), source, indexed, problem }
    }
}

impl ScenarioPlan {
    fn all(checked: &CheckedWorkflow) -> Vec<ScenarioPlan> {
        let workflow = &checked.workflow;
        let sum: f64 = workflow.scenarios.iter().map(|scenario| scenario.weight).sum();
        let plan = |scenario: &workflow::Scenario| {
            let environment = &scenario.environment;
            ScenarioPlan {
                name: scenario.name.clone(),
                share: scenario.weight / sum,
                tasks: TaskPlan::new(checked, &environment.name, &environment.tasks),
                curriculum: environment.curriculum.as_ref().map(curriculum_words),
                episode: EpisodeBounds::new(&scenario.turns, &workflow.agents),
                designs: scenario.designer.and_then(|at| workflow.designers.get(at)).map(DesignPlan::new),
            }
        };
        workflow.scenarios.iter().map(plan).collect()
    }
}

fn curriculum_words(curriculum: &workflow::Curriculum) -> String {
    let workflow::Curriculum { from, to, rise } = curriculum;
    let when = match rise {
        workflow::Rise::Steps(every) => format!("every {every} steps"),
        workflow::Rise::Success { at, window } => {
            format!("when {:.0} % of {window} steps are solved", 100.0 * at)
        }
    };
    format!("level {from} to {to}, rising {when}")
}

impl TrainingPlan {
    fn new(
        workflow: &Workflow,
        train: &Train,
        task: &TaskBounds,
        evaluations: &[EvaluationPlan],
        trained_numbers: Option<u64>,
    ) -> TrainingPlan {
        let step = StepBounds::new(train, task);
        let steps = u64::from(train.steps);
        // Checkpoints are compared by the first evaluation that is run during training.
        let scored_every = evaluations.iter().map(|one| one.every).find(|every| *every > 0);
        TrainingPlan {
            steps,
            rollout: match train.rollout {
                Rollout::Tree => "trees",
                Rollout::Flat => "episodes",
            },
            completions: steps.saturating_mul(step.completions),
            tokens: steps.saturating_mul(step.tokens),
            step,
            evaluation_tokens: evaluations
                .iter()
                .map(|one| one.rounds.saturating_mul(one.round.tokens))
                .sum(),
            checkpoints: CheckpointPlan {
                count: counts::checkpoints(train, scored_every),
                kept: counts::kept_checkpoints(train, scored_every),
                bytes_each: trained_numbers.map(|numbers| numbers * counts::CHECKPOINT_BYTES),
            },
            folder: default_folder(&workflow.name),
        }
    }
}
