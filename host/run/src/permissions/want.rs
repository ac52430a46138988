//! Access that a workflow needs beyond its own folder.

use std::collections::BTreeSet;
use std::fmt;

use pl_dsl::Place;

use super::access::{Access, AccessKind};

/// Access that a workflow needs beyond its own folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub access: Access,
    /// Use of the access: `plugin web sends requests to api.example.org`.
    pub purpose: String,
    /// Place in the workflow. `None` for files that a text includes, and in a run folder.
    pub place: Option<Place>,
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.purpose),
            None => f.write_str(&self.purpose),
        }
    }
}

/// Returns the flags that allow all of it.
pub fn flags(wants: &[Want]) -> String {
    let accesses: BTreeSet<&Access> = wants.iter().map(|want| &want.access).collect();
    let kinds = [AccessKind::Read, AccessKind::Net, AccessKind::Env];
    let flags = kinds.into_iter().filter_map(|kind| {
        let own = accesses.iter().filter(|access| access.kind() == kind);
        let values: Vec<String> = own.map(|access| access.value()).collect();
        (!values.is_empty()).then(|| quoted(&format!("{}={}", kind.flag(), values.join(","))))
    });
    flags.collect::<Vec<_>>().join(" ")
}

/// Returns an argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./,:@%+".contains(c);
    match argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}
