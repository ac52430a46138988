//! Descriptions of plugin items, in Markdown.

use std::fmt::Write as _;

use pl_types::{Fact, FactKind, Item};
use serde_json::Value;

/// Description of a plugin item, with the facts that it reports.
pub fn describe_item(item: &Item) -> String {
    let mut out = format!("**{}** ({})\n\n{}", item.name, item.kind, item.doc);
    if !item.facts.is_empty() {
        out.push_str("\n\nFacts:\n");
        for fact in &item.facts {
            // Writing to a string never fails.
            let _ = write!(out, "\n- {}", describe_fact(fact));
        }
    }
    out
}

/// Name and type of a fact.
pub fn describe_fact(fact: &Fact) -> String {
    let kind = match fact.kind {
        FactKind::Boolean => "`true` or `false`",
        FactKind::Number => "a number",
        FactKind::Text => "text",
    };
    format!("`env.{}`: {kind}", fact.name)
}

/// Description of a setting of an item, from its JSON schema.
pub fn describe_setting(name: &str, schema: &Value) -> String {
    let doc = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let default = schema.get("default").filter(|default| !default.is_null());
    let default = default.map(|default| format!("  \nDefault: `{default}`")).unwrap_or_default();
    format!("**{name}**{default}\n\n{doc}").trim_end().to_owned()
}
