//! What a run would do, without doing it: which weights, from where, how much of everything.
//!
//! Nothing is fetched, loaded or written. [`counts`] has the arithmetic, [`show`] the text for people.

pub mod counts;
mod show;

use std::path::PathBuf;

use pl_dsl::graph::Graph;
use pl_dsl::workflow::{self, Grant, Lora, Rollout, SandboxBackend, Train, Workflow};
use pl_model::{Config, Projection};
use pl_trainer::memory as sums;
use serde::Serialize;
use serde_json::{Value, json};
use tch::Device;

use self::counts::{Episode, Round, Step};
use crate::commands::run::free_folder;
use crate::memory::Estimate;
use crate::places;
use crate::session::{self, Loaded};
use crate::workers::python_is_cached;

/// A plan of a run.
#[derive(Serialize)]
pub struct Plan {
    workflow: String,
    device: String,
    layout: &'static str,
    layout_meaning: &'static str,
    models: Vec<Model>,
    policies: Vec<Policy>,
    /// Why it can't be known, where it can't.
    #[serde(skip)]
    memory: Result<Estimate, String>,
    plugins: Vec<Plugin>,
    sandbox: Sandbox,
    tasks: Tasks,
    episode: Episode,
    evaluations: Vec<Evaluation>,
    /// None: the workflow has no `train` block.
    training: Option<Training>,
}

#[derive(Serialize)]
struct Model {
    name: String,
    source: String,
    dtype: String,
    /// What the source names.
    kind: &'static str,
    /// Where it lies on this machine, if it does.
    path: Option<PathBuf>,
    /// A run would fetch it.
    fetch: bool,
    #[serde(skip)]
    config: Option<Config>,
}

#[derive(Serialize)]
struct Policy {
    name: String,
    model: String,
    trained: bool,
    lora: Option<Lora>,
    from: Option<String>,
    agents: Vec<String>,
    /// None: not known before the model is here.
    trained_parameters: Option<u64>,
}

#[derive(Serialize)]
struct Plugin {
    name: String,
    /// None: built in.
    path: Option<PathBuf>,
    /// Whether the compile cache had it before this plan asked it for its items.
    cached: bool,
    grant: Grant,
}

#[derive(Serialize)]
struct Sandbox {
    /// Backend and limits in words.
    limits: String,
    /// Whether the compile cache has the embedded Python. None: the backend has another one.
    python_cached: Option<bool>,
}

#[derive(Serialize)]
struct Tasks {
    /// Of the environment or the evaluation that they are for.
    name: String,
    file: Option<PathBuf>,
    records: Option<u64>,
    /// What makes them where there is no file.
    generator: Option<String>,
    /// Why the file can't be read.
    problem: Option<String>,
}

#[derive(Serialize)]
struct Evaluation {
    tasks: Tasks,
    /// Steps between two rounds; 0: none within a run.
    every: u32,
    rounds: u64,
    round: Round,
}

#[derive(Serialize)]
struct Training {
    steps: u64,
    /// What an episode of a step is.
    rollout: &'static str,
    step: Step,
    /// Of all steps.
    completions: u64,
    tokens: u64,
    /// Of all rounds of all evaluations.
    evaluation_tokens: u64,
    checkpoints: Checkpoints,
    folder: PathBuf,
}

#[derive(Serialize)]
struct Checkpoints {
    /// Written in all.
    count: u64,
    /// There in the end, at most: the best may be among the newest.
    kept: u64,
    /// None: not known before the models are here.
    bytes_each: Option<u64>,
}

impl Plan {
    /// Of a checked workflow.
    pub fn of(loaded: &Loaded, device: Device) -> Plan {
        let workflow = &loaded.workflow;
        let scenario = &workflow.scenarios[0];
        let graph = Graph::of(workflow);
        let models: Vec<Model> =
            workflow.models.iter().map(|model| Model::of(loaded, model, device)).collect();
        let policies: Vec<Policy> =
            (0..workflow.policies.len()).map(|index| Policy::of(workflow, index, &models)).collect();
        let episode = Episode::longest(&scenario.turns, &workflow.agents);
        let steps = workflow.train.as_ref().map_or(0, |train| train.steps);
        let evaluations: Vec<Evaluation> = workflow
            .evaluations
            .iter()
            .map(|one| {
                let tasks = Tasks::of(loaded, &one.name, &one.tasks);
                Evaluation {
                    every: one.every,
                    rounds: if workflow.train.is_some() { counts::rounds(one.every, steps) } else { 0 },
                    round: Round::of(one.limit, tasks.records, one.samples, &episode),
                    tasks,
                }
            })
            .collect();
        let training = workflow.train.as_ref().map(|train| {
            let numbers = policies.iter().map(|policy| policy.trained_parameters).sum::<Option<u64>>();
            Training::of(workflow, train, &episode, &evaluations, numbers)
        });
        Plan {
            workflow: workflow.name.clone(),
            device: format!("{device:?}").to_lowercase(),
            layout: graph.layout,
            layout_meaning: graph.layout_meaning,
            memory: Estimate::here(workflow, &loaded.folder, device),
            plugins: workflow
                .plugins
                .iter()
                .map(|plugin| Plugin {
                    name: plugin.name.clone(),
                    path: loaded.plugins.place(plugin),
                    cached: loaded.plugins.is_cached(plugin),
                    grant: plugin.grant.clone(),
                })
                .collect(),
            sandbox: Sandbox {
                python_cached: (workflow.sandbox.backend == SandboxBackend::Wasm).then(python_is_cached),
                limits: graph.sandbox,
            },
            tasks: Tasks::of(loaded, &scenario.environment.name, &scenario.environment.tasks),
            models,
            policies,
            episode,
            evaluations,
            training,
        }
    }

