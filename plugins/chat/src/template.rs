//! Templates: text with `{dotted.path}` placeholders over a JSON document.

use std::fmt;

use serde_json::Value;

/// A path of a template that is missing in the view.
#[derive(Debug, PartialEq)]
pub struct MissingPath {
    path: String,
    /// Description of the value in which the search ended.
    available: String,
}

impl fmt::Display for MissingPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, available } = self;
        write!(out, "the template has {{{path}}}, which is not in the environment's view: it has {available}")
    }
}

/// A parsed template.
#[derive(Debug, PartialEq)]
pub struct Template<'a>(Vec<Piece<'a>>);

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    /// A path whose steps are separated by dots.
    Placeholder(&'a str),
}

impl<'a> Template<'a> {
    /// Parses a template. Braces around anything but a path (JSON, LaTeX, code) are text, so no template is
    /// invalid.
    pub fn parse(source: &'a str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = source;
        let mut search_start = 0;
        while let Some(open) = rest[search_start..].find('{').map(|index| search_start + index) {
            let inside = &rest[open + 1..];
            let path = inside.split_once('}').map(|(path, _)| path).filter(|path| is_path(path));
            if let Some(path) = path {
                if open > 0 {
                    pieces.push(Piece::Text(&rest[..open]));
                }
                pieces.push(Piece::Placeholder(path));
                rest = &inside[path.len() + 1..];
                search_start = 0;
            } else {
                search_start = open + 1;
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        Self(pieces)
    }

    /// Returns the text with the values of `view`: strings unchanged, null as an empty text, other values as
    /// JSON.
    ///
    /// # Errors
    /// [`MissingPath`]
    pub fn fill(&self, view: &Value) -> Result<String, MissingPath> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Placeholder(path) => match find(view, path)? {
                    Value::Null => {}
                    Value::String(value) => text.push_str(value),
                    other => text.push_str(&other.to_string()),
                },
            }
        }
        Ok(text)
    }
}

fn is_path(text: &str) -> bool {
    let step =
        |step: &str| !step.is_empty() && step.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.split('.').all(step)
}

/// Returns the value of a path. Everything below null (a tool that was not used yet) is null.
fn find<'v>(view: &'v Value, path: &str) -> Result<&'v Value, MissingPath> {
    let mut value = view;
    for step in path.split('.') {
        let next = match value {
            Value::Null => return Ok(value),
            Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            other => other.get(step),
        };
        value = next.ok_or_else(|| {
            let available = match value {
                Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(", "),
                Value::Array(items) => format!("a list of {}", items.len()),
                other => other.to_string(),
            };
            MissingPath { path: path.to_owned(), available }
        })?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(source: &str, view: &Value) -> String {
        Template::parse(source).fill(view).unwrap()
    }

    #[test]
    fn paths_lead_into_objects_and_lists() {
        let view = json!({"a": {"b": [1, "two", {"c": true}]}, "n": null, "x-y": 1.5});
        assert_eq!(fill("{a.b.1}/{a.b.2.c}/{a.b.0}/{x-y}", &view), "two/true/1/1.5");
        assert_eq!(fill("[{n}][{n.deeper}]", &view), "[][]");
        assert_eq!(fill("{a.b.2}", &view), r#"{"c":true}"#);
    }

    #[test]
    fn other_braces_are_text() {
        let view = json!({"q": "?"});
        assert_eq!(
            fill(r#"\boxed{} {"k": 1} \frac{a b}{} {q}{q} {"#, &view),
            r#"\boxed{} {"k": 1} \frac{a b}{} ?? {"#
        );
        assert_eq!(fill("{ {q}", &view), "{ ?");
        assert_eq!(fill("", &view), "");
        assert_eq!(fill("ü{q}ü", &view), "ü?ü");
    }

    #[test]
    fn a_missing_path_is_named() {
        let error = Template::parse("{a.z}").fill(&json!({"a": {"b": 1, "c": 2}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the template has {a.z}, which is not in the environment's view: it has b, c"
        );
    }
}
