//! Constructors of rows of the tables.

use std::time::Duration;

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use crate::syntax::block_kind::BlockKind;

/// Largest value of settings that are stored in 32 bits.
pub(super) const MAX_U32: i64 = u32::MAX as i64;

/// The first version of the language.
const FIRST: &str = "0.1";

pub(super) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(super) const fn count(min: i64) -> SettingKind {
    SettingKind::Integer { min, max: MAX_U32 }
}

pub(super) const fn number(min: f64, max: f64) -> SettingKind {
    SettingKind::Number { min, max, above: false }
}

pub(super) const fn positive(max: f64) -> SettingKind {
    SettingKind::Number { min: 0.0, max, above: true }
}

pub(super) const fn setting(
    block: BlockKind,
    key: &'static str,
    kind: SettingKind,
    default: DefaultValue,
    doc: &'static str,
) -> Setting {
    Setting { block, key, kind, default, doc, since: FIRST, in_head: false, per_policy: false }
}

pub(super) const fn in_head(
    block: BlockKind,
    key: &'static str,
    kind: SettingKind,
    doc: &'static str,
) -> Setting {
    Setting {
        block,
        key,
        kind,
        default: DefaultValue::Required,
        doc,
        since: FIRST,
        in_head: true,
        per_policy: false,
    }
}

pub(super) const fn word(word: &'static str, doc: &'static str) -> Choice {
    Choice { word, doc }
}

/// Setting of `train { … }` that a policy's own `train { … }` may also have.
pub(super) const fn per_policy(
    key: &'static str,
    kind: SettingKind,
    default: DefaultValue,
    doc: &'static str,
) -> Setting {
    Setting { per_policy: true, ..setting(BlockKind::Train, key, kind, default, doc) }
}
