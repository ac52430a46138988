//! `pl-host`: builds and trains teams of language-model agents.
//!
//! Each command is a file under `commands`. Results go to stdout, all else to stderr. Exit codes: 0 done, 1 the
//! run failed, 2 the input is wrong, 130 interrupted (the run can be resumed).

mod arguments;
mod catalog;
mod checkpoints;
mod commands;
mod conversation;
mod evaluation;
mod exit;
mod interrupt;
mod machine;
mod memory;
mod places;
mod plan;
mod progress;
mod sampling;
mod session;
mod stage;
mod stored;
mod text;
mod threads;
mod workers;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    threads::wait_politely();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("PL_HOST_LOG").unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let result = match arguments.command {
        Command::Check(options) => commands::check::run(&options),
        Command::Fmt(options) => commands::fmt::run(&options),
        Command::Explain(options) => commands::explain::run(&options),
        Command::Schema => commands::schema::run(),
        Command::Plan(options) => commands::plan::run(&options),
        Command::Graph(options) => commands::graph::run(&options),
        Command::Run(options) => commands::run::run(&options),
        Command::Evaluate(options) => commands::evaluate::run(&options),
        Command::Play(options) => commands::play::run(&options),
        Command::Replay(options) => commands::replay::run(&options),
        Command::Grade(options) => commands::grade::run(&options),
        Command::Lsp => commands::lsp::run(),
        Command::Plugin { command } => commands::plugin::run(&command),
        Command::Sandbox { command } => commands::sandbox::run(&command),
    };
    exit::report(result)
}
