//! Items of a plugin, from its own description.

use std::collections::HashSet;

use pl_types::{Fact, FactKind, Item, ItemKind};
use serde_json::Value;
use thiserror::Error;

use crate::bindings::base::exports::pl_host::plugin::catalog;
use crate::check::{InvalidValue, json_error};

/// Violation of the contract by a plugin's description.
#[derive(Debug, Error)]
pub(crate) enum InvalidDescription {
    #[error("two {kind}s are named {name}")]
    DuplicateItem { kind: ItemKind, name: String },
    #[error("{0:?} is not a valid name of an item: use letters, digits and _")]
    ItemName(String),
    #[error(transparent)]
    Schema(#[from] InvalidValue),
    #[error("the settings schema of {0} is not a JSON object")]
    SchemaKind(String),
    #[error("{name:?} is not a valid name of a fact of {item}: use letters, digits and _")]
    FactName { item: String, name: String },
    #[error("{item} has two facts named {name}")]
    DuplicateFact { item: String, name: String },
}

/// Checks and converts a plugin's description.
pub(crate) fn read(described: Vec<catalog::Item>) -> Result<Vec<Item>, InvalidDescription> {
    let items = described.into_iter().map(to_item).collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    for item in &items {
        if !seen.insert((item.kind, item.name.as_str())) {
            return Err(InvalidDescription::DuplicateItem { kind: item.kind, name: item.name.clone() });
        }
    }
    Ok(items)
}

fn to_item(described: catalog::Item) -> Result<Item, InvalidDescription> {
    let name = described.name;
    if !is_name(&name) {
        return Err(InvalidDescription::ItemName(name));
    }
    let settings_schema: Value = serde_json::from_str(&described.settings_schema)
        .map_err(|error| json_error(format!("the settings schema of {name}"), "JSON", error))?;
    if !settings_schema.is_object() {
        return Err(InvalidDescription::SchemaKind(name));
    }
    let mut facts: Vec<Fact> = Vec::new();
    for fact in described.facts {
        if !is_name(&fact.name) {
            return Err(InvalidDescription::FactName { item: name, name: fact.name });
        }
        if facts.iter().any(|earlier| earlier.name == fact.name) {
            return Err(InvalidDescription::DuplicateFact { item: name, name: fact.name });
        }
        let kind = match fact.kind {
            catalog::FactKind::Boolean => FactKind::Boolean,
            catalog::FactKind::Number => FactKind::Number,
            catalog::FactKind::Text => FactKind::Text,
        };
        facts.push(Fact { name: fact.name, kind, doc: fact.doc });
    }
    let kind = match described.kind {
        catalog::ItemKind::Environment => ItemKind::Environment,
        catalog::ItemKind::Agent => ItemKind::Agent,
        catalog::ItemKind::Reward => ItemKind::Reward,
    };
    Ok(Item { kind, name, doc: described.doc, settings_schema, facts })
}

/// Returns `true` for an identifier of the workflow language.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
