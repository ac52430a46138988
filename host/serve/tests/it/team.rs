//! A team as one model.

use std::sync::Arc;

use async_trait::async_trait;
use pl_serve::{ServerConfig, Team, TeamError, TeamResult, TeamTurn};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::Server;

/// A team of two agents that repeat the task. It fails at the task "fail".
struct Pair;

#[async_trait]
impl Team for Pair {
    async fn play(
        &self,
        task: &str,
        seed: u64,
        turns: UnboundedSender<TeamTurn>,
    ) -> Result<TeamResult, TeamError> {
        if task == "fail" {
            return Err(TeamError("the plugin trapped".into()));
        }
        for agent in ["first", "second"] {
            tokio::task::yield_now().await;
            let content = format!("{task} by {agent} with {seed}");
            turns.send(TeamTurn { agent: agent.into(), content, action: "{}".into(), tokens: 3 }).unwrap();
        }
        Ok(TeamResult { truncated: false })
    }
}

fn ask(more: Value) -> crate::engine::Answered {
    let server = Server::with(ServerConfig::default(), Some(Arc::new(Pair)));
    let mut body = json!({ "model": "team", "messages": [{ "role": "user", "content": "add" }], "seed": 7 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post("/v1/chat/completions", &body)
}

#[test]
fn the_answer_is_the_last_agent_s_and_the_others_are_its_reasoning() {
    let body = ask(json!({})).json();
    let message = &body["choices"][0]["message"];
    assert_eq!(message["content"], "add by second with 7");
    assert_eq!(message["reasoning_content"], "first: add by first with 7\n\n");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["turns"][0]["agent"], "first");
    assert_eq!(body["turns"][1]["tokens"], 3);
    assert_eq!(body["usage"]["completion_tokens"], 6);
}

#[test]
fn a_stream_brings_the_same() {
    let events = ask(json!({ "stream": true })).events();
    let text = |field: &str| -> String {
        let parts = events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str());
        parts.collect()
    };
    assert_eq!(text("content"), "add by second with 7");
    assert_eq!(text("reasoning_content"), "first: add by first with 7\n\n");
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[test]
fn what_has_no_meaning_for_a_team_is_refused() {
    let param = |more: Value| ask(more).json()["error"]["param"].clone();
    assert_eq!(param(json!({ "n": 2 })), "n");
    assert_eq!(param(json!({ "logprobs": true })), "logprobs");
    assert_eq!(param(json!({ "messages": [] })), "messages");
    assert_eq!(param(json!({ "messages": [{ "role": "system", "content": "x" }] })), "messages");
    let server = Server::with(ServerConfig::default(), Some(Arc::new(Pair)));
    let body = json!({ "model": "team", "prompt": "Hi" });
    assert_eq!(server.post("/v1/completions", &body).json()["error"]["param"], "model");
}

#[test]
fn an_episode_that_fails_is_an_error_with_its_cause() {
    let failed = |more: Value| {
        ask(json!({ "messages": [{ "role": "user", "content": "fail" }] })
            .as_object()
            .map(|body| {
                let mut body = body.clone();
                body.extend(more.as_object().unwrap().clone());
                Value::Object(body)
            })
            .unwrap())
    };
    let answered = failed(json!({}));
    assert_eq!(answered.status, 500);
    assert!(answered.json()["error"]["message"].as_str().unwrap().contains("the plugin trapped"));
    let events = failed(json!({ "stream": true })).events();
    assert!(events.last().unwrap()["error"]["message"].as_str().unwrap().contains("the plugin trapped"));
}
