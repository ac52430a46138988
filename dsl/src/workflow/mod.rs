//! The checked workflow: a `.mas` file with names resolved to indices, defaults filled in, and values within their ranges.
//! Serialised, it is the `workflow.json` of a run folder.

mod cluster;
mod condition;
mod corpus;
mod designer;
mod devices;
pub(crate) mod layout;
pub mod objective;
mod server;
mod tasks;
mod train;

pub use cluster::Cluster;
pub use corpus::{Corpus, CorpusSource, PassageFile, RetrievalServer};
pub use designer::{Designer, ExecutorGroups, Palette};
pub use devices::{DeviceSet, Devices};
pub use objective::PolicyTraining;
pub use server::{Server, ServerKind};
pub use tasks::{Curriculum, DataName, Rise, Tasks};
pub use train::{BatchOrder, Faults, InFlight, LrSchedule, Rollout, Schedule, Train};

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use pl_types::{ModelDtype, Sampling, SamplingOverrides};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// A checked workflow file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workflow {
    pub name: String,
    /// Parameters after `--set`.
    pub params: BTreeMap<String, Value>,
    pub plugins: Vec<Plugin>,
    pub models: Vec<Model>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corpora: Vec<Corpus>,
    pub policies: Vec<Policy>,
    pub agents: Vec<Agent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub designers: Vec<Designer>,
    /// One or more, in order of writing.
    pub scenarios: Vec<Scenario>,
    pub sandbox: Sandbox,
    pub inference: Inference,
    /// `None` if one process does everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// A file without a `train` block can be played and evaluated.
    pub train: Option<Train>,
    pub evaluations: Vec<Evaluation>,
    pub layout: Layout,
}

impl Workflow {
    /// Returns the number of updates that a policy's weights in a rollout are behind. 0 for policies that are not
    /// trained.
    pub fn staleness(&self, policy: usize) -> u32 {
        let training = self.policies.get(policy).and_then(|policy| policy.training.as_ref());
        let (Some(train), Some(training)) = (&self.train, training) else { return 0 };
        training.staleness.unwrap_or(train.staleness)
    }

    /// Returns the largest staleness of a trained policy.
    pub fn largest_staleness(&self) -> u32 {
        (0..self.policies.len()).map(|policy| self.staleness(policy)).max().unwrap_or(0)
    }

    /// Returns true if the weights of the model at a position are trained, not only adapters on them.
    pub fn trains_model(&self, model: usize) -> bool {
        self.train.is_some() && self.policies.iter().any(|policy| policy.trains_model(model))
    }

    /// The JSON Schema (draft 2020-12) of a serialised workflow.
    pub fn json_schema() -> Value {
        SchemaSettings::draft2020_12()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<Workflow>()
            .to_value()
    }

    /// Returns the corpora that environments may search.
    pub fn used_corpora(&self) -> Vec<&Corpus> {
        let positions = self.scenarios.iter().flat_map(|one| one.environment.corpora.iter().copied());
        let used: BTreeSet<usize> = positions.collect();
        used.into_iter().filter_map(|index| self.corpora.get(index)).collect()
    }

    /// Returns the positions of the policies that the episodes of a scenario may use in training: those of its agents, of its
    /// designer and the teams that this may write, and those that its reward may ask.
    pub fn policies_of(&self, scenario: &Scenario) -> BTreeSet<usize> {
        let agents = scenario.agents().into_iter().filter_map(|agent| self.agents.get(agent));
        let designer = scenario.designer.and_then(|designer| self.designers.get(designer));
        let plugin = self.plugins.get(scenario.reward.plugin);
        let palette = designer.into_iter().flat_map(|designer| &designer.palette.policies);
        let named = palette.chain(plugin.into_iter().flat_map(|plugin| &plugin.grant.policies));
        let position = |name: &String| self.policies.iter().position(|policy| policy.name == *name);
        agents
            .map(|agent| agent.policy)
            .chain(designer.map(|designer| designer.policy))
            .chain(named.filter_map(position))
            .collect()
    }

