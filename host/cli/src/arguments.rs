//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use pl_dsl::Override;
use pl_rollout::EpisodeId;
use pl_run::DevicePreference;
use pl_run::sweep::GridAxis;

use crate::diagnostics::Format;
use crate::exit::CommandError;

#[derive(Parser)]
#[command(name = "pl-host", version, about = "Builds and trains teams of language-model agents")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Check a workflow and summarise it
    Check(Check),
    /// Format workflow files: indentation, alignment, line breaks
    Fmt(Fmt),
    /// Explain a code (MAS0012), a block, a setting (KEY or BLOCK.KEY) or a function, or list all of them
    Explain(Explain),
    /// Print the JSON Schema of a checked workflow, the format of workflow.json in a run folder
    Schema,
    /// Show the plan of a run: models, memory, tasks, completions, checkpoints
    Plan(Plan),
    /// Draw a workflow: its agents, policies and turns
    Graph(Graph),
    /// Train the policies of a workflow
    Run(Run),
    /// Train a workflow with every combination of some settings and seeds
    Sweep(Sweep),
    /// Compare runs: their differing settings and their results
    Compare(Compare),
    /// Evaluate a team on held-out tasks
    Evaluate(Evaluate),
    /// Play one episode and show it as a conversation
    Play(Play),
    /// Serve the policies and the team over OpenAI's API
    Serve(Serve),
    /// Replay recorded episodes through their plugins and compare
    Replay(Replay),
    /// Grade answers from standard input: on each line a JSON object {"gold", "pred"}, or {"task", "pred"}
    /// with a whole record
    Grade(Grade),
    /// Show what this machine has, what is missing for which feature, and what mends it
    Doctor(Doctor),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page of all commands, for `man -l -`
    Man,
    /// Run the language server of workflow files on standard input and output, for editors
    Lsp,
    /// Create, build, test and inspect plugins
    Plugin {
        #[command(subcommand)]
        command: Plugin,
    },
    /// Run programs in the sandbox and set it up
    Sandbox {
        #[command(subcommand)]
        command: Sandbox,
    },
}

/// Arguments of every command that reads a workflow.
#[derive(Args, Clone)]
pub struct Source {
    /// The workflow (.mas)
    pub file: PathBuf,
    #[command(flatten)]
    pub given: Given,
}

/// Params and settings from outside the file. Later ones win: environment variables (`PL_HOST_PARAM_NAME`),
/// files, `--set`.
#[derive(Args, Clone)]
pub struct Given {
    /// Set a param (NAME=VALUE) or a setting (BLOCK.KEY=VALUE)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<Override>,
    /// Set params and settings from a file, each line NAME = VALUE or BLOCK.KEY = VALUE
    #[arg(long = "params", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl Given {
    /// Returns all params and settings in order.
    pub fn all(&self) -> Result<Vec<Override>, CommandError> {
        let mut all: Vec<Override> = std::env::vars_os()
            .filter_map(|(name, value)| Override::from_variable(name.to_str()?, value.to_str()?))
            .collect();
        all.extend(self.command_line()?);
        Ok(all)
    }

    /// Returns the params and settings of the command line, without those of the environment.
    pub fn command_line(&self) -> Result<Vec<Override>, CommandError> {
        let mut all = Vec::new();
        for file in &self.files {
            let text = std::fs::read_to_string(file)
                .map_err(|e| CommandError::input(format!("cannot read {}: {e}", file.display())))?;
            let source = pl_dsl::Source { name: file.display().to_string(), text };
            all.extend(Override::from_file(&source).map_err(CommandError::input)?);
        }
        all.extend(self.set.iter().cloned());
        Ok(all)
    }
}

/// Device and seed.
#[derive(Args, Clone)]
pub struct Machine {
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Seed of every random stream
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// CUDA if it is usable, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// CUDA, or an error if it is not usable (`cargo xtask setup --cuda` fetches its libraries)
    Cuda,
}

impl From<DeviceChoice> for DevicePreference {
    fn from(choice: DeviceChoice) -> DevicePreference {
        match choice {
            DeviceChoice::Auto => DevicePreference::Auto,
            DeviceChoice::Cpu => DevicePreference::Cpu,
            DeviceChoice::Cuda => DevicePreference::Cuda,
        }
    }
}

#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub source: Source,
    /// Form of the diagnostics
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

#[derive(Args)]
pub struct Fmt {
    /// Workflows (.mas) to format, or folders of them; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing; show the differences, and exit with code 1 if there are any
    #[arg(long)]
    pub check: bool,
}

#[derive(Args)]
pub struct Explain {
    /// Codes, blocks, settings, functions
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,
}

