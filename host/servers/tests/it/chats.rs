//! Conversations with hosted models.

use std::sync::atomic::Ordering;

use pl_servers::{ChatRequest, ChatToolCall, ServerKind};
use pl_types::{Finish, Sampling};
use serde_json::{Value, json};

use crate::scripted::{Script, Server, config, connect};

fn request() -> ChatRequest {
    ChatRequest {
        model: "judge".into(),
        messages: json!([{ "role": "user", "content": "1 + 1?" }]),
        tools: json!([{ "type": "function", "function": { "name": "add" } }]),
        seeds: vec![[7; 32]],
        max_tokens: 8,
        sampling: Sampling::default(),
        stop: Vec::new(),
    }
}

async fn chat(choice: Value) -> Result<pl_servers::ChatCompletion, pl_servers::ServerError> {
    let chat = json!({ "choices": [choice], "usage": { "completion_tokens": 3 } });
    let server = Server::start(Script { chat, ..Script::default() }).await;
    let mut config = config(&[&server]);
    config.kind = ServerKind::OpenAi;
    config.retries = 0;
    let (fleet, _) = connect(config, Vec::new()).await;
    Ok(fleet.unwrap().chat(&request()).await?.remove(0))
}

#[tokio::test]
async fn a_hosted_model_that_does_not_exist_ends_the_request() {
    let server = Server::start(Script { chat: Value::Null, ..Script::default() }).await;
    let mut config = config(&[&server]);
    config.kind = ServerKind::OpenAi;
    let (fleet, events) = connect(config, Vec::new()).await;
    let error = fleet.unwrap().chat(&request()).await.unwrap_err();
    assert!(error.to_string().contains("refused with status 404: no such model"), "{error}");
    assert!(events.lock().unwrap().is_empty(), "the server works");
}

#[tokio::test]
async fn completions_have_text_and_tool_calls() {
    let function = json!({ "name": "add", "arguments": "{\"a\": 1}" });
    let calls = json!([{ "id": "call_7", "type": "function", "function": function }]);
    let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let completion = chat(json!({ "message": message, "finish_reason": "tool_calls" })).await.unwrap();
    let call = ChatToolCall { id: Some("call_7".into()), name: "add".into(), arguments: "{\"a\": 1}".into() };
    assert_eq!((completion.text.as_str(), completion.tool_calls.as_slice()), ("", [call].as_slice()));
    assert_eq!((completion.finish, completion.tokens), (Finish::Stop, 3));

    let message = json!({ "role": "assistant", "content": "2", "tool_calls": null });
    let completion = chat(json!({ "message": message, "finish_reason": "length" })).await.unwrap();
    assert_eq!((completion.text.as_str(), completion.finish), ("2", Finish::Length));
    assert!(completion.tool_calls.is_empty());

    let message = json!({ "role": "assistant", "content": "" });
    let error = chat(json!({ "message": message, "finish_reason": "error" })).await.unwrap_err();
    assert!(error.to_string().contains("`error`, not with"), "{error}");
}

#[tokio::test]
async fn a_completion_that_a_filter_ends_fails_its_request_alone() {
    let choice =
        json!({ "message": { "role": "assistant", "content": null }, "finish_reason": "content_filter" });
    let server = Server::start(Script { chat: json!({ "choices": [choice] }), ..Script::default() }).await;
    let mut config = config(&[&server]);
    config.kind = ServerKind::OpenAi;
    let (fleet, events) = connect(config, Vec::new()).await;
    let fleet = fleet.unwrap();
    let before = server.state.requests.load(Ordering::SeqCst);
    let error = fleet.chat(&request()).await.unwrap_err();
    assert!(error.to_string().contains("(`content_filter`)"), "{error}");
    assert_eq!(server.state.requests.load(Ordering::SeqCst), before + 1, "it is not repeated");
    assert!(events.lock().unwrap().is_empty(), "the server works");
}
