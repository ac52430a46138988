//! Exports of a recorded run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use pl_record::{TraceFile, Traces};
use pl_testing::{Requirement, skip_or_fail};
use pl_viewer::{Error, ExportFormat, export};
use serde_json::{Value, json};

use crate::recorded::{
    HOSTILE, Letters, TOOL_CALL, example, flat, ids, penalised, tool_calls, trees_of_tool_calls,
};

fn lines(run: &Path, format: ExportFormat) -> Vec<Value> {
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
    let evaluated = TraceFile { step: 2, evaluation: Some("test".to_owned()) };
    Traces::for_run(&run).write(&evaluated, &[flat("test", 2, 0, 0, "held out", 1.0)]).unwrap();
    let episodes = lines(&run, ExportFormat::Episodes);
    assert_eq!(episodes.len(), 6);
    assert_eq!(episodes[1]["visits"][0]["branches"][0]["turns"][0]["text"], HOSTILE);
    // Neither the failed attempt nor the evaluation, although it was solved.
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
fn a_pair_of_turns_with_tool_calls_has_the_first_completions_that_differ() {
    let runs = tempfile::tempdir().unwrap();
    let trees: [&[(f64, [&str; 3])]; 6] = [
        // The same call and result, then another answer.
        &[(0.0, [TOOL_CALL, "6", "seven"]), (1.0, [TOOL_CALL, "6", "six"])],
        // Another call.
        &[(0.0, ["add(2, 5)", "7", "seven"]), (1.0, [TOOL_CALL, "6", "six"])],
        // Another result of the same call: the answers have different prompts.
        &[(0.0, [TOOL_CALL, "7", "seven"]), (1.0, [TOOL_CALL, "6", "six"])],
        // The same turn.
        &[(0.0, [TOOL_CALL, "6", "six"]), (1.0, [TOOL_CALL, "6", "six"])],
        // The same turn as the first of the worst, and another answer of the second.
        &[(0.0, [TOOL_CALL, "6", "six"]), (0.0, [TOOL_CALL, "6", "five"]), (1.0, [TOOL_CALL, "6", "six"])],
        // The worst is the same turn as the first of the best, and its answer has another prompt than the last's.
        &[
            (0.0, [TOOL_CALL, "6", "four"]),
            (1.0, [TOOL_CALL, "6", "four"]),
            (1.0, [TOOL_CALL, "6", "six"]),
            (1.0, [TOOL_CALL, "7", "six"]),
        ],
    ];
    let run = trees_of_tool_calls(runs.path(), "tools", &trees);
    let pairs = lines(&run, ExportFormat::Preferences);
    let texts: Vec<[&Value; 3]> =
        pairs.iter().map(|pair| ["prompt", "chosen", "rejected"].map(|column| &pair[column])).collect();
    assert_eq!(
        texts,
        [["6", "six", "seven"], ["go", TOOL_CALL, "add(2, 5)"], ["6", "six", "five"], ["6", "six", "four"]]
    );
}

#[test]
fn the_numbers_of_both_logs_are_joined_by_step() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    assert_eq!(
        lines(&run, ExportFormat::Scalars),
        [
            json!({ "step": 0, "evaluations/test/success": 0.25, "evaluations/test/tasks": 8.0 }),
            json!({
                "step": 1, "rollouts/rollout_success": 0.5, "agents/tool/reward": 0.5, "seconds/play": 1.0,
                "seconds/train": 2.0,
            }),
            json!({ "step": 2, "rollouts/rollout_success": 0.75, "agents/tool/reward": 0.75 }),
        ]
    );
}

#[test]
fn a_trajectory_has_the_path_of_the_episode_in_steps() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    let trajectories = lines(&run, ExportFormat::Trajectories);
    let tree = trajectories.iter().find(|line| line["session_id"] == "1.2.0#0").unwrap();
    let steps = tree["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["source"], &steps[0]["message"]), (&"user".into(), &"go".into()));
    assert_eq!((&steps[1]["source"], &steps[1]["message"]), (&"agent".into(), &"candidate 2".into()));
    assert_eq!(steps[1]["extra"]["reward"], 3.0);
    assert_eq!(tree["final_metrics"]["total_steps"], steps.len());
    assert_eq!(tree["final_metrics"]["extra"]["success"], true);
}

