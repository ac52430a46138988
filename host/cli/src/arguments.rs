//! The command line.

pub mod cluster;
pub mod common;
pub mod data;
pub mod design;
pub mod permissions;
pub mod plugin;
pub mod runs;
pub mod sandbox;
pub mod serve;
pub mod training;
pub mod view;
pub mod workflow;

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use pl_dsl::settings::PATTERNS;
use pl_run::Permissions;

use crate::exit::CommandError;

use self::cluster::{ClusterCommand, LearnerArgs, WorkerArgs};
use self::data::DataCommand;
use self::design::{DesignArgs, DesignsArgs};
use self::permissions::PermissionArgs;
use self::plugin::{PluginCommand, PluginDevArgs};
use self::runs::{CompareArgs, ReplayArgs};
use self::sandbox::SandboxCommand;
use self::serve::ServeArgs;
use self::training::{EvaluateArgs, GradeArgs, PlayArgs, RunArgs, SweepArgs};
use self::view::{ExportArgs, RunsArgs, ViewArgs};
use self::workflow::{AuditArgs, CheckArgs, ExplainArgs, FmtArgs, GraphArgs, PlanArgs};

#[derive(Parser)]
#[command(name = "pl-host", version, about = "Builds and trains teams of language-model agents")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Create a project: a workflow, and the prompt of an agent of its own
    New(NewArgs),
    /// Check a workflow and summarise it
    Check(CheckArgs),
    /// Format workflow files: indentation, alignment, line breaks
    Fmt(FmtArgs),
    /// Explain a code (MAS0012), a block, a setting (KEY or BLOCK.KEY) or a function, or list all of them
    Explain(ExplainArgs),
    /// Print the JSON Schema of workflow.json, the checked workflow in a run folder
    Schema,
    /// Show the plan of a run: models, memory, tasks, completions, checkpoints
    ///
    /// Files that are missing on this machine are shown as MISSING. That is no failure of this command: its exit code is 0.
    Plan(PlanArgs),
    /// Play without a model, to find rewards that are free, loops that pay and splits that share tasks
    Audit(AuditArgs),
    /// Draw a workflow: its agents, policies and turns
    Graph(GraphArgs),
    /// Train the policies of a workflow
    Run(RunArgs),
    /// Play the episodes of runs that other machines coordinate (`pl-host run --nats URL`)
    Worker(WorkerArgs),
    /// Train policies of runs that other machines coordinate (`pl-host run --nats URL --learners POLICY`)
    Learner(LearnerArgs),
    /// Look at runs on several machines
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Look for teams: a designer proposes designs, they are checked and played, and it sees the results
    Design(DesignArgs),
    /// List the designs of a search or a run
    Designs(DesignsArgs),
    /// Train a workflow with every combination of some settings and seeds
    Sweep(SweepArgs),
    /// Compare runs: their differing settings and their results
    Compare(CompareArgs),
    /// Evaluate a team on held-out tasks
    Evaluate(EvaluateArgs),
    /// Play one episode and show it as a conversation
    Play(PlayArgs),
    /// Serve the policies and the team over OpenAI's API
    Serve(ServeArgs),
    /// View runs in a browser: curves, episodes, trees, tokens
    View(ViewArgs),
    /// List runs with their state and results
    Runs(RunsArgs),
    /// Write a run for other programs: conversations, tables, examples, preferences, trajectories, numbers
    Export(ExportArgs),
    /// Replay recorded episodes through their plugins and compare
    Replay(ReplayArgs),
    /// Grade answers from standard input: on each line a JSON object {"gold", "pred"}, or {"task", "pred"}
    /// with a whole record
    Grade(GradeArgs),
    /// List, show and check the data sets that workflows can name
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Show what this machine has, what is missing for which feature, and what fixes it
    Doctor(DoctorArgs),
    /// Fetch the model of the examples and print its path
    Model(ModelArgs),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page of all commands, for `man -l -`
    Man,
    /// Run the language server of workflow files on standard input and output, for editors
    Lsp {
        /// Use standard input and output; the only way, named because most editors do
        #[arg(long)]
        stdio: bool,
        #[command(flatten)]
        permissions: PermissionArgs,
    },
    /// Create, build, test and inspect plugins
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// Run programs in the sandbox and set it up
    Sandbox {
        #[command(subcommand)]
        command: SandboxCommand,
    },
}

impl Command {
    /// Returns the permissions of the workflows that the command opens. Other commands open none.
    ///
    /// # Errors
    /// If a flag is invalid.
    pub fn permissions(&self) -> Result<Permissions, CommandError> {
        let arguments = match self {
            Command::Check(CheckArgs { source, .. })
            | Command::Plan(PlanArgs { source, .. })
            | Command::Audit(AuditArgs { source, .. })
            | Command::Graph(GraphArgs { source, .. })
            | Command::Sweep(SweepArgs { source, .. })
            | Command::Design(DesignArgs { source, .. })
            | Command::Evaluate(EvaluateArgs { source, .. })
            | Command::Play(PlayArgs { source, .. })
            | Command::Grade(GradeArgs { source, .. }) => &source.permissions,
            Command::Run(RunArgs { permissions, .. })
            | Command::Worker(WorkerArgs { permissions, .. })
            | Command::Learner(LearnerArgs { permissions, .. })
            | Command::Serve(ServeArgs { permissions, .. })
            | Command::View(ViewArgs { permissions, .. })
            | Command::Replay(ReplayArgs { permissions, .. })
            | Command::Lsp { permissions, .. }
            | Command::Plugin { command: PluginCommand::Dev(PluginDevArgs { permissions, .. }) } => {
                permissions
            }
            _ => return Ok(Permissions::default()),
        };
        arguments.permissions()
    }
}

#[derive(Args)]
pub struct NewArgs {
    /// The project's name: lower-case letters, digits, `_`
    pub name: String,
    /// The parent folder of the project's new folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub into: PathBuf,
    /// Make a team by a pattern of how agents work together
    #[arg(long, value_name = "PATTERN", value_parser = patterns())]
    pub pattern: Option<String>,
}

/// Returns the words of the patterns, with what they are.
fn patterns() -> PossibleValuesParser {
    PATTERNS.iter().map(|one| PossibleValue::new(one.word).help(one.doc)).collect::<Vec<_>>().into()
}

#[derive(Args)]
pub struct ModelArgs {
    /// The model
    #[arg(value_parser = [pl_toolchain::EXAMPLE_MODEL])]
    pub name: String,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Returns the names of the commands that have no commands below them, such as `plugin new`.
    fn names(command: &clap::Command, parents: &str) -> Vec<String> {
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let of_one = |one: &clap::Command| {
            let name = format!("{parents}{}", one.get_name());
            if one.has_subcommands() { names(one, &format!("{name} ")) } else { vec![name] }
        };
        shown.flat_map(of_one).collect()
    }

    #[test]
    fn the_readme_lists_every_command() {
        let readme = include_str!("../../../README.md");
        let rows: String = readme.lines().filter(|line| line.starts_with("| `")).collect();
        let is_listed = |name: &String| [' ', '`'].iter().any(|end| rows.contains(&format!("`{name}{end}")));
        let missing: Vec<String> =
            names(&Arguments::command(), "").into_iter().filter(|name| !is_listed(name)).collect();
        assert!(missing.is_empty(), "README.md lacks {missing:?}");
    }
}
