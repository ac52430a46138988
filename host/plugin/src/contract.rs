//! Contract version of a component, read from the names of its imports and exports before compilation.
//!
//! A name includes the version: `pl-host:plugin/catalog@0.1.0`. Each supported version has a folder under
//! `wit/` and a module under `bindings/`; the module of an old version adapts it to the newest. Patch
//! releases of one version are the same contract. A component of another contract is refused with a list of
//! its imports and exports.

use std::fmt;

use thiserror::Error;
use wasmparser::{Chunk, Parser, Payload};

/// A supported version of the plugin contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// `wit/v0.1`.
    V0_1,
}

impl Contract {
    /// Version for new plugins.
    pub const NEWEST: Self = Self::V0_1;

    /// Major and minor version number.
    fn number(self) -> (u64, u64) {
        match self {
            Self::V0_1 => (0, 1),
        }
    }

    fn from_number(number: (u64, u64)) -> Option<Self> {
        [Self::V0_1].into_iter().find(|contract| contract.number() == number)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.number();
        write!(out, "{major}.{minor}")
    }
}

/// A component whose contract this host does not support.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContractError {
    /// No import or export belongs to the contract.
    #[error(
        "it does not use the contract: it exports {exports} and imports {imports}; build it against `wit/v{newest}`",
        newest = Contract::NEWEST
    )]
    Missing {
        /// The first exports.
        exports: String,
        /// The first imports.
        imports: String,
    },
    /// The names contain several versions.
    #[error("it mixes the versions {versions} of the contract; build all of it against one version")]
    Mixed {
        /// The versions, joined by "and".
        versions: String,
    },
    /// The version is newer than this host.
    #[error(
        "it was built for version {version} of the contract, and this pl-host supports at most {newest}; use a newer \
         pl-host, or build the plugin against `wit/v{newest}`",
        newest = Contract::NEWEST
    )]
    TooNew {
        /// The component's version.
        version: String,
    },
    /// The version is no longer supported.
    #[error(
        "it was built for version {version} of the contract, which is no longer supported; build it against \
         `wit/v{newest}`",
        newest = Contract::NEWEST
    )]
    TooOld {
        /// The component's version.
        version: String,
    },
    /// The version is not a version number.
    #[error("{version:?} is not a version of the contract")]
    Invalid {
        /// The component's version.
        version: String,
    },
    /// The host does not provide some imports.
    #[error("this pl-host does not provide its imports {names}; build it without them")]
    UnknownImports {
        /// The names.
        names: String,
    },
}

/// The package of the contract's interfaces.
const PACKAGE: &str = "pl-host:plugin/";

/// Packages of WASI 0.2 that every component may import.
const WASI: [&str; 7] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:http/",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// Imports and exports of a component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentInterface {
    /// Full names such as `pl-host:plugin/log@0.1.0`, in order.
    pub imports: Vec<String>,
    /// Full names, in order.
    pub exports: Vec<String>,
}

