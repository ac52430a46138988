//! Schemas as client libraries send them, and regular expressions in them.

use super::*;

/// Returns the schema of an object that has all of `members`.
fn object(members: &[(&str, &str)]) -> String {
    let properties: Vec<String> =
        members.iter().map(|(name, schema)| format!("{name:?}: {schema}")).collect();
    let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    format!(
        r#"{{ "type": "object", "properties": {{ {} }}, "required": {required:?}, "additionalProperties": false }}"#,
        properties.join(", ")
    )
}

/// Returns a completion of a schema that has no more tokens than are needed.
fn shortest(schema: &str) -> String {
    let grammar = Grammar::JsonSchema(schema.to_owned());
    let grammar = Arc::new(CompiledGrammar::new(&vocabulary(), &grammar).unwrap());
    let (text, ended) = complete(&grammar, grammar.needed_tokens(), 1);
    let text = String::from_utf8(text).unwrap();
    assert!(ended && serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    text
}

const AGE: &str = r#"{ "type": "integer", "minimum": 1, "maximum": 120 }"#;
const TEXT: &str = r#"{ "type": "string" }"#;

#[test]
fn bounded_integers_stand_beside_other_members() {
    assert_eq!(shortest(&object(&[("a", AGE), ("b", AGE)])), r#"{"a":1,"b":1}"#);
    let tags = r#"{ "type": "array", "items": { "enum": ["a", "b"] } }"#;
    assert_eq!(
        shortest(&object(&[("name", TEXT), ("age", AGE), ("tags", tags)])),
        r#"{"name":"","age":1,"tags":[]}"#
    );
    let nested = object(&[("x", r#"{ "type": "number", "minimum": 0, "maximum": 1 }"#), ("y", TEXT)]);
    assert_eq!(shortest(&object(&[("age", AGE), ("in", &nested)])), r#"{"age":1,"in":{"x":0,"y":""}}"#);
    let names: Vec<String> = (0..80).map(|at| format!("member_{at}")).collect();
    let rating = object(&[("text", r#"{ "type": "string", "minLength": 1 }"#), ("age", AGE)]);
    let members: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), rating.as_str())).collect();
    assert!(shortest(&object(&members)).len() > 2048);
}

#[test]
fn definitions_unions_and_recursion_end_early() {
    let node = r##"{
        "$defs": { "Node": {
            "type": "object",
            "properties": {
                "value": { "type": "number" },
                "left": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
                "right": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] }
            },
            "required": ["value", "left", "right"]
        } },
        "$ref": "#/$defs/Node"
    }"##;
    assert_eq!(shortest(node), r#"{"value":0,"left":null,"right":null}"#);
    let pets = r##"{
        "$defs": {
            "Cat": {
                "type": "object",
                "properties": { "kind": { "const": "cat" }, "lives": { "type": "integer", "minimum": 1, "maximum": 9 } },
                "required": ["kind", "lives"]
            },
            "Dog": {
                "type": "object",
                "properties": { "kind": { "const": "dog" }, "breed": { "type": "string", "minLength": 1 } },
                "required": ["kind", "breed"]
            }
        },
        "type": "object",
        "properties": { "pet": { "anyOf": [{ "$ref": "#/$defs/Cat" }, { "$ref": "#/$defs/Dog" }] }, "n": { "type": "integer" } },
        "required": ["pet", "n"]
    }"##;
    assert!(shortest(pets).len() < 50);
    assert_eq!(shortest(r#"{ "type": "object" }"#), "{}");
}

#[test]
fn texts_of_patterns_formats_and_lengths_are_the_shortest() {
    let text = |schema: &str| shortest(schema).trim_matches('"').to_owned();
    let pattern =
        |pattern: &str| text(&serde_json::json!({ "type": "string", "pattern": pattern }).to_string());
    assert_eq!(pattern(r"^[\w.+-]+@[\w-]+\.[\w.-]+$").len(), 5);
    assert_eq!(pattern(r"^\+?[1-9]\d{7,14}$").len(), 8);
    assert_eq!(pattern(r"^(19|20)\d{2}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$").len(), 10);
    assert_eq!(pattern("foo[0-9]+bar").len(), 7);
    assert_eq!(pattern(r"^\\[a-z]{2}$").len(), 4);
    assert_eq!(pattern("^é{3}$"), "ééé");
    for (format, length) in [("date", 10), ("uuid", 36), ("ipv4", 7), ("email", 3), ("duration", 3)] {
        assert_eq!(
            text(&serde_json::json!({ "type": "string", "format": format }).to_string()).len(),
            length
        );
    }
    assert_eq!(text(r#"{ "type": "string", "minLength": 1000 }"#).len(), 1000);
    for most in [1000, 16_000, 20_000, 60_000] {
        assert_eq!(text(&serde_json::json!({ "type": "string", "maxLength": most }).to_string()), "");
    }
    let items = r#"{ "type": "array", "items": { "type": "integer" }, "minItems": 50 }"#;
    assert!(shortest(items).len() < 110);
    let multiple = shortest(r#"{ "type": "integer", "multipleOf": 7, "minimum": 100 }"#);
    assert_eq!(multiple.parse::<u32>().unwrap() % 7, 0);
}
