//! The command line of `pl-host`: arguments, rendering, progress bars and exit codes over [`pl_run`].
//!
//! Each command is a module of `commands`. Results go to stdout, everything else to stderr. Exit codes: 0 for
//! success, 1 for a failure, 2 for invalid input, 130 for an interrupted run that can be resumed.

mod arguments;
mod commands;
mod conversation;
mod diagnostics;
mod exit;
mod interrupt;
mod plan;
mod progress;
mod report;
mod table;
mod threads;
mod visible;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use pl_run::{CheckedWorkflow, Embedded, Host, Session, SessionOptions, select_device};
use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Command, Machine, Source};
use crate::diagnostics::Format;
use crate::exit::{CommandError, CommandResult};
use crate::progress::Terminal;

/// Resources of a command.
struct App {
    host: Host,
    terminal: Arc<Terminal>,
}

impl App {
    fn new(embedded: Embedded) -> Result<App, CommandError> {
        let terminal = Arc::new(Terminal::default());
        let host = Host::new(embedded, terminal.clone())?;
        Ok(App { host, terminal })
    }

    /// Opens a workflow and shows its warnings.
    fn open(&self, source: &Source) -> Result<CheckedWorkflow, CommandError> {
        let checked = CheckedWorkflow::open(&self.host, &source.file, &source.given.all()?)?;
        self.show_warnings(&checked)?;
        Ok(checked)
    }

    fn show_warnings(&self, checked: &CheckedWorkflow) -> CommandResult {
        Ok(diagnostics::show(&checked.warnings, Format::Human)?)
    }

    /// Opens a workflow with its own weights or those of a checkpoint.
    fn open_session(
        &self,
        source: &Source,
        machine: &Machine,
        checkpoint: Option<&Path>,
    ) -> Result<(CheckedWorkflow, Session), CommandError> {
        let checked = self.open(source)?;
        let device = select_device(&self.host, machine.device.into())?;
        let options = SessionOptions { seed: machine.seed, checkpoint: checkpoint.map(Path::to_path_buf) };
        let session = Session::open(&self.host, &checked, device, &options)?;
        Ok((checked, session))
    }
}

/// Runs the command that the process's arguments name, and returns its exit code.
pub fn main(embedded: Embedded) -> ExitCode {
    threads::set_omp_wait_policy_passive();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("PL_HOST_LOG").unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    exit::report(&run(&arguments.command, embedded))
}

fn run(command: &Command, embedded: Embedded) -> CommandResult {
    let app = || App::new(embedded);
    match command {
        Command::Check(options) => commands::check::run(&app()?, options),
        Command::Fmt(options) => commands::fmt::run(options),
        Command::Explain(options) => commands::explain::run(options),
        Command::Schema => commands::schema::run(),
        Command::Plan(options) => commands::plan::run(&app()?, options),
        Command::Graph(options) => commands::graph::run(&app()?, options),
        Command::Run(options) => commands::run::run(&app()?, options),
        Command::Sweep(options) => commands::sweep::run(&app()?, options),
        Command::Compare(options) => commands::compare::run(options),
        Command::Evaluate(options) => commands::evaluate::run(&app()?, options),
        Command::Play(options) => commands::play::run(&app()?, options),
        Command::Serve(options) => commands::serve::run(&app()?, options),
        Command::Replay(options) => commands::replay::run(&app()?, options),
        Command::Grade(options) => commands::grade::run(&app()?, options),
        Command::Doctor(options) => commands::doctor::run(&app()?, options),
        Command::Completions { shell } => commands::completions::run(*shell),
        Command::Man => commands::man::run(),
        Command::Lsp => commands::lsp::run(&app()?),
        Command::Plugin { command } => commands::plugin::run(&app()?, command),
        Command::Sandbox { command } => commands::sandbox::run(&app()?, command),
    }
}
