//! A client that talks to the server process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Limit for every wait, far above the time that the server needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Editor {
    server: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Messages that arrived during a wait for another one.
    pending: Vec<Value>,
    last_id: i64,
}

impl Editor {
    /// Starts a server that is not initialized.
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
        Editor { server, input, messages, pending: Vec::new(), last_id: 0 }
    }

    /// Starts and initializes a server.
    pub fn initialized() -> Editor {
        let mut editor = Editor::start();
        editor.request("initialize", json!({ "processId": null, "rootUri": null, "capabilities": {} }));
        editor.notify("initialized", json!({}));
        editor
    }

    /// Sends raw bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        // If the server has ended, the wait for its response fails.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    pub fn send(&mut self, message: &Value) {
        let body = message.to_string();
        self.send_bytes(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and returns the whole response.
    pub fn response(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.wait_for(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Sends a request that succeeds and returns its result.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let response = self.response(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// Sends a request that fails and returns its error code.
    pub fn error_code(&mut self, method: &str, params: Value) -> i64 {
        let response = self.response(method, params);
        response["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method} succeeds: {response}"))
    }

    /// Waits for the first message that matches; the others are kept.
    pub fn wait_for(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.pending.iter().position(&matches) {
            return self.pending.remove(index);
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).expect("the expected message arrives");
            if matches(&message) {
                return message;
            }
            self.pending.push(message);
        }
    }

    pub fn open(&mut self, uri: &str, text: &str) {
        let document = json!({ "uri": uri, "languageId": "mas", "version": 1, "text": text });
        self.notify("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// Replaces a document's whole text.
    pub fn replace(&mut self, uri: &str, version: i32, text: &str) {
        self.notify(
            "textDocument/didChange",
            json!({ "textDocument": { "uri": uri, "version": version }, "contentChanges": [{ "text": text }] }),
        );
    }

    /// The diagnostics of one version of a document.
    pub fn diagnostics(&mut self, uri: &str, version: i32) -> Value {
        let message = self.wait_for(|message| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == uri
                && message["params"]["version"] == version
        });
        message["params"]["diagnostics"].clone()
    }

    /// Takes the messages that no wait has returned.
    pub fn take_pending(&mut self) -> Vec<Value> {
        self.pending.extend(self.messages.try_iter());
        std::mem::take(&mut self.pending)
    }

    /// Closes the connection and returns the server's exit code.
    pub fn disconnect(mut self) -> i32 {
        self.input = None;
        self.exit_code()
    }

    /// Waits until the server ends and returns its exit code.
    pub fn exit_code(mut self) -> i32 {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.server.try_wait().unwrap() {
                return status.code().expect("the server is not killed");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end");
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // A failed test must not leave the process running.
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

/// Text without the mark `|`, and the position of the mark.
pub fn split_mark(text: &str) -> (String, Value) {
    let before = &text[..text.find('|').unwrap()];
    let line = before.matches('\n').count();
    let column = before[before.rfind('\n').map_or(0, |newline| newline + 1)..].encode_utf16().count();
    (text.replacen('|', "", 1), json!({ "line": line, "character": column }))
}
