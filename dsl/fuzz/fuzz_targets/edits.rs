//! Whatever an editor types into a document, the language server holds the same text, and answers.
//!
//! The input is the document, then the edits, each behind a `\u{1}`: four characters that say from which line and
//! column to which, and what stands there instead. So the files of the tests are a corpus.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use pl_lsp::{Ended, Host, serve};
use serde_json::{Value, json};

const URI: &str = "file:///fuzz.mas";

/// Columns that an edit may ask for, so that some lie behind the end of their line.
const COLUMNS: u32 = 100;

thread_local! {
    /// The text that the server holds each time it is asked to format it.
    static HELD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fuzz_target!(|input: &str| {
    let mut parts = input.split('\u{1}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut talk = Talk::default();
    talk.say("initialize", Some(0), json!({ "capabilities": {} }));
    let document = json!({ "uri": URI, "languageId": "mas", "version": 0, "text": text });
    talk.say("textDocument/didOpen", None, json!({ "textDocument": document }));
    let mut expected = vec![text.clone()];
    talk.ask((0, 0));
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
        talk.say(
            "textDocument/didChange",
            None,
            json!({ "textDocument": document, "contentChanges": changes }),
        );
        let (from, to) = (byte(&text, from), byte(&text, to));
        text.replace_range(from.min(to)..to.max(from), new);
        expected.push(text.clone());
        talk.ask((number_of_line(&text, from), to as u32 % COLUMNS));
    }
    talk.say("shutdown", Some(1), Value::Null);
    talk.say("exit", None, Value::Null);
    let host = Host {
        catalog: Box::new(|_| Ok(Box::new(common::Shelf))),
        format: |text| {
            HELD.with_borrow_mut(|held| held.push(text.to_owned()));
            pl_dsl::format(text).ok()
        },
    };
    let ended = serve(Cursor::new(talk.messages.into_bytes()), std::io::sink(), host);
    assert!(matches!(ended, Ok(Ended::InOrder)), "{ended:?}");
    assert_eq!(HELD.take(), expected);
});

/// What the editor says, as it goes over the pipe.
#[derive(Default)]
struct Talk {
    messages: String,
}

impl Talk {
    fn say(&mut self, method: &str, id: Option<u32>, params: Value) {
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if let Some(id) = id {
            message["id"] = id.into();
        }
        let message = message.to_string();
        // Writing to a string never fails.
        let _ = write!(self.messages, "Content-Length: {}\r\n\r\n{message}", message.len());
    }

    /// Everything that can be asked about a place.
    fn ask(&mut self, at: (u32, u32)) {
        let document = json!({ "uri": URI });
        let place = json!({ "textDocument": document, "position": position(at) });
        for method in ["hover", "completion", "definition", "documentHighlight", "prepareRename"] {
            self.say(&format!("textDocument/{method}"), Some(2), place.clone());
        }
        let mut rename = place.clone();
        rename["newName"] = "another".into();
        self.say("textDocument/rename", Some(3), rename);
        let mut references = place;
        references["context"] = json!({ "includeDeclaration": true });
        self.say("textDocument/references", Some(4), references);
        self.say("textDocument/documentSymbol", Some(5), json!({ "textDocument": document }));
        let options = json!({ "tabSize": 2, "insertSpaces": true });
        self.say("textDocument/formatting", Some(6), json!({ "textDocument": document, "options": options }));
    }
}

fn position((line, character): (u32, u32)) -> Value {
    json!({ "line": line, "character": character })
}

/// The line that a byte is in, as the protocol counts them.
fn number_of_line(text: &str, at: usize) -> u32 {
    u32::try_from(lines(text).iter().filter(|(start, _)| *start <= at).count().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Where each line begins and where it ends, without the signs that end it.
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

/// The byte of a line and a column in UTF-16 units: of what lies behind the end the end, of half a character its
/// beginning.
fn byte(text: &str, (line, column): (u32, u32)) -> usize {
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
