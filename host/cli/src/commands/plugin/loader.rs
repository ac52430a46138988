//! Loading of components for commands that use them without a workflow.

use std::path::Path;

use pl_plugin::{Plugin, PluginSpec};
use pl_run::{build_engine, plugin_engine};
use pl_wasm::Engine;

use crate::app::App;
use crate::exit::CommandError;

/// Loads plugins like a run does, each under its file's name and with the default limits.
pub struct Loader<'a> {
    app: &'a App,
    engine: Engine,
}

impl<'a> Loader<'a> {
    /// Starts an engine.
    pub fn new(app: &'a App) -> Result<Self, CommandError> {
        Ok(Loader { app, engine: plugin_engine()? })
    }

    /// Starts an engine for components that were just built.
    pub fn for_builds(app: &'a App) -> Result<Self, CommandError> {
        Ok(Loader { app, engine: build_engine()? })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Loads a component.
    pub fn load(&self, file: &Path, bytes: &[u8]) -> Result<Plugin, CommandError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let loading = Plugin::load(&self.engine, PluginSpec::new(name), bytes);
        self.app.host.block_on(loading).map_err(|e| CommandError::input(format!("{}: {e}", file.display())))
    }
}

/// Reads a component's file.
pub fn read(file: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(file).map_err(|e| CommandError::input(format!("cannot read {}: {e}", file.display())))
}