impl ComponentInterface {
    /// Reads the imports and exports of a component. The time does not depend on the size of its modules.
    /// Returns `None` if the bytes are not a component; the compiler reports the reason.
    pub fn read(component: &[u8]) -> Option<Self> {
        let mut interface = Self::default();
        let mut parser = Parser::new(0);
        let mut rest = component;
        while !rest.is_empty() {
            let Chunk::Parsed { consumed, payload } = parser.parse(rest, true).ok()? else { return None };
            rest = rest.get(consumed..)?;
            match payload {
                Payload::ComponentImportSection(imports) => {
                    for import in imports {
                        interface.imports.push(import.ok()?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) => {
                    for export in exports {
                        interface.exports.push(export.ok()?.name.name.to_owned());
                    }
                }
                // Nested modules and components don't matter.
                Payload::ModuleSection { unchecked_range, .. }
                | Payload::ComponentSection { unchecked_range, .. } => {
                    rest = rest.get(unchecked_range.len()..)?;
                }
                Payload::End(_) => break,
                _ => {}
            }
        }
        Some(interface)
    }

    /// Returns the contract version in the component's names.
    ///
    /// # Errors
    /// A [`ContractError`] if they contain none, several or an unsupported one.
    pub fn contract(&self) -> Result<Contract, ContractError> {
        let mut versions: Vec<&str> =
            self.imports.iter().chain(&self.exports).filter_map(|name| version(name)).collect();
        versions.sort_unstable();
        versions.dedup();
        let Some(first) = versions.first() else {
            return Err(ContractError::Missing {
                exports: list(&self.exports),
                imports: list(&self.imports),
            });
        };
        let numbers: Vec<Option<(u64, u64)>> = versions.iter().map(|version| number(version)).collect();
        if numbers.iter().any(|other| Some(other) != numbers.first()) {
            return Err(ContractError::Mixed { versions: versions.join(" and ") });
        }
        let version = || (*first).to_owned();
        match numbers.first().copied().flatten() {
            Some(number) => Contract::from_number(number).ok_or_else(|| {
                if number > Contract::NEWEST.number() {
                    ContractError::TooNew { version: version() }
                } else {
                    ContractError::TooOld { version: version() }
                }
            }),
            None => Err(ContractError::Invalid { version: version() }),
        }
    }

    /// Returns the imports that the host does not provide, by their names.
    pub fn unknown_imports(&self) -> Vec<&str> {
        let known =
            |name: &str| name.starts_with(PACKAGE) || WASI.iter().any(|package| name.starts_with(package));
        self.imports.iter().map(String::as_str).filter(|name| !known(name)).collect()
    }
}

/// Debug information in a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// Names of functions.
    pub names: bool,
    /// Files and lines, as DWARF.
    pub lines: bool,
}

impl DebugInfo {
    /// Searches all modules of a component.
    pub fn read(component: &[u8]) -> Self {
        let mut debug_info = Self::default();
        let sections = Parser::new(0).parse_all(component).map_while(Result::ok);
        for payload in sections {
            if let Payload::CustomSection(section) = payload {
                debug_info.names |= section.name() == "name";
                debug_info.lines |= section.name() == ".debug_line";
            }
        }
        debug_info
    }
}

impl fmt::Display for DebugInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match (self.names, self.lines) {
            (_, true) => "functions, files and lines: a stack trace shows where a trap happened",
            (true, false) => "names of functions: a stack trace shows no lines",
            (false, false) => "none: a stack trace shows only numbers",
        })
    }
}

/// Returns the version in a name of the contract.
fn version(name: &str) -> Option<&str> {
    let (_, version) = name.strip_prefix(PACKAGE)?.split_once('@')?;
    Some(version)
}

fn number(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Joins the first few names for a message.
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

    fn interface(imports: &[&str], exports: &[&str]) -> ComponentInterface {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ComponentInterface { imports: owned(imports), exports: owned(exports) }
    }

    #[test]
    fn the_version_is_part_of_the_names() {
        let ours = interface(
            &["wasi:cli/environment@0.2.3", "pl-host:plugin/log@0.1.0"],
            &["pl-host:plugin/catalog@0.1.0"],
        );
        assert_eq!(ours.contract(), Ok(Contract::V0_1));
        // A patch release is the same contract.
        assert_eq!(interface(&[], &["pl-host:plugin/catalog@0.1.7"]).contract(), Ok(Contract::V0_1));
    }

    #[test]
    fn unsupported_contracts_are_reported() {
        let message = |exports: &[&str]| interface(&[], exports).contract().unwrap_err().to_string();
        let newer = message(&["pl-host:plugin/catalog@0.2.0"]);
        assert!(newer.contains("version 0.2.0") && newer.contains("use a newer pl-host"), "{newer}");
        assert!(message(&["pl-host:plugin/catalog@1.0.0"]).contains("use a newer pl-host"));
        let older = message(&["pl-host:plugin/catalog@0.0.9"]);
        assert!(older.contains("no longer supported"), "{older}");
        let mixed = message(&["pl-host:plugin/catalog@0.1.0", "pl-host:plugin/agents@0.2.0"]);
        assert!(mixed.contains("mixes the versions 0.1.0 and 0.2.0"), "{mixed}");
        let other = message(&["wasi:cli/run@0.2.3"]);
        assert!(other.contains("it exports wasi:cli/run@0.2.3 and imports nothing"), "{other}");
        assert!(message(&[]).contains("it exports nothing and imports nothing"));
        assert!(message(&["pl-host:plugin/catalog@next"]).contains("\"next\" is not a version"));
    }

    #[test]
    fn every_unknown_import_is_named() {
        let odd = interface(&["their:api/thing", "wasi:io/poll@0.2.3", "wasi:nn/graph@0.2.0", "env"], &[]);
        assert_eq!(odd.unknown_imports(), ["their:api/thing", "wasi:nn/graph@0.2.0", "env"]);
    }
}
