//! `pl-host plugin describe`: what plugins offer, shown or written into their files.

use std::io::Write;
use std::path::Path;

use pl_plugin::{Item, section};

use super::{Loader, read};
use crate::arguments::PluginDescribe;
use crate::exit::{Outcome, Stop};

pub fn run(options: &PluginDescribe) -> Outcome {
    let loader = Loader::new()?;
    let mut out = std::io::stdout().lock();
    for file in &options.files {
        let bytes = read(file)?;
        if options.embed {
            embed(&loader, file, &bytes)?;
            continue;
        }
        let plugin = loader.load(file, &bytes)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string_pretty(plugin.items()).map_err(Stop::failed)?)?;
        } else {
            for item in plugin.items() {
                show(item, &mut out)?;
            }
        }
    }
    Ok(())
}

/// Writes what a plugin offers into its file, unless it stands there.
pub(super) fn embed(loader: &Loader, file: &Path, bytes: &[u8]) -> Outcome {
    if section::items(bytes).is_some() {
        // It is held against what the plugin says of itself whenever it is loaded.
        return Ok(());
    }
    let described = section::with_items(bytes, &loader.load(file, bytes)?)
        .ok_or_else(|| Stop::failed(format!("{} can't be written anew", file.display())))?;
    // Written aside and renamed: whoever reads the file finds the old one or the new one.
    let aside = file.with_extension("wasm.part");
    std::fs::write(&aside, described)
        .and_then(|()| std::fs::rename(&aside, file))
        .map_err(|e| Stop::failed(format!("cannot write {}: {e}", file.display())))
}

/// An item with its settings and facts.
pub fn show(item: &Item, out: &mut impl Write) -> Outcome {
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
