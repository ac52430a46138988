//! Exports of a recorded run.

use pl_viewer::{Error, ExportFormat, export};
use serde_json::{Value, json};

use crate::recorded::{HOSTILE, Letters, example};

fn lines(run: &std::path::Path, format: ExportFormat) -> Vec<Value> {
    let mut out = Vec::new();
    let exported = export(run, format, &Letters, &mut out).unwrap();
    let lines: Vec<Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported.lines, lines.len() as u64);
    lines
}

#[test]
fn episodes_examples_and_preferences_have_their_columns() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    let episodes = lines(&run, ExportFormat::Episodes);
    assert_eq!(episodes.len(), 5);
    assert_eq!(episodes[1]["visits"][0]["branches"][0]["turns"][0]["text"], HOSTILE);
    // Neither the failed attempt nor the unsolved evaluation.
    let examples = lines(&run, ExportFormat::Examples);
    let completions: Vec<&Value> = examples.iter().map(|line| &line["completion"]).collect();
    assert_eq!(completions, [HOSTILE, "candidate 2", "eight"]);
    assert!(examples[0]["prompt"].as_str().unwrap().starts_with("<|im_start|>user"));
    assert_eq!(
        lines(&run, ExportFormat::Preferences),
        [json!({
            "prompt": "go", "chosen": "candidate 2", "rejected": "candidate 0", "episode": "1.2.0#0",
            "agent": "tool", "chosen_reward": 3.0, "rejected_reward": 0.0,
        })]
    );
}

#[test]
fn a_folder_without_a_run_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let result = export(folder.path(), ExportFormat::Episodes, &Letters, &mut Vec::new());
    assert!(matches!(result, Err(Error::NoRuns { .. })), "{result:?}");
}
