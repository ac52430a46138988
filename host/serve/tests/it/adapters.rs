//! Adapters that clients load.

use serde_json::{Value, json};

use crate::engine::Server;

const LOAD: &str = "/v1/load_lora_adapter";
const UNLOAD: &str = "/v1/unload_lora_adapter";

fn adapter(name: &str) -> Value {
    json!({ "lora_name": name, "lora_path": "/adapters/one", "weight_version": 3 })
}

#[test]
fn adapters_are_loaded_used_and_unloaded_by_name() {
    let server = Server::with_adapters();
    assert_eq!(server.post(LOAD, &adapter("coder@v3")).status, 200);
    let again = server.post(LOAD, &adapter("coder@v3"));
    assert_eq!(again.status, 400);
    assert!(again.json()["error"]["message"].as_str().unwrap().contains("already been loaded"));
    let card = server.get("/v1/models/coder@v3").json();
    assert_eq!((&card["parent"], &card["model_hash"]), (&json!("tiny"), &json!("c0ffee")));

    let ask = || {
        let params = json!({ "max_tokens": 2 });
        server.post(
            "/inference/v1/generate",
            &json!({ "model": "coder@v3", "token_ids": [5], "sampling_params": params }),
        )
    };
    assert_eq!(ask().json()["model"], "coder@v3");
    assert_eq!(server.post(UNLOAD, &json!({ "lora_name": "coder@v3" })).status, 200);
    assert_eq!(ask().status, 404);
    for name in ["coder@v3", "letters"] {
        let answered = server.post(UNLOAD, &json!({ "lora_name": name }));
        assert_eq!(answered.status, 404, "{name} was not loaded by a client");
    }
}

#[test]
fn adapters_that_can_not_be_loaded_are_refused() {
    let server = Server::with_adapters();
    let with = |key: &str, value: Value| {
        let mut body = adapter("new");
        body[key] = value;
        let answered = server.post(LOAD, &body);
        let error = answered.json()["error"].clone();
        assert_eq!(error["param"], key, "{error}");
        (answered.status, error["message"].as_str().unwrap().to_owned())
    };
    let (status, message) = with("lora_path", json!("/missing"));
    assert!(status == 400 && message.contains("no such folder"), "{message}");
    let (status, message) = with("base_model", json!("gpt"));
    assert!(status == 404 && message.contains("no model `gpt`"), "{message}");
    let (status, message) = with("load_inplace", json!(true));
    assert!(status == 400 && message.contains("load_inplace"), "{message}");
    for name in ["", " "] {
        let (status, message) = with("lora_name", json!(name));
        assert!(status == 400 && message.contains("is empty"), "{message}");
    }

    let closed = Server::start();
    let answered = closed.post(LOAD, &adapter("new"));
    assert_eq!(answered.status, 404);
    assert!(answered.text.contains("--allow-runtime-adapters"), "{}", answered.text);
}
