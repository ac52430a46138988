//! Arguments of the commands that read workflows and run nothing.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::common::{DeviceChoice, WorkflowArgs};
use crate::diagnostics::DiagnosticFormat;

#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    /// Form of the diagnostics
    #[arg(long, value_enum, default_value_t = DiagnosticFormat::Human)]
    pub format: DiagnosticFormat,
}

#[derive(Args)]
pub struct FmtArgs {
    /// Workflows (.mas) to format, or folders of them; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write nothing; show the differences, and exit with code 1 if there are any
    #[arg(long)]
    pub check: bool,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// Codes, blocks, settings, functions
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,
}

#[derive(Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
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
    /// `rollout=50,train=25,evaluate=0,publish=1`; with --devices, as in
    /// `devices=32,wake=5,rollout=50,tail=0.6,sleep=5,train=25,train=10,other=5`
    #[arg(long, value_name = "RUN|SECONDS", requires = "simulate")]
    pub costs: Option<String>,
    /// Split this number of devices among rollouts and learners, and compare with `sync` on all of them
    #[arg(long, value_name = "NUMBER", requires = "costs", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub devices: Option<u32>,
}

#[derive(Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    /// Scenario to audit [default: all of the file]
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// Number of training tasks that each adversary plays
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub tasks: u32,
    /// Seed of the episodes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Try this answer too, for every turn; may be repeated
    #[arg(long = "answer", value_name = "TEXT")]
    pub answers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct GraphArgs {
    #[command(flatten)]
    pub source: WorkflowArgs,
    /// Scenario to draw [default: all of the file]
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
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
