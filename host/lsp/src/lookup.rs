//! Lookup of the names in a document: plugin items from the last check, declarations from the current text.

use pl_dsl::analysis::{EnclosingBlock, OutlineBlock, outline};
use pl_types::{Fact, Item};
use serde_json::{Map, Value};

use crate::documents::Document;
use crate::text::span_text;

/// The plugin item that a path such as `maths.tool` names.
pub fn find_item<'d>(document: &'d Document, path: &str) -> Option<&'d Item> {
    let (plugin, name) = path.split_once('.')?;
    plugin_items(document, plugin).iter().find(|item| item.name == name)
}

/// Items that a plugin offered in the last check.
pub fn plugin_items<'d>(document: &'d Document, plugin: &str) -> &'d [Item] {
    let report = document.report.as_ref();
    report.and_then(|report| report.plugin_items.get(plugin)).map(Vec::as_slice).unwrap_or_default()
}

/// JSON schemas of the settings that the item of a block declares, by key.
pub fn item_settings<'d>(document: &'d Document, block: &EnclosingBlock) -> Option<&'d Map<String, Value>> {
    let path = span_text(&document.text, block.value?);
    find_item(document, path)?.settings_schema.get("properties")?.as_object()
}

/// Facts that the environment of the document reports.
pub fn environment_facts(document: &Document) -> Vec<&Fact> {
    let blocks = outline(&document.text);
    blocks
        .iter()
        .filter(|block| span_text(&document.text, block.keyword) == "environment")
        .filter_map(|block| find_item(document, span_text(&document.text, block.value?)))
        .flat_map(|item| &item.facts)
        .collect()
}

/// Named blocks with a keyword.
pub fn declarations<'d>(
    document: &'d Document,
    blocks: &'d [OutlineBlock],
    keyword: &str,
) -> Vec<(&'d str, &'d OutlineBlock)> {
    blocks
        .iter()
        .filter(|block| span_text(&document.text, block.keyword) == keyword)
        .filter_map(|block| Some((span_text(&document.text, block.name?), block)))
        .collect()
}
