//! Settings of a run by dotted path, so that runs can be compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns all scalar settings of a resolved workflow by dotted path, such as `policies.coder.lora.rank`. Items of
/// lists with a name are called by it.
pub fn settings_by_path(workflow: &Value) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::new();
    collect("", workflow, &mut settings);
    settings
}

fn collect(path: &str, value: &Value, settings: &mut BTreeMap<String, Value>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| collect(&join(key), value, settings)),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                collect(&join(&name.map_or_else(|| index.to_string(), str::to_owned)), item, settings);
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
        let settings = settings_by_path(&workflow);
        let paths: Vec<&str> = settings.keys().map(String::as_str).collect();
        assert_eq!(paths, ["policies.coder.lora.rank", "policies.coder.name", "seeds", "train.steps"]);
    }
}
