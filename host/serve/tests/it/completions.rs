//! Text completions.

use serde_json::{Value, json};

use crate::engine::Server;

const PATH: &str = "/v1/completions";

#[test]
fn prompts_are_texts_or_token_ids_and_one_or_several() {
    let server = Server::start();
    let ids = server.tokenizer.encode("Hi").unwrap();
    let complete = |prompt: Value| {
        let body = json!({ "model": "letters", "prompt": prompt, "seed": 3, "return_token_ids": true });
        server.post(PATH, &body).json()
    };
    let text = complete(json!("Hi"));
    assert_eq!(text["object"], "text_completion");
    assert_eq!(text["choices"][0]["prompt_token_ids"], json!(ids));
    for prompt in [json!(ids), json!(["Hi"]), json!([ids])] {
        assert_eq!(complete(prompt)["choices"], text["choices"]);
    }
    let two = complete(json!(["Hi", "Hello"]));
    let two = two["choices"].as_array().unwrap();
    assert_eq!(two.len(), 2);
    assert_eq!(two[0], text["choices"][0], "a prompt's completion does not depend on others");
    assert_eq!(two[1]["prompt_token_ids"], json!(server.tokenizer.encode("Hello").unwrap()));
}

#[test]
fn logprobs_are_parallel_lists() {
    let server = Server::start();
    let body = json!({ "model": "letters", "prompt": "Hi", "logprobs": 1, "max_tokens": 3, "seed": 1 });
    let body = server.post(PATH, &body).json();
    let logprobs = &body["choices"][0]["logprobs"];
    assert_eq!(logprobs["token_logprobs"], json!([0.0, -0.25, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    let tokens: String =
        logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(body["choices"][0]["text"], json!(tokens));
    assert_eq!(logprobs["top_logprobs"].as_array().unwrap().len(), 3);
}

#[test]
fn without_a_limit_a_completion_has_at_most_16_tokens() {
    let server = Server::start();
    let prompt: Vec<u32> = vec![1; 80];
    // 80 and 16 fit into 100; 90 and 16 don't.
    let body = |prompt: &[u32]| json!({ "model": "letters", "prompt": prompt });
    assert_eq!(server.post(PATH, &body(&prompt)).status, 200);
    let answered = server.post(PATH, &body(&[1; 90]));
    assert_eq!(answered.status, 400);
    assert_eq!(answered.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(answered.json()["error"]["param"], "prompt", "the request has no `max_tokens`");
}

#[test]
fn a_stream_of_several_prompts_ends_with_the_usage_of_all() {
    let server = Server::start();
    let mut body = json!({ "model": "letters", "prompt": ["Hi", "Hello"], "n": 2, "seed": 4, "logprobs": 0 });
    let whole = server.post(PATH, &body).json();
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let mut events = server.post(PATH, &body).events();
    assert_eq!(events.pop().unwrap()["usage"], whole["usage"]);
    for index in 0..4_usize {
        let parts: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == json!(index))
            .collect();
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(text, whole["choices"][index]["text"].as_str().unwrap());
        let offsets: Vec<Value> = parts
            .iter()
            .filter_map(|part| part["logprobs"]["text_offset"].as_array())
            .flatten()
            .cloned()
            .collect();
        assert_eq!(json!(offsets), whole["choices"][index]["logprobs"]["text_offset"]);
        assert_eq!(parts.last().unwrap()["finish_reason"], whole["choices"][index]["finish_reason"]);
    }
}

#[test]
fn the_first_chunk_of_each_completion_has_the_ids_of_its_prompt() {
    let server = Server::start();
    let ids = |text: &str| json!(server.tokenizer.encode(text).unwrap());
    let prompts = ["Hi", "Hello"];
    let mut body = json!({
        "model": "letters", "prompt": prompts, "n": 2, "max_tokens": 3, "stream": true, "return_token_ids": true,
    });
    let events = server.post(PATH, &body).events();
    for index in 0..4_usize {
        let mut choices =
            events.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == json!(index));
        assert_eq!(choices.next().unwrap()["prompt_token_ids"], ids(prompts[index / 2]));
        assert!(choices.all(|choice| choice.get("prompt_token_ids").is_none()));
    }
    body["return_token_ids"] = json!(false);
    let events = server.post(PATH, &body).events();
    assert!(events.iter().all(|event| event["choices"][0].get("prompt_token_ids").is_none()));
}
