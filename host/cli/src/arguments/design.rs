//! Arguments of the commands about designs: `design` and `designs`.

use std::path::PathBuf;

use clap::Args;

use super::common::{MachineArgs, WorkflowArgs};

#[derive(Args)]
pub struct DesignArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Rounds of proposals; those in the folder count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub rounds: u32,
    /// Stop after this many sampled tokens, those of designs and of their episodes
    #[arg(long, value_name = "TOKENS")]
    pub budget: Option<u64>,
    /// Folder of the designs; a search that is there goes on where it stopped [default: designs/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Scenario to design a team for [default: the first with a designer]
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
}

#[derive(Args)]
pub struct DesignsArgs {
    /// Folder of a search, or run folder
    #[arg(value_name = "FOLDER|RUN")]
    pub folder: PathBuf,
    /// Show the whole design with this hash, or the beginning of one
    #[arg(long, value_name = "HASH")]
    pub show: Option<String>,
    /// Print JSON, one line for each design
    #[arg(long)]
    pub json: bool,
}
