//! Start and stop.

use serde_json::{Value, json};

use crate::editor::Editor;

#[test]
fn an_orderly_talk_ends_in_order() {
    let mut editor = Editor::start();
    let hello = editor.ask("initialize", json!({ "capabilities": {} }));
    insta::assert_json_snapshot!(hello["capabilities"]);
    editor.tell("initialized", json!({}));
    assert_eq!(editor.ask("shutdown", Value::Null), Value::Null);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.ended(), 0);
}

#[test]
fn nothing_is_answered_before_the_start_and_behind_the_end() {
    let mut editor = Editor::start();
    assert_eq!(editor.refused("textDocument/hover", json!({})), -32002);
    editor.tell("textDocument/didOpen", json!({ "textDocument": { "uri": "file:///a.mas" } }));
    editor.ask("initialize", json!({ "capabilities": {} }));
    assert_eq!(editor.refused("initialize", json!({ "capabilities": {} })), -32600);
    editor.ask("shutdown", Value::Null);
    for method in ["shutdown", "textDocument/hover", "initialize", "nonsense"] {
        assert_eq!(editor.refused(method, json!({})), -32600, "{method}");
    }
    editor.open("file:///a.mas", "workflow");
    editor.tell("exit", Value::Null);
    assert_eq!(editor.ended(), 0);
}

#[test]
fn an_editor_that_leaves_takes_the_server_along() {
    assert_eq!(Editor::start().leave(), 1);
    let mut editor = Editor::ready();
    editor.open("file:///slow.mas", "plugin m = \"slow.wasm\"\n");
    assert_eq!(editor.leave(), 1);
    let mut editor = Editor::ready();
    editor.tell("exit", Value::Null);
    assert_eq!(editor.ended(), 1);
}

#[test]
fn files_are_watched_where_the_editor_can() {
    let mut editor = Editor::start();
    let watching = json!({ "workspace": { "didChangeWatchedFiles": { "dynamicRegistration": true } } });
    editor.ask("initialize", json!({ "capabilities": watching }));
    editor.tell("initialized", json!({}));
    let request = editor.wait(|message| message["method"] == "client/registerCapability");
    editor.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": null }));
    editor.ask("shutdown", Value::Null);
}
