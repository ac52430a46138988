//! `serve` as OpenAI's own Python client sees it.

use std::path::PathBuf;
use std::process::Command;

use crate::server_process::Server;
use crate::support::{scenario, stderr, stdout};

/// Interpreters that may have the client: `python3`, and that of `cargo xtask servers`.
fn interpreters() -> [PathBuf; 2] {
    ["python3".into(), pl_toolchain::cache::root().unwrap().join("servers/bin/python")]
}

#[test]
fn openai_s_client_understands_the_server() {
    let has_client = |python: &PathBuf| {
        Command::new(python).args(["-c", "import openai"]).output().is_ok_and(|tried| tried.status.success())
    };
    let Some(python) = interpreters().into_iter().find(has_client) else {
        let reason = "no Python has the package openai (pip install openai)";
        pl_testing::skip_or_fail(pl_testing::Requirement::Openai, reason);
        return;
    };
    let server = Server::start(&scenario("letters/tree-l2.mas"), &[]);
    let mut client = Command::new(python);
    let output = client.arg(scenario("openai_client.py")).arg(&server.url).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("all calls were understood"), "{}", stdout(&output));
}
