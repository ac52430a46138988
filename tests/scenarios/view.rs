//! `view`, `runs` and `export` over a run of the program itself.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{pl_host, run, scenario, stderr, stdout, succeed};

/// A running `pl-host view`.
struct Viewer {
    child: Child,
    url: String,
    token: String,
}

impl Viewer {
    fn start(folder: &Path) -> Viewer {
        let mut command = pl_host();
        command.arg("view").arg(folder).args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let (url, token) = address.split_once("/?token=").unwrap();
        Viewer { child, url: url.to_owned(), token: token.to_owned() }
    }

    fn get(&self, path: &str) -> Value {
        let request = ureq::get(format!("{}{path}", self.url));
        let mut response = request.header("authorization", format!("Bearer {}", self.token)).call().unwrap();
        serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_recorded_tree_is_viewed_listed_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("letters");
    succeed(&mut run(&scenario("letters/tree-l2.mas"), &out, &["--set", "train.steps=1"]));

    let viewer = Viewer::start(folder.path());
    assert_eq!(viewer.get("/api/runs")[0]["state"], "finished");
    let workflow = viewer.get("/api/workflow?run=letters");
    assert_eq!(workflow["graph"]["workflow"], "tree_l2");
    assert_eq!(workflow["notes"], serde_json::json!([]));
    let episode = viewer.get("/api/episode?run=letters&episode=1.0.0");
    assert_eq!(episode["notes"], serde_json::json!([]), "prompts are shown");
    let visit = &episode["visits"][0];
    assert_eq!(visit["branches"].as_array().unwrap().len(), 3);
    // Of every candidate, the step file has the same tokens as the trace, with their log-probs and rewards.
    for (branch, sibling) in visit["branches"].as_array().unwrap().iter().enumerate() {
        let path = format!("/api/tokens?run=letters&episode=1.0.0&agent=alto&visit=0&branch={branch}");
        let view = viewer.get(&path);
        let tokens = view["tokens"].as_array().unwrap();
        assert_eq!(Value::from(tokens.len()), sibling["turns"][0]["tokens"]);
        assert!(tokens.iter().all(|token| token["logprob"].is_f64() && token["text"].is_string()), "{view}");
        assert_eq!(view["recorded"]["reward"], sibling["rewards"][0]["reward"]);
        assert_eq!(view["recorded"]["chosen"], visit["chosen"] == branch);
    }

    let list = stdout(&succeed(pl_host().arg("runs").arg(folder.path()).arg("--json")));
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["step"]), (&"letters".into(), &1.into()));
    let exported = succeed(pl_host().args(["export", "--format", "dpo"]).arg(&out));
    for line in stdout(&exported).lines() {
        let pair: Value = serde_json::from_str(line).unwrap();
        assert!(pair["chosen_reward"].as_f64() > pair["rejected_reward"].as_f64(), "{pair}");
        assert!(pair["prompt"].as_str().is_some_and(|prompt| !prompt.is_empty()), "{pair}");
    }
}

#[test]
fn a_folder_without_runs_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["view", "runs", "export"] {
        let output = pl_host().arg(command).arg(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(stderr(&output).contains("has no run folder; `pl-host run FILE` writes one"), "{command}");
    }
}
