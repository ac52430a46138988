//! Descriptions of settings in Markdown, for hovers, `pl-host explain` and the reference page.

use std::fmt;

use super::algorithms::{ALGORITHMS, AT_GRPO};
use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::units::{show_bytes, show_duration, show_number};

/// Bounds of this size only keep arithmetic safe, and are not shown.
const LARGE: f64 = 1e9;

impl Setting {
    /// Block and key, such as `agent.temperature`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.block.keyword(), self.key)
    }

    /// Type, range and default, in one line.
    pub fn summary(&self) -> String {
        let range = self.kind.range().map(|range| format!(", {range}")).unwrap_or_default();
        format!("`{}`: {}{range}; default: {}", self.key, self.kind, self.default)
    }

    /// Full description.
    pub fn describe(&self) -> String {
        let Setting { kind, default, doc, since, .. } = self;
        let range = kind.range().map(|range| format!(", {range}")).unwrap_or_default();
        let units = kind.units().map(|units| format!("Units: {units}. ")).unwrap_or_default();
        let others = self.defaults_of_algorithms();
        let mut out = format!(
            "**{}**: {kind}{range}  \nDefault: {default}{others}. {units}Since {since}.",
            self.path()
        );
        if self.in_head {
            out.push_str(" Written in the block's head, after the `=`.");
        }
        if self.per_policy {
            out.push_str(" Also in the `train` of a policy.");
        }
        out.push_str("\n\n");
        out.push_str(doc);
        if let SettingKind::Choice(choices) | SettingKind::Choices(choices) = kind {
            out.push('\n');
            for choice in choices.iter() {
                out.push_str(&format!("\n- {}", choice.describe()));
            }
        }
        out
    }
}

impl Setting {
    /// Defaults of the algorithms that differ from the table's, such as `; ``sequence`` with ``gspo`` `.
    fn defaults_of_algorithms(&self) -> String {
        if !self.per_policy {
            return String::new();
        }
        let Some(usual) = AT_GRPO.value_of(self.key) else { return String::new() };
        let mut by_value: Vec<(String, Vec<String>)> = Vec::new();
        for one in &ALGORITHMS {
            let Some(value) = one.objective.value_of(self.key).filter(|value| *value != usual) else {
                continue;
            };
            let word = format!("`{}`", one.word);
            match by_value.iter_mut().find(|(other, _)| *other == value) {
                Some((_, words)) => words.push(word),
                None => by_value.push((value, vec![word])),
            }
        }
        by_value.into_iter().map(|(value, words)| format!("; `{value}` with {}", words.join(", "))).collect()
    }
}

impl Choice {
    /// Word and meaning, in one line.
    pub fn describe(&self) -> String {
        format!("`{}`: {}", self.word, self.doc)
    }
}

impl SettingKind {
    /// Units of the value. Returns `None` if it has none.
    pub fn units(&self) -> Option<&'static str> {
        match self {
            SettingKind::Bytes { .. } => Some("KiB, MiB, GiB"),
            SettingKind::Duration { .. } => Some("ms, s, m, h"),
            _ => None,
        }
    }

    /// Range of the value, such as `1 to 64` or `0 or more`. Returns `None` if any value of the type is valid.
    pub fn range(&self) -> Option<String> {
        match *self {
            SettingKind::Integer { min, max } => Some(between(min, (max as f64) < LARGE, max)),
            SettingKind::Number { min, max, above: true } if max < LARGE => {
                Some(format!("above {min}, up to {max}"))
            }
            SettingKind::Number { min, above: true, .. } => Some(format!("above {min}")),
            SettingKind::Number { min, max, .. } => Some(between(min, max < LARGE, max)),
            SettingKind::Bytes { min, max } => Some(format!("{} to {}", show_bytes(min), show_bytes(max))),
            SettingKind::Duration { min, max } => {
                Some(format!("{} to {}", show_duration(min), show_duration(max)))
            }
            _ => None,
        }
    }
}

fn between<N: fmt::Display>(min: N, bounded: bool, max: N) -> String {
    if bounded { format!("{min} to {max}") } else { format!("{min} or more") }
}

impl fmt::Display for DefaultValue {
    /// Writes the value in backticks, or the meaning of a missing value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultValue::Required => f.write_str("none, it is required"),
            DefaultValue::Absent(meaning) => f.write_str(meaning),
            DefaultValue::Integer(whole) => write!(f, "`{whole}`"),
            DefaultValue::Number(number) => write!(f, "`{}`", show_number(*number)),
            DefaultValue::Boolean(truth) => write!(f, "`{truth}`"),
            DefaultValue::Bytes(bytes) => write!(f, "`{}`", show_bytes(*bytes)),
            DefaultValue::Duration(time) => write!(f, "`{}`", show_duration(*time)),
            DefaultValue::Text(text) => write!(f, "`{text:?}`"),
            DefaultValue::Word(word) => write!(f, "`{word}`"),
            DefaultValue::Words(words) => write!(f, "`[{}]`", words.join(", ")),
            DefaultValue::AllWords => f.write_str("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::BlockKind;
    use crate::settings::find;

    #[test]
    fn ranges_and_defaults_are_shown_in_the_syntax_of_the_language() {
        for (block, key, range, default) in [
            (BlockKind::Plugin, "memory", "64KiB to 4GiB", "`64MiB`"),
            (BlockKind::Plugin, "fuel", "10000 or more", "`2000000000`"),
            (BlockKind::Lora, "alpha", "above 0, up to 65536", "`32`"),
            (BlockKind::Agent, "temperature", "0 to 10", "`1`"),
            (BlockKind::Train, "learning_rate", "above 0, up to 1", "`5e-6`"),
            (BlockKind::Sandbox, "timeout", "10ms to 1h", "`20s`"),
        ] {
            let setting = find(block, key).unwrap();
            assert_eq!(setting.kind.range().as_deref(), Some(range), "{key}");
            assert_eq!(setting.default.to_string(), default, "{key}");
        }
    }
}
