//! The JSON Schema of a workflow accepts every workflow of a run folder, and rejects invalid ones.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/files.rs"]
mod files;

use boon::{Compiler, SchemaIndex, Schemas};
use common::TestCatalog;
use files::workflows;
use pl_dsl::workflow::Workflow;
use pl_dsl::{Source, check};
use serde_json::{Value, json};

/// Valid workflows of a folder, serialised as in a run folder.
fn resolved(folder: &str) -> Vec<(String, Value)> {
    let resolved = |source: Source| {
        let workflow = check(&source, &[], &TestCatalog).workflow?;
        Some((source.name, serde_json::to_value(workflow).unwrap()))
    };
    workflows(&files::folder(folder)).into_iter().filter_map(resolved).collect()
}

/// The compiled JSON Schema of workflows.
struct Validator {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Validator {
    fn errors(&self, workflow: &Value) -> Option<String> {
        self.schemas.validate(workflow, self.root).err().map(|error| error.to_string())
    }
}

fn validator() -> Validator {
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    compiler.add_resource("pl-host://schema/workflow.json", Workflow::json_schema()).unwrap();
    let root = compiler.compile("pl-host://schema/workflow.json", &mut schemas).unwrap();
    Validator { schemas, root }
}

#[test]
fn workflows_are_valid() {
    let validator = validator();
    for (folder, least) in [("../examples", 6), ("tests/cases", 8), ("tests/mistakes", 3)] {
        let workflows = resolved(folder);
        assert!(workflows.len() >= least, "only {} in {folder}", workflows.len());
        for (name, workflow) in workflows {
            assert_eq!(validator.errors(&workflow), None, "{name}");
        }
    }
}

#[test]
fn invalid_workflows_are_rejected() {
    let validator = validator();
    let (_, workflow) = resolved("../examples").into_iter().find(|(name, _)| name == "math.mas").unwrap();
    for (pointer, value) in [
        ("/agents/0/policy", json!("coder")),
        ("/agents/0/temperature", json!("warm")),
        ("/train/rollout", json!("forest")),
        ("/layout", json!("L4")),
        ("/scenarios/0/turns/nodes/0/edges/0/to", json!("start")),
        ("/sandbox/timeout", json!(20)),
    ] {
        let mut changed = workflow.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert!(validator.errors(&changed).is_some(), "{pointer}");
    }
    for key in ["name", "agents", "layout", "train"] {
        let mut changed = workflow.clone();
        changed.as_object_mut().unwrap().remove(key);
        assert!(validator.errors(&changed).is_some(), "without {key}");
    }
}

#[test]
fn the_schema_has_words_for_people() {
    let schema = Workflow::json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["params"]["description"], "Parameters after `--set`.");
    assert!(!schema.to_string().contains("[`"), "links are for Rust's documentation alone");
}
