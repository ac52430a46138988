//! Arguments of `view`, `runs` and `export`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::common::DeviceChoice;
use super::permissions::PermissionArgs;

#[derive(Args)]
pub struct ViewArgs {
    /// Run folders, or folders of runs
    #[arg(value_name = "RUN", default_value = "runs")]
    pub folders: Vec<PathBuf>,
    /// Address and port to listen on; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7575")]
    pub listen: SocketAddr,
    /// Open the page in the default browser
    #[arg(long)]
    pub open: bool,
    /// Allow run folders that somebody else wrote to use the models and plugins that they name, to show prompts and to
    /// play
    #[arg(long)]
    pub trust: bool,
    /// Play episodes from the page, also beyond this machine (on loopback addresses it is always possible)
    #[arg(long)]
    pub play: bool,
    /// Device of episodes that are played
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

#[derive(Args)]
pub struct RunsArgs {
    /// Run folder, or folder of runs
    #[arg(value_name = "FOLDER", default_value = "runs")]
    pub folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ExportArgs {
    /// The run folder
    pub run: PathBuf,
    /// Form of the export
    #[arg(long, value_enum, default_value_t = ExportChoice::Jsonl)]
    pub format: ExportChoice,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Allow a run folder that somebody else wrote to use the models that it names
    #[arg(long)]
    pub trust: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportChoice {
    /// An episode per line, with all that is recorded
    Jsonl,
    /// A Parquet file with a row per completion; needs --out
    Parquet,
    /// Completions of solved training episodes: {"prompt", "completion", …}
    Sft,
    /// Best and worst siblings of trees: {"prompt", "chosen", "rejected", …}
    Dpo,
    /// A trajectory of ATIF, the Agent Trajectory Interchange Format, per line
    Atif,
    /// The numbers of each step on a line, for W&B, trackio and other trackers, without episodes
    Scalars,
    /// Times of rollouts and training for Perfetto or chrome://tracing, without episodes
    ChromeTrace,
    /// The same times drawn as text, with the share of each activity
    Timeline,
}
