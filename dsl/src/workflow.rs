//! The checked workflow: what the rest of the program sees of a `.mas` file.
//!
//! Every name is resolved to an index, every default filled in, every value within its range. Serialised, it
//! is the `workflow.json` of a run folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A whole checked file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workflow {
    pub name: String,
    /// Parameters after `--set`.
    pub params: BTreeMap<String, Value>,
    pub plugins: Vec<Plugin>,
    pub models: Vec<Model>,
    pub policies: Vec<Policy>,
    pub agents: Vec<Agent>,
    /// One today; a later `mix` trains several at once.
    pub scenarios: Vec<Scenario>,
    pub sandbox: Sandbox,
    pub inference: Inference,
    /// A file without a `train` block can be played and evaluated.
    pub train: Option<Train>,
    pub evaluations: Vec<Evaluation>,
    pub layout: Layout,
}

impl Workflow {
    /// The JSON Schema (draft 2020-12) of a serialised workflow.
    pub fn json_schema() -> Value {
        SchemaSettings::draft2020_12()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<Workflow>()
            .to_value()
    }
}

/// `plugin maths = "math.wasm" { memory = 64MiB }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plugin {
    pub name: String,
    /// As written; `std` is the built-in one and has no path.
    pub path: Option<String>,
    /// Bytes of linear memory of one instance.
    pub memory: u64,
    /// Fuel of one call, in wasmtime's units (about one per instruction).
    pub fuel: u64,
    /// Wall-clock backstop of one call.
    pub timeout: Duration,
    /// What is open to it; nothing by default.
    #[serde(default, skip_serializing_if = "Grant::is_empty")]
    pub grant: Grant,
}

/// `plugin maths = "math.wasm" { grant { read = ["tables"]; http = ["api.example.org"] } }`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Folders, as written: the plugin reads what is in them, below `/` and the folder's own name.
    pub read: Vec<String>,
    /// `HOST` for HTTPS, or `HOST:PORT`.
    pub http: Vec<String>,
}

impl Grant {
    /// Whether all doors are closed.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.http.is_empty()
    }

    /// The name under which a plugin finds a folder that it may read. None: the folder has no name of its own.
    pub fn name_of(folder: &str) -> Option<&str> {
        Path::new(folder).file_name()?.to_str()
    }
}

/// `model base = "smollm2-135m" { dtype = f16 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    pub name: String,
    pub source: String,
    /// None: what suits the device, f32 on a processor and bf16 on a GPU.
    pub dtype: Option<Dtype>,
}

/// A number format of a model's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    F32,
    F16,
    Bf16,
}

/// `policy coder { model = base; lora { rank = 16; alpha = 32 } }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    pub name: String,
    /// Position in the workflow's `models`.
    pub model: usize,
    /// None: the policy owns a trained copy of the whole model.
    pub lora: Option<Lora>,
    /// False: the policy is used as it is.
    pub train: bool,
    /// An adapter (PEFT folder) or model folder to start from.
    pub from: Option<String>,
}

/// Low-rank adaptation (Hu et al. 2021): `W x + (alpha / rank) B A x`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lora {
    pub rank: u32,
    pub alpha: f64,
    /// Projections: `q k v o gate up down`.
    pub targets: Vec<String>,
}

/// `agent tool = maths.tool { policy = coder; temperature = 1.0; max_tokens = 256 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    pub name: String,
    /// Position in the workflow's `plugins`.
    pub plugin: usize,
    pub item: String,
    /// Position in the workflow's `policies`.
    pub policy: usize,
    #[serde(flatten)]
    pub sampling: Sampling,
    pub max_tokens: u32,
    /// Strings that end a completion, beside those that the item asks for.
    pub stop: Vec<String>,
    /// Whether the model may think first; none leaves it to the model's chat template.
    pub thinking: Option<bool>,
    /// What the item itself declares.
    pub settings: Map<String, Value>,
}

/// How tokens are drawn. In this order: penalties change logits, the temperature divides them, then top-k, top-p
/// and min-p each leave out tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f64,
    /// 0: all tokens.
    pub top_k: u32,
    /// 1: all tokens.
    pub top_p: f64,
    /// 0: all tokens.
    pub min_p: f64,
    /// 1: none.
    pub repetition_penalty: f64,
    /// 0: none.
    pub presence_penalty: f64,
    /// 0: none.
    pub frequency_penalty: f64,
}

/// What an evaluation samples otherwise than the agents do by themselves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resampling {
    pub temperature: Option<f64>,
    pub top_k: Option<u32>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
}

/// An environment, the turns played in it, and its reward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scenario {
    pub environment: Environment,
    pub turns: Turns,
    pub reward: Reward,
}

/// `environment problems = maths.problems { tasks = "gsm8k.jsonl" }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    pub name: String,
    pub plugin: usize,
    pub item: String,
    pub tasks: Tasks,
    pub settings: Map<String, Value>,
}

/// Where tasks come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tasks {
    /// A JSONL file, path relative to the workflow file (or to the working folder when from `--set`).
    File(String),
    /// The environment's own generator.
    Generated { split: String, level: u32 },
}

