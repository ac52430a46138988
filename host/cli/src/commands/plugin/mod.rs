//! `pl-host plugin`: what a plugin's author asks of the host.

use std::io::Write;
use std::path::Path;

use pl_plugin::{Item, PluginSpec, section};
use pl_wasm::{Engine, EngineConfig};
use tokio::runtime::Runtime;

use crate::arguments::{Plugin as Command, PluginDescribe};
use crate::exit::{Outcome, Stop};
use crate::places;

pub fn run(command: &Command) -> Outcome {
    match command {
        Command::Describe(options) => describe(options),
    }
}

/// Loads each plugin, as a run would, and says or embeds what it offers.
fn describe(options: &PluginDescribe) -> Outcome {
    let runtime = Runtime::new().map_err(Stop::failed)?;
    let config = EngineConfig::plugins().cache_dir(places::cache()?.join("compiled"));
    let engine = Engine::new(config).map_err(Stop::failed)?;
    let mut out = std::io::stdout().lock();
    for file in &options.files {
        let bytes =
            std::fs::read(file).map_err(|e| Stop::input(format!("cannot read {}: {e}", file.display())))?;
        if options.embed && section::items(&bytes).is_some() {
            // It is held against what the plugin says of itself whenever it is loaded.
            continue;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let loading = pl_plugin::Plugin::load(&engine, PluginSpec::new(name), &bytes);
        let plugin =
            runtime.block_on(loading).map_err(|e| Stop::input(format!("{}: {e}", file.display())))?;
        if options.embed {
            let described = section::with_items(&bytes, &plugin)
                .ok_or_else(|| Stop::failed(format!("{} can't be written anew", file.display())))?;
            replace(file, &described)?;
        } else if options.json {
            writeln!(out, "{}", serde_json::to_string_pretty(plugin.items()).map_err(Stop::failed)?)?;
        } else {
            for item in plugin.items() {
                show(item, &mut out)?;
            }
        }
    }
    Ok(())
}

/// Written aside and renamed: whoever reads the file finds the old one or the new one.
fn replace(file: &Path, bytes: &[u8]) -> Outcome {
    let aside = file.with_extension("wasm.part");
    std::fs::write(&aside, bytes)
        .and_then(|()| std::fs::rename(&aside, file))
        .map_err(|e| Stop::failed(format!("cannot write {}: {e}", file.display())))
}

fn show(item: &Item, out: &mut impl Write) -> Outcome {
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
