//! Chat completions of a policy.

use serde_json::{Value, json};

use crate::engine::{CALL, Server};

const PATH: &str = "/v1/chat/completions";

fn question(more: Value) -> Value {
    let mut body =
        json!({ "model": "letters", "messages": [{ "role": "user", "content": "Hi" }], "seed": 1 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_completion_has_text_reason_and_usage() {
    let server = Server::start();
    let answered = server.post(PATH, &question(json!({ "max_tokens": 4 })));
    assert_eq!(answered.status, 200, "{}", answered.text);
    let body = answered.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "letters");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"].as_str().unwrap().len(), 4);
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"], Value::Null);
    let prompt = server.tokenizer.encode("user: Hi\nassistant: ").unwrap().len();
    assert_eq!(
        body["usage"],
        json!({ "prompt_tokens": prompt, "completion_tokens": 4, "total_tokens": prompt + 4 })
    );
}

#[test]
fn parts_of_text_are_one_message() {
    let server = Server::start();
    let parts = json!([{ "type": "text", "text": "H" }, { "type": "text", "text": "i" }]);
    let messages = json!([{ "role": "user", "content": parts }]);
    let ids = |messages| {
        let body = json!({ "model": "letters", "messages": messages, "return_token_ids": true });
        server.post(PATH, &body).json()["prompt_token_ids"].clone()
    };
    assert_eq!(ids(messages), ids(json!([{ "role": "user", "content": "Hi" }])));
}

#[test]
fn equal_seeds_give_equal_completions_and_others_differ() {
    let server = Server::start();
    let texts = |seed: u64| {
        let body = server.post(PATH, &question(json!({ "seed": seed, "n": 8 }))).json();
        let choices = body["choices"].as_array().unwrap().clone();
        choices.into_iter().map(|choice| choice["message"]["content"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(texts(5), texts(5));
    assert_ne!(texts(5), texts(6));
    let distinct: std::collections::HashSet<String> = texts(5).iter().map(Value::to_string).collect();
    assert!(distinct.len() > 1, "the completions of a request have different seeds");
}

#[test]
fn logprobs_name_every_sampled_token() {
    let server = Server::start();
    let asked = json!({ "logprobs": true, "top_logprobs": 1, "return_token_ids": true, "max_tokens": 3 });
    let body = server.post(PATH, &question(asked)).json();
    let choice = &body["choices"][0];
    let content = choice["logprobs"]["content"].as_array().unwrap();
    let ids: Vec<&Value> = content.iter().map(|entry| &entry["token_id"]).collect();
    assert_eq!(json!(ids), choice["token_ids"]);
    let text: String = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(text, choice["message"]["content"].as_str().unwrap());
    assert_eq!(content[1]["logprob"], -0.25);
    assert_eq!(content[1]["top_logprobs"][0]["token"], content[1]["token"]);
    assert_eq!(content[1]["bytes"], json!(content[1]["token"].as_str().unwrap().as_bytes()));
}

#[test]
fn a_stream_has_what_the_whole_response_has() {
    let server = Server::start();
    let asked = json!({ "n": 2, "max_tokens": 5, "logprobs": true, "return_token_ids": true });
    let whole = server.post(PATH, &question(asked.clone())).json();
    let mut asked = asked;
    asked["stream"] = json!(true);
    asked["stream_options"] = json!({ "include_usage": true });
    let answered = server.post(PATH, &question(asked));
    assert!(answered.headers["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let mut events = answered.events();
    let last = events.pop().unwrap();
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(last["choices"], json!([]));
    let prompts: Vec<&Value> = events.iter().filter_map(|event| event.get("prompt_token_ids")).collect();
    assert_eq!(prompts, [&whole["prompt_token_ids"]; 2]);
    assert_eq!(events[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    for index in 0..2_usize {
        let parts: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == json!(index))
            .collect();
        let expected = &whole["choices"][index];
        assert_eq!(parts[0]["delta"], json!({ "role": "assistant", "content": "" }));
        let text: String = parts.iter().filter_map(|part| part["delta"]["content"].as_str()).collect();
        assert_eq!(text, expected["message"]["content"].as_str().unwrap());
        let ids: Vec<Value> =
            parts.iter().filter_map(|part| part["token_ids"].as_array()).flatten().cloned().collect();
        assert_eq!(json!(ids), expected["token_ids"]);
        let logprobs: Vec<Value> = parts
            .iter()
            .filter_map(|part| part["logprobs"]["content"].as_array())
            .flatten()
            .cloned()
            .collect();
        assert_eq!(json!(logprobs), expected["logprobs"]["content"]);
        assert_eq!(parts.last().unwrap()["finish_reason"], expected["finish_reason"]);
    }
}

fn with_tools(more: Value) -> Value {
    let tool =
        json!({ "type": "function", "function": { "name": "add", "parameters": { "type": "object" } } });
    let mut body = question(json!({ "model": "calling", "tools": [tool] }));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn tool_calls_are_those_of_the_text_if_the_request_offers_tools() {
    let server = Server::start();
    let choice = |body: Value| server.post(PATH, &body).json()["choices"][0].clone();
    let called = choice(with_tools(json!({})));
    assert_eq!(called["finish_reason"], "tool_calls");
    assert_eq!(called["message"]["content"], Value::Null);
    let call = &called["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("add")));
    assert_eq!(call["function"]["arguments"], "{\"a\":1}");
    assert!(call["id"].as_str().unwrap().starts_with("call_"));
    // If it must not call, without tools, and if the call was cut off, the text is a text.
    let none = choice(with_tools(json!({ "tool_choice": "none" })));
    assert_eq!((&none["message"]["content"], &none["finish_reason"]), (&json!(CALL), &json!("stop")));
    assert!(none["message"].get("tool_calls").is_none());
    let plain = choice(with_tools(json!({ "tools": [] })));
    assert_eq!((&plain["message"]["content"], &plain["finish_reason"]), (&json!(CALL), &json!("stop")));
    let cut = choice(with_tools(json!({ "max_tokens": 1 })));
    assert_eq!((&cut["message"]["content"], &cut["finish_reason"]), (&json!(&CALL[..7]), &json!("length")));
}

#[test]
fn streamed_tool_calls_come_whole_at_the_end() {
    let server = Server::start();
    let events = server.post(PATH, &with_tools(json!({ "stream": true }))).events();
    let last = &events[events.len() - 1]["choices"][0];
    assert_eq!(
        (&last["finish_reason"], &last["delta"]["tool_calls"][0]["function"]["name"]),
        (&json!("tool_calls"), &json!("add"))
    );
    assert_eq!(last["delta"]["tool_calls"][0]["index"], 0);
    let text =
        |event: &Value| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
    assert_eq!(events.iter().map(text).collect::<String>(), "");
    // Clients append what deltas have.
    let roles = |events: &[Value]| {
        events.iter().filter(|event| event["choices"][0]["delta"].get("role").is_some()).count()
    };
    assert_eq!(roles(&events), 1);
    assert!(events[1..].iter().all(|event| event["choices"][0]["delta"] != json!({})));
}

#[test]
fn texts_are_streamed_although_the_request_offers_tools() {
    let server = Server::start();
    let events = server.post(PATH, &with_tools(json!({ "stream": true, "stop": ["text"] }))).events();
    let text =
        |event: &Value| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
    let texts: Vec<String> = events.iter().map(text).filter(|text| !text.is_empty()).collect();
    assert_eq!(texts, ["It is ", "3."]);
    assert_eq!(events[events.len() - 1]["choices"][0]["finish_reason"], "stop");
}

#[test]
fn the_results_of_tools_are_messages() {
    let server = Server::start();
    let call =
        json!({ "id": "1", "type": "function", "function": { "name": "add", "arguments": "{\"a\": 7}" } });
    let messages = |call: &Value| {
        json!([
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "1", "content": "8" },
        ])
    };
    let body = with_tools(json!({ "messages": messages(&call), "return_token_ids": true }));
    let prompt = server.post(PATH, &body).json()["prompt_token_ids"].clone();
    let expected = "add;user: Hi|assistant: add(7)|tool: 8|assistant: ";
    assert_eq!(prompt, json!(server.tokenizer.encode(expected).unwrap()));
    let mut broken = call;
    broken["function"]["arguments"] = json!("{");
    let answered = server.post(PATH, &with_tools(json!({ "messages": messages(&broken) })));
    assert_eq!(answered.status, 400);
    assert!(answered.text.contains("the arguments of the tool call `add`"), "{}", answered.text);
}
