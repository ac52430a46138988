//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pl_dsl::Override;
use pl_rollout::EpisodeId;

use crate::exit::Stop;

#[derive(Parser)]
#[command(name = "pl-host", version, about = "Builds and trains teams of language-model agents")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Check a workflow and say what it is
    Check(Check),
    /// Write workflow files the one way: indentation, alignment, line breaks
    Fmt(Fmt),
    /// Explain a code (MAS0012), a block, a setting (KEY or BLOCK.KEY) or a function; without one, list them
    Explain(Explain),
    /// The JSON Schema of a checked workflow, as workflow.json of a run folder holds it
    Schema,
    /// Say what a run would do: models, memory, tasks, completions, checkpoints
    Plan(Plan),
    /// Draw a workflow: agents, policies, the graph of turns
    Graph(Graph),
    /// Train the policies of a workflow
    Run(Run),
    /// Measure a team on tasks kept apart
    Evaluate(Evaluate),
    /// Play one episode and show it as a conversation
    Play(Play),
    /// Run the components of a run's episodes again, on what was recorded, and compare
    Replay(Replay),
    /// Grade answers: one JSON object {"gold", "pred"}, or {"task", "pred"} with a whole record, per line of standard
    /// input
    Grade(Grade),
    /// The language server of workflow files: for editors, over standard input and output
    Lsp,
    /// Plugins
    Plugin {
        #[command(subcommand)]
        command: Plugin,
    },
    /// Untrusted code
    Sandbox {
        #[command(subcommand)]
        command: Sandbox,
    },
}

/// What every command that reads a workflow takes.
#[derive(Args, Clone)]
pub struct Source {
    /// The workflow (.mas)
    pub file: PathBuf,
    #[command(flatten)]
    pub given: Given,
}

/// Params and settings from outside. What comes later wins: the environment (`PL_HOST_PARAM_NAME`), files, `--set`.
#[derive(Args, Clone)]
pub struct Given {
    /// Replace a param (NAME=VALUE) or a setting (BLOCK.KEY=VALUE)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<Override>,
    /// Replace what the lines of a file say, each NAME = VALUE or BLOCK.KEY = VALUE
    #[arg(long = "params", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl Given {
    /// Everything in order.
    pub fn all(&self) -> Result<Vec<Override>, Stop> {
        let mut all: Vec<Override> = std::env::vars_os()
            .filter_map(|(name, value)| Override::from_variable(name.to_str()?, value.to_str()?))
            .collect();
        for file in &self.files {
            let text = std::fs::read_to_string(file)
                .map_err(|e| Stop::input(format!("cannot read {}: {e}", file.display())))?;
            let source = pl_dsl::Source { name: file.display().to_string(), text };
            all.extend(Override::from_file(&source).map_err(Stop::input)?);
        }
        all.extend(self.set.iter().cloned());
        Ok(all)
    }
}

/// Where and from which seed.
#[derive(Args, Clone)]
pub struct Machine {
    /// Where tensors live
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Seed of every random stream
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// CUDA where it works, else the CPU
    Auto,
    /// The CPU, even where there is CUDA
    Cpu,
    /// CUDA; without it the command fails (`cargo xtask setup --cuda` fetches its libraries)
    Cuda,
}

/// How messages about a workflow are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Human,
    /// file:line:column: code: message
    Short,
    Json,
}

#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub source: Source,
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

#[derive(Args)]
pub struct Fmt {
    /// Workflows (.mas) to rewrite, or folders with such; `-` reads standard input and writes standard output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing, but show what differs; exit code 1 if anything does
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
    /// Where tensors would live
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// The plan as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Graph {
    #[command(flatten)]
    pub source: Source,
    #[arg(long, value_enum, default_value_t = Picture::Terminal)]
    pub format: Picture,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Columns of the terminal form [default: the terminal's, or 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,
    /// Draw the terminal form with ASCII alone
    #[arg(long)]
    pub ascii: bool,
}

/// How a workflow is drawn.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Picture {
    /// Boxes and lines of text
    Terminal,
    /// A Mermaid flowchart
    Mermaid,
    /// Graphviz
    Dot,
    /// Nodes and edges for programs
    Json,
    /// A drawing on its own
    Svg,
}

#[derive(Args)]
pub struct Run {
    /// The workflow (.mas); with --resume the run folder has it
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub given: Given,
    /// The run folder [default: runs/NAME, or the first of runs/NAME-2, … that is free]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["set", "files"])]
    pub resume: Option<PathBuf>,
    /// Where tensors live
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Seed of every random stream [default: 0]
    #[arg(long, conflicts_with = "resume")]
    pub seed: Option<u64>,
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
    /// Write every completion to this file, a line of JSON each: prompt and completion as token ids, text, action
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Results as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Play {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub machine: Machine,
    /// A question, or a task record as JSON [default: the first task of the workflow]
    #[arg(long)]
    pub task: Option<String>,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
}

#[derive(Args)]
pub struct Replay {
    /// The run folder
    pub run: PathBuf,
    /// STEP.TASK.SAMPLE, as in 12.3.0; test@10.3.0 of an evaluation, 12.3.0#1 for one attempt of several (the first is
    /// 0) [default: list what there is]
    #[arg(value_name = "EPISODE", conflicts_with = "all")]
    pub episode: Option<EpisodeId>,
    /// Every episode of the run
    #[arg(long)]
    pub all: bool,
    /// Only attempts that failed, or in which a candidate did
    #[arg(long, conflicts_with = "episode")]
    pub failed: bool,
    /// Show the episode as a conversation, with what plugins logged and printed
    #[arg(long, requires = "episode")]
    pub show: bool,
    /// Try another build of a plugin
    #[arg(long = "plugin", value_name = "NAME=FILE", value_parser = named_file)]
    pub plugins: Vec<(String, PathBuf)>,
}

fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write NAME=FILE, the plugin's name in the workflow and a component".to_owned()),
    }
}

