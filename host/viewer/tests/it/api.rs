//! Answers of the API over a recorded run.

use pl_record::{TraceFile, Traces};
use serde_json::{Value, json};

use crate::recorded::{
    HOSTILE, HOSTILE_DRAWING, completion, create, event, example, flat, ids, penalised, tool_calls,
};
use crate::server::Server;

#[test]
fn runs_are_listed_with_their_state_and_results() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "sweep/first", 1);
    let (_, open) = create(runs.path(), "second", 2);
    let server = Server::start(runs.path());
    let list = server.get("/api/runs").json();
    assert_eq!(list[0]["name"], "second");
    assert_eq!(list[0]["state"], "running", "its lock is held");
    assert_eq!(list[1]["name"], "sweep/first");
    assert_eq!(
        (&list[1]["state"], &list[1]["step"], &list[1]["steps"], &list[1]["seed"]),
        (&json!("finished"), &json!(2), &json!(2), &json!(1))
    );
    assert_eq!(list[1]["evaluation"], json!(["test", 0.25]));
    drop(open);
    assert_eq!(server.get("/api/runs").json()[0]["state"], "stopped");
}

#[test]
fn logs_and_settings_of_a_run_are_sent() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 7);
    let server = Server::start(runs.path());
    let first = server.get("/api/log?run=math&log=metrics").json();
    assert_eq!(first["lines"].as_array().unwrap().len(), 3);
    let path = format!("/api/log?run=math&log=metrics&offset={}&line={}", first["offset"], first["line"]);
    assert_eq!(server.get(&path).json()["lines"], json!([]), "nothing is new");
    let workflow = server.get("/api/workflow?run=math").json();
    assert_eq!(workflow["settings"]["train.steps"], 2);
    assert_eq!(workflow["lock"]["seed"], 7);
    assert_eq!(workflow["agents"], json!(["tool", "reason"]));
    assert_eq!(workflow["notes"], json!(["no graph in this test"]));
}

#[test]
fn episodes_are_filtered_sorted_and_searched() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    let names = |query: &str| -> Vec<String> {
        let page = server.get(&format!("/api/episodes?run=math{query}")).json();
        assert_eq!(page["unread"], 0);
        let rows = page["rows"].as_array().unwrap().iter();
        rows.map(|row| row["episode"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(""), ["test@0.0.0#0", "1.0.0#0", "1.1.0#0", "1.2.0#0", "2.0.0#0"]);
    assert_eq!(names("&descending=true"), ["2.0.0#0", "1.2.0#0", "1.1.0#0", "1.0.0#0", "test@0.0.0#0"]);
    assert_eq!(names("&limit=2&offset=1"), ["1.0.0#0", "1.1.0#0"]);
    assert_eq!(names("&set=test"), ["test@0.0.0#0"]);
    assert_eq!(names("&outcome=failed"), ["1.1.0#0"]);
    assert_eq!(names("&outcome=solved&from=2"), ["2.0.0#0"]);
    assert_eq!(names("&text=EIGHT"), ["2.0.0#0"], "in any case");
    assert_eq!(names("&text=out%20of%20fuel"), ["1.1.0#0"]);
    // Team weight 1, local weight 0.5: flat episodes earn 1.5, the tree a mean of 1.5.
    let page = server.get("/api/episodes?run=math&sort=reward&descending=true&limit=1").json();
    assert_eq!(page["rows"][0]["reward"], 1.5);
    assert_eq!((&page["total"], &page["more"]), (&json!(5), &json!(true)));
    let refused = server.get("/api/episodes?run=math&outcome=lucky");
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("solved, unsolved, truncated or failed"), "{}", refused.body);
}

#[test]
fn episodes_that_a_fault_ended_have_failed() {
    let runs = tempfile::tempdir().unwrap();
    penalised(runs.path(), "faults");
    let server = Server::start(runs.path());
    let rows = |outcome: &str| {
        server.get(&format!("/api/episodes?run=faults&outcome={outcome}")).json()["rows"].clone()
    };
    assert_eq!(rows("failed")[0]["failure"], "out of fuel");
    assert_eq!(rows("unsolved"), json!([]));
}

#[test]
fn errors_of_parameters_are_json() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    for (path, problem) in [
        ("/api/log?run=math&log=zz", "unknown variant `zz`"),
        ("/api/log?run=math&log=metrics&offset=-1", "invalid digit"),
        ("/api/curves?run=math&log=metrics", "missing field"),
    ] {
        let refused = server.get(path);
        assert_eq!(refused.status, 400, "{path}");
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(problem), "{path}: {error}");
    }
}

