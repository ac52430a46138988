//! What no editor should send, and what comes of it: an answer, and a server that goes on.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::editor::Editor;

const FILE: &str = "file:///a.mas";

/// What can be asked about a place in a document.
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

/// The server still knows its documents.
fn is_well(editor: &mut Editor) {
    editor.open("file:///well.mas", "train { samples = 4 }\n");
    let position = json!({ "line": 0, "character": 10 });
    let params = json!({ "textDocument": { "uri": "file:///well.mas" }, "position": position });
    assert!(editor.ask("textDocument/hover", params)["contents"]["value"].is_string());
}

#[test]
fn unknown_methods_and_wrong_params_are_refused() {
    let mut editor = Editor::ready();
    editor.open(FILE, "workflow w\n");
    assert_eq!(editor.refused("textDocument/nonsense", json!({})), -32601);
    assert_eq!(editor.refused("$/nonsense", Value::Null), -32601);
    for params in [
        Value::Null,
        json!([]),
        json!({ "textDocument": 3 }),
        json!({ "textDocument": { "uri": "not an address" }, "position": { "line": 0, "character": 0 } }),
        json!({ "textDocument": { "uri": FILE }, "position": { "line": -1, "character": 0 } }),
        json!({ "textDocument": { "uri": FILE }, "position": { "line": 1e99, "character": 0 } }),
    ] {
        assert_eq!(editor.refused("textDocument/hover", params), -32602);
    }
    for method in ["didOpen", "didChange", "didClose", "didSave", "nonsense"] {
        for params in [Value::Null, json!([1]), json!({ "textDocument": { "uri": 3 } })] {
            editor.tell(&format!("textDocument/{method}"), params);
        }
    }
    editor.write(&json!({ "jsonrpc": "2.0", "id": 77, "result": null }));
    editor.tell("$/cancelRequest", json!({ "id": 1 }));
    is_well(&mut editor);
}

#[test]
fn documents_that_are_not_open_have_no_answers() {
    let mut editor = Editor::ready();
    let position = json!({ "line": 0, "character": 0 });
    let range = json!({ "start": position, "end": position });
    let params = json!({
        "textDocument": { "uri": "file:///nowhere.mas" }, "position": position, "range": range,
        "context": { "diagnostics": [], "triggerKind": 1, "includeDeclaration": true },
        "options": { "tabSize": 2, "insertSpaces": true }, "newName": "n",
    });
    for method in METHODS {
        assert_eq!(editor.ask(&format!("textDocument/{method}"), params.clone()), Value::Null, "{method}");
    }
    editor.replace("file:///nowhere.mas", 2, "workflow w");
    editor.tell("textDocument/didClose", json!({ "textDocument": { "uri": "file:///nowhere.mas" } }));
    is_well(&mut editor);
}

#[test]
fn broken_messages_are_answered_or_end_the_talk() {
    let mut editor = Editor::ready();
    for body in ["{", "[]", "null", "{\"id\":1}", "\"\u{1F600}\""] {
        editor.send(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    editor.wait(|message| message["error"]["code"] == -32700 && message["id"] == Value::Null);
    is_well(&mut editor);
    editor.send(b"Content-Length: 99999999999999999999999\r\n\r\n");
    assert_eq!(editor.ended(), 1);
}

#[test]
fn odd_addresses_are_checked_too() {
    let mut editor = Editor::ready();
    for uri in ["untitled:Untitled-1", "file:///%FF.mas", "vscode-vfs://github/a/b.mas", "file://host/a.mas"]
    {
        editor.open(uri, "workflow 3\n");
        assert_ne!(editor.diagnostics(uri, 1), json!([]), "{uri}");
    }
}

proptest! {
    // Each case talks to one process.
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whatever is edited and asked wherever, there is an answer.
    #[test]
    fn any_edit_and_position_has_an_answer(
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
        let mut editor = Editor::ready();
        editor.open(FILE, "workflow w\n");
        for (version, ((line, column, end_line, end_column), text)) in (2..).zip(steps) {
            // Most positions in the text, some far outside.
            let far = |number: u8| if number > 250 { u32::MAX - u32::from(number) } else { u32::from(number % 12) };
            let start = json!({ "line": far(line), "character": far(column) });
            let end = json!({ "line": far(end_line), "character": far(end_column) });
            editor.tell("textDocument/didChange", json!({
                "textDocument": { "uri": FILE, "version": version },
                "contentChanges": [{ "range": { "start": start, "end": end }, "text": text }],
            }));
            let params = json!({
                "textDocument": { "uri": FILE }, "position": start, "range": { "start": end, "end": start },
                "context": { "diagnostics": [], "triggerKind": 1, "includeDeclaration": true },
                "options": { "tabSize": 2, "insertSpaces": true }, "newName": "n",
            });
            for method in METHODS {
                let answer = editor.answer(&format!("textDocument/{method}"), params.clone());
                // A rename may be refused, with a reason.
                prop_assert!(answer.get("error").is_none_or(|error| error["code"] == -32803), "{}", answer);
            }
        }
        editor.ask("shutdown", Value::Null);
    }
}
