//! Settings that may differ when a run is resumed.
//!
//! A setting may change if the finished steps don't depend on it. All others are refused, each with its old
//! and its new value.

use pl_dsl::workflow::{CorpusSource, Server, Workflow};
use serde_json::{Value, json};

/// Settings that may change, as messages name them.
const CHANGEABLE: &str = "train.steps, train.checkpoint_every, train.keep_checkpoints, train.episodes, \
                          train.token_budget, train.data_parallel, train.gradient_checkpointing, train.record_tokens, inference.*, devices.*, cluster.*, \
                          evaluate.every and .limit, sandbox.workers and .isolation, the sandbox's runtime, endpoints, \
                          certificates and jobs_per_worker, and the addresses, \
                          key_variable, timeout, connections, retries, hedge_after and sleep of servers, also of those of corpora";

/// Checks that a run that was started as `old` may continue as `new` after `step` steps. Returns the reasons
/// against it.
pub(crate) fn fixed_settings(old: &Workflow, new: &Workflow, step: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(train) = &new.train
        && u64::from(train.steps) < step
    {
        reasons.push(format!("train.steps: {step} steps are finished, so it can't be {}", train.steps));
    }
    let mut rest = new.clone();
    copy_changeable_settings(old, &mut rest);
    let mut differences = Vec::new();
    collect_differences("", &json!(old), &json!(rest), &mut differences);
    if !differences.is_empty() {
        reasons.extend(differences);
        reasons.push(format!("finished steps depend on these settings; only these may change: {CHANGEABLE}"));
    }
    reasons
}

/// Returns the settings that may change and that the text of a run has otherwise than the run itself: somebody has changed
/// the text, or a file that it includes.
pub(crate) fn changed_settings(run: &Workflow, text: &Workflow) -> Vec<String> {
    let mut changed = run.clone();
    copy_changeable_settings(text, &mut changed);
    let mut differences = Vec::new();
    collect_differences("", &json!(run), &json!(changed), &mut differences);
    differences
}

/// Returns the names of the evaluations whose number of tasks differs. Both workflows are of one run.
pub(crate) fn changed_limits(old: &Workflow, new: &Workflow) -> Vec<String> {
    let evaluations = old.evaluations.iter().zip(&new.evaluations);
    let changed = evaluations.filter(|(old, new)| old.limit != new.limit);
    changed.map(|(_, new)| new.name.clone()).collect()
}

/// Copies those settings that may change. Both workflows are of one run.
pub(crate) fn copy_changeable_settings(from: &Workflow, to: &mut Workflow) {
    // Params act only through settings.
    to.params.clone_from(&from.params);
    to.inference = from.inference.clone();
    to.cluster.clone_from(&from.cluster);
    for (from, to) in from.policies.iter().zip(&mut to.policies) {
        to.devices.clone_from(&from.devices);
    }
    if let (Some(from), Some(to)) = (&from.train, &mut to.train) {
        to.steps = from.steps;
        to.checkpoint_every = from.checkpoint_every;
        to.keep_checkpoints = from.keep_checkpoints;
        to.episodes = from.episodes;
        to.token_budget = from.token_budget;
        to.data_parallel = from.data_parallel;
        to.gradient_checkpointing = from.gradient_checkpointing;
        to.record_tokens = from.record_tokens;
    }
    for (from, to) in from.evaluations.iter().zip(&mut to.evaluations) {
        (to.every, to.limit) = (from.every, from.limit);
    }
    for (from, to) in from.servers.iter().zip(&mut to.servers) {
        *to = Server { name: std::mem::take(&mut to.name), kind: to.kind, ..from.clone() };
    }
    for (from, to) in from.corpora.iter().zip(&mut to.corpora) {
        if let (CorpusSource::Server(from), CorpusSource::Server(to)) = (&from.source, &mut to.source) {
            to.clone_from(from);
        }
    }
    to.sandbox.workers = from.sandbox.workers;
    to.sandbox.processes = from.sandbox.processes;
    if let (Some(from), Some(to)) = (&from.sandbox.docker, &mut to.sandbox.docker) {
        to.runtime.clone_from(&from.runtime);
        to.endpoints.clone_from(&from.endpoints);
        to.certificates.clone_from(&from.certificates);
        to.jobs_per_worker = from.jobs_per_worker;
    }
}