    /// Returns the position of the policy that an agent uses, in an evaluation if one is named. Returns `None` if there
    /// is no such agent.
    pub fn policy_of(&self, agent: &str, evaluation: Option<&str>) -> Option<usize> {
        let index = self.agents.iter().position(|block| block.name == agent)?;
        let evaluation = self.evaluations.iter().find(|block| Some(block.name.as_str()) == evaluation);
        let role = evaluation.and_then(|block| block.roles.iter().find(|role| role.agent == index));
        Some(role.map_or(self.agents[index].policy, |role| role.policy))
    }
}

/// `plugin maths = "math.wasm" { memory = 64MiB }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plugin {
    pub name: String,
    /// Path as written. The built-in plugin `std` has none.
    pub path: Option<String>,
    /// True if an included file in another folder has the path as a file name alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_name_of_included: bool,
    /// Bytes of linear memory of one instance.
    pub memory: u64,
    /// Fuel of one call, in wasmtime's units (about one per instruction).
    pub fuel: u64,
    /// Wall-clock backstop of one call.
    pub timeout: Duration,
    /// Resources that it may access; none by default.
    #[serde(default, skip_serializing_if = "Grant::is_empty")]
    pub grant: Grant,
}

/// `plugin maths = "math.wasm" { grant { read = ["tables"]; http = ["api.example.org"]; policies = [referee] } }`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Folders, as written. The plugin reads each under `/` and the folder's name.
    pub read: Vec<String>,
    /// `HOST` for HTTPS, or `HOST:PORT`.
    pub http: Vec<String>,
    /// Policies that the plugin's rewards may ask, by name.
    #[serde(default)]
    pub policies: Vec<String>,
}

impl Plugin {
    /// Returns the name of the plugin if it may be one that is shipped with the program: if its path was written as a file name
    /// alone.
    pub fn shipped_name(&self) -> Option<&str> {
        let path = Path::new(self.path.as_ref()?);
        let name = path.file_name()?;
        (self.is_name_of_included || path.as_os_str() == name).then_some(name)?.to_str()
    }
}

impl Grant {
    /// True if nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.http.is_empty() && self.policies.is_empty()
    }

    /// Returns the name under which a plugin sees a folder. Returns `None` if the path does not end with a name.
    pub fn mount_name(folder: &str) -> Option<&str> {
        Path::new(folder).file_name()?.to_str()
    }
}

/// `model base = "smollm2-135m" { dtype = f16 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    pub name: String,
    pub source: String,
    /// `None` for the default: on a CPU `file`, or f32 if the model's own weights are trained; bf16 on a GPU.
    pub dtype: Option<ModelDtype>,
}

/// `policy coder { model = base; lora { rank = 16; alpha = 32 } }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    pub name: String,
    /// Position in the workflow's `models`.
    pub model: usize,
    /// `None` if the policy owns a trained copy of the whole model.
    pub lora: Option<Lora>,
    /// False if the policy is not trained.
    pub train: bool,
    /// An adapter (PEFT folder) or model folder to start from.
    pub from: Option<String>,
    /// Position in the workflow's `servers`. `None` if this program serves the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<usize>,
    /// Name of the model on the server. `None` for its base model, or for the policy's adapter on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
    /// Devices that it is generated for and trained on.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// `None` if the policy is not trained, or the file has no `train` block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<PolicyTraining>,
}