#[derive(Args)]
pub struct Plan {
    #[command(flatten)]
    pub source: Source,
    /// Device that the run would use
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// Simulate the schedules instead, with rollouts and training on devices of their own
    #[arg(long, requires = "costs")]
    pub simulate: bool,
    /// Costs of a step for the simulation: those that a run has measured, or seconds as in
    /// `rollout=50,train=25,evaluate=0`
    #[arg(long, value_name = "RUN|SECONDS", requires = "simulate")]
    pub costs: Option<String>,
}

#[derive(Args)]
pub struct Graph {
    #[command(flatten)]
    pub source: Source,
    /// Form of the drawing
    #[arg(long, value_enum, default_value_t = GraphFormat::Terminal)]
    pub format: GraphFormat,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Width of the terminal form in columns [default: that of the terminal, or 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,
    /// Use only ASCII characters in the terminal form
    #[arg(long)]
    pub ascii: bool,
}

/// Form of a drawing.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Boxes and lines of text
    Terminal,
    /// A Mermaid flowchart
    Mermaid,
    /// Graphviz
    Dot,
    /// Nodes and edges as JSON, for programs
    Json,
    /// An SVG image
    Svg,
}

#[derive(Args)]
pub struct Run {
    /// The workflow (.mas); not with --resume, because the run folder has it
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub given: Given,
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
}

#[derive(Args)]
pub struct Sweep {
    #[command(flatten)]
    pub source: Source,
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
pub struct Compare {
    /// Run folders
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Evaluate {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub machine: Machine,
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
pub struct Play {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub machine: Machine,
    /// A question, or the record of a task as JSON [default: the first task of the workflow]
    #[arg(long)]
    pub task: Option<String>,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
}

#[derive(Args)]
pub struct Serve {
    /// The workflow (.mas), or a run folder, of which the newest checkpoint is served
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    #[command(flatten)]
    pub given: Given,
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Allow a run folder that somebody else wrote to use the plugins, folders and hosts that it names
    #[arg(long)]
    pub trust: bool,
    /// Address and port to listen on; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Environment variable with the key that requests must carry. Needed unless the address is loopback
    #[arg(long, value_name = "VARIABLE")]
    pub key_variable: Option<String>,
    /// Requests in progress; further ones are refused with status 429
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub max_requests: usize,
    /// Name of the team as a model
    #[arg(long, value_name = "NAME", default_value = "team")]
    pub team: String,
}

#[derive(Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Replay {
    /// The run folder
    pub run: PathBuf,
    /// The episode: STEP.TASK.SAMPLE, such as 12.3.0; test@10.3.0 in an evaluation; 12.3.0#1 for the second
    /// of several attempts [default: list all episodes]
    #[arg(value_name = "EPISODE", conflicts_with = "all")]
    pub episode: Option<EpisodeId>,
    /// Replay every episode of the run
    #[arg(long)]
    pub all: bool,
    /// Only attempts that failed or had a failed candidate
    #[arg(long, conflicts_with = "episode")]
    pub failed: bool,
    /// Show the episode as a conversation, with the log messages and output of plugins
    #[arg(long, requires = "episode")]
    pub show: bool,
    /// Use another build of a plugin
    #[arg(long = "plugin", value_name = "NAME=FILE", value_parser = named_file)]
    pub plugins: Vec<(String, PathBuf)>,
    /// Allow a run folder that somebody else wrote to use the plugins and folders that it names
    #[arg(long)]
    pub trust: bool,
}

fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write NAME=FILE: the plugin's name in the workflow, and a component".to_owned()),
    }
}

#[derive(Args)]
pub struct Grade {
    #[command(flatten)]
    pub source: Source,
    /// The agent that gave the answers [default: the last agent of the turns]
    #[arg(long)]
    pub agent: Option<String>,
    /// Print a JSON object for each answer: {"correct": true}
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Plugin {
    /// Create a project: sources, tests, and a workflow that uses them
    New(PluginNew),
    /// Build a project's component
    Build(PluginBuild),
    /// Build a project after every change and replay a recorded episode with the build
    Dev(PluginDev),
    /// Show the items of plugins with their settings and facts
    Describe(PluginDescribe),
    /// Show the contract, imports, exports and permissions of a component
    Inspect(PluginInspect),
    /// Test the promises of the contract: no memory between calls, determinism, a correct settings schema
    Test(PluginTest),
}

#[derive(Args)]
pub struct PluginNew {
    /// The plugin's name: lower-case letters, digits, `_`
    pub name: String,
    /// The programming language
    #[arg(long, value_enum)]
    pub lang: PluginLanguage,
    /// The items that it offers
    #[arg(long, value_enum, default_value_t = PluginKind::Agent)]
    pub kind: PluginKind,
    /// The parent folder of the project's new folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub into: PathBuf,
}

/// Programming language with an SDK.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PluginLanguage {
    Rust,
    Python,
    /// JavaScript or TypeScript
    Js,
    /// C or C++
    C,
}

