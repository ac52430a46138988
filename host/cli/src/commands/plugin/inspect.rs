//! `pl-host plugin inspect`: what a component is, as far as its bytes tell, and what it would be allowed.

use std::collections::BTreeMap;
use std::io::Write;

use pl_plugin::{Carried, Contract, Item, Surface};
use pl_wasm::Limits;
use serde_json::{Value, json};

use super::{Loader, describe, read};
use crate::arguments::PluginInspect;
use crate::exit::{Outcome, Stop};

pub fn run(options: &PluginInspect) -> Outcome {
    let bytes = read(&options.file)?;
    // Loaded as a run would: what can't be is told with its reason.
    let loader = Loader::new()?;
    let plugin = loader.load(&options.file, &bytes)?;
    let surface = Surface::read(&bytes).unwrap_or_default();
    let contract = surface.contract().map_err(Stop::input)?;
    let seen = Seen {
        size: bytes.len(),
        hash: plugin.hash(),
        contract,
        surface,
        carried: Carried::read(&bytes),
        items: plugin.items(),
    };
    let mut out = std::io::stdout().lock();
    if options.json { writeln!(out, "{:#}", seen.as_json()).map_err(Stop::from) } else { seen.show(&mut out) }
}

struct Seen<'s> {
    size: usize,
    hash: String,
    contract: Contract,
    surface: Surface,
    carried: Carried,
    items: &'s [Item],
}

/// What a component may ask for, by the package that it imports.
const DOORS: [(&str, &str); 2] = [
    ("wasi:filesystem/", "folders to read: `grant { read = [\"FOLDER\"] }`"),
    ("wasi:http/", "hosts to ask: `grant { http = [\"HOST\"] }`"),
];

impl Seen<'_> {
    fn show(&self, out: &mut impl Write) -> Outcome {
        let Limits { memory, fuel, timeout, .. } = Limits::default();
        writeln!(out, "size      {} KiB", self.size.div_ceil(1024))?;
        writeln!(out, "hash      {}", self.hash)?;
        writeln!(out, "contract  {} (the newest here is {})", self.contract, Contract::NEWEST)?;
        writeln!(out, "exports   {}", self.surface.exports.join(", "))?;
        for (at, (package, names)) in packages(&self.surface.imports).iter().enumerate() {
            writeln!(out, "{:<9} {package}: {}", if at == 0 { "imports" } else { "" }, names.join(", "))?;
        }
        writeln!(out, "source    {}", self.carried)?;
        writeln!(
            out,
            "limits    {} MiB, {fuel} fuel and {} s a call, unless the workflow says otherwise",
            memory >> 20,
            timeout.as_secs()
        )?;
        writeln!(out, "allowed   no files, no network, no environment; a clock that runs on its own work")?;
        for door in self.doors() {
            writeln!(out, "          a workflow may grant {door}")?;
        }
        for item in self.items {
            describe::show(item, out)?;
        }
        Ok(())
    }

    fn doors(&self) -> impl Iterator<Item = &'static str> {
        let asked = |package: &str| self.surface.imports.iter().any(|name| name.starts_with(package));
        DOORS.into_iter().filter(move |(package, _)| asked(package)).map(|(_, door)| door)
    }

    fn as_json(&self) -> Value {
        json!({
            "size": self.size,
            "hash": self.hash,
            "contract": self.contract.to_string(),
            "imports": self.surface.imports,
            "exports": self.surface.exports,
            "function_names": self.carried.names,
            "source_lines": self.carried.lines,
            "grantable": self.doors().collect::<Vec<_>>(),
            "items": self.items,
        })
    }
}

/// Imports by package, each with what it takes of it.
fn packages(imports: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in imports {
        let name = name.split('@').next().unwrap_or(name);
        let (package, interface) = name.split_once('/').unwrap_or((name, ""));
        packages.entry(package).or_default().push(interface);
    }
    packages
}
