//! Types of the settings table.

use std::fmt;
use std::time::Duration;

use crate::diagnostic::spelling::{either, list};
use crate::syntax::block_kind::BlockKind;

/// One setting of one block.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Block that the setting belongs to.
    pub block: BlockKind,
    /// Key before the `=`.
    pub key: &'static str,
    /// Type and range of its value.
    pub kind: SettingKind,
    /// Value if the setting is not written.
    pub default: DefaultValue,
    /// Purpose, cost, reason for the default, and cases in which not to use it.
    pub doc: &'static str,
    /// First version of the language that has it.
    pub since: &'static str,
    /// True if it is written in the block's head, after the `=`. `--set` addresses it by its key.
    pub in_head: bool,
    /// True if a policy's own `train { … }` or `devices { … }` may have it too.
    pub per_policy: bool,
}

/// Type and range of a value. Ranges include both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingKind {
    /// A whole number.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// True if `min` itself is excluded.
        above: bool,
    },
    /// `true` or `false`.
    Boolean,
    /// Text in quotes.
    Text,
    /// A list of distinct, non-empty texts in quotes, with at least one.
    Texts,
    /// One text in quotes or a list of them: addresses of servers.
    Addresses,
    /// One device in quotes or a list of them.
    Devices,
    /// The path of a corpus, relative like other paths, or the address of its server.
    Corpus,
    /// A path in quotes, relative to the workflow file, or to the working folder in `--set`.
    Path,
    /// The path of a task file, relative like other paths, or `NAME:SPLIT` of a data set.
    Tasks,
    /// A model: a known name, `hf:…`, or a path.
    Source,
    /// A size with a unit: `64MiB`.
    Bytes {
        /// Smallest value.
        min: u64,
        /// Largest value.
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
    /// A list of distinct words of these, with at least one.
    Choices(&'static [Choice]),
    /// The name of a `model` block.
    Model,
    /// The name of a `policy` block.
    Policy,
    /// The name of a `server` block.
    Server,
    /// The name of a `corpus` block, or a list of them.
    CorpusNames,
    /// The name of a `policy` block, or a list of them.
    PolicyNames,
    /// The name of an `environment` block.
    Environment,
    /// The name of a `reward` block.
    Reward,
    /// The name of a `scenario` block.
    Scenario,
    /// The name of a `designer` block.
    Designer,
    /// A list of distinct items of plugins, with at least one.
    Items,
}

impl SettingKind {
    /// Returns the kinds of the blocks that a name in a value of this type stands for: those that the setting names, or params
    /// in other values.
    pub fn named_blocks(self) -> &'static [BlockKind] {
        match self {
            SettingKind::Model => &[BlockKind::Model],
            SettingKind::Policy | SettingKind::PolicyNames => &[BlockKind::Policy],
            SettingKind::Server => &[BlockKind::Server],
            SettingKind::CorpusNames => &[BlockKind::Corpus],
            SettingKind::Environment => &[BlockKind::Environment],
            SettingKind::Reward => &[BlockKind::Reward],
            SettingKind::Scenario => &[BlockKind::Scenario],
            SettingKind::Designer => &[BlockKind::Designer],
            SettingKind::Items => &[BlockKind::Plugin],
            _ => &[BlockKind::Param],
        }
    }

    /// Returns the words that a value of this type may have.
    pub fn choices(self) -> &'static [Choice] {
        match self {
            SettingKind::Choice(choices) | SettingKind::Choices(choices) => choices,
            _ => &[],
        }
    }
}

/// A word that a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Word as it is written.
    pub word: &'static str,
    /// Meaning of the word.
    pub doc: &'static str,
}

/// Value of a setting that is not written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DefaultValue {
    /// The setting is required.
    Required,
    /// The setting is optional, with this meaning if it is left out.
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
    /// A text.
    Text(&'static str),
    /// A word.
    Word(&'static str),
    /// Some words.
    Words(&'static [&'static str]),
    /// All words.
    AllWords,
}

impl fmt::Display for SettingKind {
    /// Writes a description such as `a whole number`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingKind::Integer { .. } => f.write_str("a whole number"),
            SettingKind::Number { .. } => f.write_str("a number"),
            SettingKind::Boolean => f.write_str("`true` or `false`"),
            SettingKind::Text => f.write_str("text in quotes"),
            SettingKind::Texts => f.write_str("a list of texts such as `[\"###\"]`"),
            SettingKind::Addresses => f.write_str("an address in quotes, or a list of them"),
            SettingKind::Devices => {
                f.write_str("a device such as `\"cpu:0\"` or `\"cuda:0\"`, or a list of them")
            }
            SettingKind::Corpus => f.write_str("a path or an address in quotes"),
            SettingKind::Path => f.write_str("a path in quotes"),
            SettingKind::Tasks => f.write_str("a path in quotes, or a data set such as `\"gsm8k:train\"`"),
            SettingKind::Source => f.write_str("a model's name or path in quotes"),
            SettingKind::Bytes { .. } => f.write_str("a size such as `64MiB`"),
            SettingKind::Duration { .. } => f.write_str("a duration such as `20s`"),
            SettingKind::Choice(choices) => f.write_str(&either(&words(choices))),
            SettingKind::Choices(choices) => {
                let all = list(&words(choices));
                write!(f, "a list such as `[{}]`, of {all}", choices.first().map_or("", |first| first.word))
            }
            SettingKind::Model => f.write_str("the name of a model"),
            SettingKind::Policy => f.write_str("the name of a policy"),
            SettingKind::Server => f.write_str("the name of a server"),
            SettingKind::CorpusNames => f.write_str("the name of a corpus or a list of them"),
            SettingKind::PolicyNames => f.write_str("the name of a policy or a list of them"),
            SettingKind::Environment => f.write_str("the name of an environment"),
            SettingKind::Reward => f.write_str("the name of a reward"),
            SettingKind::Scenario => f.write_str("the name of a scenario"),
            SettingKind::Designer => f.write_str("the name of a designer"),
            SettingKind::Items => f.write_str("a list of items such as `[std.chat]`"),
        }
    }
}

/// Words of some choices, in their order.
pub fn words(choices: &[Choice]) -> Vec<&'static str> {
    choices.iter().map(|choice| choice.word).collect()
}