#[test]
fn rewards_are_weighed_by_the_scenario_of_their_own_episode() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "mix", 0);
    let path = root.join("workflow.json");
    let mut workflow: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    workflow["workflow"]["scenarios"] = json!([
        { "name": "sums", "reward": { "team": 1.0, "local": 0.5 } },
        { "name": "maze", "reward": { "team": 0.0, "local": 4.0 } },
    ]);
    std::fs::write(&path, workflow.to_string()).unwrap();
    let episodes = [("sums", 0), ("maze", 1)].map(|(scenario, task)| {
        let mut trace = flat("train", 3, task, 0, "six", 1.0);
        trace["scenario"] = json!(scenario);
        trace
    });
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &episodes).unwrap();
    let server = Server::start(runs.path());
    let page = server.get("/api/episodes?run=mix&from=3&sort=reward&descending=true").json();
    let rows: Vec<_> = page["rows"].as_array().unwrap().iter().collect();
    let shown =
        |row: &Value| (row["scenario"].clone(), row["reward"].clone(), row["agents"][0]["reward"].clone());
    assert_eq!(shown(rows[0]), (json!("maze"), json!(4.0), json!(4.0)));
    assert_eq!(shown(rows[1]), (json!("sums"), json!(1.5), json!(1.5)));
    for (name, scenario, reward) in [("3.0.0", "sums", 1.5), ("3.1.0", "maze", 4.0)] {
        let episode = server.get(&format!("/api/episode?run=mix&episode={name}")).json();
        assert_eq!(episode["scenario"], scenario);
        assert_eq!(episode["visits"][0]["branches"][0]["rewards"][0]["reward"], reward);
    }
}

#[test]
fn an_episode_has_what_the_agents_saw_wrote_did_and_earned() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    let episode = server.get("/api/episode?run=math&episode=1.0.0").json();
    let visit = &episode["visits"][0];
    assert!(visit["prompts"][0]["text"].as_str().unwrap().contains("Two and four?"));
    let branch = &visit["branches"][0];
    assert_eq!(branch["turns"][0]["text"], HOSTILE);
    assert_eq!(branch["turns"][0]["action"], json!({ "answer": HOSTILE }).to_string());
    assert_eq!(branch["outcome"]["facts"], json!({ "agreed": true }));
    let reward = json!([{ "agent": "tool", "reward": 1.5, "relative": null, "advantage": 0.5 }]);
    assert_eq!(branch["rewards"], reward);
    assert_eq!(visit["logs"][0]["events"][0]["sandbox"]["verdicts"][0]["stdout"], "printed");
    assert_eq!((&episode["previous"], &episode["next"]), (&json!(null), &json!("1.1.0#0")));
    let failed = server.get("/api/episode?run=math&episode=1.1.0%230").json();
    assert_eq!(failed["visits"][0]["fault"]["cause"], "out of fuel");
    assert_eq!(server.get("/api/episode?run=math&episode=1.9.0").status, 404);
}

#[test]
fn a_tree_has_its_siblings_with_rewards_and_the_chosen_branch() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let tree = Server::start(runs.path()).get("/api/episode?run=math&episode=1.2.0").json();
    let visit = &tree["visits"][0];
    assert_eq!((&tree["tree"], &visit["chosen"]), (&json!(true), &json!(2)));
    let rewards: Vec<_> = visit["branches"].as_array().unwrap().iter().map(|b| &b["rewards"][0]).collect();
    let pairs: Vec<_> = rewards.iter().map(|r| (r["reward"].as_f64(), r["relative"].as_f64())).collect();
    assert_eq!(pairs, [(Some(0.0), Some(-1.5)), (Some(1.5), Some(0.0)), (Some(3.0), Some(1.5))]);
    let advantages: Vec<_> = rewards.iter().map(|r| r["advantage"].as_f64()).collect();
    assert_eq!(advantages, [Some(-1.0), Some(0.0), Some(1.0)], "as the update has recorded them");
}

#[test]
fn tokens_have_the_log_probs_of_their_own_row() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    let path = "/api/tokens?run=math&episode=1.0.0%230&agent=tool&visit=0&branch=0";
    let view = server.get(path).json();
    let tokens = view["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), ids(HOSTILE).len());
    assert_eq!((&tokens[1]["text"], &tokens[1]["logprob"]), (&json!("s"), &json!(-0.125)));
    assert_eq!(view["recorded"]["reward"], 1.5);
    let pass = &view["passes"][0];
    assert_eq!((&pass["clipped"][0], &pass["clipped"][1], &pass["epoch"]), (&json!(0), &json!(1), &json!(0)));
    let ratio = pass["ratios"][3].as_f64().unwrap();
    assert!((ratio - 0.1f64.exp()).abs() < 1e-6, "{ratio}");
    let asked = path.replace("tokens", "gradient");
    let gradient = server.get(&format!("{asked}&epoch=0&token=1")).json();
    assert_eq!((&gradient["terms"][0]["value"], &gradient["derivative"]), (&json!(0.5), &json!(-0.125)));
    assert_eq!(server.get(&format!("{asked}&epoch=1&token=1")).status, 404);
    assert_eq!(server.get(&format!("{asked}&epoch=0&token=9999")).status, 422);
    let evaluated = server.get("/api/tokens?run=math&episode=test@0.0.0&agent=tool&visit=0&branch=0").json();
    assert_eq!(evaluated["recorded"], json!(null));
    assert!(evaluated["notes"][0].as_str().unwrap().contains("No log-probabilities"));
    let missing = server.get("/api/tokens?run=math&episode=1.0.0&agent=tool&visit=0&branch=5");
    assert_eq!(missing.status, 404);
}

