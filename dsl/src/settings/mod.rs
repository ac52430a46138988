//! Settings: the table of all keys ([`SETTINGS`]), with their types, ranges and defaults.
//!
//! The check, the editors and the documentation read this table. A key that is neither in it nor declared by a plugin's
//! item does not exist.

mod describe;
mod kind;
mod table;
mod units;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub use kind::{Choice, DefaultValue, Setting, SettingKind, supported};
pub use table::{LAYOUTS, SETTINGS, TARGETS};
pub(crate) use units::{show_bytes, show_duration};

use crate::syntax::block_kind::BlockKind;

/// Setting in a block's head. Returns `None` if the block has no such setting.
pub fn head_setting(block: BlockKind) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.block == block && setting.in_head)
}

/// Settings between a block's braces.
pub fn in_block(block: BlockKind) -> impl Iterator<Item = &'static Setting> {
    // Looked up for every block of a file.
    static BY_BLOCK: LazyLock<BTreeMap<BlockKind, Vec<&'static Setting>>> = LazyLock::new(|| {
        let mut by_block: BTreeMap<BlockKind, Vec<&'static Setting>> = BTreeMap::new();
        for setting in SETTINGS.iter().filter(|setting| !setting.in_head) {
            by_block.entry(setting.block).or_default().push(setting);
        }
        by_block
    });
    BY_BLOCK.get(&block).map(Vec::as_slice).unwrap_or_default().iter().copied()
}

/// Setting between a block's braces.
pub fn find(block: BlockKind, key: &str) -> Option<&'static Setting> {
    in_block(block).find(|setting| setting.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check accepts every default.
    #[test]
    fn defaults_have_the_right_type_and_range() {
        for Setting { block, key, kind, default, .. } in SETTINGS {
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
                (SettingKind::Choice(choices), DefaultValue::Word(word)) => supported(choices).contains(word),
                (SettingKind::Choices(choices), DefaultValue::AllWords) => !supported(choices).is_empty(),
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
            assert!(!again, "{name} is listed twice");
        }
    }
}
