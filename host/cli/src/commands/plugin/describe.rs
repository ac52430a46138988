//! `pl-host plugin describe`: shows the items of plugins, or writes their description into their files.

use std::io::Write;
use std::path::Path;

use pl_plugin::section;
use pl_types::Item;

use super::loader::{Loader, read};
use crate::app::App;
use crate::arguments::plugin::PluginDescribeArgs;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(app: &App, options: &PluginDescribeArgs) -> CommandResult {
    let loader = Loader::new(app)?;
    let mut out = visible::stdout();
    for file in &options.files {
        let bytes = read(file)?;
        if options.embed {
            embed(&loader, file, &bytes)?;
            continue;
        }
        let plugin = loader.load(file, &bytes)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string_pretty(plugin.items()).map_err(CommandError::failed)?)?;
        } else {
            for item in plugin.items() {
                show(item, &mut out)?;
            }
        }
    }
    Ok(())
}

/// Writes the description of a plugin into its file, unless it is there.
pub(super) fn embed(loader: &Loader<'_>, file: &Path, bytes: &[u8]) -> CommandResult {
    if section::items(bytes).is_some() {
        // Loading a plugin compares it with what the plugin returns.
        return Ok(());
    }
    let described = section::with_items(bytes, loader.load(file, bytes)?.items()).ok_or_else(|| {
        CommandError::failed(format!("the description can't be added to {}", file.display()))
    })?;
    pl_record::write_atomically(file, &described).map_err(CommandError::failed)?;
    loader.engine().reassign(bytes, &described);
    Ok(())
}

/// Shows an item with its settings and facts.
pub fn show(item: &Item, out: &mut impl Write) -> CommandResult {
    writeln!(out, "{} {}", item.kind, item.name)?;
    if !item.doc.is_empty() {
        writeln!(out, "  {}", item.doc)?;
    }
    let settings = item.settings_schema.get("properties").and_then(|known| known.as_object());
    for (key, schema) in settings.into_iter().flatten() {
        let doc = schema.get("description").and_then(|doc| doc.as_str()).unwrap_or_default();
        writeln!(out, "  {key:<16} {doc}")?;
    }
    for fact in &item.facts {
        writeln!(out, "  env.{:<12} {:?}", fact.name, fact.kind)?;
    }
    Ok(())
}
