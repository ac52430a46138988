//! Validates the settings of an item against its JSON Schema. Supports the part of JSON Schema that Rust, Python and
//! TypeScript generators write for plain settings objects:
//!
//! `type`, `enum`, `const`, `minimum`, `maximum` and their exclusive forms, `minLength`, `maxLength`,
//! `properties`, `required`, `additionalProperties`, `items`, `minItems`, `maxItems`, `anyOf`, `oneOf`,
//! `allOf` and `$ref` within the document, and `"x-regex": true` for texts that are regular expressions of the crate
//! `regex-lite`. The plugin checks other keywords.

use serde_json::Value as Json;

use crate::diagnostic::spelling::{either, nearest, suggest};

/// Maximum number of references and alternatives to follow, because a schema may refer to itself.
const MAX_DEPTH: usize = 32;

/// A schema, and the document that its references point into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema<'s> {
    root: &'s Json,
    node: &'s Json,
}

/// Schema of one key.
#[derive(Debug)]
pub(crate) enum Property<'s> {
    /// Declared, or allowed by a schema for all other keys.
    Known(Schema<'s>),
    /// Any value.
    Open,
    Unknown,
}

impl<'s> Schema<'s> {
    pub fn new(root: &'s Json) -> Self {
        Schema { root, node: root }.resolved()
    }

    fn with_node(self, node: &'s Json) -> Self {
        Schema { root: self.root, node }.resolved()
    }