impl Policy {
    /// Returns true if the policy or its critic trains weights of the model at a position, not only adapters on them.
    pub fn trains_model(&self, model: usize) -> bool {
        let Some(training) = &self.training else { return false };
        let critic = training.critic.as_ref().filter(|critic| critic.on == objective::CriticBase::Model);
        (self.lora.is_none() && self.model == model)
            || critic
                .is_some_and(|critic| critic.lora.is_none() && critic.model.unwrap_or(self.model) == model)
    }
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
    /// Strings that end a completion, in addition to those of the item.
    pub stop: Vec<String>,
    /// True if the model may think first. `None` leaves it to the model's chat template.
    pub thinking: Option<bool>,
    /// Rule for prompts that are longer than the model's context.
    #[serde(default)]
    pub long_prompt: LongPrompt,
    /// Limit on the rounds of tool calls within a turn.
    #[serde(default)]
    pub tool_rounds: u32,
    /// Settings that the item declares.
    pub settings: Map<String, Value>,
}

/// Rule for prompts that leave no room for a completion in the model's context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LongPrompt {
    /// Ends the episode as truncated.
    #[default]
    End,
    /// Leaves out tokens at the beginning.
    Left,
    /// Leaves out tokens in the middle.
    Middle,
}

/// `scenario sums { environment = problems; reward = score; turns { … } }`: an environment, the turns played in it, and their
/// reward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scenario {
    /// `None` in a file without `scenario` blocks, whose environment, turns and reward are its only scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share of the tasks of training in `mix`, relative to that of the other scenarios. 0 if it is not trained.
    #[serde(default = "equal_weight", skip_serializing_if = "is_equal_weight")]
    pub weight: f64,
    pub environment: Environment,
    /// Without nodes if the team is still to be designed.
    pub turns: Turns,
    pub reward: Reward,
    /// Position in the workflow's `designers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub designer: Option<usize>,
}

/// Weight of a scenario in a file without `mix`.
const fn equal_weight() -> f64 {
    1.0
}

fn is_equal_weight(weight: &f64) -> bool {
    *weight == equal_weight()
}

impl Scenario {
    /// Returns the positions of the agents that act in it, without repetitions.
    pub fn agents(&self) -> BTreeSet<usize> {
        self.turns.nodes.iter().flat_map(|node| node.agents.iter().copied()).collect()
    }

    /// True if it has a designer and no turns of its own.
    pub fn lacks_team(&self) -> bool {
        self.designer.is_some() && self.turns.nodes.is_empty()
    }
}

/// `environment problems = maths.problems { tasks = "gsm8k.jsonl" }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    pub name: String,
    pub plugin: usize,
    pub item: String,
    /// Tasks of training. With a curriculum, those of its first level.
    pub tasks: Tasks,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<Curriculum>,
    /// Positions in the workflow's `corpora`; the first answers queries that name none. Empty if the environment has
    /// nothing to search.
    #[serde(
        default,
        rename = "corpus",
        deserialize_with = "one_or_more",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub corpora: Vec<usize>,
    /// True if traces record the environment's drawings.
    #[serde(default)]
    pub drawings: bool,
    pub settings: Map<String, Value>,
}

/// Reads a list of positions, or one as earlier versions wrote it.
fn one_or_more<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<usize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Positions {
        One(usize),
        More(Vec<usize>),
    }
    Ok(match Positions::deserialize(reader)? {
        Positions::One(position) => vec![position],
        Positions::More(positions) => positions,
    })
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

impl Turns {
    /// Returns true if edges lead from node `from` to one of `agent`'s nodes, or if it is one.
    pub fn reaches(&self, from: usize, agent: usize) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut open = vec![from];
        while let Some(index) = open.pop() {
            let Some(node) = self.nodes.get(index).filter(|_| !std::mem::replace(&mut reached[index], true))
            else {
                continue;
            };
            if node.agents.contains(&agent) {
                return true;
            }
            open.extend(node.next_nodes());
        }
        false
    }

    /// Returns true if `agent` may have several turns in an episode.
    pub fn may_repeat(&self, agent: usize) -> bool {
        let own = |node: &&Node| node.agents.contains(&agent);
        let returns = |node: &Node| node.next_nodes().any(|next| self.reaches(next, agent));
        self.max > 1 && self.nodes.iter().filter(own).any(returns)
    }
}

