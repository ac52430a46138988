//! Which contract a component speaks, read from the names of its imports and exports before it is compiled.
//!
//! A name says its version: `pl-host:plugin/catalog@0.1.0`. Each version that this host speaks has a folder under
//! `wit/` and a module under `bindings/`; an old one only hands over to the newest. Patch releases of one version
//! are one contract. A component that speaks none of them is refused with what it asks for and offers instead.

use std::fmt;

use wasmparser::{Chunk, Parser, Payload};

/// A version of the plugin contract that this host speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// `wit/v0.1`.
    V0_1,
}

impl Contract {
    /// What new plugins are built against.
    pub const NEWEST: Self = Self::V0_1;

    /// Major and minor number.
    fn number(self) -> (u64, u64) {
        match self {
            Self::V0_1 => (0, 1),
        }
    }

    fn of(number: (u64, u64)) -> Option<Self> {
        [Self::V0_1].into_iter().find(|contract| contract.number() == number)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.number();
        write!(out, "{major}.{minor}")
    }
}

/// The package of the contract's interfaces.
const PACKAGE: &str = "pl-host:plugin/";

/// The interfaces of WASI 0.2 that every component is offered, by package.
const WASI: [&str; 7] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:http/",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// What stands on a component's outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// Names as written, such as `pl-host:plugin/log@0.1.0`, in order.
    pub imports: Vec<String>,
    /// The same of what it offers.
    pub exports: Vec<String>,
}

impl Surface {
    /// Reads a component's outside. It takes no longer for a large component than for a small one. None where the
    /// bytes make no sense as a component; the compiler has the words for that.
    pub fn read(component: &[u8]) -> Option<Self> {
        let mut surface = Self::default();
        let mut parser = Parser::new(0);
        let mut rest = component;
        while !rest.is_empty() {
            let Chunk::Parsed { consumed, payload } = parser.parse(rest, true).ok()? else { return None };
            rest = rest.get(consumed..)?;
            match payload {
                Payload::ComponentImportSection(imports) => {
                    for import in imports {
                        surface.imports.push(import.ok()?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) => {
                    for export in exports {
                        surface.exports.push(export.ok()?.name.name.to_owned());
                    }
                }
                // What is inside says nothing about the outside.
                Payload::ModuleSection { unchecked_range, .. }
                | Payload::ComponentSection { unchecked_range, .. } => {
                    rest = rest.get(unchecked_range.len()..)?;
                }
                Payload::End(_) => break,
                _ => {}
            }
        }
        Some(surface)
    }

    /// The contract that all of the component's names of it agree on.
    ///
    /// # Errors
    /// In words, what it speaks instead and what to do.
    pub fn contract(&self) -> Result<Contract, String> {
        let mut spoken: Vec<&str> =
            self.imports.iter().chain(&self.exports).filter_map(|name| version(name)).collect();
        spoken.sort_unstable();
        spoken.dedup();
        let Some(first) = spoken.first() else {
            return Err(format!(
                "nothing of it is in there: it exports {} and imports {}; build it against `wit/v{}`",
                list(&self.exports),
                list(&self.imports),
                Contract::NEWEST
            ));
        };
        let numbers: Vec<Option<(u64, u64)>> = spoken.iter().map(|version| number(version)).collect();
        if numbers.iter().any(|other| Some(other) != numbers.first()) {
            return Err(format!(
                "it mixes the versions {} of the contract; build all of it against one",
                spoken.join(" and ")
            ));
        }
        match numbers.first().copied().flatten() {
            Some(number) => Contract::of(number).ok_or_else(|| {
                if number > Contract::NEWEST.number() {
                    format!(
                        "it was built for version {first} of the contract, and this pl-host speaks {} at most; take \
                         a newer pl-host, or build the plugin against `wit/v{0}`",
                        Contract::NEWEST
                    )
                } else {
                    format!(
                        "it was built for version {first} of the contract, which no pl-host speaks any more; build \
                         it against `wit/v{}`",
                        Contract::NEWEST
                    )
                }
            }),
            None => Err(format!("{first:?} is no version of the contract")),
        }
    }

    /// The imports that nothing offers, as far as their names tell.
    pub fn unknown_imports(&self) -> Vec<&str> {
        let known =
            |name: &str| name.starts_with(PACKAGE) || WASI.iter().any(|package| name.starts_with(package));
        self.imports.iter().map(String::as_str).filter(|name| !known(name)).collect()
    }
}

/// What a component carries of its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Names of its functions.
    pub names: bool,
    /// Files and lines (DWARF).
    pub lines: bool,
}

impl Carried {
    /// Looks through all modules of a component.
    pub fn read(component: &[u8]) -> Self {
        let mut carried = Self::default();
        let sections = Parser::new(0).parse_all(component).map_while(Result::ok);
        for payload in sections {
            if let Payload::CustomSection(section) = payload {
                carried.names |= section.name() == "name";
                carried.lines |= section.name() == ".debug_line";
            }
        }
        carried
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match (self.names, self.lines) {
            (_, true) => "functions, files and lines: a trap tells where it happened",
            (true, false) => "names of functions, no lines",
            (false, false) => "nothing: a trap tells no more than numbers",
        })
    }
}

/// The version in one of the contract's names.
fn version(name: &str) -> Option<&str> {
    let (_, version) = name.strip_prefix(PACKAGE)?.split_once('@')?;
    Some(version)
}

fn number(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The first few names, for a message.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(imports: &[&str], exports: &[&str]) -> Surface {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Surface { imports: owned(imports), exports: owned(exports) }
    }

    #[test]
    fn the_version_stands_in_the_names() {
        let ours = surface(
            &["wasi:cli/environment@0.2.3", "pl-host:plugin/log@0.1.0"],
            &["pl-host:plugin/catalog@0.1.0"],
        );
        assert_eq!(ours.contract(), Ok(Contract::V0_1));
        // A patch release is the same contract.
        assert_eq!(surface(&[], &["pl-host:plugin/catalog@0.1.7"]).contract(), Ok(Contract::V0_1));
    }

    #[test]
    fn what_speaks_no_contract_of_ours_is_told_what_it_speaks() {
        let words = |exports: &[&str]| surface(&[], exports).contract().unwrap_err();
        let newer = words(&["pl-host:plugin/catalog@0.2.0"]);
        assert!(newer.contains("version 0.2.0") && newer.contains("take a newer pl-host"), "{newer}");
        assert!(words(&["pl-host:plugin/catalog@1.0.0"]).contains("take a newer pl-host"));
        let older = words(&["pl-host:plugin/catalog@0.0.9"]);
        assert!(older.contains("no pl-host speaks any more"), "{older}");
        let mixed = words(&["pl-host:plugin/catalog@0.1.0", "pl-host:plugin/agents@0.2.0"]);
        assert!(mixed.contains("mixes the versions 0.1.0 and 0.2.0"), "{mixed}");
        let other = words(&["wasi:cli/run@0.2.3"]);
        assert!(other.contains("it exports wasi:cli/run@0.2.3 and imports nothing"), "{other}");
        assert!(words(&[]).contains("it exports nothing and imports nothing"));
        assert!(words(&["pl-host:plugin/catalog@next"]).contains("\"next\" is no version"));
    }

    #[test]
    fn every_import_that_nothing_offers_is_named() {
        let odd = surface(&["their:api/thing", "wasi:io/poll@0.2.3", "wasi:nn/graph@0.2.0", "env"], &[]);
        assert_eq!(odd.unknown_imports(), ["their:api/thing", "wasi:nn/graph@0.2.0", "env"]);
    }
}