/// Items of a plugin.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PluginKind {
    /// An agent for the problems of pl-host's maths plugin
    Agent,
    /// An environment that pl-host's maths plugin rewards
    Environment,
    /// A reward for the problems of pl-host's maths plugin
    Reward,
    /// An environment, an agent and a reward
    Domain,
}

#[derive(Args)]
pub struct PluginBuild {
    /// The project: a folder with a pl-plugin.toml
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Optimise for size and speed, instead of for a fast build with source lines
    #[arg(long)]
    pub release: bool,
    /// Fetch missing tools into the cache folder
    #[arg(long)]
    pub fetch: bool,
}

#[derive(Args)]
pub struct PluginDev {
    /// The project: a folder with a pl-plugin.toml
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// The run whose episode is replayed [default: the newest in runs/]
    #[arg(long, value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// The episode, as `replay` lists it [default: the last of the run]
    #[arg(long, value_name = "EPISODE")]
    pub episode: Option<EpisodeId>,
    /// The plugin's name in the workflow [default: the project's]
    #[arg(long, value_name = "NAME")]
    pub plugin: Option<String>,
    /// Show the episode as a conversation
    #[arg(long)]
    pub show: bool,
    /// Build and replay once, without waiting for changes
    #[arg(long)]
    pub once: bool,
}

#[derive(Args)]
pub struct PluginInspect {
    /// The component (.wasm)
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PluginTest {
    /// The component (.wasm)
    pub file: PathBuf,
    /// Another component whose items take part: an environment for agents, agents for an environment
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// Settings of items, as JSON: {"ITEM": {"KEY": VALUE}}
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
    /// Tasks for environments, one JSON record per line
    #[arg(long, value_name = "FILE")]
    pub tasks: Option<PathBuf>,
    /// Views for agents, one JSON document per line
    #[arg(long, value_name = "FILE")]
    pub views: Option<PathBuf>,
    /// Actions for environments, one JSON document per line
    #[arg(long, value_name = "FILE")]
    pub actions: Option<PathBuf>,
    /// Difficulty of generated tasks
    #[arg(long, default_value_t = 1)]
    pub level: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PluginDescribe {
    /// Components (.wasm)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the description into each file, so that a check does not have to compile it
    #[arg(long)]
    pub embed: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "embed")]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Sandbox {
    /// Run a program like the code of an agent
    Run(SandboxRun),
    /// Show what each backend has and lacks
    Doctor(SandboxDoctor),
    /// Create the image of the docker backend from a registry, or from a root file system
    Image(SandboxImage),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Python in WebAssembly; nothing has to be installed
    Wasm,
    /// A container; needs a Docker engine and an image
    Docker,
}

/// Docker engines and the image of their containers.
#[derive(Args)]
pub struct SandboxEngine {
    /// The image of the containers [default: pl-host-python]
    #[arg(long, value_name = "NAME:TAG")]
    pub image: Option<String>,
    /// A Docker engine: unix://PATH, tcp://HOST:PORT or https://HOST:PORT [default: $DOCKER_HOST, or
    /// unix:///var/run/docker.sock]
    #[arg(long = "endpoint", value_name = "ADDRESS")]
    pub endpoints: Vec<String>,
    /// The folder with ca.pem, cert.pem and key.pem for https endpoints
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,
}

#[derive(Args)]
pub struct SandboxRun {
    /// A program: Python, shell (.sh), or anything with --run
    pub file: PathBuf,
    /// The backend that runs it
    #[arg(long, value_enum, default_value_t = Backend::Wasm)]
    pub backend: Backend,
    #[command(flatten)]
    pub engine: SandboxEngine,
    /// The command line in the container, with {file} for the program's file: --run node,{file}
    #[arg(long, value_name = "PART,PART", value_delimiter = ',')]
    pub run: Vec<String>,
    /// Time limit in seconds
    #[arg(long, default_value_t = 20)]
    pub timeout: u64,
    /// Memory limit in MiB
    #[arg(long, default_value_t = 256)]
    pub memory: u64,
    /// Print the time and memory that it used
    #[arg(long)]
    pub usage: bool,
}

#[derive(Args)]
pub struct SandboxDoctor {
    #[command(flatten)]
    pub engine: SandboxEngine,
}

#[derive(Args)]
pub struct SandboxImage {
    #[command(flatten)]
    pub engine: SandboxEngine,
    /// The root file system of the image: a folder or a tar archive
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
}