/// The turn graph. Node 0 is always the first that `start` leads to or a branch over `start`'s edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turns {
    /// Most visits of one agent in an episode; past it the episode is truncated.
    pub max: u32,
    /// Edges out of `start`, in order of writing.
    pub start: Vec<Edge>,
    pub nodes: Vec<Node>,
}

/// One stop of the turn cursor: agents that act on one view side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Positions in the workflow's `agents`, in order of writing; one, or several for `[a, b]`.
    pub agents: Vec<usize>,
    /// The first edge whose condition holds is taken; an edge without one always holds.
    pub edges: Vec<Edge>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    pub to: Target,
    pub when: Option<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Position in the turns' `nodes`.
    Node(usize),
    End,
}

/// A checked `when` expression. Evaluates over JSON scalars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// A boolean, number or string.
    Literal(Value),
    /// `env.NAME`
    Fact(String),
    /// `turn`: visits so far of the agent that the edge leaves from.
    Turn,
    /// `reward.team`, `reward.success`, or `reward.AGENT`: of the last step.
    Reward(String),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Compare(Comparison, Box<Condition>, Box<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// `reward score = maths.score { team = 1.0; local = 1.0 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reward {
    pub name: String,
    pub plugin: usize,
    pub item: String,
    /// Weight of the part that all agents share.
    pub team: f64,
    /// Weight of each agent's own part.
    pub local: f64,
    pub settings: Map<String, Value>,
}

/// `sandbox { backend = wasm; timeout = 20s; memory = 256MiB }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    pub backend: SandboxBackend,
    /// Of one job.
    pub timeout: Duration,
    /// Bytes, of one job.
    pub memory: u64,
    /// Bytes kept of each of a job's stdout and stderr.
    pub output: u64,
    /// Jobs at a time.
    pub workers: u32,
    /// What the `docker` backend needs beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<Docker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    Wasm,
    Docker,
}

/// `sandbox { backend = docker; image = "python:3.11-slim"; pids = 64; endpoints = ["unix:///var/run/docker.sock"] }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Docker {
    /// None: the default image.
    pub image: Option<String>,
    /// Processes and threads of one job.
    pub pids: u32,
    /// Processors of one job.
    pub cpus: f64,
    /// Empty: the engine that the `docker` command would use.
    pub endpoints: Vec<String>,
    /// A folder, relative to the workflow file.
    pub certificates: Option<String>,
    /// A container is replaced after so many jobs.
    pub jobs_per_worker: u32,
    /// The command line of programs; empty: their language's.
    pub run: Vec<String>,
    /// Where there is no engine, the `wasm` backend runs the jobs.
    pub fallback: bool,
}

/// `inference { kv_cache = 1GiB; slots = 64 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inference {
    /// Bytes of keys and values, shared evenly by the models' weights.
    pub kv_cache: u64,
    /// Completions generated at a time.
    pub slots: u32,
    /// Threads; none: one per core.
    pub threads: Option<u32>,
}

/// `train { … }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Train {
    pub algorithm: Algorithm,
    pub rollout: Rollout,
    /// Completions per group.
    pub samples: u32,
    pub tasks_per_step: u32,
    pub steps: u32,
    pub schedule: Schedule,
    pub learning_rate: f64,
    pub lr_schedule: LrSchedule,
    /// Steps of linear warm-up.
    pub warmup: u32,
    pub weight_decay: f64,
    /// Largest global gradient norm of a policy.
    pub max_grad_norm: f64,
    /// Passes over a step's transitions.
    pub epochs: u32,
    /// Optimiser steps per pass.
    pub mini_batches: u32,
    /// Lower clip range: ratios below 1 - this are clipped.
    pub clip_low: f64,
    /// Upper clip range (clip-higher, Yu et al. 2025).
    pub clip_high: f64,
    /// Dual clip (Ye et al. 2020): bound on the loss of negative advantages; 0 turns it off.
    pub dual_clip: f64,
    /// Divide advantages by the group's standard deviation.
    pub normalize: bool,
    /// Permute rewards within their groups: a control that can't learn.
    pub shuffle_rewards: bool,
    /// Tokens fed in one packed forward pass; what its sequences begin with in common counts once.
    pub token_budget: u32,
    /// Run each block again on the way back instead of keeping what its gradient needs.
    pub gradient_checkpointing: bool,
    /// Steps between checkpoints.
    pub checkpoint_every: u32,
    /// Newest checkpoints kept (the best is kept besides).
    pub keep_checkpoints: u32,
    /// Episodes in flight.
    pub episodes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Agent- and turn-wise grouped advantages.
    AtGrpo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rollout {
    Tree,
    Flat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    Sync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrSchedule {
    Constant,
    Cosine,
}

/// `evaluate test { every = 10; tasks = "gsm8k-test.jsonl"; limit = 200; samples = 1 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    pub name: String,
    /// Training steps between evaluations; 0: only by `pl-host evaluate`.
    pub every: u32,
    pub tasks: Tasks,
    /// Tasks, at most.
    pub limit: u32,
    /// Episodes per task.
    pub samples: u32,
    #[serde(flatten)]
    pub sampling: Resampling,
}

/// How agents share models, derived from policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Layout {
    /// One agent.
    L0,
    /// Several agents on one policy.
    L1,
    /// One base, an adapter per policy.
    L2,
    /// A base per policy.
    L3,
    Mixed,
}
