//! Model cards: a `README.md` in the form of the Hugging Face hub, with each adapter or model of a checkpoint.
//!
//! A card has what is needed to judge and to use the weights without the run: base, agents, data, settings, results,
//! licence. It has no times, so that equal runs have equal checkpoints.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use pl_dsl::workflow::{Policy, Workflow};
use pl_record::{Lock, RunFolder, settings_by_path};
use pl_types::SourcePath;
use serde_json::{Value, json};

use crate::error::Error;
use crate::locate::model_on_disk;
use crate::results::{EvaluationResults, read_evaluations};
use crate::stored::StoredWorkflow;

/// Largest card of a base model that is read, in bytes. Those of the hub have some kilobytes.
const LARGEST_CARD: u64 = 4 << 20;

/// Returns the card of each trained policy of a run, after `step`, by the policy's name.
///
/// # Errors
/// If a file of the run folder can't be read.
pub(crate) fn model_cards(root: &Path, step: u64) -> Result<BTreeMap<String, String>, Error> {
    let stored = StoredWorkflow::read(root)?;
    let lock = RunFolder::read_lock(root).map_err(Error::RunFolder)?;
    let results = read_evaluations(root)?;
    let run =
        Run { workflow: &stored.workflow, folder: &stored.folder, lock: &lock, results: &results, step };
    let trained = stored.workflow.policies.iter().enumerate().filter(|(_, policy)| policy.train);
    Ok(trained.map(|(index, policy)| (policy.name.clone(), run.card(index, policy))).collect())
}

/// Data that the cards of a run are written from.
struct Run<'a> {
    workflow: &'a Workflow,
    /// Folder that relative paths start from.
    folder: &'a Path,
    lock: &'a Lock,
    results: &'a [EvaluationResults],
    step: u64,
}

impl Run<'_> {
    fn card(&self, index: usize, policy: &Policy) -> String {
        let base = self.workflow.models.get(policy.model).map_or("", |model| model.source.as_str());
        let licence = model_on_disk(self.folder, base).ok().and_then(|path| licence_of(&path));
        let sections = [
            self.front_matter(policy, base, licence.as_deref()),
            self.summary(index, policy, base),
            settings(policy),
            self.data(),
            curve(self.results),
            usage(policy, base),
            licence_section(licence.as_deref()),
        ];
        let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
        sections.join("\n")
    }

    /// Returns the metadata that the hub reads.
    fn front_matter(&self, policy: &Policy, base: &str, licence: Option<&str>) -> String {
        let mut lines = vec!["---".to_owned()];
        if let Some(model) = hub_name(base) {
            lines.push(format!("base_model: {model}"));
            let relation = if policy.lora.is_some() { "adapter" } else { "finetune" };
            lines.push(format!("base_model_relation: {relation}"));
        }
        let library = if policy.lora.is_some() { "peft" } else { "transformers" };
        lines.push(format!("library_name: {library}"));
        lines.push("pipeline_tag: text-generation".to_owned());
        lines.extend(licence.map(|licence| format!("license: {licence}")));
        lines.push("tags:\n- pl-host\n- reinforcement-learning\n- multi-agent".to_owned());
        if policy.lora.is_some() {
            lines.push("- lora".to_owned());
        }
        lines.push("---\n".to_owned());
        lines.join("\n")
    }

    fn summary(&self, index: usize, policy: &Policy, base: &str) -> String {
        let kind = match &policy.lora {
            Some(lora) => format!("A LoRA adapter (rank {}, alpha {}) on", lora.rank, lora.alpha),
            None => "A trained copy of".to_owned(),
        };
        let agents = self.workflow.agents.iter().filter(|agent| agent.policy == index);
        let agents: Vec<String> = agents.map(|agent| format!("`{}`", agent.name)).collect();
        let played = match agents.as_slice() {
            [] => "no agent".to_owned(),
            [one] => format!("the agent {one}"),
            several => format!("the agents {}", several.join(", ")),
        };
        format!(
            "# {}\n\n{kind} `{base}`. It plays {played} of the team `{}`, and was trained with the rest of the team by \
             pl-host {}: {} steps, seed {}.\n",
            policy.name, self.workflow.name, self.lock.version, self.step, self.lock.seed
        )
    }

    fn data(&self) -> String {
        let mut text = String::from("## Data\n\n");
        for scenario in &self.workflow.scenarios {
            let environment = &scenario.environment;
            let plugin =
                self.workflow.plugins.get(environment.plugin).map_or("", |plugin| plugin.name.as_str());
            // Writing to a string can't fail, here and below.
            let _ = writeln!(text, "- Environment `{}`: `{plugin}.{}`.", environment.name, environment.item);
        }
        for (file, hash) in &self.lock.data {
            let _ = writeln!(text, "- `{file}`, BLAKE3 `{hash}`.");
        }
        if self.lock.data.is_empty() {
            text.push_str("- All tasks are made by the plugin.\n");
        }
        text
    }
}

