//! An editor that is a test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Long past anything that the server may take, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Editor {
    server: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Notifications and requests that came while an answer was waited for.
    aside: Vec<Value>,
    next: i64,
}

impl Editor {
    /// A server that nobody has spoken to.
    pub fn start() -> Editor {
        let mut server = Command::new(env!("CARGO_BIN_EXE_lsp-fixture"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = server.stdout.take().unwrap();
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = server.stdin.take();
        Editor { server, input, messages, aside: Vec::new(), next: 0 }
    }

    /// A server that is ready.
    pub fn ready() -> Editor {
        let mut editor = Editor::start();
        editor.ask("initialize", json!({ "processId": null, "rootUri": null, "capabilities": {} }));
        editor.tell("initialized", json!({}));
        editor
    }

    /// Bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        // Where the server has ended, whoever waits for its answer will notice.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    pub fn write(&mut self, message: &Value) {
        let body = message.to_string();
        self.send(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    pub fn tell(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The whole answer to a request.
    pub fn answer(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.wait(|message| message["id"] == id && message.get("method").is_none())
    }

    /// The result of a request that succeeds.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The code of a request that fails.
    pub fn refused(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.answer(method, params);
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method} succeeds: {answer}"))
    }

    /// The first message that fits; the others are kept.
    pub fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.aside.iter().position(&fits) {
            return self.aside.remove(at);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).expect("a message that is waited for");
            if fits(&message) {
                return message;
            }
            self.aside.push(message);
        }
    }

    pub fn open(&mut self, uri: &str, text: &str) {
        let document = json!({ "uri": uri, "languageId": "mas", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// Replaces a document's whole text.
    pub fn replace(&mut self, uri: &str, version: i32, text: &str) {
        self.tell(
            "textDocument/didChange",
            json!({ "textDocument": { "uri": uri, "version": version }, "contentChanges": [{ "text": text }] }),
        );
    }

    /// The diagnostics of one version of a document.
    pub fn diagnostics(&mut self, uri: &str, version: i32) -> Value {
        let message = self.wait(|message| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == uri
                && message["params"]["version"] == version
        });
        message["params"]["diagnostics"].clone()
    }

    /// What has come and was not waited for.
    pub fn rest(&mut self) -> Vec<Value> {
        self.aside.extend(self.messages.try_iter());
        std::mem::take(&mut self.aside)
    }

    /// Nothing more is said; the code that the server ends with.
    pub fn leave(mut self) -> i32 {
        self.input = None;
        self.ended()
    }

    /// The code that the server ends with by itself.
    pub fn ended(mut self) -> i32 {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.server.try_wait().unwrap() {
                return status.code().expect("the server ends by itself");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end");
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn read(input: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).unwrap())
}

/// A position marked with `|`, and the text without the mark.
pub fn marked(text: &str) -> (String, Value) {
    let at = text.find('|').unwrap();
    let before = &text[..at];
    let line = before.matches('\n').count();
    let column = before[before.rfind('\n').map_or(0, |newline| newline + 1)..].encode_utf16().count();
    (text.replacen('|', "", 1), json!({ "line": line, "character": column }))
}
