//! `pl-host plugin inspect`: the contract, imports, exports and permissions of a component.

use std::collections::BTreeMap;
use std::io::Write;

use pl_plugin::{ComponentInterface, Contract, DebugInfo};
use pl_types::Item;
use pl_wasm::Limits;
use serde_json::{Value, json};

use super::describe;
use super::loader::{Loader, read};
use crate::app::App;
use crate::arguments::plugin::PluginInspectArgs;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(app: &App, options: &PluginInspectArgs) -> CommandResult {
    let bytes = read(&options.file)?;
    // Loaded like in a run, so that an invalid component is refused with the reason.
    let loader = Loader::new(app)?;
    let plugin = loader.load(&options.file, &bytes)?;
    let interface = ComponentInterface::read(&bytes).unwrap_or_default();
    let contract = interface.contract().map_err(CommandError::input)?;
    let component = Inspected {
        size: bytes.len(),
        hash: plugin.hash(),
        contract,
        interface,
        debug_info: DebugInfo::read(&bytes),
        items: plugin.items(),
    };
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{:#}", component.to_json()).map_err(CommandError::from)
    } else {
        component.show(&mut out)
    }
}

/// Facts about a component.
struct Inspected<'s> {
    size: usize,
    hash: String,
    contract: Contract,
    interface: ComponentInterface,
    debug_info: DebugInfo,
    items: &'s [Item],
}

/// Grants that a component can use, by the package that it imports.
const GRANTS: [(&str, &str); 2] = [
    ("wasi:filesystem/", "folders to read: `grant { read = [\"FOLDER\"] }`"),
    ("wasi:http/", "hosts for HTTP requests: `grant { http = [\"HOST\"] }`"),
];

impl Inspected<'_> {
    fn show(&self, out: &mut impl Write) -> CommandResult {
        let Limits { memory, fuel, timeout, .. } = Limits::default();
        writeln!(out, "size      {} KiB", self.size.div_ceil(1024))?;
        writeln!(out, "hash      {}", self.hash)?;
        writeln!(out, "contract  {} (the newest here is {})", self.contract, Contract::NEWEST)?;
        writeln!(out, "exports   {}", self.interface.exports.join(", "))?;
        for (at, (package, names)) in packages(&self.interface.imports).iter().enumerate() {
            writeln!(out, "{:<9} {package}: {}", if at == 0 { "imports" } else { "" }, names.join(", "))?;
        }
        writeln!(out, "source    {}", self.debug_info)?;
        writeln!(
            out,
            "limits    {} MiB, {fuel} fuel and {} s per call, unless the workflow sets others",
            memory >> 20,
            timeout.as_secs()
        )?;
        writeln!(
            out,
            "allowed   no files, no network, no environment variables, {}",
            clock(&self.interface.imports)
        )?;
        for grant in self.grants() {
            writeln!(out, "          a workflow may grant {grant}")?;
        }
        for item in self.items {
            describe::show(item, out)?;
        }
        Ok(())
    }

    fn grants(&self) -> impl Iterator<Item = &'static str> {
        let imports = &self.interface.imports;
        GRANTS.into_iter().filter(move |(package, _)| has_package(imports, package)).map(|(_, grant)| grant)
    }

    fn to_json(&self) -> Value {
        json!({
            "size": self.size,
            "hash": self.hash,
            "contract": self.contract.to_string(),
            "imports": self.interface.imports,
            "exports": self.interface.exports,
            "function_names": self.debug_info.names,
            "source_lines": self.debug_info.lines,
            "grantable": self.grants().collect::<Vec<_>>(),
            "items": self.items,
        })
    }
}

/// Describes the clock of a component, which has one only if it imports it.
fn clock(imports: &[String]) -> &'static str {
    if has_package(imports, "wasi:clocks/") {
        "no real clock: its clock advances with the work done"
    } else {
        "no clock"
    }
}

fn has_package(imports: &[String], package: &str) -> bool {
    imports.iter().any(|name| name.starts_with(package))
}

/// Groups imports by package.
fn packages(imports: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in imports {
        let name = name.split('@').next().unwrap_or(name);
        let (package, interface) = name.split_once('/').unwrap_or((name, ""));
        packages.entry(package).or_default().push(interface);
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_component_that_imports_a_clock_has_one() {
        let imports = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(clock(&imports(&["pl-host:plugin/log@0.1.0"])), "no clock");
        let with_clock = imports(&["wasi:io/streams@0.2.6", "wasi:clocks/wall-clock@0.2.6"]);
        assert!(clock(&with_clock).contains("advances with the work done"));
    }
}
