//! A `pl-host serve` beside the test.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::pl_host;

/// A running `pl-host serve`.
pub struct Server {
    child: Child,
    pub url: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    /// Starts a server of a workflow or a run on a free port.
    pub fn start(served: &Path, more: &[&str]) -> Server {
        Server::listen(served, "127.0.0.1:0", more)
    }

    /// Starts a server at an address.
    pub fn listen(served: &Path, address: &str, more: &[&str]) -> Server {
        let mut command = pl_host();
        command.arg("serve").arg(served).args(["--listen", address, "--device", "cpu"]).args(more);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let url = loop {
            let start = seen.len();
            assert!(stderr.read_line(&mut seen).unwrap() > 0, "the server ended:\n{seen}");
            if let Some(url) = seen[start..].split_whitespace().find(|word| word.starts_with("http://")) {
                break url.trim_end_matches("/v1").to_owned();
            }
        };
        Server { child, url, stderr }
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(300)));
        let agent: ureq::Agent = config.http_status_as_error(false).build().into();
        let request = agent.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        let text = request.send(body.to_string()).unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub fn get(&self, path: &str) -> Value {
        let text = ureq::get(format!("{}{path}", self.url)).call().unwrap().body_mut().read_to_string();
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    /// Returns the models that it lists.
    pub fn models(&self) -> Vec<Value> {
        self.get("/v1/models")["data"].as_array().unwrap().clone()
    }

    /// Interrupts the server and waits for its end. Returns what it still wrote.
    pub fn interrupt(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    /// Ends a server that a failed test has left running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
