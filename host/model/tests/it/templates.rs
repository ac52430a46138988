//! Chat templates write the same text as transformers' `apply_chat_template` (data from
//! tests/conformance/templates_reference.py).

use pl_model::{ChatMessage, ChatTemplate, Error, RenderOptions, ToolCall};
use serde_json::Value;

use crate::data;

fn read(path: &str) -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(data(path)).unwrap()).unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn message(value: &Value) -> ChatMessage {
    let calls = value["tool_calls"].as_array().into_iter().flatten();
    ChatMessage {
        role: text(&value["role"]).unwrap(),
        content: text(&value["content"]).unwrap(),
        reasoning_content: text(&value["reasoning_content"]),
        tool_calls: calls
            .map(|call| ToolCall {
                id: text(&call["id"]),
                name: text(&call["function"]["name"]).unwrap(),
                arguments: call["function"]["arguments"].clone(),
            })
            .collect(),
        tool_call_id: text(&value["tool_call_id"]),
        name: text(&value["name"]),
    }
}

/// The template's own text: of this folder, or of the cache; none (with a printed reason) where it is in
/// neither.
fn source(name: &str) -> Option<String> {
    let here = data(&format!("conformance/templates/{name}.jinja"));
    if here.exists() {
        return Some(std::fs::read_to_string(here).unwrap());
    }
    let path = pl_testing::cache().join("tokenizers").join(name).join("tokenizer_config.json");
    let Ok(settings) = std::fs::read(&path) else {
        let script = "python3 tests/conformance/tokenizers_reference.py fetch";
        pl_testing::skip_or_fail(
            pl_testing::Requirement::Tokenizers,
            &format!("{} is missing ({script} fetches it)", path.display()),
        );
        return None;
    };
    text(&serde_json::from_slice::<Value>(&settings).unwrap()["chat_template"])
}

/// Date of all conversations.
const DATE: &str = "2024-02-29";

fn equals_reference(name: &str, bos: &str, eos: &str) {
    let Some(source) = source(name) else { return };
    let some = |token: &str| (!token.is_empty()).then(|| token.to_owned());
    let template = ChatTemplate::new(name, Some(source), some(bos), some(eos)).unwrap();
    let cases = read("conformance/templates/cases.json");
    let expected = read(&format!("conformance/templates/expected/{name}.json"));
    assert_eq!((cases.len(), expected.len()), (30, 30));
    for (case, expected) in cases.iter().zip(&expected) {
        let messages: Vec<ChatMessage> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let options = RenderOptions {
            tools: case["tools"].as_array().unwrap().clone(),
            add_generation_prompt: case["prompt"].as_bool().unwrap(),
            thinking: case["thinking"].as_bool(),
            date: Some(DATE.parse().unwrap()),
        };
        let got = template.render(&messages, &options);
        match expected["error"].as_str() {
            None => {
                let got = got.unwrap().replace("29 Feb 2024", "{today}");
                assert_eq!(got, expected.as_str().unwrap(), "{name}: {case}");
            }
            Some(reason) => {
                let error = got.unwrap_err();
                assert!(matches!(error, Error::Template { .. }), "{name}: {case}");
                let message = error.to_string();
                assert!(
                    message.contains(reason) && message.contains(name) && message.contains("line "),
                    "{message}"
                );
            }
        }
    }
}

#[test]
fn smollm2() {
    equals_reference("smollm2", "<|im_start|>", "<|im_end|>");
}

#[test]
fn qwen() {
    equals_reference("qwen2.5", "", "<|im_end|>");
    equals_reference("qwen3", "", "<|im_end|>");
}

#[test]
fn llama() {
    equals_reference("llama2-style", "<s>", "</s>");
    for name in ["llama3.1-style", "llama3", "llama3.2"] {
        equals_reference(name, "<|begin_of_text|>", "<|eot_id|>");
    }
}

#[test]
fn every_corner_of_the_dialect() {
    equals_reference("dialect", "", "");
}
