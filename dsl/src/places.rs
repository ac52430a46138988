//! Places of the settings that name files, addresses and environment variables.

use std::collections::BTreeMap;
use std::fmt;

use crate::source::overrides::Override;
use crate::source::{Lines, Location, Sources};
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

/// Places of the written settings that name something outside of the workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<SettingId, Place>);

impl Places {
    /// Returns the place of a setting of a block; of a block without a name if `name` is empty.
    pub fn find(&self, block: BlockKind, name: &str, key: &str) -> Option<&Place> {
        self.0
            .range((block.keyword(), name.to_owned(), "")..)
            .take_while(|((keyword, own, _), _)| *keyword == block.keyword() && own == name)
            .find(|((.., own), _)| *own == key)
            .map(|(_, place)| place)
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
            Location::Override(index) => Some(Place::Override(overrides.get(index)?.to_string())),
            Location::Span(span) => {
                let (file, span) = sources.find(span)?;
                let lines = lines.entry(&file.name).or_insert_with(|| Lines::new(sources.text_of(file)));
                Some(Place::Line { file: file.name.clone(), line: lines.position(span.start).0 })
            }
        };
        Places(self.0.into_iter().filter_map(|(id, location)| Some((id, place(location)?))).collect())
    }
}