/// Returns a table of the evaluations: one row per step.
fn curve(evaluations: &[EvaluationResults]) -> String {
    if evaluations.is_empty() {
        return "## Results\n\nThe run has no evaluations.\n".to_owned();
    }
    let names: Vec<&str> = evaluations.iter().map(|results| results.name.as_str()).collect();
    let mut text = format!(
        "## Results\n\nSuccess of the team; step 0 is the untrained one.\n\n| step | {} |\n",
        names.join(" | ")
    );
    text.push_str(&"|---".repeat(names.len() + 1));
    text.push_str("|\n");
    let mut rows: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
    for (column, results) in evaluations.iter().enumerate() {
        for score in &results.scores {
            let row = rows.entry(score.step).or_insert_with(|| vec![None; names.len()]);
            if let Some(cell) = row.get_mut(column) {
                *cell = Some(score.success);
            }
        }
    }
    for (step, row) in rows {
        let cells = row
            .into_iter()
            .map(|cell| cell.map_or("-".to_owned(), |value| format!("{:.1} %", 100.0 * value)));
        let _ = writeln!(text, "| {step} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// Returns a table of a policy's training.
fn settings(policy: &Policy) -> String {
    let mut text = String::from("## Training\n\n| setting | value |\n|---|---|\n");
    let shown = json!({ "lora": policy.lora, "training": policy.training });
    for (path, value) in settings_by_path(&shown) {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text,
            value => value.to_string(),
        };
        let _ = writeln!(text, "| `{}` | {value} |", path.strip_prefix("training.").unwrap_or(&path));
    }
    text
}

fn usage(policy: &Policy, base: &str) -> String {
    let base = hub_name(base).unwrap_or("PATH OF THE BASE MODEL");
    let code = match policy.lora {
        Some(_) => format!(
            "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n\
             base = AutoModelForCausalLM.from_pretrained(\"{base}\")\nmodel = PeftModel.from_pretrained(base, \".\")\n"
        ),
        None => "from transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained(\".\")\n".to_owned(),
    };
    format!(
        "## Use\n\n```python\n{code}```\n\nOr name this folder in a workflow: `policy {} {{ …; from = \"./{}\" }}`.\n",
        policy.name, policy.name
    )
}

fn licence_section(licence: Option<&str>) -> String {
    match licence {
        Some(licence) => format!("## Licence\n\nThat of the base model: {licence}.\n"),
        None => "## Licence\n\nThat of the base model, whose files name none.\n".to_owned(),
    }
}

/// Returns the name of a model of the hub without its commit.
fn hub_name(source: &str) -> Option<&str> {
    source.strip_prefix("hf:").map(|name| name.split_once('@').map_or(name, |(name, _)| name))
}

/// Reads the licence of a model from the metadata of its own card. Returns `None` if it has none.
fn licence_of(model: &Path) -> Option<String> {
    let folder = if model.is_dir() { model } else { model.parent()? };
    let card = SourcePath::from(folder.join("README.md")).read_at_most(LARGEST_CARD).ok()?;
    let card = String::from_utf8_lossy(&card);
    let front_matter = card.strip_prefix("---\n")?.split("\n---").next()?;
    let licence = front_matter.lines().find_map(|line| line.strip_prefix("license:"))?.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!licence.is_empty() && licence.chars().all(is_name)).then(|| licence.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::EvaluationScore;

    #[test]
    fn a_model_of_the_hub_is_named_without_its_commit() {
        assert_eq!(hub_name("hf:Qwen/Qwen3-1.7B@0123"), Some("Qwen/Qwen3-1.7B"));
        assert_eq!(hub_name("hf:Qwen/Qwen3-1.7B"), Some("Qwen/Qwen3-1.7B"));
        assert_eq!(hub_name("smollm2-135m"), None);
    }

    #[test]
    fn the_licence_is_that_of_the_bases_card() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(licence_of(folder.path()), None);
        let card = folder.path().join("README.md");
        std::fs::write(&card, "---\nlicense: apache-2.0\ntags: [a]\n---\n# Base\nlicense: mit\n").unwrap();
        assert_eq!(licence_of(folder.path()).as_deref(), Some("apache-2.0"));
        // Text of somebody else stays out of the metadata, unless it is a name.
        std::fs::write(&card, "---\nlicense: a\ttags: [x]\n---\n").unwrap();
        assert_eq!(licence_of(folder.path()), None);
    }

    #[test]
    fn a_bases_card_that_is_huge_or_a_pipe_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("README.md");
        std::fs::write(&card, "---\nlicense: mit\n---\n").unwrap();
        assert_eq!(licence_of(folder.path()).as_deref(), Some("mit"));
        std::fs::File::options().write(true).open(&card).unwrap().set_len(LARGEST_CARD + 1).unwrap();
        assert_eq!(licence_of(folder.path()), None);
        std::fs::remove_file(&card).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&card).status().unwrap().success());
        assert_eq!(licence_of(folder.path()), None);
    }

    #[test]
    fn the_curve_has_a_row_per_step_and_a_column_per_evaluation() {
        let score = |step, success| EvaluationScore { step, success, tasks: None };
        let results = [
            EvaluationResults { name: "test".into(), scores: vec![score(0, 0.25), score(10, 0.5)] },
            EvaluationResults { name: "hard".into(), scores: vec![score(10, 0.125)] },
        ];
        let text = curve(&results);
        assert!(
            text.ends_with(
                "| step | test | hard |\n|---|---|---|\n| 0 | 25.0 % | - |\n| 10 | 50.0 % | 12.5 % |\n"
            ),
            "{text}"
        );
    }
}
