//! Settings: what a key may be given, and the one table of all keys (in [`SETTINGS`]).
//!
//! The check reads it, and so does whatever explains the language. A key that is not here, and not declared
//! by a plugin's item, does not exist.

mod show;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

pub use table::{LAYOUTS, SETTINGS, TARGETS};

use crate::syntax::BlockKind;

/// One setting of one block.
#[derive(Debug)]
pub struct Setting {
    /// Where it stands.
    pub block: BlockKind,
    /// What stands before its `=`.
    pub key: &'static str,
    /// What may stand behind it.
    pub kind: Kind,
    /// What holds where it is not written.
    pub default: Default,
    /// Purpose, cost, the reason of the default, and when not to use it.
    pub doc: &'static str,
    /// The version of the language that has it first.
    pub since: &'static str,
    /// False: part of the language, but not supported yet.
    pub supported: bool,
    /// True: it stands in the block's head, behind the `=`. `--set` reaches it under its key.
    pub in_head: bool,
}

/// What may stand behind a key. Ranges include both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
        /// True: `min` itself is excluded.
        above: bool,
    },
    /// `true` or `false`.
    Boolean,
    /// Text in quotes.
    Text,
    /// A list of texts in quotes: at least one, none empty, each once.
    Texts,
    /// A path in quotes, relative to the workflow file; from `--set`, to the working folder.
    Path,
    /// A model: a known name, `hf:…`, or a path.
    Source,
    /// A size with a unit: `64MiB`.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A duration with a unit: `20s`.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// One of these words.
    Choice(&'static [Choice]),
    /// A list of these words, at least one, each once.
    Choices(&'static [Choice]),
    /// The name of a `model` block.
    Model,
    /// The name of a `policy` block.
    Policy,
}

/// A word that a setting knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The word itself.
    pub word: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// False: part of the language, but not supported yet.
    pub supported: bool,
}

/// What holds where a setting is not written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    /// It must be written.
    Required,
    /// It may be left out, and means this then.
    Absent(&'static str),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A size in bytes.
    Bytes(u64),
    /// A duration.
    Duration(Duration),
    /// A word.
    Word(&'static str),
    /// All words.
    AllWords,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The setting that stands in a block's head, if there is one.
pub fn in_head(block: BlockKind) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.block == block && setting.in_head)
}

/// The settings between a block's braces.
pub fn of(block: BlockKind) -> impl Iterator<Item = &'static Setting> {
    // Asked for at every block of a file.
    static BY_BLOCK: LazyLock<BTreeMap<BlockKind, Vec<&'static Setting>>> = LazyLock::new(|| {
        let mut by_block: BTreeMap<BlockKind, Vec<&'static Setting>> = BTreeMap::new();
        for setting in SETTINGS.iter().filter(|setting| !setting.in_head) {
            by_block.entry(setting.block).or_default().push(setting);
        }
        by_block
    });
    BY_BLOCK.get(&block).map(Vec::as_slice).unwrap_or_default().iter().copied()
}

/// One setting between a block's braces.
pub fn find(block: BlockKind, key: &str) -> Option<&'static Setting> {
    of(block).find(|setting| setting.key == key)
}

impl fmt::Display for Kind {
    /// What is expected, in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Integer { .. } => f.write_str("a whole number"),
            Kind::Number { .. } => f.write_str("a number"),
            Kind::Boolean => f.write_str("`true` or `false`"),
            Kind::Text => f.write_str("text in quotes"),
            Kind::Texts => f.write_str("a list of texts such as `[\"###\"]`"),
            Kind::Path => f.write_str("a path in quotes"),
            Kind::Source => f.write_str("a model's name or path in quotes"),
            Kind::Bytes { .. } => f.write_str("a size such as `64MiB`"),
            Kind::Duration { .. } => f.write_str("a duration such as `20s`"),
            Kind::Choice(choices) => f.write_str(&crate::diagnostic::either(&supported(choices))),
            Kind::Choices(choices) => {
                let words = crate::diagnostic::list(&supported(choices));
                write!(f, "a list such as `[{}]`, of {words}", choices.first().map_or("", |first| first.word))
            }
            Kind::Model => f.write_str("the name of a model"),
            Kind::Policy => f.write_str("the name of a policy"),
        }
    }
}

/// The words that can be used today.
pub fn supported(choices: &[Choice]) -> Vec<&'static str> {
    choices.iter().filter(|choice| choice.supported).map(|choice| choice.word).collect()
}

/// A size as it is written: in the largest unit that divides it.
pub(crate) fn show_bytes(bytes: u64) -> String {
    [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// A duration as it is written.
pub(crate) fn show_duration(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_nanos()) {
        (whole, 0) if whole > 0 && whole % 3600 == 0 => format!("{}h", whole / 3600),
        (whole, 0) if whole > 0 && whole % 60 == 0 => format!("{}m", whole / 60),
        (whole, 0) => format!("{whole}s"),
        _ => format!("{}ms", duration.as_secs_f64() * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every default is a value that the check would accept.
    #[test]
    fn defaults_are_of_their_type_and_in_range() {
        for Setting { block, key, kind, default, .. } in SETTINGS {
            let fits = match (kind, default) {
                (_, Default::Required | Default::Absent(_)) => true,
                (Kind::Integer { min, max }, Default::Integer(whole)) => (min..=max).contains(&whole),
                (Kind::Number { min, max, above }, Default::Number(number)) => {
                    (min..=max).contains(&number) && !(*above && number == min)
                }
                (Kind::Boolean, Default::Boolean(_)) => true,
                (Kind::Bytes { min, max }, Default::Bytes(bytes)) => (min..=max).contains(&bytes),
                (Kind::Duration { min, max }, Default::Duration(time)) => (min..=max).contains(&time),
                (Kind::Choice(choices), Default::Word(word)) => supported(choices).contains(word),
                (Kind::Choices(choices), Default::AllWords) => !supported(choices).is_empty(),
                _ => false,
            };
            assert!(fits, "{}.{key}", block.keyword());
        }
    }

    #[test]
    fn keys_are_documented_and_unique() {
        for (at, one) in SETTINGS.iter().enumerate() {
            let name = format!("{}.{}", one.block.keyword(), one.key);
            assert!(one.doc.ends_with('.') && !one.doc.contains("  "), "{name}: {}", one.doc);
            let again =
                SETTINGS[at + 1..].iter().any(|other| (other.block, other.key) == (one.block, one.key));
            assert!(!again, "{name} stands twice");
        }
    }

    #[test]
    fn sizes_and_durations_read_as_written() {
        assert_eq!(show_bytes(64 * MIB), "64MiB");
        assert_eq!(show_bytes(1536), "1536 bytes");
        assert_eq!(show_duration(Duration::from_secs(20)), "20s");
        assert_eq!(show_duration(Duration::from_millis(2500)), "2500ms");
        assert_eq!(show_duration(Duration::from_secs(7200)), "2h");
    }
}
