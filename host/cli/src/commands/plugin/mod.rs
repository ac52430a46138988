//! `pl-host plugin`: what a plugin's author asks of the host.

mod build;
mod describe;
mod dev;
mod inspect;
mod new;
mod test;

use std::path::Path;

use pl_plugin::PluginSpec;
use pl_wasm::Engine;
use tokio::runtime::Runtime;

use crate::arguments::Plugin as Command;
use crate::catalog;
use crate::exit::{Outcome, Stop};

pub fn run(command: &Command) -> Outcome {
    match command {
        Command::New(options) => new::run(options),
        Command::Build(options) => build::run(options),
        Command::Describe(options) => describe::run(options),
        Command::Dev(options) => dev::run(options),
        Command::Inspect(options) => inspect::run(options),
        Command::Test(options) => test::run(options),
    }
}

/// Loads plugins as a run would, each under its file's name and with the default limits.
struct Loader {
    runtime: Runtime,
    engine: Engine,
}

impl Loader {
    fn new() -> Result<Self, Stop> {
        Ok(Self { runtime: Runtime::new().map_err(Stop::failed)?, engine: catalog::engine()? })
    }

    fn load(&self, file: &Path, bytes: &[u8]) -> Result<pl_plugin::Plugin, Stop> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let loading = pl_plugin::Plugin::load(&self.engine, PluginSpec::new(name), bytes);
        self.runtime.block_on(loading).map_err(|e| Stop::input(format!("{}: {e}", file.display())))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Stop> {
    std::fs::read(file).map_err(|e| Stop::input(format!("cannot read {}: {e}", file.display())))
}