#[test]
fn every_model_call_of_a_turn_has_its_own_row_also_if_they_sampled_the_same() {
    let runs = tempfile::tempdir().unwrap();
    tool_calls(runs.path(), "tools");
    let server = Server::start(runs.path());
    let path = |call: &str| {
        format!("/api/tokens?run=tools&episode=1.0.0&agent=tool&visit=0&branch=0&epoch=0&token=1{call}")
    };
    let numbers = |call: &str| {
        let view = server.get(&path(call)).json();
        let gradient = server.get(&path(call).replace("tokens", "gradient")).json();
        let (sampled, trained) = (&view["tokens"][1], &view["passes"][0]);
        assert_eq!(gradient["terms"][0]["value"], trained["advantages"][1]);
        assert_eq!(gradient["derivative"], sampled["logprob"]);
        json!([view["call"], view["calls"], sampled["logprob"], trained["advantages"][1]])
    };
    let (first, last) = (json!([0, 2, -0.125, 0.5]), json!([1, 2, -0.5, 0.25]));
    assert_eq!((numbers("&call=0"), numbers("&call=1")), (first, last.clone()));
    assert_eq!(numbers(""), last, "addresses without a call lead to the last one");
    let missing = server.get(&path("&call=2"));
    assert!(missing.status == 404 && missing.body.contains("branch 0, call 2"), "{missing:?}");
}

#[test]
fn model_calls_of_an_earlier_attempt_at_a_candidate_are_not_counted() {
    let runs = tempfile::tempdir().unwrap();
    let root = example(runs.path(), "math", 0);
    let attempt = |retry: u32, text: &str| {
        let mut event = event(0, Some(0), Some("tool"), completion(text));
        event["position"]["candidate"]["retry"] = json!(retry);
        event
    };
    let mut trace = flat("train", 3, 0, 0, "six", 1.0);
    trace["events"] = json!([attempt(0, "four"), attempt(0, "five"), attempt(1, "six")]);
    Traces::for_run(&root).write(&TraceFile { step: 3, evaluation: None }, &[trace]).unwrap();
    let server = Server::start(runs.path());
    let path = "/api/tokens?run=math&episode=3.0.0&agent=tool&visit=0&branch=0";
    let view = server.get(path).json();
    assert_eq!((&view["call"], &view["calls"]), (&json!(0), &json!(1)));
    assert_eq!((&view["tokens"][0]["text"], &view["tokens"][1]["text"]), (&json!("s"), &json!("i")));
    assert_eq!(server.get(&format!("{path}&call=1")).status, 404);
}

/// Tasks of step 1 that ended late were trained on by the update of step 2, whose files have their rows.
#[test]
fn rows_of_a_late_task_are_in_the_files_of_the_step_that_trained_on_it() {
    let runs = tempfile::tempdir().unwrap();
    let run = example(runs.path(), "math", 0);
    for folder in ["steps", "tokens"] {
        let file = |step| run.join(format!("{folder}/{step:06}.parquet"));
        std::fs::rename(file(1), file(2)).unwrap();
    }
    let server = Server::start(runs.path());
    let tokens = || {
        let view = server.get("/api/tokens?run=math&episode=1.0.0%230&agent=tool&visit=0&branch=0").json();
        (view["recorded"]["reward"].clone(), view["passes"].as_array().map_or(0, Vec::len))
    };
    let advantage = || {
        let tree = server.get("/api/episode?run=math&episode=1.2.0").json();
        tree["visits"][0]["branches"][0]["rewards"][0]["advantage"].clone()
    };
    assert_eq!((tokens(), advantage()), ((json!(null), 0), json!(null)));
    let schedule = "{\"step\":1,\"tasks\":[\"2.0\"]}\n{\"step\":2,\"tasks\":[\"1.0\",\"1.2\"]}\n";
    std::fs::write(run.join("schedule.jsonl"), schedule).unwrap();
    assert_eq!((tokens(), advantage()), ((json!(1.5), 1), json!(-1.0)));
}

#[test]
fn drawings_belong_to_the_start_and_to_the_steps_that_led_to_them() {
    let runs = tempfile::tempdir().unwrap();
    example(runs.path(), "math", 0);
    let server = Server::start(runs.path());
    let visit = |episode: &str| {
        server.get(&format!("/api/episode?run=math&episode={episode}")).json()["visits"][0].clone()
    };
    let flat = visit("1.0.0");
    assert_eq!(
        (&flat["drawing"], &flat["branches"][0]["drawing"]),
        (&json!("<svg/>"), &json!(HOSTILE_DRAWING))
    );
    let tree = visit("1.2.0");
    assert_eq!(tree["drawing"], json!(null));
    // The last one is too large to be shown.
    let drawn: Vec<_> = (0..3).map(|branch| tree["branches"][branch]["drawing"].clone()).collect();
    assert_eq!(drawn, [json!("<svg>0</svg>"), json!("<svg>1</svg>"), json!(null)]);
}
