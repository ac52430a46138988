//! Settings of a run by dotted path, so that runs can be compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys whose numbers are positions in a list of the workflow.
const POSITIONS: [(&str, &str); 9] = [
    ("agent", "agents"),
    ("agents", "agents"),
    ("corpus", "corpora"),
    ("designer", "designers"),
    ("model", "models"),
    ("plugin", "plugins"),
    ("policy", "policies"),
    ("scenario", "scenarios"),
    ("server", "servers"),
];

/// Keys of values whose own keys are not the workflow's, but those of parameters and plugins.
const FOREIGN: [&str; 2] = ["params", "settings"];

/// Returns all scalar settings of a resolved workflow by dotted path, such as `policies.coder.lora.rank`. Items of
/// lists with a name are called by it, also where a setting has their position.
pub fn settings_by_path(workflow: &Value) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::new();
    collect(Some(workflow), ("", ""), workflow, &mut settings);
    settings
}

/// Collects the settings below a path, whose last key in an object is `key`. Positions are named by the items of `workflow`,
/// and stay if it is `None`.
fn collect(
    workflow: Option<&Value>,
    (path, key): (&str, &str),
    value: &Value,
    settings: &mut BTreeMap<String, Value>,
) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let own = workflow.filter(|_| !FOREIGN.contains(&key.as_str()));
                collect(own, (&join(key), key), value, settings);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                let path = join(&name.map_or_else(|| index.to_string(), str::to_owned));
                collect(workflow, (&path, key), item, settings);
            }
        }
        scalar => {
            let named = workflow.and_then(|workflow| named(workflow, key, scalar));
            settings.insert(path.to_owned(), named.unwrap_or_else(|| scalar.clone()));
        }
    }
}

/// Returns the names of the items at positions of a list of the workflow. Returns `None` if a key has no positions, or one of the
/// items no name.
fn named(workflow: &Value, key: &str, value: &Value) -> Option<Value> {
    let (_, list) = POSITIONS.iter().find(|(known, _)| *known == key)?;
    let name = |position: &Value| {
        let index = usize::try_from(position.as_u64()?).ok()?;
        workflow.get(list)?.get(index)?.get("name").filter(|name| name.is_string()).cloned()
    };
    match value {
        Value::Array(positions) => positions.iter().map(name).collect::<Option<_>>().map(Value::Array),
        position => name(position),
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
    fn numbers_of_plugins_and_parameters_are_no_positions() {
        let workflow = serde_json::json!({
            "params": { "agents": 0 },
            "policies": [{ "name": "first", "server": 0 }],
            "servers": [{ "name": "vllm" }],
            "corpora": [{ "name": "wiki" }],
            "designers": [{ "name": "architect" }],
            "agents": [{ "name": "settings", "policy": 0, "settings": { "policy": 0, "deep": { "agents": [0] } } }],
            "scenarios": [{ "designer": 0, "environment": { "corpus": [0], "settings": { "agents": 0 } } }],
        });
        let settings = settings_by_path(&workflow);
        assert_eq!(settings["policies.first.server"], "vllm");
        assert_eq!(settings["scenarios.0.designer"], "architect");
        assert_eq!(settings["scenarios.0.environment.corpus"], serde_json::json!(["wiki"]));
        assert_eq!(settings["agents.settings.policy"], "first");
        assert_eq!(settings["agents.settings.settings.deep.agents"], serde_json::json!([0]));
        let own =
            ["params.agents", "agents.settings.settings.policy", "scenarios.0.environment.settings.agents"];
        assert!(own.iter().all(|path| settings[*path] == 0), "{settings:?}");
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