    fn resolved(mut self) -> Self {
        for _ in 0..MAX_DEPTH {
            let target = self.node.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix('#'));
            match target.and_then(|pointer| self.root.pointer(pointer)) {
                Some(node) => self.node = node,
                None => break,
            }
        }
        self
    }

    /// Keys of the settings object.
    pub fn keys(self) -> Vec<&'s str> {
        let properties = self.node.get("properties").and_then(Json::as_object);
        properties.map(|known| known.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    pub fn required(self) -> Vec<&'s str> {
        let required = self.node.get("required").and_then(Json::as_array);
        required.map(|keys| keys.iter().filter_map(Json::as_str).collect()).unwrap_or_default()
    }

    /// Looks up the schema of a key. Unlike in JSON Schema, keys that the schema doesn't name are errors unless
    /// `additionalProperties` allows them.
    pub fn property(self, key: &str) -> Property<'s> {
        if let Some(node) = self.node.get("properties").and_then(|known| known.get(key)) {
            return Property::Known(self.with_node(node));
        }
        match self.node.get("additionalProperties") {
            Some(Json::Bool(true)) => Property::Open,
            Some(node @ Json::Object(_)) => Property::Known(self.with_node(node)),
            _ => Property::Unknown,
        }
    }

    /// Schema of the elements of a list.
    pub fn items(self) -> Option<Schema<'s>> {
        let own = |schema: Schema<'s>| schema.node.get("items").map(|node| schema.with_node(node));
        own(self).or_else(|| self.variants().into_iter().find_map(own))
    }

    fn variants(self) -> Vec<Schema<'s>> {
        ["anyOf", "oneOf"]
            .into_iter()
            .filter_map(|keyword| self.node.get(keyword)?.as_array())
            .flatten()
            .map(|node| self.with_node(node))
            .collect()
    }

    /// Returns the schema of an object: this one or one of its variants.
    pub fn object(self) -> Schema<'s> {
        if self.node.get("properties").is_some() {
            return self;
        }
        self.variants().into_iter().find(|variant| variant.node.get("properties").is_some()).unwrap_or(self)
    }

    /// Allowed texts, if the schema lists them.
    pub fn words(self) -> Vec<&'s str> {
        let mut out = Vec::new();
        self.collect_words(MAX_DEPTH, &mut out);
        out
    }

    fn collect_words(self, depth: usize, out: &mut Vec<&'s str>) {
        let listed = self.node.get("enum").and_then(Json::as_array);
        out.extend(listed.into_iter().flatten().filter_map(Json::as_str));
        out.extend(self.node.get("const").and_then(Json::as_str));
        if let Some(depth) = depth.checked_sub(1) {
            // Skip variants that refer back to this schema.
            for variant in self.variants().into_iter().filter(|one| !std::ptr::eq(one.node, self.node)) {
                variant.collect_words(depth.min(4), out);
            }
        }
    }

    /// True if only text is allowed.
    pub fn is_text(self) -> bool {
        let types = self.types();
        !types.is_empty() && types.iter().all(|one| matches!(*one, "string" | "null"))
    }

    fn types(self) -> Vec<&'s str> {
        match self.node.get("type") {
            Some(Json::String(one)) => vec![one],
            Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Validates a value. Each problem continues a sentence that starts with the value's name: `must be at least 1`.
    pub fn problems(self, value: &Json) -> Vec<String> {
        let mut out = Vec::new();
        self.check(value, "", MAX_DEPTH, &mut out);
        out
    }

    fn check(self, value: &Json, path: &str, depth: usize, out: &mut Vec<String>) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if self.node == &Json::Bool(false) {
            out.push(format!("{path}must not be given"));
            return;
        }
        let types = self.types();
        if !types.is_empty() && !types.iter().any(|one| has_type(value, one)) {
            let words: Vec<&str> =
                types.iter().filter(|one| **one != "null").map(|one| type_phrase(one)).collect();
            out.push(format!("{path}must be {}, not {}", words.join(" or "), describe(value)));
            return;
        }
        if let Some(allowed) = self.node.get("enum").and_then(Json::as_array)
            && !allowed.contains(value)
        {
            out.push(not_one_of(value, path, allowed));
        }
        if let Some(only) = self.node.get("const")
            && only != value
        {
            out.push(not_one_of(value, path, std::slice::from_ref(only)));
        }
        self.check_size(value, path, out);
        if let (Some(Json::Bool(true)), Some(text)) = (self.node.get("x-regex"), value.as_str())
            && let Err(error) = regex_lite::Regex::new(text)
        {
            out.push(format!("{path}must be a regular expression: {error}"));
        }
        if let (Some(items), Some(values)) = (self.items(), value.as_array()) {
            for (index, one) in values.iter().enumerate() {
                items.check(one, &format!("{path}element {} ", index + 1), depth, out);
            }
        }
        if let Some(object) = value.as_object()
            && self.node.get("properties").is_some()
        {
            let mut meant = Vec::new();
            for (key, one) in object {
                match self.property(key) {
                    Property::Known(schema) => schema.check(one, &format!("{path}`{key}` "), depth, out),
                    Property::Open => {}
                    Property::Unknown => {
                        let hint = suggest(key, "it has", self.keys());
                        let hint = hint.map(|text| format!(" ({text})")).unwrap_or_default();
                        out.push(format!("{path}has no `{key}`{hint}"));
                        meant.extend(nearest(key, self.keys()));
                    }
                }
            }
            // Don't report a misspelt key as missing too.
            let missing = self.required().into_iter().filter(|key| !object.contains_key(*key));
            for key in missing.filter(|key| !meant.contains(key)) {
                out.push(format!("{path}is missing `{key}`"));
            }
        }
        for part in self.node.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            self.with_node(part).check(value, path, depth, out);
        }
        self.check_variants(value, path, depth, out);
    }

    fn check_variants(self, value: &Json, path: &str, depth: usize, out: &mut Vec<String>) {
        let variants = self.variants();
        if variants.is_empty() {
            return;
        }
        let mut closest: Option<Vec<String>> = None;
        for variant in variants.iter().filter(|variant| variant.types() != ["null"]) {
            let mut problems = Vec::new();
            variant.check(value, path, depth, &mut problems);
            if problems.is_empty() {
                return;
            }
            let is_closer = closest.as_ref().is_none_or(|best| problems.len() < best.len());
            if is_closer {
                closest = Some(problems);
            }
        }
        let words: Vec<Json> = self.words().into_iter().map(Json::from).collect();
        if !words.is_empty() && value.is_string() {
            out.push(not_one_of(value, path, &words));
        } else {
            out.extend(closest.unwrap_or_default());
        }
    }

    fn check_size(self, value: &Json, path: &str, out: &mut Vec<String>) {
        let bound = |keyword: &str| self.node.get(keyword).and_then(Json::as_f64);
        if let Some(number) = value.as_f64() {
            if let Some(least) = bound("minimum").filter(|least| number < *least) {
                out.push(format!("{path}must be at least {least}, but is {value}"));
            }
            if let Some(most) = bound("maximum").filter(|most| number > *most) {
                out.push(format!("{path}must be at most {most}, but is {value}"));
            }
            if let Some(below) = bound("exclusiveMinimum").filter(|below| number <= *below) {
                out.push(format!("{path}must be above {below}, but is {value}"));
            }
            if let Some(above) = bound("exclusiveMaximum").filter(|above| number >= *above) {
                out.push(format!("{path}must be below {above}, but is {value}"));
            }
        }
        let (length, least, most, unit) = match value {
            Json::String(text) => (text.chars().count(), "minLength", "maxLength", "characters"),
            Json::Array(values) => (values.len(), "minItems", "maxItems", "elements"),
            _ => return,
        };
        if let Some(least) = bound(least).filter(|least| (length as f64) < *least) {
            out.push(format!("{path}must have at least {least} {unit}, but has {length}"));
        }
        if let Some(most) = bound(most).filter(|most| length as f64 > *most) {
            out.push(format!("{path}must have at most {most} {unit}, but has {length}"));
        }
    }
}

fn not_one_of(value: &Json, path: &str, allowed: &[Json]) -> String {
    let plain = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let words: Vec<String> = allowed.iter().filter(|one| !one.is_null()).map(plain).collect();
    format!("{path}must be {}, but is `{}`", either(&words), plain(value))
}

fn has_type(value: &Json, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        // The plugin checks types that JSON Schema doesn't define.
        _ => true,
    }
}

fn type_phrase(kind: &str) -> &str {
    match kind {
        "string" => "text",
        "boolean" => "`true` or `false`",
        "number" => "a number",
        "integer" => "a whole number",
        "array" => "a list",
        "object" => "a block",
        other => other,
    }
}

fn describe(value: &Json) -> String {
    match value {
        Json::Null => "nothing".to_owned(),
        Json::Bool(truth) => format!("`{truth}`"),
        Json::Number(number) => format!("the number {number}"),
        Json::String(_) => "text".to_owned(),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "a block".to_owned(),
    }
}