/// Appends a line for each value that differs. List items with a name are shown by it:
/// `policies.coder.lora.rank`.
fn collect_differences(path: &str, before: &Value, now: &Value, lines: &mut Vec<String>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let value = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                collect_differences(&join(key), &value(a), &value(b), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                let name = a["name"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                collect_differences(&join(&name), a, b, lines);
            }
        }
        _ if before == now => {}
        _ => {
            let path = written_path(path);
            lines.push(format!("{path}: the run was started with {before}, now it is {now}"));
        }
    }
}

/// Returns the path of a setting as it is written: the training of a policy has parts that a file does not name.
fn written_path(path: &str) -> String {
    ["objective.", "optimizer.", ""]
        .iter()
        .fold(path.to_owned(), |path, part| path.replace(&format!(".training.{part}"), ".train."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the checked form of a workflow without plugins of its own.
    fn workflow(train: &str) -> Workflow {
        struct Catalog;
        impl pl_dsl::Catalog for Catalog {
            fn items(
                &self,
                _: &pl_dsl::workflow::Plugin,
            ) -> Result<Vec<pl_types::Item>, pl_dsl::CatalogError> {
                let item = |kind, name: &str| pl_types::Item {
                    kind,
                    name: name.to_owned(),
                    doc: String::new(),
                    settings_schema: serde_json::json!({ "type": "object", "properties": {} }),
                    facts: Vec::new(),
                };
                use pl_types::ItemKind::{Agent, Environment, Reward};
                Ok(vec![item(Environment, "board"), item(Agent, "writer"), item(Reward, "vowels")])
            }

            fn text(&self, _: &std::path::Path) -> Result<String, pl_dsl::CatalogError> {
                Err(pl_dsl::CatalogError::Unavailable("no file is needed here"))
            }
        }
        let text = format!(
            "workflow w\nparam count: int = 4\nplugin p = \"p.wasm\"\nmodel m = \"./m\"\npolicy one {{ model = m }}\n\
             environment board = p.board\nagent a = p.writer {{ policy = one }}\nturns {{ start -> a -> end }}\n\
             reward r = p.vowels\ntrain {{ {train} }}\nevaluate held_out {{ every = 2; limit = 8 }}\n"
        );
        let checked = pl_dsl::check(&pl_dsl::Source { name: "w.mas".to_owned(), text }, &[], &Catalog);
        checked.workflow.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
    }

    #[test]
    fn settings_that_no_finished_step_depends_on_may_change() {
        let old = workflow("steps = 10; learning_rate = 1e-3");
        let mut new = workflow(
            "steps = 60; learning_rate = 1e-3; checkpoint_every = 3; keep_checkpoints = 5; token_budget = 512; data_parallel = 2",
        );
        new.inference.kv_cache = Some(1 << 20);
        new.inference.threads = Some(1);
        new.sandbox.workers += 1;
        new.evaluations[0].every = 5;
        new.evaluations[0].limit = 2;
        new.params.insert("count".to_owned(), 9.into());
        assert_eq!(fixed_settings(&old, &new, 10), Vec::<String>::new());
        assert_eq!(
            (changed_limits(&old, &new), changed_limits(&old, &old)),
            (vec!["held_out".to_owned()], vec![])
        );
    }

    #[test]
    fn settings_that_finished_steps_depend_on_are_refused_with_both_values() {
        let old = workflow("steps = 10; learning_rate = 1e-3");
        let new = workflow("steps = 60; learning_rate = 1e-2; samples = 3");
        let reasons = fixed_settings(&old, &new, 10);
        let has = |text: &str| reasons.iter().any(|reason| reason.contains(text));
        assert!(
            has("policies.one.train.learning_rate: the run was started with 0.001, now it is 0.01"),
            "{reasons:?}"
        );
        assert!(has("train.samples") && has("only these may change: train.steps"), "{reasons:?}");
    }

    #[test]
    fn a_run_can_not_be_shorter_than_what_it_has_finished() {
        let old = workflow("steps = 10; learning_rate = 1e-3");
        let new = workflow("steps = 5; learning_rate = 1e-3");
        assert!(fixed_settings(&old, &new, 6)[0].contains("6 steps are finished"));
        assert!(fixed_settings(&old, &new, 5).is_empty());
    }
}
