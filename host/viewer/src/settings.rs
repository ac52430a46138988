//! Settings of a run by dotted path, so that pages can show how runs differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Returns all scalar settings of a workflow by dotted path, such as `policies.coder.lora.rank`. Items of lists
/// with a name are called by it.
pub(crate) fn flatten(workflow: &Map<String, Value>) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::new();
    for (key, value) in workflow {
        collect(key, value, &mut settings);
    }
    settings
}

fn collect(path: &str, value: &Value, settings: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(&format!("{path}.{key}"), value, settings);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                collect(&format!("{path}.{}", name.unwrap_or(&index.to_string())), item, settings);
            }
        }
        scalar => drop(settings.insert(path.to_owned(), scalar.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_names_of_their_blocks() {
        let workflow = serde_json::json!({
            "train": { "steps": 3 }, "policies": [{ "name": "coder", "lora": { "rank": 4 } }], "seeds": [1, 2],
        });
        let settings = flatten(workflow.as_object().unwrap());
        let paths: Vec<&str> = settings.keys().map(String::as_str).collect();
        assert_eq!(paths, ["policies.coder.lora.rank", "policies.coder.name", "seeds", "train.steps"]);
    }
}