#[test]
fn a_trajectory_has_a_step_for_each_model_call_of_a_turn() {
    let runs = tempfile::tempdir().unwrap();
    let trajectories = lines(&tool_calls(runs.path(), "tools"), ExportFormat::Trajectories);
    let steps = trajectories[0]["steps"].as_array().unwrap();
    let messages: Vec<&Value> = steps.iter().skip(1).map(|step| &step["message"]).collect();
    assert_eq!(messages, [TOOL_CALL, TOOL_CALL]);
    let (first, last) = (&steps[1], &steps[2]);
    let result = json!({ "content": "6" });
    let outcome = json!({
        "content": json!({ "agreed": true }).to_string(), "extra": { "done": true, "truncated": false },
    });
    assert_eq!(first["observation"]["results"], json!([result]));
    assert_eq!(last["observation"]["results"], json!([result, outcome]));
    assert_eq!((&first["extra"]["action"], &first["extra"]["reward"]), (&Value::Null, &Value::Null));
    assert_eq!(last["extra"]["action"], json!({ "answer": TOOL_CALL }));
    assert_eq!(last["extra"]["reward"], 1.5);
    let (asked, tokens) = (ids(steps[0]["message"].as_str().unwrap()).len(), ids(TOOL_CALL).len());
    let metrics = |prompt: usize| json!({ "prompt_tokens": prompt, "completion_tokens": tokens });
    assert_eq!((&first["metrics"], &last["metrics"]), (&metrics(asked), &metrics(1)));
    let totals = &trajectories[0]["final_metrics"];
    assert_eq!(totals["total_prompt_tokens"], asked + 1);
    assert_eq!(totals["total_completion_tokens"], 2 * tokens);
}

#[test]
fn trajectories_are_valid_to_the_formats_own_models() {
    let probe = Command::new("python3").args(["-c", "import atif"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip_or_fail(Requirement::Atif, "python3 has no package atif");
        return;
    }
    let runs = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    let mut count = 0;
    for run in [example(runs.path(), "math", 0), tool_calls(runs.path(), "tools")] {
        count += export(&run, ExportFormat::Trajectories, &Letters, &mut text).unwrap().lines;
    }
    let check = "import sys\nfrom atif import Trajectory\nprint(sum(Trajectory.model_validate_json(line) is not None for line in sys.stdin))";
    let mut python = Command::new("python3");
    let mut python = python.args(["-c", check]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(&text).unwrap();
    let checked = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(checked.trim(), count.to_string());
}

/// Returns the columns of a row that the test looks at.
fn fields(row: &Row) -> Value {
    let value = |field: &Field| match field {
        Field::Str(text) => json!(text),
        Field::Bool(flag) => json!(flag),
        Field::Double(number) => json!(number),
        Field::UInt(number) => json!(number),
        _ => Value::Null,
    };
    row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
}

/// Exports the completions of a run as a table and returns its rows.
fn table(run: &Path) -> Vec<Value> {
    let mut file = tempfile::tempfile().unwrap();
    let exported = export(run, ExportFormat::Table, &Letters, &mut file).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows: Vec<Row> = reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len() as u64, exported.lines);
    rows.iter().map(fields).collect()
}

#[test]
fn a_table_has_a_row_per_completion() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    let rows = table(&run);
    let tree: Vec<&Value> = rows.iter().filter(|row| row["episode"] == "1.2.0#0").collect();
    let candidates: Vec<(&Value, &Value)> =
        tree.iter().map(|row| (&row["completion"], &row["taken"])).collect();
    assert!(candidates.contains(&(&"candidate 2".into(), &true.into())), "{candidates:?}");
    assert!(candidates.contains(&(&"candidate 0".into(), &false.into())), "{candidates:?}");
    assert_eq!((&tree[0]["prompt"], &tree[0]["reward"]), (&"go".into(), &0.0.into()));
    assert_eq!(tree[0]["failure"], Value::Null);
}