#[derive(Args)]
pub struct Grade {
    #[command(flatten)]
    pub source: Source,
    /// Whose answers they are [default: the last agent of the turns]
    #[arg(long)]
    pub agent: Option<String>,
    /// One JSON object per line: {"correct": true}
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Plugin {
    /// Make a project: sources, their tests, a workflow that uses them
    New(PluginNew),
    /// Build a project's component
    Build(PluginBuild),
    /// Build a project at every change and replay a recorded episode against the build
    Dev(PluginDev),
    /// Say what plugins offer: items, settings, facts
    Describe(PluginDescribe),
    /// Say what a component is: contract, imports, exports, what it would be allowed
    Inspect(PluginInspect),
    /// Try what the contract promises: no memory, equal futures, an honest schema
    Test(PluginTest),
}

#[derive(Args)]
pub struct PluginNew {
    /// What the plugin is called: lower-case letters, digits, `_`
    pub name: String,
    /// The language
    #[arg(long, value_enum)]
    pub lang: PluginLanguage,
    /// What it offers
    #[arg(long, value_enum, default_value_t = PluginKind::Agent)]
    pub kind: PluginKind,
    /// The folder in which the project's own folder is made
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub into: PathBuf,
}

/// A language with an SDK.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PluginLanguage {
    Rust,
    Python,
    /// JavaScript or TypeScript
    Js,
    /// C or C++
    C,
}

/// What a plugin offers.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PluginKind {
    /// An agent, on the problems of pl-host's maths
    Agent,
    /// An environment, graded by pl-host's maths
    Environment,
    /// A reward, for the problems of pl-host's maths
    Reward,
    /// All three
    Domain,
}

#[derive(Args)]
pub struct PluginBuild {
    /// The project: a folder with a pl-plugin.toml
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Small and fast, instead of built in a moment and with source lines
    #[arg(long)]
    pub release: bool,
    /// Fetch the tools that are missing, into the cache folder
    #[arg(long)]
    pub fetch: bool,
}

#[derive(Args)]
pub struct PluginDev {
    /// The project: a folder with a pl-plugin.toml
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// The run whose episode is replayed [default: the newest below runs/]
    #[arg(long, value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// The episode, as `replay` names it [default: the run's last]
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
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PluginTest {
    /// The component (.wasm)
    pub file: PathBuf,
    /// Another component whose items stand in: an environment for agents, agents for an environment
    #[arg(long, value_name = "FILE")]
    pub beside: Vec<PathBuf>,
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
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PluginDescribe {
    /// Components (.wasm)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write it into each file, so that a check need not compile it
    #[arg(long)]
    pub embed: bool,
    /// As JSON
    #[arg(long, conflicts_with = "embed")]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Sandbox {
    /// Run a program as an agent's code would be run
    Run(SandboxRun),
    /// Say what each backend has and what is missing
    Doctor(SandboxDoctor),
    /// Make the image of the docker backend: from a registry, or else from a root file system
    Image(SandboxImage),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Python in WebAssembly; needs nothing installed
    Wasm,
    /// A container; needs a Docker engine and an image
    Docker,
}

/// Which engines, and what image.
#[derive(Args)]
pub struct SandboxEngine {
    /// The image of the containers [default: pl-host-python]
    #[arg(long, value_name = "NAME:TAG")]
    pub image: Option<String>,
    /// A Docker engine: unix://PATH, tcp://HOST:PORT or https://HOST:PORT [default: $DOCKER_HOST, or
    /// unix:///var/run/docker.sock]
    #[arg(long = "endpoint", value_name = "ADDRESS")]
    pub endpoints: Vec<String>,
    /// The folder of ca.pem, cert.pem and key.pem for https endpoints
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,
}

#[derive(Args)]
pub struct SandboxRun {
    /// A program: Python, shell (.sh), or anything with --run
    pub file: PathBuf,
    /// Where it runs
    #[arg(long, value_enum, default_value_t = Backend::Wasm)]
    pub backend: Backend,
    #[command(flatten)]
    pub engine: SandboxEngine,
    /// The program's command line in the container, {file} for its file: --run node,{file}
    #[arg(long, value_name = "PART,PART", value_delimiter = ',')]
    pub run: Vec<String>,
    /// Seconds it may take
    #[arg(long, default_value_t = 20)]
    pub timeout: u64,
    /// MiB it may use
    #[arg(long, default_value_t = 256)]
    pub memory: u64,
    /// Say what it took
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
    /// A root file system to make it of: a folder or a tar archive
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
}
