//! A catalog with the items that the examples use, to test the check without plugins.

use std::path::Path;

use pl_dsl::workflow::Plugin;
use pl_dsl::{Catalog, CatalogError};
use pl_types::{Fact, FactKind, Item, ItemKind};
use serde_json::{Value, json};

/// Catalog with the items of `math.wasm` and of the built-in plugin. No other plugin can be loaded.
pub struct TestCatalog;

fn item(kind: ItemKind, name: &str, settings_schema: Value, facts: Vec<Fact>) -> Item {
    Item { kind, name: name.to_owned(), doc: String::new(), settings_schema, facts }
}

fn fact(name: &str, kind: FactKind) -> Fact {
    Fact { name: name.to_owned(), kind, doc: String::new() }
}

fn none() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

impl Catalog for TestCatalog {
    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        // The package is this one or another of the repository.
        let folders =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("dsl/tests/cases"));
        let file = folders.map(|folder| folder.join(path)).find(|file| file.is_file());
        file.and_then(|file| std::fs::read_to_string(file).ok())
            .ok_or(CatalogError::Unavailable("there is no such file"))
    }

    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, CatalogError> {
        let Some(path) = &plugin.path else {
            // As schemars writes it: options are a list of types.
            return Ok(vec![item(
                ItemKind::Agent,
                "chat",
                json!({
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "type": "object",
                    "properties": {
                        "system": { "type": ["string", "null"] },
                        "template": { "type": "string", "description": "The user's message, with {names} of the view." },
                        "extract": { "type": ["string", "null"], "x-regex": true },
                        "action": { "type": "string", "default": "answer" },
                    },
                    "required": ["template"],
                    "additionalProperties": false,
                }),
                Vec::new(),
            )]);
        };
        if path.ends_with("broken.wasm") {
            return Err(CatalogError::Unavailable("it is not a WebAssembly component"));
        }
        let facts = vec![
            fact("agreed", FactKind::Boolean),
            fact("round", FactKind::Number),
            fact("state", FactKind::Text),
        ];
        Ok(vec![
            item(ItemKind::Environment, "problems", none(), facts),
            item(ItemKind::Agent, "tool", none(), Vec::new()),
            item(
                ItemKind::Agent,
                "reasoner",
                json!({
                    "type": "object",
                    "properties": {
                        "examples": { "type": "integer", "minimum": 0, "maximum": 4 },
                        "shots": { "type": "integer", "minimum": 0, "maximum": 8 },
                        "style": { "anyOf": [{ "$ref": "#/$defs/Style" }, { "type": "null" }] },
                        "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 3 },
                        "limits": { "$ref": "#/$defs/Limits" },
                    },
                    "$defs": {
                        "Style": { "oneOf": [
                            { "type": "string", "const": "short", "description": "A line." },
                            { "type": "string", "const": "long", "description": "A page." },
                        ] },
                        "Limits": {
                            "type": "object",
                            "properties": { "lines": { "type": "integer", "format": "uint32", "minimum": 0 } },
                            "required": ["lines"],
                        },
                    },
                    "additionalProperties": false,
                }),
                Vec::new(),
            ),
            item(ItemKind::Reward, "score", none(), Vec::new()),
            item(
                ItemKind::Reward,
                "final",
                json!({ "type": "object", "properties": {}, "additionalProperties": false, "x-scores": "end" }),
                Vec::new(),
            ),
        ])
    }
}
