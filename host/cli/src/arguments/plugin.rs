//! Arguments of `plugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pl_types::EpisodeId;

use super::permissions::PermissionArgs;

#[derive(Subcommand)]
pub enum PluginCommand {
    /// Create a project: sources, tests, and a workflow that uses them
    New(PluginNewArgs),
    /// Build a project's component
    Build(PluginBuildArgs),
    /// Build a project after every change and replay a recorded episode with the build
    Dev(PluginDevArgs),
    /// Show the items of plugins with their settings and facts
    Describe(PluginDescribeArgs),
    /// Show the contract, imports, exports and permissions of a component
    Inspect(PluginInspectArgs),
    /// Test the promises of the contract: no memory between calls, determinism, a correct settings schema
    Test(PluginTestArgs),
}

#[derive(Args)]
pub struct PluginNewArgs {
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
pub struct PluginBuildArgs {
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
pub struct PluginDevArgs {
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
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

#[derive(Args)]
pub struct PluginInspectArgs {
    /// The component (.wasm)
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PluginTestArgs {
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
pub struct PluginDescribeArgs {
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
