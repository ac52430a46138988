//! vLLM's dialect: token ids in, token ids out.

use serde_json::json;

use crate::engine::Server;

#[test]
fn token_ids_come_back_with_logprobs_and_version() {
    let server = Server::start();
    let params = json!({ "max_tokens": 2, "logprobs": 0, "seeds": ["02".repeat(32)] });
    let body = json!({
        "model": "letters", "token_ids": [5, 6], "sampling_params": params, "return_token_ids": true,
        "request_id": "r7",
    });
    let body = server.post("/inference/v1/generate", &body).json();
    assert_eq!(body["request_id"], "generate-tokens-r7");
    assert_eq!(body["prompt_token_ids"], json!([5, 6]));
    let choice = &body["choices"][0];
    // The seed is the engine's own: its first byte is where the letters begin.
    assert_eq!(choice["token_ids"], json!(server.tokenizer.encode("cd").unwrap()));
    assert_eq!(choice["logprobs"]["content"][1]["logprob"], -0.25);
    assert_eq!(choice["logprobs"]["content"][1]["token_id"], choice["token_ids"][1]);
    assert_eq!(choice["weight_versions"], json!([{ "version": "3", "start": 0, "end": 2 }]));
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice.get("sampling_mask").is_none());
}

#[test]
fn truncating_samplers_return_the_kept_ids() {
    let server = Server::start();
    let params = json!({ "max_tokens": 2, "top_k": 2 });
    let body = json!({ "model": "letters", "token_ids": [5], "sampling_params": params });
    let body = server.post("/inference/v1/generate", &body).json();
    assert_eq!(body["choices"][0]["sampling_mask"], json!([[1, 2], [1, 2]]));
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let server = Server::start();
    let body = server.post("/tokenize", &json!({ "model": "letters", "prompt": "Hi there" })).json();
    assert_eq!(body["tokens"], json!(server.tokenizer.encode("Hi there").unwrap()));
    assert_eq!(body["count"], body["tokens"].as_array().unwrap().len());
    assert_eq!(body["max_model_len"], 100);
    assert!(body.get("token_strs").is_none());
    let text = server.post("/detokenize", &json!({ "model": "letters", "tokens": body["tokens"] })).json();
    assert_eq!(text["prompt"], "Hi there");
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let body = server.post("/tokenize", &json!({ "model": "letters", "messages": messages })).json();
    assert_eq!(body["tokens"], json!(server.tokenizer.encode("user: Hi\nassistant: ").unwrap()));
    let body = json!({ "model": "letters", "prompt": "Hi Hi", "return_token_strs": true });
    let body = server.post("/tokenize", &body).json();
    let written: Vec<&str> =
        body["token_strs"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(written.concat(), "Hi\u{120}Hi");
    assert_eq!(written.len(), body["count"]);
    let tools = json!([{ "type": "function", "function": { "name": "add" } }]);
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let body = json!({ "model": "calling", "messages": messages, "tools": tools });
    let body = server.post("/tokenize", &body).json();
    assert_eq!(body["tokens"], json!(server.tokenizer.encode("add;user: Hi|assistant: ").unwrap()));
}
