//! Runs whose policies live on a server: the same bits as with the embedded engine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::server_process::Server;
use crate::support::{assert_equal_runs, pl_host, run, scenario, stderr, succeed};

const STEPS: [&str; 2] = ["--set", "train.steps=3"];

/// Writes the workflow of `letters/tree-l2.mas` with both policies on a server.
fn on_server(folder: &Path, url: &str) -> PathBuf {
    let text = std::fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
    let own =
        |name: &str| std::fs::canonicalize(scenario("letters").join(name)).unwrap().display().to_string();
    let text = text
        .replace("../../data/tiny\"", &format!("{}\"\nserver fleet = \"{url}\"", own("../../data/tiny")))
        .replace("lora { rank = 4; alpha = 8 }", "lora { rank = 4; alpha = 8 }; server = fleet");
    assert_eq!(text.matches("server = fleet").count(), 2);
    let file = folder.join("tree-l2.mas");
    std::fs::write(&file, text).unwrap();
    file
}

/// Runs the workflow with the embedded engine.
fn embedded(folder: &Path) -> PathBuf {
    let out = folder.join("embedded");
    succeed(&mut run(&scenario("letters/tree-l2.mas"), &out, &STEPS));
    out
}

/// Copies the files that name the servers, which differ from those of the embedded run.
fn copy_settings(from: &Path, to: &Path) {
    for name in ["workflow.json", "lock.json"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn a_run_on_a_server_is_the_embedded_run() {
    let folder = tempfile::tempdir().unwrap();
    let expected = embedded(folder.path());
    let server = Server::start(&scenario("letters/tree-l2.mas"), &["--allow-runtime-adapters"]);
    let out = folder.path().join("remote");
    succeed(&mut run(&on_server(folder.path(), &server.url), &out, &STEPS));
    copy_settings(&expected, &out);
    assert_equal_runs(&expected, &out, "policies on a server");
    // The newest version of each adapter is left.
    let models = server.models();
    let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(names.iter().filter(|name| name.contains("@v")).count(), 2, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("first@v3-")), "{names:?}");
    assert_eq!(server.interrupt().0, Some(0));
}

#[test]
fn a_run_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let expected = embedded(folder.path());
    let served = scenario("letters/tree-l2.mas");
    let server = Server::start(&served, &["--allow-runtime-adapters"]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let out = folder.path().join("remote");
    let file = on_server(folder.path(), &server.url);
    let child = run(&file, &out, &STEPS).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let has_step =
        || std::fs::read_to_string(out.join("metrics.jsonl")).is_ok_and(|text| text.contains("step"));
    while !has_step() {
        assert!(Instant::now() < deadline, "no step was played");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Killed, not interrupted: requests in progress end in the middle.
    drop(server);
    std::thread::sleep(Duration::from_millis(1500));
    let _server = Server::listen(&served, &address, &["--allow-runtime-adapters"]);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    copy_settings(&expected, &out);
    assert_equal_runs(&expected, &out, "a server that was killed and started again");
}

#[test]
fn a_server_without_adapters_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&scenario("letters/tree-l2.mas"), &[]);
    let file = on_server(folder.path(), &server.url);
    let output = run(&file, &folder.path().join("remote"), &STEPS).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("--allow-runtime-adapters") && message.contains(&server.url), "{message}");
}

#[test]
fn a_server_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Its only policies are trained copies of whole models.
    let out = folder.path().join("whole");
    succeed(&mut run(&scenario("letters/flat-l3.mas"), &out, &["--set", "train.steps=1"]));
    let server = Server::start(&out, &["--allow-runtime-adapters"]);
    let file = on_server(folder.path(), &server.url);
    let mut check = pl_host();
    succeed(check.arg("check").arg(&file));
    let output = run(&file, &folder.path().join("remote"), &STEPS).output().unwrap();
    let message = stderr(&output);
    assert!(!output.status.success() && message.contains("same `model`"), "{message}");
}
