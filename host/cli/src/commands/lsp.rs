//! `pl-host lsp`: the language server of workflow files, over standard input and output.

use std::path::Path;

use pl_dsl::{Catalog, CatalogError};
use pl_lsp::{ServerHooks, serve_stdio};
use pl_run::PluginCatalog;

use crate::app::App;
use crate::exit::{CommandError, CommandResult};

pub fn run(app: &App) -> CommandResult {
    let (runtime, std_chat) = (app.host.handle(), app.host.embedded().std_chat);
    let permissions = app.host.permissions().clone();
    let open = move |folder: &Path| {
        let catalog = PluginCatalog::with_runtime(runtime.clone(), std_chat, folder, permissions.clone());
        match catalog {
            Ok(catalog) => Ok(Box::new(catalog) as Box<dyn Catalog>),
            Err(error) => Err(CatalogError::plugin(error)),
        }
    };
    let hooks = ServerHooks {
        catalog: Box::new(open),
        unknown_names: pl_run::unknown_names,
        format: |text| pl_dsl::format(text).ok(),
    };
    serve_stdio(hooks).map_err(CommandError::failed)
}
