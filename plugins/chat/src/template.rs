//! Templates: text with `{dotted.path}` placeholders over a JSON document.

use serde_json::Value;

/// A parsed template.
#[derive(Debug, PartialEq)]
pub struct Template<'a>(Vec<Piece<'a>>);

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    /// A path, its steps between dots.
    Hole(&'a str),
}

impl<'a> Template<'a> {
    /// Braces that hold no path (JSON, LaTeX, code) are text, so there is nothing to refuse.
    pub fn parse(source: &'a str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = source;
        let mut from = 0;
        while let Some(open) = rest[from..].find('{').map(|at| from + at) {
            let inside = &rest[open + 1..];
            let path = inside.split_once('}').map(|(path, _)| path).filter(|path| is_path(path));
            if let Some(path) = path {
                if open > 0 {
                    pieces.push(Piece::Text(&rest[..open]));
                }
                pieces.push(Piece::Hole(path));
                rest = &inside[path.len() + 1..];
                from = 0;
            } else {
                from = open + 1;
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        Self(pieces)
    }

    /// The text with what `view` holds: strings as they are, null as nothing, the rest as JSON.
    ///
    /// # Errors
    /// A sentence that names the path that `view` lacks.
    pub fn fill(&self, view: &Value) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Hole(path) => match find(view, path)? {
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

/// What stands below a null (a tool that was not used yet) is null.
fn find<'v>(view: &'v Value, path: &str) -> Result<&'v Value, String> {
    let mut value = view;
    for step in path.split('.') {
        let next = match value {
            Value::Null => return Ok(value),
            Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            other => other.get(step),
        };
        value = next.ok_or_else(|| {
            let shown = match value {
                Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(", "),
                Value::Array(items) => format!("a list of {}", items.len()),
                other => other.to_string(),
            };
            format!("the template asks for {{{path}}}, which the environment does not show: it shows {shown}")
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
    fn a_lacking_path_is_named() {
        let error = Template::parse("{a.z}").fill(&json!({"a": {"b": 1, "c": 2}})).unwrap_err();
        assert_eq!(error, "the template asks for {a.z}, which the environment does not show: it shows b, c");
    }
}
