//! Runs whose policies live on a server: the same bits as with the embedded engine.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server_process::Server;
use crate::support::{assert_equal_runs, content, metrics, pl_host, run, scenario, stderr, succeed};

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

/// Copies the files that name the servers or the model's path, which differ from those of the embedded run: settings and
/// model cards.
fn copy_settings(from: &Path, to: &Path) {
    let files = content(from);
    let cards = files.keys().map(String::as_str).filter(|name| name.ends_with("/README.md"));
    for name in ["workflow.json", "lock.json"].into_iter().chain(cards) {
        assert!(to.join(name).exists(), "{name} is missing");
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
    // Nothing of the run is left on the server.
    let models = server.models();
    let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(names, ["first", "second", "team"]);
    assert_eq!(server.interrupt().0, Some(0));
}

#[test]
fn grammars_on_a_server_are_those_of_the_embedded_run() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&scenario("letters/tree-l2.mas"), &["--allow-runtime-adapters"]);
    // The designs of a designer, and the completions of an agent.
    let designs = std::fs::read_to_string(scenario("letters/designer.mas")).unwrap();
    let songs = std::fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
    let songs = songs.replace("policy = first; ", "policy = first; grammar = \"start: /[aeiou]{1,6}/\"; ");
    let own =
        |name: &str| std::fs::canonicalize(scenario("letters").join(name)).unwrap().display().to_string();
    for (name, text) in [("designs", designs), ("songs", songs)] {
        let text =
            text.replace("../../data/tiny", &own("../../data/tiny")).replace("every = 3;", "every = 0;");
        let file = folder.path().join(format!("{name}.mas"));
        std::fs::write(&file, &text).unwrap();
        let expected = folder.path().join(format!("{name}-embedded"));
        succeed(&mut run(&file, &expected, &["--set", "train.steps=2"]));
        let text = text
            .replace("model base", &format!("server fleet = \"{}\"\nmodel base", server.url))
            .replace("model = base; ", "model = base; server = fleet; ");
        std::fs::write(&file, text).unwrap();
        let out = folder.path().join(format!("{name}-remote"));
        succeed(&mut run(&file, &out, &["--set", "train.steps=2"]));
        let steps = |root: &Path| std::fs::read(root.join("steps/000002.parquet")).unwrap();
        assert!(steps(&expected) == steps(&out), "{name}");
    }
    let traces = std::fs::read_to_string(folder.path().join("designs-remote/designs.jsonl")).unwrap();
    assert!(!traces.contains("invalid"), "{traces}");
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

/// Writes the workflow of `letters/flat-l3.mas`, whose policies are whole models, with both on a server.
fn whole_models_on_server(folder: &Path, url: &str) -> PathBuf {
    let text = std::fs::read_to_string(scenario("letters/flat-l3.mas")).unwrap();
    let tiny = std::fs::canonicalize(scenario("letters/../../data/tiny")).unwrap();
    let text = text
        .replace("../../data/tiny", &tiny.display().to_string())
        .replace("model one", &format!("server fleet = \"{url}\" {{ sleep = 1 }}\nmodel one"))
        .replace("{ model = one }", "{ model = one; server = fleet }")
        .replace("{ model = two }", "{ model = two; server = fleet }");
    assert_eq!(text.matches("server = fleet").count(), 2);
    let file = folder.join("flat-l3.mas");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn whole_models_on_a_server_are_those_of_the_embedded_run() {
    let folder = tempfile::tempdir().unwrap();
    let served = scenario("letters/flat-l3.mas");
    let expected = folder.path().join("embedded");
    succeed(&mut run(&served, &expected, &STEPS));
    let flag = ["--allow-runtime-weights"];
    let server = Server::start(&served, &flag);
    let out = folder.path().join("remote");
    succeed(&mut run(&whole_models_on_server(folder.path(), &server.url), &out, &STEPS));
    copy_settings(&expected, &out);
    assert_equal_runs(&expected, &out, "whole models on a server");
    // The last versions are there, and came as deltas.
    for name in ["first", "second"] {
        let info = server.get(&format!("/weight_info?model={name}"));
        assert_eq!(info["weight_version"], "3", "{info}");
        let stored = std::fs::read_dir(out.join("adapters"))
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{name}@v3-")));
        let stored = stored.unwrap_or_else(|| panic!("the last weights of {name} are missing"));
        assert!(stored.path().join("weights.delta").is_file());
        assert!(stored.file_name().to_string_lossy().ends_with(&info["checksum"].as_str().unwrap()[..12]));
    }
    // A second run on the same server begins at the model's own weights again.
    let again = folder.path().join("again");
    let file = whole_models_on_server(folder.path(), &server.url);
    succeed(&mut run(&file, &again, &["--set", "train.steps=1"]));
    let first = |run: &Path| std::fs::read(run.join("steps/000001.parquet")).unwrap();
    assert!(first(&again) == first(&expected), "the first steps differ");
}

#[test]
fn a_server_that_keeps_its_weights_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&scenario("letters/flat-l3.mas"), &["--allow-runtime-adapters"]);
    let file = whole_models_on_server(folder.path(), &server.url);
    let output = run(&file, &folder.path().join("remote"), &STEPS).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("--allow-runtime-weights") && message.contains(&server.url), "{message}");
}