#[test]
fn every_model_call_of_a_turn_is_a_completion_and_tool_results_without_one_are_none() {
    let runs = tempfile::tempdir().unwrap();
    let run = tool_calls(runs.path(), "tools");
    let examples = lines(&run, ExportFormat::Examples);
    let completions: Vec<&Value> = examples.iter().map(|line| &line["completion"]).collect();
    assert_eq!(completions, [TOOL_CALL, TOOL_CALL]);
    assert_eq!(examples[1]["prompt"], "6");
    let rows = table(&run);
    let calls: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["call"], &row["prompt"])).collect();
    assert_eq!(calls, [(&json!(0), &examples[0]["prompt"]), (&json!(1), &json!("6"))]);
    // Parsed from the last completion.
    let actions: Vec<&Value> = rows.iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, [&Value::Null, &json!(json!({ "answer": TOOL_CALL }).to_string())]);
}

#[test]
fn an_episode_that_a_fault_ended_has_its_cause_and_the_reward_that_was_trained_on() {
    let runs = tempfile::tempdir().unwrap();
    let run = penalised(runs.path(), "faults");
    let rows = table(&run);
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["failure"], &rows[0]["reward"]), (&json!("out of fuel"), &json!(-1.0)));
    let episode = &lines(&run, ExportFormat::Episodes)[0];
    assert_eq!(episode["failure"], "out of fuel");
    assert_eq!(episode["visits"][0]["branches"][0]["rewards"][0]["reward"], -1.0);
    assert_eq!(lines(&run, ExportFormat::Trajectories)[0]["extra"]["failure"], "out of fuel");
    // Of a step that is not trained on yet.
    std::fs::remove_file(run.join("steps/000001.parquet")).unwrap();
    assert_eq!(
        (&table(&run)[0]["failure"], &table(&run)[0]["reward"]),
        (&json!("out of fuel"), &Value::Null)
    );
}

#[test]
fn steps_without_a_trace_file_are_named() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    let problems = |format| export(&run, format, &Letters, &mut Vec::new()).unwrap().problems;
    assert_eq!(problems(ExportFormat::Episodes), Vec::<String>::new());
    for file in ["000002.jsonl.zst", "000000-test.jsonl.zst"] {
        std::fs::remove_file(run.join("traces").join(file)).unwrap();
    }
    let found = problems(ExportFormat::Episodes);
    assert!(
        found[0].contains("000000-test.jsonl.zst is missing") && found[1].contains("000002.jsonl.zst"),
        "{found:?}"
    );
    assert_eq!(problems(ExportFormat::Examples).len(), 1, "examples have no evaluation");
    // Steps whose episodes end after later updates may have no file.
    std::fs::write(run.join("schedule.jsonl"), "").unwrap();
    assert_eq!(problems(ExportFormat::Episodes).len(), 1);
}

#[test]
fn a_folder_without_a_run_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let result = export(folder.path(), ExportFormat::Episodes, &Letters, &mut Vec::new());
    assert!(matches!(result, Err(Error::NoRuns { .. })), "{result:?}");
}

#[test]
fn a_run_without_its_lock_file_is_exported_with_a_warning() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    std::fs::remove_file(run.join("lock.json")).unwrap();
    for format in [ExportFormat::Episodes, ExportFormat::Trajectories] {
        let exported = export(&run, format, &Letters, &mut Vec::new()).unwrap();
        assert!(exported.lines > 0);
        assert!(
            exported.problems.iter().any(|problem| problem.contains("lock.json")),
            "{:?}",
            exported.problems
        );
    }
    // A run that ended before its first episode has lost nothing.
    std::fs::remove_dir_all(run.join("traces")).unwrap();
    std::fs::remove_file(run.join("metrics.jsonl")).unwrap();
    let exported = export(&run, ExportFormat::Episodes, &Letters, &mut Vec::new()).unwrap();
    assert!(exported.lines == 0 && exported.problems.is_empty(), "{:?}", exported.problems);
}
