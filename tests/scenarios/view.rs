//! `view`, `runs` and `export` over a run of the program itself.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{pl_host, run, scenario, stderr, stdout, succeed};

/// A running `pl-host view`.
pub struct Viewer {
    child: Child,
    url: String,
    token: String,
}

impl Viewer {
    pub fn start(folder: &Path) -> Viewer {
        let mut command = pl_host();
        command.arg("view").arg(folder).args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        Viewer::at(child, &line)
    }

    /// Reads the address of a viewer from a line.
    fn at(child: Child, line: &str) -> Viewer {
        let address = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let (url, token) = address.split_once("/?token=").unwrap();
        Viewer { child, url: url.to_owned(), token: token.to_owned() }
    }

    /// Address of the page, with the token.
    pub fn page(&self) -> String {
        format!("{}/?token={}", self.url, self.token)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let request = ureq::post(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let request = request.header("origin", &self.url).header("content-type", "application/json");
        let mut response = request.send(body.to_string()).unwrap();
        serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
    }

    pub fn get(&self, path: &str) -> Value {
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
fn the_team_of_a_design_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("designs");
    succeed(&mut run(&scenario("letters/designer.mas"), &out, &["--set", "train.steps=1"]));
    let viewer = Viewer::start(folder.path());
    let workflow = viewer.get("/api/workflow?run=designs");
    let designs = workflow["designs"].as_array().unwrap();
    assert!(!designs.is_empty() && designs.len() <= 8, "{workflow}");
    let best = &designs[0];
    let of_kind = |graph: &Value, kind: &str| {
        graph["nodes"].as_array().unwrap().iter().filter(|node| node["kind"] == kind).count()
    };
    for kind in ["start", "agents", "end"] {
        assert!(of_kind(&best["graph"], kind) > 0, "{best}");
    }
    assert!(!best["graph"]["drawing"]["links"].as_array().unwrap().is_empty(), "{best}");
    // An episode of the designer has no design of its own; those after it are of the teams.
    assert_eq!(viewer.get("/api/episode?run=designs&episode=1.0.0")["design_graph"], Value::Null);
    let rows = viewer.get("/api/episodes?run=designs&limit=100");
    let teams = rows["rows"].as_array().unwrap().iter().filter_map(|row| {
        let episode = viewer.get(&format!("/api/episode?run=designs&episode={}", row["episode"].as_str()?));
        episode.get("design").is_some().then_some(episode)
    });
    let teams: Vec<Value> = teams.collect();
    assert!(!teams.is_empty(), "{rows}");
    for team in teams {
        assert_eq!(of_kind(&team["design_graph"], "start"), 1, "{team}");
    }
    if let Some(mut page) = pl_testing::chromium::Page::open(&viewer.page(), 1200, 900) {
        page.go("#workflow?run=designs", "[data-designs] svg.graph");
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
        let reward = &sibling["rewards"][0];
        check_update(&viewer, &path, &view, reward);
    }
    assert!(workflow["plan"]["training"]["steps"] == 1 && workflow["checkpoints"][0] == "step-00000001");

    let list = stdout(&succeed(pl_host().arg("runs").arg(folder.path()).arg("--json")));
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["step"]), (&"letters".into(), &1.into()));
    let workflow = out.join("workflow.json");
    let before = std::fs::read(&workflow).unwrap();
    let refused = pl_host().arg("export").arg(&out).arg("--out").arg(&workflow).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("workflow.json in ") && before == std::fs::read(&workflow).unwrap());
    let exported = succeed(pl_host().args(["export", "--format", "dpo"]).arg(&out));
    for line in stdout(&exported).lines() {
        let pair: Value = serde_json::from_str(line).unwrap();
        assert!(pair["chosen_reward"].as_f64() > pair["rejected_reward"].as_f64(), "{pair}");
        assert!(pair["prompt"].as_str().is_some_and(|prompt| !prompt.is_empty()), "{pair}");
    }
}

