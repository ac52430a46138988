//! The language server holds the same text as the editor after any edits, and answers every request.
//!
//! The input is the document, then the edits, each after a `\u{1}`: four characters for the start and end (line and
//! column), then the new text. So workflow files are seeds.

#[path = "../../../../dsl/tests/common/mod.rs"]
mod common;
#[path = "../../../../dsl/tests/common/seeds.rs"]
mod seeds;

use std::cell::RefCell;

use pl_lsp::{Connection, Message, Notification, Request, ServerHooks, serve};
use pl_testing::fuzz::fuzz;
use serde_json::{Value, json};

use seeds::{WORDS, seeds};

/// Folder of the language, from that of this package.
const LANGUAGE: &str = "../../dsl";

const URI: &str = "file:///fuzz.mas";

/// Exclusive bound of columns in edits; some exceed the length of their line.
const COLUMNS: u32 = 100;

thread_local! {
    /// Text that the server holds at each formatting request.
    static SERVER_TEXTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn edits() {
    // The server goes on after a panic of its check.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        if std::thread::current().name() == Some("check") {
            std::process::abort();
        }
    }));
    // Before each edit.
    let words = [WORDS, &["\u{1}"]].concat();
    fuzz("edits", &seeds(), &words, |bytes| {
        if let Ok(input) = std::str::from_utf8(bytes) {
            edit(input);
        }
    });
}

/// Makes the edits of an input, and compares the texts of both sides.
fn edit(input: &str) {
    // Those of an input that failed.
    SERVER_TEXTS.take();
    let mut parts = input.split('\u{1}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let (server, client) = Connection::memory();
    let editor = Editor(client);
    editor.request("initialize", 0, json!({ "capabilities": {} }));
    let document = json!({ "uri": URI, "languageId": "mas", "version": 0, "text": text });
    editor.notify("textDocument/didOpen", json!({ "textDocument": document }));
    let mut expected = vec![text.clone()];
    editor.request_everything((0, 0));
    for (version, edit) in (1..).zip(parts) {
        let mut chars = edit.chars();
        let mut number = || chars.next().map_or(0, u32::from);
        let lines = u32::try_from(text.split('\n').count()).unwrap_or(u32::MAX);
        let (from, to) =
            ((number() % (lines + 1), number() % COLUMNS), (number() % (lines + 1), number() % COLUMNS));
        let new = chars.as_str();
        let document = json!({ "uri": URI, "version": version });
        let range = json!({ "start": position(from), "end": position(to) });
        let changes = json!([{ "range": range, "text": new }]);
        editor
            .notify("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
        let (from, to) = (byte_offset(&text, from), byte_offset(&text, to));
        text.replace_range(from.min(to)..to.max(from), new);
        expected.push(text.clone());
        editor.request_everything((line_of_byte(&text, from), to as u32 % COLUMNS));
    }
    editor.request("shutdown", 1, Value::Null);
    editor.notify("exit", Value::Null);
    let host = ServerHooks {
        catalog: Box::new(|_| Ok(Box::new(common::TestCatalog))),
        unknown_names: |_, _| Vec::new(),
        format: |text| {
            SERVER_TEXTS.with_borrow_mut(|texts| texts.push(text.to_owned()));
            pl_dsl::format(text).ok()
        },
    };
    let result = serve(&server, host);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(SERVER_TEXTS.take(), expected);
}

/// The client's end of the connection. Messages are queued until the server runs.
struct Editor(Connection);

impl Editor {
    fn send(&self, message: impl Into<Message>) {
        self.0.sender.send(message.into()).expect("the server's end is open");
    }

    fn notify(&self, method: &str, params: Value) {
        self.send(Notification::new(method.to_owned(), params));
    }

    fn request(&self, method: &str, id: i32, params: Value) {
        self.send(Request::new(id.into(), method.to_owned(), params));
    }

    /// Sends every request about a position.
    fn request_everything(&self, line_and_column: (u32, u32)) {
        let document = json!({ "uri": URI });
        let params = json!({ "textDocument": document, "position": position(line_and_column) });
        for method in ["hover", "completion", "definition", "documentHighlight", "prepareRename"] {
            self.request(&format!("textDocument/{method}"), 2, params.clone());
        }
        let mut rename = params.clone();
        rename["newName"] = "another".into();
        self.request("textDocument/rename", 3, rename);
        let mut references = params;
        references["context"] = json!({ "includeDeclaration": true });
        self.request("textDocument/references", 4, references);
        self.request("textDocument/documentSymbol", 5, json!({ "textDocument": document }));
        let options = json!({ "tabSize": 2, "insertSpaces": true });
        self.request("textDocument/formatting", 6, json!({ "textDocument": document, "options": options }));
    }
}

fn position((line, character): (u32, u32)) -> Value {
    json!({ "line": line, "character": character })
}

/// Index of the line that contains a byte.
fn line_of_byte(text: &str, at: usize) -> u32 {
    u32::try_from(lines(text).iter().filter(|(start, _)| *start <= at).count().saturating_sub(1))
        .unwrap_or(u32::MAX)
}

/// Start and end of each line, without its line ending.
fn lines(text: &str) -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    let (mut start, mut rest) = (0, text);
    while let Some(at) = rest.find(['\r', '\n']) {
        let width = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
        lines.push((start, start + at));
        start += at + width;
        rest = &rest[at + width..];
    }
    lines.push((start, text.len()));
    lines
}

/// Byte offset of a line and a column in UTF-16 units. A position beyond the end moves to the end, one within a character
/// to its start.
fn byte_offset(text: &str, (line, column): (u32, u32)) -> usize {
    let Some((start, end)) = lines(text).get(line as usize).copied() else { return text.len() };
    let mut units = 0;
    for (at, character) in text[start..end].char_indices() {
        units += character.len_utf16();
        if units > column as usize {
            return start + at;
        }
    }
    end
}