    /// For programs: the fields of this struct, and `memory` in bytes, or null with the reason in `memory_unknown`.
    pub fn json(&self) -> Value {
        let mut plan = json!(self);
        match &self.memory {
            Ok(memory) => {
                let part = |(part, bytes): &(&str, u64)| json!({ "part": part, "bytes": bytes });
                let parts: Vec<Value> = memory.parts().iter().map(part).collect();
                plan["memory"] = json!({ "parts": parts, "total": memory.total() });
            }
            Err(why) => {
                plan["memory"] = Value::Null;
                plan["memory_unknown"] = json!(why);
            }
        }
        plan
    }
}

impl Model {
    fn of(loaded: &Loaded, model: &workflow::Model, device: Device) -> Model {
        let path = places::model_here(&loaded.folder, &model.source).ok();
        let hub = model.source.starts_with("hf:");
        let kind = match &path {
            _ if hub => "from a hub",
            Some(path) if path.is_dir() => "a folder",
            Some(_) if model.source.ends_with(".gguf") => "a GGUF file",
            Some(_) => "a fetched model",
            None => "a path or the name of a fetched model",
        };
        Model {
            name: model.name.clone(),
            source: model.source.clone(),
            dtype: session::dtype(model, device).to_string(),
            kind,
            fetch: hub && path.is_none(),
            config: path.as_ref().and_then(|path| Config::read(path).ok()),
            path,
        }
    }
}

impl Policy {
    fn of(workflow: &Workflow, index: usize, models: &[Model]) -> Policy {
        let policy = &workflow.policies[index];
        let trained = policy.train && workflow.train.is_some();
        let model = &models[policy.model];
        let numbers = |config: &Config| match &policy.lora {
            Some(lora) => {
                let targets: Vec<Projection> =
                    lora.targets.iter().filter_map(|target| target.parse().ok()).collect();
                sums::adapter_numbers(config, lora.rank as usize, &targets)
            }
            None => sums::weight_numbers(config),
        };
        Policy {
            name: policy.name.clone(),
            model: model.name.clone(),
            trained,
            lora: policy.lora.clone(),
            from: policy.from.clone(),
            agents: workflow
                .agents
                .iter()
                .filter(|agent| agent.policy == index)
                .map(|agent| agent.name.clone())
                .collect(),
            trained_parameters: if trained { model.config.as_ref().map(numbers) } else { Some(0) },
        }
    }

    /// What it consists of.
    fn words(&self) -> String {
        let what = match (&self.lora, self.trained) {
            (Some(lora), _) => format!("adapter of rank {} on {}", lora.rank, self.model),
            (None, true) => format!("all of {}", self.model),
            (None, false) => self.model.clone(),
        };
        let from = self.from.as_ref().map(|from| format!(", from {from}")).unwrap_or_default();
        let fixed = if self.trained { "" } else { ", not trained" };
        format!("{what}{from}{fixed}")
    }
}

impl Tasks {
    fn of(loaded: &Loaded, name: &str, tasks: &workflow::Tasks) -> Tasks {
        let none = Tasks { name: name.to_owned(), file: None, records: None, generator: None, problem: None };
        match tasks {
            workflow::Tasks::Generated { split, level } => {
                Tasks { generator: Some(format!("split {split}, level {level}")), ..none }
            }
            workflow::Tasks::File(path) => match records(loaded, path) {
                Ok((file, records)) => Tasks { file: Some(file), records: Some(records), ..none },
                Err(problem) => Tasks { file: Some(path.into()), problem: Some(problem), ..none },
            },
        }
    }
}

/// A task file and its number of records, which a run counts in the same way: lines with something in them.
fn records(loaded: &Loaded, path: &str) -> Result<(PathBuf, u64), String> {
    let file = places::tasks(&loaded.folder, path)?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok((file, text.lines().filter(|line| !line.trim().is_empty()).count() as u64))
}

impl Training {
    fn of(
        workflow: &Workflow,
        train: &Train,
        episode: &Episode,
        evaluations: &[Evaluation],
        trained_numbers: Option<u64>,
    ) -> Training {
        let step = Step::of(train, episode);
        let steps = u64::from(train.steps);
        let scored = evaluations.iter().any(|one| one.rounds > 0);
        Training {
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
            checkpoints: Checkpoints {
                count: counts::checkpoints(train),
                kept: counts::kept(train, scored),
                bytes_each: trained_numbers.map(|numbers| numbers * counts::CHECKPOINT_BYTES),
            },
            folder: free_folder(&workflow.name),
        }
    }
}
