//! A setting in words: for hovers, `pl-host explain` and the reference page alike.

use std::fmt;

use super::{Choice, Default, Kind, Setting, show_bytes, show_duration};

/// Bounds from here on are there to keep arithmetic safe, and mean nothing to a reader.
const LARGE: f64 = 1e9;

impl Setting {
    /// `agent.temperature`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.block.keyword(), self.key)
    }

    /// What it may be given and what holds without it, in a line of Markdown.
    pub fn line(&self) -> String {
        let range = self.kind.range().map(|range| format!(", {range}")).unwrap_or_default();
        let later = if self.supported { "" } else { " (not supported yet)" };
        format!("`{}`: {}{range}; default: {}{later}", self.key, self.kind, self.default)
    }

    /// Everything about it, in Markdown.
    pub fn page(&self) -> String {
        let Setting { kind, default, doc, since, .. } = self;
        let range = kind.range().map(|range| format!(", {range}")).unwrap_or_default();
        let units = kind.units().map(|units| format!("Units: {units}. ")).unwrap_or_default();
        let mut out =
            format!("**{}**: {kind}{range}  \nDefault: {default}. {units}Since {since}.", self.path());
        if self.in_head {
            out.push_str(" Stands in the block's head, behind the `=`.");
        }
        out.push_str("\n\n");
        out.push_str(doc);
        if let Kind::Choice(choices) | Kind::Choices(choices) = kind {
            out.push('\n');
            for choice in choices.iter() {
                out.push_str(&format!("\n- {}", choice.line()));
            }
        }
        if !self.supported {
            out.push_str("\n\nNot supported yet.");
        }
        out
    }
}

impl Choice {
    /// What the word means, in a line of Markdown.
    pub fn line(&self) -> String {
        let later = if self.supported { "" } else { " (not supported yet)" };
        format!("`{}`: {}{later}", self.word, self.doc)
    }
}

impl Kind {
    /// What a number must be followed by, where it needs a unit.
    pub fn units(&self) -> Option<&'static str> {
        match self {
            Kind::Bytes { .. } => Some("KiB, MiB, GiB"),
            Kind::Duration { .. } => Some("ms, s, m, h"),
            _ => None,
        }
    }

    /// What range a value must be in: `1 to 64`, `0 or more`. None where any value of the kind will do.
    pub fn range(&self) -> Option<String> {
        match *self {
            Kind::Integer { min, max } => Some(between(min, (max as f64) < LARGE, max)),
            Kind::Number { min, max, above: true } if max < LARGE => {
                Some(format!("above {min}, up to {max}"))
            }
            Kind::Number { min, above: true, .. } => Some(format!("above {min}")),
            Kind::Number { min, max, .. } => Some(between(min, max < LARGE, max)),
            Kind::Bytes { min, max } => Some(format!("{} to {}", show_bytes(min), show_bytes(max))),
            Kind::Duration { min, max } => Some(format!("{} to {}", show_duration(min), show_duration(max))),
            _ => None,
        }
    }
}

fn between<N: fmt::Display>(min: N, bounded: bool, max: N) -> String {
    if bounded { format!("{min} to {max}") } else { format!("{min} or more") }
}

impl fmt::Display for Default {
    /// The value as it is written, in backticks, or what holds without one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Default::Required => f.write_str("none, it must be given"),
            Default::Absent(meaning) => f.write_str(meaning),
            Default::Integer(whole) => write!(f, "`{whole}`"),
            Default::Number(number) if *number != 0.0 && number.abs() < 1e-3 => write!(f, "`{number:e}`"),
            Default::Number(number) => write!(f, "`{number}`"),
            Default::Boolean(truth) => write!(f, "`{truth}`"),
            Default::Bytes(bytes) => write!(f, "`{}`", show_bytes(*bytes)),
            Default::Duration(time) => write!(f, "`{}`", show_duration(*time)),
            Default::Word(word) => write!(f, "`{word}`"),
            Default::AllWords => f.write_str("all of them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::BlockKind;
    use crate::settings::find;

    #[test]
    fn ranges_and_defaults_read_as_they_would_be_written() {
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