/// Checks what the update has recorded of a candidate, and that its gradients are explained.
fn check_update(viewer: &Viewer, path: &str, view: &Value, reward: &Value) {
    let sampled = view["tokens"].as_array().unwrap();
    let passes = view["passes"].as_array().unwrap();
    let advantage = passes[0]["advantages"][0].as_f64().unwrap();
    assert!((advantage - reward["advantage"].as_f64().unwrap()).abs() < 1e-6, "{reward} {advantage}");
    if advantage == 0.0 {
        return assert!(passes.len() == 1 && passes[0]["logprobs"].is_null(), "nothing to compute: {view}");
    }
    assert_eq!(passes.len(), 2, "one for each epoch");
    assert!(passes[0]["entropies"].is_array() && passes[1]["entropies"].is_null());
    for (pass, epoch) in passes.iter().zip(0..) {
        for (token, logprob) in pass["logprobs"].as_array().unwrap().iter().enumerate() {
            let gap = logprob.as_f64().unwrap() - sampled[token]["logprob"].as_f64().unwrap();
            // Log-probs are f32: their decimal form is exact to some seven digits.
            assert!((pass["ratios"][token].as_f64().unwrap() - gap.exp()).abs() < 1e-6);
            if pass["optimizer_steps"] == 0 {
                assert!(gap.abs() < 1e-4, "the policy has not changed yet: {gap}");
            }
            let asked = format!("{}&epoch={epoch}&token={token}", path.replace("tokens", "gradient"));
            let gradient = viewer.get(&asked);
            let derivative = gradient["derivative"].as_f64().unwrap();
            let is_clipped = pass["clipped"][token] != 0;
            assert_eq!(derivative == 0.0, is_clipped, "{gradient}");
            assert!(is_clipped || (derivative < 0.0) == (advantage > 0.0), "{gradient}");
            assert_eq!(gradient["algorithm"]["word"], "at_grpo");
        }
    }
}

/// Asks for the events of an episode until it is over.
fn await_end(viewer: &Viewer, id: &Value) -> Value {
    let mut after = 0;
    loop {
        let progress = viewer.get(&format!("/api/play?id={id}&after={after}"));
        after = progress["next"].as_u64().unwrap();
        if progress["over"] == true {
            return progress;
        }
    }
}

#[test]
fn episodes_are_played_from_a_checkpoint_and_on_from_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("letters");
    succeed(&mut run(&scenario("letters/tree-l2.mas"), &out, &["--set", "train.steps=1"]));
    let viewer = Viewer::start(folder.path());
    let id = viewer.post("/api/play", &json!({ "run": "letters", "start": { "task": null } }))["id"].clone();
    let played = await_end(&viewer, &id);
    assert!(
        played["failure"].is_null()
            && played["episode"]["visits"][0]["branches"][0]["turns"][0]["text"].is_string(),
        "{played}"
    );

    let recorded = viewer.get("/api/episode?run=letters&episode=1.0.0");
    let prompt = |episode: &Value, visit: usize| episode["visits"][visit]["prompts"][0]["text"].clone();
    let turn = json!({ "episode": "1.0.0", "node_visit": 1, "draw": 5 });
    let id = viewer.post("/api/play", &json!({ "run": "letters", "start": { "turn": turn } }))["id"].clone();
    let played = await_end(&viewer, &id);
    assert!(played["failure"].is_null() && played["episode"]["failure"].is_null(), "{played}");
    for visit in 0..2 {
        assert_eq!(prompt(&played["episode"], visit), prompt(&recorded, visit), "the state of the recording");
    }
    let chosen = recorded["visits"][0]["chosen"].as_u64().unwrap() as usize;
    let text =
        |episode: &Value, branch: usize| episode["visits"][0]["branches"][branch]["turns"][0]["text"].clone();
    assert_eq!(text(&played["episode"], 0), text(&recorded, chosen), "the recorded completion");
    let unknown = json!({ "episode": "9.9.9", "node_visit": 0 });
    let id =
        viewer.post("/api/play", &json!({ "run": "letters", "start": { "turn": unknown } }))["id"].clone();
    assert!(await_end(&viewer, &id)["failure"].as_str().unwrap().contains("step 9"));
}

#[test]
fn a_run_is_shown_while_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("letters");
    let mut command = run(&scenario("letters/tree-l2.mas"), &out, &["--view=127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut lines = lines.skip_while(|line| !line.starts_with("viewing the run on "));
    let viewer = Viewer::at(child, &lines.next().unwrap());
    assert_eq!(viewer.get("/api/runs")[0]["state"], "running");
    assert_eq!(
        viewer.get("/api/workflow?run=letters")["checkpoints"],
        Value::Null,
        "a run that trains is not played"
    );
}

#[test]
fn a_folder_without_runs_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["view", "runs", "export"] {
        let output = pl_host().arg(command).arg(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(stderr(&output).contains("has no run folder; `pl-host run FILE` writes one"), "{command}");
    }
    let older = folder.path().join("older.jsonl");
    std::fs::write(&older, "kept").unwrap();
    let export = pl_host().arg("export").arg(folder.path()).arg("--out").arg(&older).output().unwrap();
    assert_eq!(export.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&older).unwrap(), "kept");
}
