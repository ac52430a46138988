//! Grammars: constrained completions are texts of their grammar, whatever the limit, the backend and the neighbours.

use std::sync::Arc;

use pl_inference::{Backend, LlmEngineConfig};
use pl_types::{Completion, Finish, Generate, GenerateError, Grammar, Request, Sampling};
use serde_json::Value;

use crate::{engine, prompt, request, small, tiny};

fn constrained(grammar: Grammar, seeds: &[u8], max_tokens: u32) -> Request {
    let mut request = request(2, prompt(1, 20), seeds);
    request.max_tokens = max_tokens;
    request.sampling = Sampling { grammar: Some(Arc::new(grammar)), ..Sampling::default() };
    request
}

fn list() -> Grammar {
    Grammar::Lark("start: \"[\" (item (\",\" item)*)? \"]\"\nitem: start | /[a-z]{1,9}/\n".to_owned())
}

fn is_list(text: &str) -> bool {
    let mut open = 0;
    for byte in text.bytes() {
        match byte {
            b'[' => open += 1,
            b']' => open -= 1,
            b',' | b'a'..=b'z' if open > 0 => {}
            _ => return false,
        }
    }
    open == 0 && text.starts_with('[') && text.ends_with(']') && !text.contains("[,") && !text.contains(",,")
}

/// The tiny model has random weights.
#[tokio::test]
async fn completions_of_random_weights_are_texts_of_the_grammar() {
    let model = tiny();
    for backend in [Backend::Native, Backend::Libtorch] {
        let engine = engine(&model, LlmEngineConfig { backend: Some(backend), ..small() });
        for max_tokens in [3, 10, 60] {
            let seeds: Vec<u8> = (0..40).collect();
            for temperature in [0.0, 1.0] {
                let mut request = constrained(list(), &seeds, max_tokens);
                request.sampling.temperature = temperature;
                for completion in engine.generate(request).await.unwrap() {
                    let Completion { text, finish, tokens, support, .. } = completion;
                    assert!(is_list(&text), "{text}");
                    assert!(finish == Finish::Stop && tokens.len() <= max_tokens as usize);
                    assert_eq!(support.is_some(), temperature > 0.0);
                }
            }
        }
    }
}

/// Some thousand alternatives of a rule take the search for a shortest text seconds.
#[tokio::test]
async fn a_grammar_that_takes_long_delays_no_other_request() {
    let engine = engine(&tiny(), small());
    let words: Vec<String> = (0..1500).map(|n| format!("\"{n} times\"")).collect();
    let expensive = constrained(Grammar::Lark(format!("start: {}", words.join(" | "))), &[1], 40);
    let waiting = tokio::spawn({
        let (engine, expensive) = (engine.clone(), expensive.clone());
        async move { engine.generate(expensive).await }
    });
    tokio::task::yield_now().await;
    let plain = engine.generate(request(2, prompt(1, 20), &[1])).await.unwrap();
    assert!(!plain.is_empty() && !waiting.is_finished());
    // The grammar is compiled once, also if its first request was cancelled.
    waiting.abort();
    let text = engine.generate(expensive).await.unwrap().remove(0).text;
    assert!(text.ends_with(" times"), "{text}");
}

#[tokio::test]
async fn completions_fit_a_schema() {
    let engine = engine(&tiny(), small());
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items":
        {"type": "string"}}}, "required": ["a", "b"], "additionalProperties": false}"#;
    let seeds: Vec<u8> = (0..40).collect();
    let request = constrained(Grammar::JsonSchema(schema.to_owned()), &seeds, 40);
    for completion in engine.generate(request).await.unwrap() {
        let value: Value = serde_json::from_str(&completion.text).unwrap();
        assert!(value["a"].is_number() && value["b"].as_array().unwrap().iter().all(Value::is_string));
    }
}

/// The log-probability of each token is that of the plain distribution over the recorded ids.
#[tokio::test]
async fn log_probabilities_are_those_over_the_support() {
    let engine = engine(&tiny(), small());
    for top_k in [0, 3] {
        let mut request = constrained(list(), &[1, 2, 3], 30);
        request.sampling.top_k = top_k;
        for completion in engine.generate(request.clone()).await.unwrap() {
            let support = completion.support.unwrap();
            assert_eq!(support.len(), completion.tokens.len());
            for (at, ids) in support.iter().enumerate() {
                assert!(ids.contains(&completion.tokens[at]) && ids.is_sorted());
                assert!(top_k == 0 || ids.len() <= 3);
                let before: Arc<[u32]> =
                    request.prompt.iter().chain(&completion.tokens[..at]).copied().collect();
                let mut total = 0.0;
                let mut own = 0.0;
                for id in ids {
                    let score =
                        engine.score(2, Arc::clone(&before), Arc::new([*id]), 1.0).await.unwrap()[0].exp();
                    total += score;
                    if *id == completion.tokens[at] {
                        own = score;
                    }
                }
                let expected = (own / total).ln();
                assert!((completion.logprobs[at] - expected).abs() < 1e-3, "{at} of {:?}", completion.text);
            }
        }
    }
}

/// Neighbours, preemption and slots change no bit.
#[tokio::test]
async fn completions_do_not_depend_on_their_neighbours() {
    let model = tiny();
    let alone = engine(&model, LlmEngineConfig { slots: 1, ..small() });
    let together = engine(&model, LlmEngineConfig { slots: 16, ..small() });
    let seeds: Vec<u8> = (0..12).collect();
    let plain = tokio::spawn({
        let together = together.clone();
        async move { together.generate(request(0, prompt(9, 40), &[7, 8])).await.unwrap() }
    });
    let batched = together.generate(constrained(list(), &seeds, 50)).await.unwrap();
    plain.await.unwrap();
    assert_eq!(alone.generate(constrained(list(), &seeds, 50)).await.unwrap(), batched);
}

#[tokio::test]
async fn wrong_grammars_cost_their_request_alone() {
    let engine = engine(&tiny(), small());
    let wrong = constrained(Grammar::Lark("start: missing".to_owned()), &[1], 20);
    let error = engine.generate(wrong).await.unwrap_err();
    assert!(matches!(&error, GenerateError::Request { reason, .. } if reason.contains("missing")), "{error}");
    let short = constrained(Grammar::Lark("start: \"abcdefghijklmnopqrstuvwxyz\"".to_owned()), &[1], 2);
    let error = engine.generate(short).await.unwrap_err().to_string();
    assert!(error.contains("raise `max_tokens`"), "{error}");
    let mut biased = constrained(list(), &[1], 20);
    biased.sampling.logit_bias = Arc::new([(5, 1.0)]);
    assert!(matches!(engine.generate(biased).await, Err(GenerateError::Request { .. })));
    assert!(engine.generate(constrained(list(), &[1], 20)).await.is_ok());
}
