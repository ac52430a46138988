//! Words about the language, in Markdown.

use std::fmt::Write as _;

use pl_dsl::{Fact, FactKind, Item, Span};
use serde_json::Value;

/// The text of a span; empty where it does not fit.
pub fn of(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap_or_default()
}

/// The first line.
pub fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
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
