//! `pl-host plugin`: commands for authors of plugins.

mod build;
mod describe;
mod dev;
mod inspect;
mod new;
mod test;

use std::path::Path;

use pl_plugin::PluginSpec;
use pl_run::plugin_engine;
use pl_wasm::Engine;

use crate::App;
use crate::arguments::Plugin as Command;
use crate::exit::{CommandError, CommandResult};

pub fn run(app: &App, command: &Command) -> CommandResult {
    match command {
        Command::New(options) => new::run(options),
        Command::Build(options) => build::run(app, options),
        Command::Describe(options) => describe::run(app, options),
        Command::Dev(options) => dev::run(app, options),
        Command::Inspect(options) => inspect::run(app, options),
        Command::Test(options) => test::run(app, options),
    }
}

/// Loads plugins like a run does, each under its file's name and with the default limits.
struct Loader<'a> {
    app: &'a App,
    engine: Engine,
}

impl<'a> Loader<'a> {
    fn new(app: &'a App) -> Result<Self, CommandError> {
        Ok(Loader { app, engine: plugin_engine()? })
    }

    fn load(&self, file: &Path, bytes: &[u8]) -> Result<pl_plugin::Plugin, CommandError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let loading = pl_plugin::Plugin::load(&self.engine, PluginSpec::new(name), bytes);
        self.app.host.block_on(loading).map_err(|e| CommandError::input(format!("{}: {e}", file.display())))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(file).map_err(|e| CommandError::input(format!("cannot read {}: {e}", file.display())))
}
