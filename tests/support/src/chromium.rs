//! A real browser, driven over the pipes of Chromium's DevTools protocol.

#![allow(clippy::unwrap_used, reason = "a helper of tests: a panic is how a test fails")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Requirement, skip_or_fail};

/// Time in milliseconds for which a condition of a page is waited for.
const PATIENCE: u32 = 60_000;

/// A page of a browser. The browser ends when it is dropped.
pub struct Page {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    _profile: TempDir,
}

/// Returns the name of the browser's program. Returns `None` and reports the test as skipped without one.
///
/// # Panics
/// If it is missing and `PL_HOST_NEEDS_CHROMIUM` is `1`.
#[track_caller]
pub fn program() -> Option<&'static str> {
    let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if program.is_none() {
        skip_or_fail(Requirement::Chromium, "there is no chromium");
    }
    program
}

impl Page {
    /// Starts a browser with the viewer's page at an address with its token. Returns `None` and reports the test as skipped
    /// without Chromium.
    ///
    /// # Panics
    /// If the browser ends, or the page isn't shown.
    pub fn open(url: &str, width: u32, height: u32) -> Option<Page> {
        let program = program()?;
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads commands from descriptor 3 and writes answers to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut page = Page { child, input, output, session: None, calls: 0, _profile: profile };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        page.session =
            Some(page.call("Target.attachToTarget", &attach)["sessionId"].as_str().unwrap().to_owned());
        page.resize(width, height);
        page.call("Page.enable", &json!({}));
        page.call("Page.navigate", &json!({ "url": url }));
        page.wait_for("document.querySelector('#bar a')");
        Some(page)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            assert_ne!(self.output.read_until(0, &mut answer).unwrap(), 0, "the browser has ended");
            answer.pop();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Returns the value of an expression, which may be a promise.
    pub fn eval(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            &json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, condition: &str) {
        let script = format!(
            "(async () => {{ for (let end = Date.now() + {PATIENCE}; Date.now() < end; ) {{ if ({condition}) return true; \
             await new Promise((done) => setTimeout(done, 20)); }} return document.body.innerText; }})()"
        );
        let result = self.eval(&script);
        assert_eq!(result, json!(true), "{condition} does not become true");
    }

    /// Goes to a page and waits for an element of it.
    pub fn go(&mut self, hash: &str, element: &str) {
        self.eval("document.getElementById('page').replaceChildren()");
        // The page also draws an address anew that it has already.
        let hash = json!(hash);
        self.eval(&format!(
            "location.hash === {hash} ? dispatchEvent(new HashChangeEvent('hashchange')) : (location.hash = {hash})"
        ));
        self.wait_for(&format!("document.querySelector({})", json!(element)));
    }

    /// Sets the size of the window.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Sets the colours that the user prefers.
    pub fn colours(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let code = if key == "Enter" { 13 } else { 0 };
        let text = if key == "Enter" { "\r" } else { key };
        let down = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", &down);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Saves a picture of the whole page in the folder that `PL_HOST_SCREENSHOTS` names.
    pub fn screenshot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("PL_HOST_SCREENSHOTS") else { return };
        let height = self.eval("document.documentElement.scrollHeight").as_u64().unwrap().min(4000);
        let picture = self.picture(height);
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }

    /// Returns a picture of the top of the page, a PNG file.
    pub fn picture(&mut self, height: u64) -> Vec<u8> {
        let width = self.eval("innerWidth");
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let shot =
            self.call("Page.captureScreenshot", &json!({ "clip": clip, "captureBeyondViewport": true }));
        decode_base64(shot["data"].as_str().unwrap())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four
            .iter()
            .enumerate()
            .fold(0u32, |bits, (i, byte)| bits | u32::from(value(*byte)) << (18 - 6 * i));
        bytes.extend(bits.to_be_bytes().iter().skip(1).take(four.len() - 1));
    }
    bytes
}