/// A node of the turn graph: agents that act in parallel on the same view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Positions in the workflow's `agents`, in order of writing; one, or several for `[a, b]`.
    pub agents: Vec<usize>,
    /// The first edge whose condition holds is taken; an edge without one always holds.
    pub edges: Vec<Edge>,
}

impl Node {
    /// Positions of the nodes that its edges lead to.
    pub(crate) fn next_nodes(&self) -> impl Iterator<Item = usize> {
        self.edges.iter().filter_map(|edge| match edge.to {
            Target::Node(next) => Some(next),
            Target::End => None,
        })
    }
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
    /// `reward.team`, `reward.success`, or `reward.AGENT` of the last step.
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
    /// True if the reward scores only the end of an episode, and gives 0 before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scores_end: bool,
    pub settings: Map<String, Value>,
}

/// `sandbox { backend = wasm; timeout = 20s; memory = 256MiB }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    pub backend: SandboxBackend,
    /// Time limit of one job.
    pub timeout: Duration,
    /// Memory limit of one job, in bytes.
    pub memory: u64,
    /// Bytes kept of each of a job's stdout and stderr.
    pub output: u64,
    /// Jobs at a time.
    pub workers: u32,
    /// Worker processes of the `wasm` backend. `None` if jobs run inside this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<WorkerProcesses>,
    /// Settings of the `docker` backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<Docker>,
}

/// `sandbox { isolation = process }`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerProcesses {
    /// Number of jobs after which a process is replaced.
    pub jobs_per_worker: u32,
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
    /// `None` for the default image.
    pub image: Option<String>,
    /// OCI runtime. `None` for the engine's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Processes and threads of one job.
    pub pids: u32,
    /// CPUs of one job.
    pub cpus: f64,
    /// Endpoints of Docker engines. If empty, the one that the `docker` command would use.
    pub endpoints: Vec<String>,
    /// A folder, relative to the workflow file.
    pub certificates: Option<String>,
    /// Number of jobs after which a container is replaced.
    pub jobs_per_worker: u32,
    /// Command line of programs. If empty, that of their language.
    pub run: Vec<String>,
    /// True if the `wasm` backend runs the jobs when no engine is available.
    pub fallback: bool,
}

/// `inference { kv_cache = 1GiB; slots = 64 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inference {
    /// Bytes of keys and values, shared evenly by the models' weights. `None` for a number that depends on the device.
    pub kv_cache: Option<u64>,
    /// Completions generated at a time.
    pub slots: u32,
    /// Number of threads. `None` for one per core.
    pub threads: Option<u32>,
    /// True if no step is replayed as a CUDA graph.
    #[serde(default)]
    pub enforce_eager: bool,
}

/// `evaluate test { every = 10; tasks = "gsm8k-test.jsonl"; limit = 200; samples = 1 }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    pub name: String,
    /// Position in the workflow's `scenarios`. A block without `scenario` in a file of several stands for one evaluation of
    /// each, named `BLOCK.SCENARIO`.
    #[serde(default, skip_serializing_if = "is_first")]
    pub scenario: usize,
    /// Training steps between evaluations. 0: only by `pl-host evaluate`.
    pub every: u32,
    pub tasks: Tasks,
    /// Maximum number of tasks.
    pub limit: u32,
    /// Episodes per task.
    pub samples: u32,
    #[serde(flatten)]
    pub sampling: SamplingOverrides,
    /// Agents that use another policy than their own, in order of agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleAssignment>,
}

fn is_first(position: &usize) -> bool {
    *position == 0
}

impl Evaluation {
    /// Returns the name of the block in the file.
    pub fn block(&self) -> &str {
        self.name.split_once('.').map_or(&self.name, |(block, _)| block)
    }
}

/// `tool = reasoner` in `roles { … }`: the policy of an agent in an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleAssignment {
    /// Position in the workflow's `agents`.
    pub agent: usize,
    /// Position in the workflow's `policies`.
    pub policy: usize,
}

/// Assignment of agents to models, derived from policies.
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
