//! `pl-host lsp`: the language server of workflow files, over standard input and output.

use std::path::Path;

use pl_dsl::Catalog;
use pl_lsp::{Host, serve_stdio};
use pl_run::PluginCatalog;

use crate::App;
use crate::exit::{CommandError, CommandResult};

pub fn run(app: &App) -> CommandResult {
    let (runtime, std_chat) = (app.host.handle(), app.host.embedded().std_chat);
    let open = move |folder: &Path| match PluginCatalog::with_runtime(runtime.clone(), std_chat, folder) {
        Ok(catalog) => Ok(Box::new(catalog) as Box<dyn Catalog>),
        Err(error) => Err(error.to_string()),
    };
    let host = Host { catalog: Box::new(open), format: |text| pl_dsl::format(text).ok() };
    serve_stdio(host).map_err(CommandError::failed)
}
