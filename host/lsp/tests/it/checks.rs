//! Diagnostics as one types, and what can be done about them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::editor::Editor;

const FILE: &str = "file:///work/%C3%BC.mas";

/// A whole workflow.
const RIGHT: &str = include_str!("../../../../examples/math.mas");

#[test]
fn mistakes_are_shown_until_they_are_gone() {
    let mut editor = Editor::ready();
    editor.open(FILE, &RIGHT.replace("samples        = samples", "samplse = samples"));
    insta::assert_json_snapshot!(editor.diagnostics(FILE, 1));
    editor.replace(FILE, 2, RIGHT);
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
    editor.tell("textDocument/didClose", json!({ "textDocument": { "uri": FILE } }));
    editor.wait(|message| message["params"] == json!({ "uri": FILE, "diagnostics": [] }));
}

#[test]
fn places_are_in_utf_16() {
    let mut editor = Editor::ready();
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
fn a_row_of_changes_is_checked_once() {
    let mut editor = Editor::ready();
    editor.open(FILE, "workflow w\n");
    for version in 2..400 {
        let end = json!({ "line": 9999, "character": 0 });
        let change = json!({ "range": { "start": end, "end": end }, "text": "#" });
        editor.tell(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": FILE, "version": version }, "contentChanges": [change],
            }),
        );
    }
    editor.diagnostics(FILE, 399);
    let shown = editor.rest().len();
    assert!(shown < 20, "{shown} checks of 400 texts");
}

#[test]
fn a_check_that_takes_long_stops_nobody() {
    let mut editor = Editor::ready();
    editor.open(FILE, "plugin m = \"slow.wasm\"\nenvironment e = m.problems { }\n");
    // Long enough for the check to have begun.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let hover = json!({ "textDocument": { "uri": FILE }, "position": { "line": 1, "character": 3 } });
    assert!(editor.ask("textDocument/hover", hover)["contents"]["value"].is_string());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    editor.diagnostics(FILE, 1);
}

#[test]
fn a_check_that_breaks_breaks_nothing_else() {
    let mut editor = Editor::ready();
    editor.open(FILE, "plugin m = \"panic.wasm\"\nenvironment e = m.problems { }\n");
    let found = editor.diagnostics(FILE, 1);
    assert!(found[0]["message"].as_str().unwrap().contains("a mistake of pl-host"), "{found}");
    editor.replace(FILE, 2, RIGHT);
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
}

#[test]
fn a_folder_without_plugins_is_a_mistake_of_its_files() {
    let mut editor = Editor::ready();
    editor.open("file:///work/closed/a.mas", RIGHT);
    let found = editor.diagnostics("file:///work/closed/a.mas", 1);
    assert!(found.to_string().contains("the folder is closed"), "{found}");
}

#[test]
fn what_is_wrong_in_another_file_is_shown_where_it_is_named() {
    let mut editor = Editor::ready();
    editor.open(FILE, &format!("include \"common.mas\"\n{RIGHT}"));
    let found = editor.diagnostics(FILE, 1);
    let wrong = found.as_array().unwrap().iter().find(|one| one["code"] == "MAS0007").unwrap();
    insta::assert_json_snapshot!(wrong);
    // A text that is open counts as it is in the editor.
    editor.open("file:///work/common.mas", "");
    editor.diagnostics("file:///work/common.mas", 1);
    editor.replace(FILE, 2, &format!("include \"common.mas\"\n{RIGHT}"));
    assert_eq!(editor.diagnostics(FILE, 2), json!([]));
    editor.tell("textDocument/didClose", json!({ "textDocument": { "uri": "file:///work/common.mas" } }));
    editor.replace(FILE, 3, &format!("include \"common.mas\"\n{RIGHT}"));
    assert_ne!(editor.diagnostics(FILE, 3), json!([]));
}

#[test]
fn plugins_are_opened_anew_when_they_change() {
    let mut editor = Editor::ready();
    editor.open(FILE, RIGHT);
    assert_eq!(editor.diagnostics(FILE, 1), json!([]));
    let change = json!({ "uri": "file:///work/math.wasm", "type": 2 });
    editor.tell("workspace/didChangeWatchedFiles", json!({ "changes": [change] }));
    assert_eq!(editor.diagnostics(FILE, 1), json!([]));
}

#[test]
fn what_a_hint_says_can_be_done() {
    let mut editor = Editor::ready();
    let text = RIGHT
        .replace("samples        = samples", "samplse = samples")
        .replace("policy = coder;", "policy = codr;");
    editor.open(FILE, &text);
    editor.diagnostics(FILE, 1);
    let all = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 999, "character": 0 } });
    let params = |range: &Value| json!({ "textDocument": { "uri": FILE }, "range": range, "context": { "diagnostics": [] } });
    let actions = editor.ask("textDocument/codeAction", params(&all));
    let titles: Vec<&str> =
        actions.as_array().unwrap().iter().filter_map(|one| one["title"].as_str()).collect();
    assert_eq!(titles, ["Replace with `coder`", "Replace with `samples`"]);
    insta::assert_json_snapshot!(actions[1]);
    // Elsewhere there is nothing to do, nor for a text that was not checked yet.
    let first = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 0 } });
    assert_eq!(editor.ask("textDocument/codeAction", params(&first)), json!([]));
    editor.replace(FILE, 2, "workflow");
    assert_eq!(editor.ask("textDocument/codeAction", params(&all)), json!([]));
}
