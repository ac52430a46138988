//! `pl-host schema`: the JSON Schema of `workflow.json`, the checked workflow in a run folder.

use std::io::Write;

use pl_dsl::workflow::Workflow;
use serde_json::{Value, json};

use crate::exit::CommandResult;

pub fn run() -> CommandResult {
    Ok(writeln!(std::io::stdout().lock(), "{:#}", schema_of_file())?)
}

/// JSON Schema of [`pl_run::StoredWorkflow`].
fn schema_of_file() -> Value {
    let mut workflow = Workflow::json_schema();
    let mut remove = |key: &str| workflow.as_object_mut().and_then(|schema| schema.remove(key));
    let (dialect, definitions) = (remove("$schema"), remove("$defs"));
    let mut schema = json!({
        "$schema": dialect,
        "title": "StoredWorkflow",
        "description": "Content of `workflow.json` in a run folder.",
        "type": "object",
        "properties": {
            "folder": { "description": "Folder that relative paths start from.", "type": "string" },
            "workflow": workflow,
            "overrides": {
                "description": "Settings from outside the file that led to this workflow, in order.",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "description": "Name of a param, or dotted path of a setting.", "type": "string" },
                        "value": { "type": "string" },
                        "shown": { "description": "Form in which messages show it.", "type": "string" },
                        "optional": {
                            "description": "True if it is ignored by workflows without such a param.",
                            "type": "boolean",
                        },
                    },
                    "required": ["path", "value", "shown"],
                },
            },
        },
        "required": ["folder", "workflow"],
    });
    // References of the workflow's schema are relative to the root.
    schema["$defs"] = definitions.unwrap_or_else(|| json!({}));
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pl_dsl::Override;
    use pl_run::StoredWorkflow;

    use super::*;

    fn keys(object: &Value) -> BTreeSet<&str> {
        object.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_schema_describes_the_whole_file() {
        let snapshot = include_str!("../../../../dsl/tests/cases/design.workflow.snap");
        let workflow: Workflow = serde_json::from_str(snapshot.rsplit("\n---\n").next().unwrap()).unwrap();
        let given: Override = "samples=8".parse().unwrap();
        let overrides = vec![(&given).into()];
        let stored =
            serde_json::to_value(StoredWorkflow { folder: "/w".into(), workflow, overrides }).unwrap();
        let schema = schema_of_file();
        assert_eq!(keys(&schema["properties"]), keys(&stored));
        let item = &schema["properties"]["overrides"]["items"];
        assert_eq!(keys(&item["properties"]), keys(&stored["overrides"][0]));
        assert_eq!(schema["properties"]["workflow"]["title"], "Workflow");
        let text = schema.to_string();
        let mut referred =
            text.split("\"$ref\":\"#/$defs/").skip(1).map(|rest| rest.split('"').next().unwrap());
        assert!(referred.all(|name| schema["$defs"].get(name).is_some()));
    }
}
