//! Settings of a run by dotted path, so that runs can be compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys whose numbers are positions in a list of the workflow.
const POSITIONS: [(&str, &str); 7] = [
    ("agent", "agents"),
    ("agents", "agents"),
    ("corpora", "corpora"),
    ("model", "models"),
    ("plugin", "plugins"),
    ("policy", "policies"),
    ("scenario", "scenarios"),
];

/// Returns all scalar settings of a resolved workflow by dotted path, such as `policies.coder.lora.rank`. Items of
/// lists with a name are called by it, also where a setting has their position.
pub fn settings_by_path(workflow: &Value) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::new();
    collect("", workflow, &mut settings);
    for (path, value) in &mut settings {
        let key = path.rsplit('.').next().unwrap_or_default();
        let Some((_, list)) = POSITIONS.iter().find(|(known, _)| *known == key) else { continue };
        let name = |position: &Value| {
            let index = usize::try_from(position.as_u64()?).ok()?;
            workflow.get(list)?.get(index)?.get("name").filter(|name| name.is_string()).cloned()
        };
        let named = match &*value {
            Value::Array(positions) => positions.iter().map(name).collect::<Option<_>>().map(Value::Array),
            position => name(position),
        };
        *value = named.unwrap_or_else(|| value.take());
    }
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
    fn positions_are_shown_as_names() {
        let workflow = serde_json::json!({
            "policies": [{ "name": "first" }, { "name": "second" }],
            "agents": [{ "name": "coder", "policy": 1, "plugin": 7 }],
            "scenarios": [{ "turns": { "nodes": [{ "agents": [0] }] } }],
            "evaluations": [{ "name": "test", "scenario": 0 }],
        });
        let settings = settings_by_path(&workflow);
        assert_eq!(settings["agents.coder.policy"], "second");
        assert_eq!(settings["scenarios.0.turns.nodes.0.agents"], serde_json::json!(["coder"]));
        // Without such an item, and without a name.
        assert_eq!(
            (&settings["agents.coder.plugin"], &settings["evaluations.test.scenario"]),
            (&7.into(), &0.into())
        );
    }

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
