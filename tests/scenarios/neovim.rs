//! The plugin for Neovim with the language server, in a headless Neovim.

use std::process::Command;
use std::time::{Duration, Instant};

use pl_testing::{Requirement, cache, skip_or_fail};
use serde_json::Value;

use crate::support::{repository, scenario};

/// Limit of the session, above the waits inside of it.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn neovim_shows_mistakes_explains_completes_and_formats() {
    if !Command::new("nvim").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip_or_fail(Requirement::Neovim, "nvim is not on the PATH");
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = (folder.path().join("team.mas"), folder.path().join("report.json"));
    let example = std::fs::read_to_string(repository().join("examples/chat.mas")).unwrap();
    let (head, _) = example.split_once("train {").unwrap();
    std::fs::write(&file, format!("{head}train {{ stepz = 3 }}\n")).unwrap();
    let program = repository().join("target/release/pl-host");
    let plugin = repository().join("editors/neovim");
    let mut session = Command::new("nvim")
        .args(["--headless", "-u", "NONE", "-i", "NONE"])
        .arg("--cmd")
        .arg(format!("let g:pl_host_program = '{}'", program.display()))
        .arg("-S")
        .arg(plugin.join("plugin/pl_host.lua"))
        .arg("-S")
        .arg(scenario("neovim/session.lua"))
        .env("MAS", &file)
        .env("REPORT", &report)
        .env("XDG_STATE_HOME", folder.path())
        .env("XDG_CACHE_HOME", folder.path())
        .env("PL_HOST_CACHE", cache())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while session.try_wait().unwrap().is_none() {
        if started.elapsed() > TIMEOUT {
            session.kill().unwrap();
            panic!("the session did not end");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["filetype"], "mas");
    let first = report["diagnostics"][0]["message"].as_str().unwrap_or_default();
    assert!(first.contains("stepz") && first.contains("steps"), "{report}");
    assert_eq!(report["left"], 0, "{report}");
    assert!(report["hover"].as_str().is_some_and(|text| text.contains("steps")), "{report}");
    let completions = report["completions"].as_array().unwrap();
    assert!(completions.iter().any(|label| label == "learning_rate"), "{report}");
    assert_eq!(report["lines"], serde_json::json!(["train { steps = 3 }"]), "{report}");
}
