//! A team as one model.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pl_serve::{ServerConfig, Team, TeamError, TeamEvent, TeamResult, TeamTurn};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::Server;

/// A team of two agents that repeat the task. It fails at the task "fail", its environment refuses the task "refuse", and the
/// task "long" doesn't fit into its models. The second agent never answers the task "wait".
struct Pair;

#[async_trait]
impl Team for Pair {
    async fn play(
        &self,
        task: &str,
        seed: u64,
        events: UnboundedSender<TeamEvent>,
    ) -> Result<TeamResult, TeamError> {
        match task {
            "fail" => return Err(TeamError::Episode("the plugin trapped".into())),
            "refuse" => return Err(TeamError::Task("the record has no `answer`".into())),
            "long" => return Ok(TeamResult { truncated: true }),
            _ => {}
        }
        for agent in ["first", "second"] {
            tokio::task::yield_now().await;
            events.send(TeamEvent::Prompted).unwrap();
            if (task, agent) == ("wait", "second") {
                std::future::pending::<()>().await;
            }
            let content = format!("{task} by {agent} with {seed}");
            let (agent, action) = (agent.into(), "{}".into());
            let turn = TeamTurn { agent, content, action, prompt_tokens: 10, tokens: 3 };
            events.send(TeamEvent::Turn(turn)).unwrap();
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
    assert_eq!(body["usage"], json!({ "prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26 }));
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
    let asked = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let last = ask(asked).events().pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"], ask(json!({})).json()["usage"]);
}

#[test]
fn a_turn_is_streamed_before_the_next_one_has_ended() {
    let server = Server::with(ServerConfig::default(), Some(Arc::new(Pair)));
    let messages = json!([{ "role": "user", "content": "wait" }]);
    let body = json!({ "model": "team", "messages": messages, "seed": 7, "stream": true }).to_string();
    let mut connection = TcpStream::connect(server.address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let lines = BufReader::new(connection).lines().map(Result::unwrap);
    let turn =
        lines.take_while(|line| !line.contains("[DONE]")).find(|line| line.contains("reasoning_content"));
    assert!(turn.unwrap().contains("first: wait by first with 7"));
}

#[test]
fn what_has_no_meaning_for_a_team_is_refused() {
    let param = |more: Value| ask(more).json()["error"]["param"].clone();
    assert_eq!(param(json!({ "n": 2 })), "n");
    assert_eq!(param(json!({ "logprobs": true })), "logprobs");
    assert_eq!(param(json!({ "messages": [] })), "messages");
    assert_eq!(param(json!({ "messages": [{ "role": "system", "content": "x" }] })), "messages");
    assert_eq!(param(json!({ "chat_template_kwargs": { "enable_thinking": true } })), "chat_template_kwargs");
    let server = Server::with(ServerConfig::default(), Some(Arc::new(Pair)));
    let body = json!({ "model": "team", "prompt": "Hi" });
    assert_eq!(server.post("/v1/completions", &body).json()["error"]["param"], "model");
}

#[test]
fn the_sampling_of_a_team_is_its_workflow_s() {
    // Each with a value that is the same as none, if there is one.
    let parameters = [
        ("temperature", json!(0.2), json!(1)),
        ("top_p", json!(0.9), json!(1)),
        ("top_k", json!(5), json!(-1)),
        ("min_p", json!(0.1), json!(0)),
        ("repetition_penalty", json!(1.2), json!(1)),
        ("presence_penalty", json!(0.5), json!(0)),
        ("frequency_penalty", json!(0.5), json!(0)),
        ("logit_bias", json!({ "1": 5 }), json!({})),
        ("max_tokens", json!(5), Value::Null),
        ("max_completion_tokens", json!(5), Value::Null),
        ("stop", json!("."), json!([])),
        ("stop_token_ids", json!([1]), json!([])),
        ("structured_outputs", json!({ "json": {} }), Value::Null),
    ];
    for (name, asking, neutral) in parameters {
        let answered = ask(json!({ name: asking }));
        assert_eq!((answered.status, &answered.json()["error"]["param"]), (400, &json!(name)));
        assert!(answered.text.contains("workflow"), "{}", answered.text);
        assert_eq!(ask(json!({ name: neutral })).status, 200, "{name}");
    }
}

fn ask_task(task: &str, stream: bool) -> crate::engine::Answered {
    ask(json!({ "messages": [{ "role": "user", "content": task }], "stream": stream }))
}

#[test]
fn an_episode_without_an_answer_is_an_error_with_its_cause() {
    for (task, status, kind, code, cause) in [
        ("fail", 500, "server_error", Value::Null, "the plugin trapped"),
        ("refuse", 400, "invalid_request_error", Value::Null, "the record has no `answer`"),
        ("long", 400, "invalid_request_error", json!("context_length_exceeded"), "shorten it"),
    ] {
        for stream in [false, true] {
            let answered = ask_task(task, stream);
            assert_eq!(answered.status, status, "{}", answered.text);
            let error = &answered.json()["error"];
            assert_eq!((&error["type"], &error["code"]), (&json!(kind), &code), "{error}");
            assert!(error["message"].as_str().unwrap().contains(cause), "{error}");
        }
    }
}
