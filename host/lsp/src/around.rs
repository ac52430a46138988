//! What a document's names stand for, as far as its own text and its plugins tell.

use pl_dsl::analysis::{Block, Enclosing, outline};
use pl_dsl::{Fact, Item};
use serde_json::{Map, Value};

use crate::documents::Document;
use crate::text;

/// The item of a plugin that a path such as `maths.tool` names.
pub fn item<'d>(document: &'d Document, path: &str) -> Option<&'d Item> {
    let (plugin, name) = path.split_once('.')?;
    items(document, plugin).iter().find(|item| item.name == name)
}

/// What a plugin offers, as the last check saw it.
pub fn items<'d>(document: &'d Document, plugin: &str) -> &'d [Item] {
    let report = document.report.as_ref();
    report.and_then(|report| report.items.get(plugin)).map(Vec::as_slice).unwrap_or_default()
}

/// The settings that the item behind a block's `=` declares, by key.
pub fn properties<'d>(document: &'d Document, block: &Enclosing) -> Option<&'d Map<String, Value>> {
    let path = text::of(&document.text, block.value?);
    item(document, path)?.settings_schema.get("properties")?.as_object()
}

/// The facts that the environment reports.
pub fn facts(document: &Document) -> Vec<&Fact> {
    let blocks = outline(&document.text);
    blocks
        .iter()
        .filter(|block| text::of(&document.text, block.keyword) == "environment")
        .filter_map(|block| item(document, text::of(&document.text, block.value?)))
        .flat_map(|item| &item.facts)
        .collect()
}

/// The names that blocks with a keyword declare, with those blocks.
pub fn declared<'d>(document: &'d Document, blocks: &'d [Block], keyword: &str) -> Vec<(&'d str, &'d Block)> {
    blocks
        .iter()
        .filter(|block| text::of(&document.text, block.keyword) == keyword)
        .filter_map(|block| Some((text::of(&document.text, block.name?), block)))
        .collect()
}