#[test]
fn a_run_continues_on_another_server() {
    let folder = tempfile::tempdir().unwrap();
    let served = scenario("letters/tree-l2.mas");
    let expected = folder.path().join("embedded");
    succeed(&mut run(&served, &expected, &[]));
    let first = Server::start(&served, &["--allow-runtime-adapters"]);
    let out = folder.path().join("remote");
    let file = on_server(folder.path(), &first.url);
    let mut child = run(&file, &out, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !out.join("checkpoints/step-00000002").exists() {
        assert!(Instant::now() < deadline, "no checkpoint was written");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(first);
    let second = Server::start(&served, &["--allow-runtime-adapters"]);
    let mut resume = pl_host();
    resume.arg("run").arg("--resume").arg(&out).args(["--device", "cpu", "--set"]);
    succeed(resume.arg(format!("fleet.addresses=[\"{}\"]", second.url)));
    copy_settings(&expected, &out);
    assert_equal_runs(&expected, &out, "a run that went on on another server");
}

#[test]
fn a_partner_is_a_hosted_model() {
    let folder = tempfile::tempdir().unwrap();
    let host = Server::start(&scenario("letters/tree-l2.mas"), &[]);
    let text = std::fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
    let tiny = std::fs::canonicalize(scenario("letters/../../data/tiny")).unwrap();
    let second = "policy second { model = base; lora { rank = 4; alpha = 8 } }";
    assert!(text.contains(second));
    let hosted = |policy: &str| {
        let blocks = format!("server hosted = \"{}\" {{ kind = openai }}\n{policy}", host.url);
        let text = text.replace("../../data/tiny", &tiny.display().to_string()).replace(second, &blocks);
        let file = folder.path().join("hosted.mas");
        std::fs::write(&file, text).unwrap();
        file
    };
    let partner =
        hosted("policy second { model = base; train = false; server = hosted; served = \"second\" }");
    let out = folder.path().join("run");
    succeed(&mut run(&partner, &out, &["--set", "train.steps=2"]));
    for line in metrics(&out).iter().filter(|line| line["kind"] == "step") {
        assert_eq!((line["failures"].as_u64(), line["lost"].as_u64()), (Some(0), Some(0)), "{line}");
        assert_eq!(line["not_reproducible"].as_u64(), Some(3), "every episode: {line}");
        assert!(line["policies"]["first"].is_object() && line["policies"].get("second").is_none(), "{line}");
    }
    // It is asked by the team alone.
    let server = Server::start(&partner, &[]);
    let names: Vec<_> = server.models().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(names, ["first", "team"]);
    drop(server);
    // What the hosted model said is recorded.
    drop(host);
    succeed(pl_host().arg("replay").arg(&out));
    let timings = std::fs::read_to_string(out.join("timings.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(timings.lines().next().unwrap()).unwrap();
    let stats = &line["servers"][0];
    assert!(stats["requests"].as_u64().unwrap() > 0 && stats["p95_seconds"].is_number(), "{line}");
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

/// A llama.cpp server of SmolLM2.
struct LlamaServer {
    child: Child,
    url: String,
}

impl LlamaServer {
    /// Returns `None` and reports the test as skipped if the Python package xllamacpp is missing.
    fn start() -> Option<LlamaServer> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("python3");
        command.arg(scenario("llamacpp_server.py")).arg(pl_testing::smollm()?);
        let child = command.arg(port.to_string()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut url = String::new();
        if let Ok(mut child) = child {
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
            if url.starts_with("http://") {
                return Some(LlamaServer { child, url: url.trim().to_owned() });
            }
            child.wait().unwrap();
        }
        pl_testing::skip_or_fail(
            pl_testing::Requirement::Llamacpp,
            "Python has no package xllamacpp (pip install xllamacpp)",
        );
        None
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_partner_lives_on_llamacpp() {
    let Some(server) = LlamaServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(scenario("letters/smollm.mas")).unwrap();
    let second = "policy second { model = base; lora { rank = 4; alpha = 8 } }";
    assert!(text.contains(second));
    let text = text.replace(
        second,
        &format!(
            "server local = \"{}\" {{ kind = llamacpp }}\n\
             policy second {{ model = base; train = false; server = local }}",
            server.url
        ),
    );
    let file = folder.path().join("smollm.mas");
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("run");
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    let line = metrics(&out).remove(0);
    assert_eq!((line["failures"].as_u64(), line["lost"].as_u64()), (Some(0), Some(0)), "{line}");
    assert!(line["policies"]["first"].is_object() && line["policies"].get("second").is_none(), "{line}");
}
