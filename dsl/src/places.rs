//! Places of the settings that name files, addresses and environment variables.

use std::collections::BTreeMap;
use std::fmt;

use crate::diagnostic::{Diagnostic, DiagnosticCode, Label, Severity};
use crate::source::overrides::Override;
use crate::source::{Lines, Location, Sources, Span};
use crate::syntax::block_kind::BlockKind;

/// Kinds of blocks whose settings name something outside of the workflow.
const KINDS: [BlockKind; 8] = [
    BlockKind::Plugin,
    BlockKind::Model,
    BlockKind::Policy,
    BlockKind::Environment,
    BlockKind::Evaluate,
    BlockKind::Corpus,
    BlockKind::Server,
    BlockKind::Sandbox,
];

/// Place of a setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Line {
        file: String,
        line: usize,
    },
    /// An override, as messages name it.
    Override(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::Override(shown) => f.write_str(shown),
        }
    }
}

/// Keyword and name of a block, and the key of a setting.
type SettingId = (&'static str, String, &'static str);

/// Place of a setting, with its span if it is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WrittenPlace {
    place: Place,
    span: Option<Span>,
}

/// Places of the written settings that name something outside of the workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<SettingId, WrittenPlace>);

impl Places {
    /// Returns the place of a setting of a block; of a block without a name if `name` is empty.
    pub fn find(&self, block: BlockKind, name: &str, key: &str) -> Option<&Place> {
        self.written(block, name, key).map(|written| &written.place)
    }

    /// Returns a diagnostic about the value of a setting: its block, the block's name, and its key. The diagnostic has no
    /// place if the setting is not written.
    pub fn diagnostic(
        &self,
        (block, name, key): (BlockKind, &str, &str),
        code: DiagnosticCode,
        severity: Severity,
        message: String,
    ) -> Diagnostic {
        let (message, span) = match self.written(block, name, key) {
            Some(WrittenPlace { place: Place::Override(shown), .. }) => (format!("{shown}: {message}"), None),
            Some(WrittenPlace { span, .. }) => (message, *span),
            None => (message, None),
        };
        let labels = span.map(|span| Label { span, text: String::new() }).into_iter().collect();
        Diagnostic { code, severity, message, labels, help: None, values: Vec::new(), context: None }
    }

    fn written(&self, block: BlockKind, name: &str, key: &str) -> Option<&WrittenPlace> {
        self.0
            .range((block.keyword(), name.to_owned(), "")..)
            .take_while(|((keyword, own, _), _)| *keyword == block.keyword() && own == name)
            .find(|((.., own), _)| *own == key)
            .map(|(_, written)| written)
    }
}

/// Locations of settings that were found so far.
#[derive(Debug, Default)]
pub(crate) struct WrittenPlaces(BTreeMap<SettingId, Location>);

impl WrittenPlaces {
    /// Keeps the location of a setting, if blocks of its kind name something outside of the workflow.
    pub fn add(&mut self, block: BlockKind, name: &str, key: &'static str, location: Location) {
        if KINDS.contains(&block) {
            self.0.entry((block.keyword(), name.to_owned(), key)).or_insert(location);
        }
    }

    pub fn resolve(self, sources: &Sources, overrides: &[Override]) -> Places {
        let mut lines: BTreeMap<&str, Lines<'_>> = BTreeMap::new();
        let mut place = |location| match location {
            Location::Override(index) => {
                let place = Place::Override(overrides.get(index)?.to_string());
                Some(WrittenPlace { place, span: None })
            }
            Location::Span(span) => {
                let (file, in_file) = sources.find(span)?;
                let lines = lines.entry(&file.name).or_insert_with(|| Lines::new(sources.text_of(file)));
                let line = lines.position(in_file.start).0;
                Some(WrittenPlace { place: Place::Line { file: file.name.clone(), line }, span: Some(span) })
            }
        };
        Places(self.0.into_iter().filter_map(|(id, location)| Some((id, place(location)?))).collect())
    }
}
