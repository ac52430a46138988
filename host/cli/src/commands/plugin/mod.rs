//! `pl-host plugin`: commands for authors of plugins.

mod build;
mod describe;
mod dev;
mod inspect;
mod loader;
mod new;
mod test;

use crate::app::App;
use crate::arguments::plugin::PluginCommand;
use crate::exit::CommandResult;

pub fn run(app: &App, command: &PluginCommand) -> CommandResult {
    match command {
        PluginCommand::New(options) => new::run(options),
        PluginCommand::Build(options) => build::run(app, options),
        PluginCommand::Describe(options) => describe::run(app, options),
        PluginCommand::Dev(options) => dev::run(app, options),
        PluginCommand::Inspect(options) => inspect::run(app, options),
        PluginCommand::Test(options) => test::run(app, options),
    }
}
