//! Diagnostics and their quick fixes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::editor::Editor;

const FILE: &str = "file:///work/%C3%BC.mas";

/// A valid workflow.
const VALID: &str = include_str!("../../../../examples/math.mas");

#[test]
fn mistakes_are_shown_until_they_are_fixed() {
    let mut editor = Editor::initialized();
    editor.open(FILE, &VALID.replace("samples        = samples", "samplse = samples"));
    insta::assert_json_snapshot!(editor.diagnostics(FILE, 1));
    editor.replace(FILE, 2, VALID);
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
    editor.notify("textDocument/didClose", json!({ "textDocument": { "uri": FILE } }));
    editor.wait_for(|message| message["params"] == json!({ "uri": FILE, "diagnostics": [] }));
}

#[test]
fn names_that_stand_for_nothing_are_shown_in_a_valid_file() {
    let mut editor = Editor::initialized();
    editor.open(FILE, &VALID.replace("\"smollm2-135m\"", "\"unknown\""));
    let found = editor.diagnostics(FILE, 1);
    let codes: Vec<&str> = found.as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
    assert_eq!(codes, ["MAS0060"], "{found}");
    assert_ne!(found[0]["range"]["start"]["line"], 0, "{found}");
}

#[test]
fn ranges_are_in_utf_16() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "agent a = std.chat { system = \"ü\u{1F600}\"; temprature = 1 }\n");
    let found = editor.diagnostics(FILE, 1);
    let wrong = found.as_array().unwrap().iter().find(|one| one["code"] == "MAS0007").unwrap();
    assert_eq!(
        wrong["range"],
        json!({
            "start": { "line": 0, "character": 37 }, "end": { "line": 0, "character": 47 },
        })
    );
}

#[test]
fn a_burst_of_changes_is_checked_once() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "workflow w\n");
    for version in 2..400 {
        let end = json!({ "line": 9999, "character": 0 });
        let change = json!({ "range": { "start": end, "end": end }, "text": "#" });
        editor.notify(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": FILE, "version": version }, "contentChanges": [change],
            }),
        );
    }
    editor.diagnostics(FILE, 399);
    let shown = editor.take_pending().len();
    assert!(shown < 20, "{shown} checks of 400 texts");
}

#[test]
fn a_slow_check_does_not_block_requests() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "plugin m = \"slow.wasm\"\nenvironment e = m.problems { }\n");
    // Long enough for the check to have started.
    std::thread::sleep(Duration::from_millis(500));
    let hover = json!({ "textDocument": { "uri": FILE }, "position": { "line": 1, "character": 3 } });
    assert!(editor.request("textDocument/hover", hover)["contents"]["value"].is_string());
    // The check of four seconds has not ended: its diagnostics arrive after the response.
    let pending = editor.take_pending();
    assert!(
        pending.iter().all(|message| message["method"] != "textDocument/publishDiagnostics"),
        "{pending:?}"
    );
    editor.diagnostics(FILE, 1);
}

#[test]
fn a_panic_in_a_check_is_contained() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "plugin m = \"panic.wasm\"\nenvironment e = m.problems { }\n");
    let found = editor.diagnostics(FILE, 1);
    assert!(found[0]["message"].as_str().unwrap().contains("a bug in pl-host"), "{found}");
    editor.replace(FILE, 2, VALID);
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
}

#[test]
fn a_folder_that_can_not_be_opened_is_reported_in_its_files() {
    let mut editor = Editor::initialized();
    editor.open("file:///work/closed/a.mas", VALID);
    let found = editor.diagnostics("file:///work/closed/a.mas", 1);
    assert!(found.to_string().contains("the folder is closed"), "{found}");
}

#[test]
fn a_mistake_in_an_included_file_is_shown_at_the_include() {
    let mut editor = Editor::initialized();
    editor.open(FILE, &format!("include \"common.mas\"\n{VALID}"));
    let found = editor.diagnostics(FILE, 1);
    let wrong = found.as_array().unwrap().iter().find(|one| one["code"] == "MAS0007").unwrap();
    insta::assert_json_snapshot!(wrong);
    // An open document counts as it is in the editor.
    editor.open("file:///work/common.mas", "");
    editor.diagnostics("file:///work/common.mas", 1);
    editor.replace(FILE, 2, &format!("include \"common.mas\"\n{VALID}"));
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
    editor.notify("textDocument/didClose", json!({ "textDocument": { "uri": "file:///work/common.mas" } }));
    editor.replace(FILE, 3, &format!("include \"common.mas\"\n{VALID}"));
    assert_ne!(editor.diagnostics(FILE, 3), json!([]));
}

#[test]
fn changed_plugins_are_reloaded() {
    let mut editor = Editor::initialized();
    editor.open(FILE, VALID);
    assert_eq!(editor.diagnostics(FILE, 1), json!([]));
    let change = json!({ "uri": "file:///work/math.wasm", "type": 2 });
    editor.notify("workspace/didChangeWatchedFiles", json!({ "changes": [change] }));
    assert_eq!(editor.diagnostics(FILE, 1), json!([]));
}

#[test]
fn a_suggestion_is_a_quick_fix() {
    let mut editor = Editor::initialized();
    let text = VALID
        .replace("samples        = samples", "samplse = samples")
        .replace("policy = coder;", "policy = codr;");
    editor.open(FILE, &text);
    editor.diagnostics(FILE, 1);
    let all = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 999, "character": 0 } });
    let params = |range: &Value| json!({ "textDocument": { "uri": FILE }, "range": range, "context": { "diagnostics": [] } });
    let actions = editor.request("textDocument/codeAction", params(&all));
    let titles: Vec<&str> =
        actions.as_array().unwrap().iter().filter_map(|one| one["title"].as_str()).collect();
    assert_eq!(titles, ["Replace with `coder`", "Replace with `samples`"]);
    insta::assert_json_snapshot!(actions[1]);
    // There is no fix in other lines, nor in a text that is not checked yet.
    let first = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 0 } });
    assert_eq!(editor.request("textDocument/codeAction", params(&first)), json!([]));
    editor.replace(FILE, 2, "workflow");
    assert_eq!(editor.request("textDocument/codeAction", params(&all)), json!([]));
}
