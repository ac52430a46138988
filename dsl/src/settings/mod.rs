//! Settings: the tables of all keys ([`all`]), with their types, ranges and defaults.
//!
//! The check, the editors and the documentation read these tables. A key that is neither in them nor declared by a plugin's
//! item does not exist.

pub(crate) mod algorithms;
mod describe;
mod designs;
mod kind;
mod resources;
mod rows;
mod run;
mod team;
mod training;
mod units;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use algorithms::{ALGORITHMS, AT_GRPO, PublishedAlgorithm, published_algorithm};
pub use designs::PATTERNS;
pub use kind::{Choice, DefaultValue, Setting, SettingKind, words};
pub use team::{LAYOUTS, TARGETS};
pub(crate) use units::{show_bytes, show_duration};

use crate::syntax::block_kind::BlockKind;

/// All settings, block by block. Those of a policy's own `train { … }` are settings of [`BlockKind::Train`], and likewise those
/// of its `devices { … }`.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [resources::RESOURCES, team::TEAM, designs::DESIGNS, run::RUN, training::TRAINING, training::CRITIC]
        .into_iter()
        .flatten()
}

/// Setting in a block's head. Returns `None` if the block has no such setting.
pub fn head_setting(block: BlockKind) -> Option<&'static Setting> {
    all().find(|setting| setting.block == block && setting.in_head)
}

/// Returns the block in which a policy has settings of a block of the file.
fn of_policy(block: BlockKind) -> BlockKind {
    if block == BlockKind::Devices { BlockKind::PolicyDevices } else { BlockKind::PolicyTrain }
}

/// Settings between a block's braces.
pub fn in_block(block: BlockKind) -> impl Iterator<Item = &'static Setting> {
    // Looked up for every block of a file.
    static BY_BLOCK: LazyLock<BTreeMap<BlockKind, Vec<&'static Setting>>> = LazyLock::new(|| {
        let mut by_block: BTreeMap<BlockKind, Vec<&'static Setting>> = BTreeMap::new();
        for setting in all().filter(|setting| !setting.in_head) {
            by_block.entry(setting.block).or_default().push(setting);
            if setting.per_policy {
                by_block.entry(of_policy(setting.block)).or_default().push(setting);
            }
        }
        by_block
    });
    BY_BLOCK.get(&block).map(Vec::as_slice).unwrap_or_default().iter().copied()
}

/// Setting between a block's braces.
pub fn find(block: BlockKind, key: &str) -> Option<&'static Setting> {
    in_block(block).find(|setting| setting.key == key)
}

/// Returns the replacement of a setting that earlier versions had, as advice.
pub(crate) fn replacement(block: BlockKind, key: &str) -> Option<&'static str> {
    match (block, key) {
        (BlockKind::Train | BlockKind::PolicyTrain, "normalize") => {
            Some("write `scale = group` for `normalize = true`, `scale = none` for `normalize = false`")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check accepts every default.
    #[test]
    fn defaults_have_the_right_type_and_range() {
        for Setting { block, key, kind, default, .. } in all() {
            let fits = match (kind, default) {
                (_, DefaultValue::Required | DefaultValue::Absent(_)) => true,
                (SettingKind::Integer { min, max }, DefaultValue::Integer(whole)) => {
                    (min..=max).contains(&whole)
                }
                (SettingKind::Number { min, max, above }, DefaultValue::Number(number)) => {
                    (min..=max).contains(&number) && !(*above && number == min)
                }
                (SettingKind::Boolean, DefaultValue::Boolean(_)) => true,
                (SettingKind::Bytes { min, max }, DefaultValue::Bytes(bytes)) => (min..=max).contains(&bytes),
                (SettingKind::Duration { min, max }, DefaultValue::Duration(time)) => {
                    (min..=max).contains(&time)
                }
                (SettingKind::Text, DefaultValue::Text(text)) => !text.is_empty(),
                (SettingKind::Choice(choices), DefaultValue::Word(word)) => words(choices).contains(word),
                (SettingKind::Choices(choices), DefaultValue::AllWords) => !choices.is_empty(),
                (SettingKind::Choices(choices), DefaultValue::Words(own)) => {
                    own.iter().all(|word| words(choices).contains(word))
                }
                _ => false,
            };
            assert!(fits, "{}.{key}", block.keyword());
        }
    }

    /// Without an `algorithm`, the objective is that of `at_grpo`.
    #[test]
    fn defaults_are_those_of_at_grpo() {
        let mut compared = 0;
        for own in in_block(BlockKind::PolicyTrain) {
            let Some(value) = algorithms::AT_GRPO.value_of(own.key) else { continue };
            assert_eq!(own.default.to_string(), format!("`{value}`"), "{}", own.key);
            compared += 1;
        }
        assert_eq!(compared, algorithms::CHOICES.len() + 3);
    }

    #[test]
    fn algorithms_are_complete() {
        for one in &ALGORITHMS {
            assert_eq!(published_algorithm(one.word).map(|found| found.word), Some(one.word));
            assert_eq!(serde_json::to_value(one.objective.algorithm).unwrap(), one.word);
            assert!(one.source.contains("arXiv:") && one.differences.ends_with('.'), "{}", one.word);
            assert!(one.formula.contains("A = ") && one.formula.contains("L = "), "{}", one.word);
        }
    }

    #[test]
    fn keys_are_documented_and_unique() {
        let settings: Vec<&Setting> = all().collect();
        for (at, one) in settings.iter().enumerate() {
            let name = format!("{}.{}", one.block.keyword(), one.key);
            assert!(one.doc.ends_with('.') && !one.doc.contains("  "), "{name}: {}", one.doc);
            let again =
                settings[at + 1..].iter().any(|other| (other.block, other.key) == (one.block, one.key));
            assert!(!again, "{name} is listed twice");
        }
    }
}
