//! `serve`: a workflow over OpenAI's API, from the program's start to its end.

use std::path::Path;

use pl_types::{Phase, StreamKey};
use serde_json::{Value, json};

use crate::server_process::Server;
use crate::support::{pl_host, run, scenario, stderr, succeed};

/// The prompt of the first node of a step's first tree, and the tokens of its candidates.
fn first_node(run: &Path) -> (Value, Vec<Value>) {
    let file = std::fs::File::open(run.join("traces/000001.jsonl.zst")).unwrap();
    let text = zstd::stream::decode_all(file).unwrap();
    let trace: Value = serde_json::from_slice(text.split(|byte| *byte == b'\n').nth(1).unwrap()).unwrap();
    let events = trace["events"].as_array().unwrap();
    let node = events.iter().filter(|event| event["position"]["node_visit"] == 0);
    let prompt = node.clone().find_map(|event| event["kind"]["prompted"].get("prompt")).unwrap();
    let tokens = node.filter_map(|event| event["kind"]["completion"].get("tokens")).cloned();
    (prompt.clone(), tokens.collect())
}

#[test]
fn a_served_policy_draws_the_tokens_that_a_run_draws() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let out = folder.path().join("run");
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    let (prompt, expected) = first_node(&out);
    assert_eq!(expected.len(), 3);

    // The file's own weights are those that the first step was played with.
    let server = Server::start(&file, &[]);
    let key = StreamKey { seed: 0, phase: Phase::Train, step: 1, task: 0, sample: 0, attempt: 0 };
    let seeds: Vec<String> = (0..3).map(|branch| hex::encode(key.completion(0, 0, branch, 0, 0))).collect();
    let params = json!({ "max_tokens": 12, "seeds": seeds, "logprobs": 0 });
    let body = json!({ "model": "first", "token_ids": prompt, "sampling_params": params });
    let body = server.post("/inference/v1/generate", &body);
    let found: Vec<Value> =
        body["choices"].as_array().unwrap().iter().map(|choice| choice["token_ids"].clone()).collect();
    assert_eq!(found, expected);
    assert_eq!(server.interrupt().0, Some(0));

    // The run's weights are others.
    let server = Server::start(&out, &[]);
    let body = json!({ "model": "first", "token_ids": prompt, "sampling_params": params });
    let body = server.post("/inference/v1/generate", &body);
    assert_eq!(body["choices"][0]["weight_versions"][0]["version"], "1");
    assert_ne!(body["choices"][0]["logprobs"]["content"], Value::Null);
}

#[test]
fn structured_outputs_constrain_completions() {
    let server = Server::start(&scenario("letters/tree-l2.mas"), &[]);
    let ask = |path: &str, more: Value| {
        let mut body = json!({ "model": "first", "max_tokens": 40, "seed": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(path, &body)
    };
    let grammar = json!({ "grammar": "start: \"so \" /[0-9]{2}/", "json": null, "regex": null });
    let body = ask("/v1/completions", json!({ "prompt": "a", "structured_outputs": grammar }));
    let text = body["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{body}"));
    assert!(text.starts_with("so ") && text.len() == 5, "{text}");
    let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"],
        "additionalProperties": false });
    let messages = json!([{ "role": "user", "content": "b" }]);
    let format =
        |schema: &Value| json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } });
    for constraint in [
        json!({ "structured_outputs": { "json": schema.to_string() } }),
        json!({ "structured_outputs": { "json": schema } }),
        json!({ "response_format": format(&schema) }),
    ] {
        let mut body = constraint;
        body["messages"] = messages.clone();
        let body = ask("/v1/chat/completions", body);
        let text = body["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{body}"));
        assert!(serde_json::from_str::<Value>(text).unwrap()["a"].is_boolean(), "{text}");
    }
    let object = json!({ "messages": messages, "response_format": { "type": "json_object" } });
    let body = ask("/v1/chat/completions", object);
    let text = body["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{body}"));
    assert!(text.trim_start().starts_with('{'), "{text}");
    let wrong = json!({ "messages": messages, "response_format": format(&json!({ "type": "missing" })) });
    let body = ask("/v1/chat/completions", wrong);
    assert_eq!(body["error"]["param"], "response_format", "{body}");
    let dates = json!({ "regex": "[0-9]{2}/[0-9]{2}\\/20" });
    let body = ask("/v1/completions", json!({ "prompt": "a", "structured_outputs": dates }));
    let text = body["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{body}"));
    assert!(text.len() == 8 && &text[2..3] == "/" && text.ends_with("/20"), "{text}");
    let texts = ["yes \"so\"", "no | maybe", "\u{7f}"];
    let body = ask("/v1/completions", json!({ "prompt": "a", "structured_outputs": { "choice": texts } }));
    let text = body["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{body}"));
    assert!(texts.contains(&text), "{text}");
    let wrong = json!({ "prompt": "a", "structured_outputs": { "grammar": "start: missing" } });
    let body = ask("/v1/completions", wrong);
    assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains("grammar")), "{body}");
    assert_eq!(body["error"]["param"], "structured_outputs");
    assert_eq!(server.interrupt().0, Some(0));
}

#[test]
fn a_team_answers_as_one_model() {
    let server = Server::start(&scenario("letters/tree-l2.mas"), &[]);
    let ask = || {
        let messages = json!([{ "role": "user", "content": "{\"topic\": \"rain\"}" }]);
        server.post("/v1/chat/completions", &json!({ "model": "team", "messages": messages, "seed": 3 }))
    };
    let body = ask();
    let turns = body["turns"].as_array().unwrap_or_else(|| panic!("{body}"));
    let agents: Vec<&str> = turns.iter().map(|turn| turn["agent"].as_str().unwrap()).collect();
    assert_eq!(agents[..2], ["alto", "bass"]);
    assert_eq!(body["choices"][0]["message"]["content"], turns.last().unwrap()["content"]);
    let reasoning = body["choices"][0]["message"]["reasoning_content"].as_str().unwrap();
    assert!(reasoning.starts_with("alto: "), "{reasoning}");
    let sum: u64 = turns.iter().map(|turn| turn["prompt_tokens"].as_u64().unwrap()).sum();
    assert!(sum > 0 && body["usage"]["prompt_tokens"] == sum, "{body}");
    assert_eq!(ask()["turns"], body["turns"], "equal seeds give equal episodes");
    let (code, rest) = server.interrupt();
    assert_eq!(code, Some(0));
    assert!(rest.contains("finishing the requests in progress"), "{rest}");
}

#[test]
fn an_address_that_others_reach_needs_a_key() {
    let file = scenario("letters/tree-l2.mas");
    let serve = |more: &[&str]| {
        let mut command = pl_host();
        command.arg("serve").arg(&file).args(["--listen", "0.0.0.0:0"]).args(more);
        command.env_remove("PL_TEST_KEY");
        command.output().unwrap()
    };
    let output = serve(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--key-variable"), "{}", stderr(&output));
    let output = serve(&["--key-variable", "PL_TEST_KEY"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("PL_TEST_KEY is not set"), "{}", stderr(&output));
}
