//! Invalid messages and arbitrary edits: the server responds and keeps running, or ends with an error.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::editor::Editor;

const FILE: &str = "file:///a.mas";

/// Requests about a position in a document.
const METHODS: &[&str] = &[
    "hover",
    "completion",
    "definition",
    "references",
    "documentHighlight",
    "prepareRename",
    "rename",
    "documentSymbol",
    "codeAction",
    "formatting",
];

/// Checks that the server still responds about its documents.
fn assert_responsive(editor: &mut Editor) {
    editor.open("file:///well.mas", "train { samples = 4 }\n");
    let position = json!({ "line": 0, "character": 10 });
    let params = json!({ "textDocument": { "uri": "file:///well.mas" }, "position": position });
    assert!(editor.request("textDocument/hover", params)["contents"]["value"].is_string());
}

#[test]
fn unknown_methods_and_invalid_params_are_refused() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "workflow w\n");
    assert_eq!(editor.error_code("textDocument/nonsense", json!({})), -32601);
    assert_eq!(editor.error_code("$/nonsense", Value::Null), -32601);
    for params in [
        Value::Null,
        json!([]),
        json!({ "textDocument": 3 }),
        json!({ "textDocument": { "uri": "not an address" }, "position": { "line": 0, "character": 0 } }),
        json!({ "textDocument": { "uri": FILE }, "position": { "line": -1, "character": 0 } }),
        json!({ "textDocument": { "uri": FILE }, "position": { "line": 1e99, "character": 0 } }),
    ] {
        assert_eq!(editor.error_code("textDocument/hover", params), -32602);
    }
    for method in ["didOpen", "didChange", "didClose", "didSave", "nonsense"] {
        for params in [Value::Null, json!([1]), json!({ "textDocument": { "uri": 3 } })] {
            editor.notify(&format!("textDocument/{method}"), params);
        }
    }
    editor.send(&json!({ "jsonrpc": "2.0", "id": 77, "result": null }));
    editor.notify("$/cancelRequest", json!({ "id": 1 }));
    assert_responsive(&mut editor);
}

#[test]
fn documents_that_are_not_open_have_null_results() {
    let mut editor = Editor::initialized();
    let position = json!({ "line": 0, "character": 0 });
    let range = json!({ "start": position, "end": position });
    let params = json!({
        "textDocument": { "uri": "file:///nowhere.mas" }, "position": position, "range": range,
        "context": { "diagnostics": [], "triggerKind": 1, "includeDeclaration": true },
        "options": { "tabSize": 2, "insertSpaces": true }, "newName": "n",
    });
    for method in METHODS {
        assert_eq!(
            editor.request(&format!("textDocument/{method}"), params.clone()),
            Value::Null,
            "{method}"
        );
    }
    editor.replace("file:///nowhere.mas", 2, "workflow w");
    editor.notify("textDocument/didClose", json!({ "textDocument": { "uri": "file:///nowhere.mas" } }));
    assert_responsive(&mut editor);
}

#[test]
fn malformed_messages_end_the_server() {
    let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let malformed = ["{", "[]", "null", "{\"id\":1}", "\"\u{1F600}\""].map(framed);
    let header = "Content-Length: 99999999999999999999999\r\n\r\n".to_owned();
    for message in malformed.into_iter().chain([header]) {
        let mut editor = Editor::initialized();
        assert_responsive(&mut editor);
        editor.send_bytes(message.as_bytes());
        assert_eq!(editor.exit_code(), 1, "{message}");
    }
}

#[test]
fn unusual_uris_are_checked() {
    let mut editor = Editor::initialized();
    for uri in ["untitled:Untitled-1", "file:///%FF.mas", "vscode-vfs://github/a/b.mas", "file://host/a.mas"]
    {
        editor.open(uri, "workflow 3\n");
        assert_ne!(editor.diagnostics(uri, 1), json!([]), "{uri}");
    }
}

proptest! {
    // Each case starts a process.
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Every request at any position after any edit has a response.
    #[test]
    fn any_edit_and_position_has_a_response(
        steps in prop::collection::vec(
            (
                any::<(u8, u8, u8, u8)>(),
                prop::sample::select(vec![
                    "agent a = maths.tool { ", "}", "{", "\"", "\"\"\"", "${", "\n", "turns { ", "a -> ", "when env.",
                    "ü", "\u{1F600}", "\r", "# ", "policy = ", "template t(x: int) = agent ", "use \"a\" as ", "",
                ]),
            ),
            1..60,
        ),
    ) {
        let mut editor = Editor::initialized();
        editor.open(FILE, "workflow w\n");
        for (version, ((line, column, end_line, end_column), text)) in (2..).zip(steps) {
            // Most positions are in the text, some far outside.
            let coordinate = |number: u8| if number > 250 { u32::MAX - u32::from(number) } else { u32::from(number % 12) };
            let start = json!({ "line": coordinate(line), "character": coordinate(column) });
            let end = json!({ "line": coordinate(end_line), "character": coordinate(end_column) });
            editor.notify("textDocument/didChange", json!({
                "textDocument": { "uri": FILE, "version": version },
                "contentChanges": [{ "range": { "start": start, "end": end }, "text": text }],
            }));
            let params = json!({
                "textDocument": { "uri": FILE }, "position": start, "range": { "start": end, "end": start },
                "context": { "diagnostics": [], "triggerKind": 1, "includeDeclaration": true },
                "options": { "tabSize": 2, "insertSpaces": true }, "newName": "n",
            });
            for method in METHODS {
                let response = editor.response(&format!("textDocument/{method}"), params.clone());
                // A rename may fail.
                prop_assert!(response.get("error").is_none_or(|error| error["code"] == -32803), "{}", response);
            }
        }
        editor.request("shutdown", Value::Null);
    }
}
