//! The command line of `pl-host`: arguments, rendering, progress bars and exit codes over [`pl_run`].
//!
//! Each command is a module of `commands`. Results go to stdout, everything else to stderr. Exit codes: 0 for
//! success, 1 for a failure, 2 for invalid input, 130 for an interrupted run that can be resumed.

// They panic if their reader is gone: `stderr` and `visible` have what is used instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod app;
mod arguments;
mod commands;
mod consent;
mod conversation;
mod diagnostics;
mod environment;
mod exit;
mod interrupt;
mod logging;
mod output_file;
mod panel;
mod plan;
mod play_worker;
mod progress;
mod report;
mod stderr;
mod stored_workflows;
mod table;
mod visible;

use std::sync::Arc;

use clap::Parser;
use pl_run::Embedded;

use crate::app::App;
use crate::arguments::{Arguments, Command};
pub use crate::environment::{Preinit, set_variables};
use crate::exit::CommandResult;
use crate::progress::Terminal;

/// Runs the command that the process's arguments name, and ends the process.
pub fn main(embedded: Embedded) -> ! {
    pl_run::keep_freed_memory();
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        // Help and the version too. Nothing can be said about a terminal that is gone.
        let _ = error.print();
        exit::leave(error.exit_code())
    });
    let terminal = Arc::new(Terminal::default());
    let result = logging::start(&arguments.command, &terminal).and_then(|exporter| {
        let result = run(&arguments.command, embedded, &terminal);
        if let Some(exporter) = exporter {
            logging::finish(exporter);
        }
        result
    });
    exit::leave(exit::report(&result).into())
}

fn run(command: &Command, embedded: Embedded, terminal: &Arc<Terminal>) -> CommandResult {
    let app = || App::new(embedded, Arc::clone(terminal), command.permissions()?);
    match command {
        Command::New(options) => commands::new::run(options),
        Command::Check(options) => commands::check::run(&app()?, options),
        Command::Fmt(options) => commands::fmt::run(options),
        Command::Explain(options) => commands::explain::run(options),
        Command::Schema => commands::schema::run(),
        Command::Audit(options) => commands::audit::run(&app()?, options),
        Command::Plan(options) => commands::plan::run(&app()?, options),
        Command::Graph(options) => commands::graph::run(&app()?, options),
        Command::Run(options) => commands::run::run(&app()?, options),
        Command::Worker(options) => commands::worker::run(&app()?, options),
        Command::Learner(options) => commands::learner::run(&app()?, options),
        Command::Cluster { command } => commands::cluster::run(app, command),
        Command::Design(options) => commands::design::run(&app()?, options),
        Command::Designs(options) => commands::designs::run(options),
        Command::Sweep(options) => commands::sweep::run(&app()?, options),
        Command::Compare(options) => commands::compare::run(options),
        Command::Evaluate(options) => commands::evaluate::run(&app()?, options),
        Command::Play(options) => commands::play::run(&app()?, options),
        Command::Serve(options) => commands::serve::run(&app()?, options),
        Command::View(options) => commands::view::run(&app()?, options),
        Command::Runs(options) => commands::runs::run(options),
        Command::Export(options) => commands::export::run(&app()?, options),
        Command::Replay(options) => commands::replay::run(&app()?, options),
        Command::Grade(options) => commands::grade::run(&app()?, options),
        Command::Data { command } => commands::data::run(command),
        Command::Doctor(options) => commands::doctor::run(&app()?, options),
        Command::Model(_) => commands::model::run(),
        Command::Completions { shell } => commands::completions::run(*shell),
        Command::Man => commands::man::run(),
        Command::Lsp { .. } => commands::lsp::run(&app()?),
        Command::Plugin { command } => commands::plugin::run(&app()?, command),
        Command::Sandbox { command } => commands::sandbox::run(embedded, terminal, command),
    }
}
