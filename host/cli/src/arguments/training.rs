//! Arguments of the commands that play and train: `run`, `sweep`, `evaluate`, `play` and `grade`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use pl_run::sweep::GridAxis;

use super::cluster::ClusterRunArgs;
use super::common::{DeviceChoice, MachineArgs, OverrideArgs, WorkflowArgs};
use super::permissions::PermissionArgs;

#[derive(Args)]
#[command(override_usage = "pl-host run [OPTIONS] <FILE>\n       pl-host run [OPTIONS] --resume <DIR>")]
pub struct RunArgs {
    /// The workflow (.mas); not with --resume, because the run folder has it
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub given: OverrideArgs,
    /// The run folder [default: runs/NAME, or the first of runs/NAME-2, … that does not exist]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Continue the run in this folder. With --set and --params, settings may change that no finished step
    /// depends on, such as train.steps
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// With --resume: if the run has no checkpoint, delete what it has recorded and start it again
    #[arg(long, requires = "resume")]
    pub from_start: bool,
    /// With --resume: allow a run folder that somebody else wrote to use the plugins, folders and hosts that
    /// it names
    #[arg(long, requires = "resume")]
    pub trust: bool,
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Seed of every random stream [default: 0]
    #[arg(long, conflicts_with = "resume")]
    pub seed: Option<u64>,
    /// Train on tasks in the order of the run in this folder, which had `order = arrival`: with its seed, the same bits
    #[arg(long, value_name = "DIR")]
    pub replay_schedule: Option<PathBuf>,
    /// Show the run in a browser while it goes on, at this address and port [default: 127.0.0.1:7575, or any free port]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    pub view: Option<Option<SocketAddr>>,
    /// Address and port on which Prometheus reads the run's metrics, at /metrics; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Collector of OpenTelemetry that gets a span of each step, episode, call and update (OTLP over HTTP), such
    /// as http://127.0.0.1:4318
    #[arg(long, value_name = "ENDPOINT")]
    pub otlp: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterRunArgs,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

#[derive(Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    /// Seeds; every combination of settings is trained with each
    #[arg(long, value_name = "SEED,…", value_delimiter = ',', default_value = "0")]
    pub seeds: Vec<u64>,
    /// Values of a param or setting, as in train.learning_rate=[1e-4, 2e-4]; more than one gives a grid
    #[arg(long, value_name = "PATH=[VALUE, …]")]
    pub grid: Vec<GridAxis>,
    /// Folder of the run folders; a sweep that is there goes on where it stopped [default: runs/FILE-sweep]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Write every completion to this file as a line of JSON: prompt and completion as token ids, text,
    /// action
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PlayArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Scenario to play [default: the first of the file]
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// A question, or the record of a task as JSON [default: the first task of the scenario]
    #[arg(long)]
    pub task: Option<String>,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
}

#[derive(Args)]
pub struct GradeArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    /// The agent that gave the answers [default: the last agent of the turns]
    #[arg(long)]
    pub agent: Option<String>,
    /// Print a JSON object for each answer: {"correct": true}
    #[arg(long)]
    pub json: bool,
}
