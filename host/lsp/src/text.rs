//! Words about the language, in Markdown.

use std::fmt::Write as _;

use mas_dsl::settings::{Choice, Kind, Setting};
use mas_dsl::{BlockKind, Fact, FactKind, Item, Span};
use serde_json::Value;

/// The text of a span; empty where it does not fit.
pub fn of(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap_or_default()
}

/// The first line.
pub fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What a setting may be given, what holds without it, and what it is for.
pub fn setting(setting: &Setting) -> String {
    let Setting { block, key, kind, default, doc, supported, .. } = setting;
    let range = kind.range().map(|range| format!(", {range}")).unwrap_or_default();
    let mut out = format!("**{}.{key}**: {kind}{range}  \nDefault: {default}\n\n{doc}", block.keyword());
    if let Kind::Choice(choices) | Kind::Choices(choices) = kind {
        out.push('\n');
        for choice in choices.iter().filter(|choice| choice.supported) {
            // Writing to a string never fails.
            let _ = write!(out, "\n- `{}`: {}", choice.word, choice.doc);
        }
    }
    if !supported {
        out.push_str("\n\nNot supported yet.");
    }
    out
}

/// What a word of a setting means.
pub fn choice(choice: &Choice) -> String {
    let later = if choice.supported { "" } else { "\n\nNot supported yet." };
    format!("**{}**: {}{later}", choice.word, choice.doc)
}

/// How a block is written.
pub fn block(kind: BlockKind) -> String {
    format!("```mas\n{}\n```", kind.form())
}

/// What a plugin's item is, and which facts it reports.
pub fn item(item: &Item) -> String {
    let mut out = format!("**{}** ({})\n\n{}", item.name, item.kind, item.doc);
    if !item.facts.is_empty() {
        out.push_str("\n\nFacts:\n");
        for one in &item.facts {
            // Writing to a string never fails.
            let _ = write!(out, "\n- {}", fact(one));
        }
    }
    out
}

/// A fact and its type.
pub fn fact(fact: &Fact) -> String {
    let kind = match fact.kind {
        FactKind::Boolean => "`true` or `false`",
        FactKind::Number => "a number",
        FactKind::Text => "text",
    };
    format!("`env.{}`: {kind}", fact.name)
}

/// What an item's schema says of one of its settings.
pub fn property(name: &str, schema: &Value) -> String {
    let doc = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let default = schema.get("default").filter(|default| !default.is_null());
    let default = default.map(|default| format!("  \nDefault: `{default}`")).unwrap_or_default();
    format!("**{name}**{default}\n\n{doc}").trim_end().to_owned()
}
