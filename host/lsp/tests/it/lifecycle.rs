//! Handshake, shutdown and exit.

use serde_json::{Value, json};

use crate::editor::Editor;

#[test]
fn shutdown_and_exit_end_the_server() {
    let mut editor = Editor::start();
    let initialized = editor.request("initialize", json!({ "capabilities": {} }));
    insta::assert_json_snapshot!(initialized["capabilities"]);
    editor.notify("initialized", json!({}));
    assert_eq!(editor.request("shutdown", Value::Null), Value::Null);
    editor.notify("exit", Value::Null);
    assert_eq!(editor.exit_code(), 0);
}

#[test]
fn requests_are_refused_before_initialize_and_after_shutdown() {
    let mut editor = Editor::start();
    assert_eq!(editor.error_code("textDocument/hover", json!({})), -32002);
    editor.notify("textDocument/didOpen", json!({ "textDocument": { "uri": "file:///a.mas" } }));
    editor.request("initialize", json!({ "capabilities": {} }));
    assert_eq!(editor.error_code("initialize", json!({ "capabilities": {} })), -32600);
    editor.request("shutdown", Value::Null);
    for method in ["shutdown", "textDocument/hover", "initialize", "nonsense"] {
        assert_eq!(editor.error_code(method, json!({})), -32600, "{method}");
    }
    editor.open("file:///a.mas", "workflow");
    editor.notify("exit", Value::Null);
    assert_eq!(editor.exit_code(), 0);
}

#[test]
fn the_server_ends_when_the_editor_disconnects() {
    assert_eq!(Editor::start().disconnect(), 1);
    let mut editor = Editor::initialized();
    editor.open("file:///slow.mas", "plugin m = \"slow.wasm\"\n");
    assert_eq!(editor.disconnect(), 1);
    let mut editor = Editor::initialized();
    editor.notify("exit", Value::Null);
    assert_eq!(editor.exit_code(), 1);
}

#[test]
fn files_are_watched_if_the_editor_supports_it() {
    let mut editor = Editor::start();
    let watching = json!({ "workspace": { "didChangeWatchedFiles": { "dynamicRegistration": true } } });
    editor.request("initialize", json!({ "capabilities": watching }));
    editor.notify("initialized", json!({}));
    let request = editor.wait_for(|message| message["method"] == "client/registerCapability");
    editor.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": null }));
    editor.request("shutdown", Value::Null);
}
