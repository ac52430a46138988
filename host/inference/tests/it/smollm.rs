//! SmolLM2-135M: greedy completions equal those of transformers on the same file; constrained ones fit their schema.

use std::sync::Arc;

use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_model::Model;
use pl_types::{Dtype, Finish, Generate, Grammar, Request, Sampling};
use serde_json::Value;
use tch::Device;

use crate::data;

/// Starts an engine with SmolLM2-135M. Returns `None` if the model is missing, after the test was skipped or failed.
fn smollm() -> Option<LlmEngine> {
    let path = pl_testing::smollm()?;
    let model = Model::load(&path, Device::Cpu, Dtype::F32).unwrap();
    let base = BaseModel {
        config: model.config,
        weights: model.weights,
        tokenizer: Arc::clone(&model.tokenizer),
        dtype: Dtype::F32,
    };
    let policy = PolicyWeights { base: 0, adapter: None, version: 0 };
    Some(LlmEngine::start(vec![base], vec![policy], LlmEngineConfig::default()).unwrap())
}

/// Its 49,152 tokens are those of byte-level BPE: many end within a word or a character of the grammar.
#[tokio::test]
async fn completions_are_texts_of_their_schema() {
    let Some(engine) = smollm() else { return };
    let schema = r#"{"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "kind": {"enum": ["plan", "work"]}, "score": {"type": "number"}},
        "required": ["name", "kind"], "additionalProperties": false}}"#;
    for (max_tokens, temperature) in [(12, 1.0), (48, 1.0), (48, 3.0)] {
        let request = Request {
            policy: 0,
            prompt: (0..16).map(|n| 1000 + n * 7).collect(),
            seeds: (0..24).map(|seed| [seed; 32]).collect(),
            max_tokens,
            sampling: Sampling {
                grammar: Some(Arc::new(Grammar::JsonSchema(schema.to_owned()))),
                ..Sampling::with_temperature(temperature)
            },
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener: None,
        };
        for completion in engine.generate(request).await.unwrap() {
            assert_eq!(completion.finish, Finish::Stop);
            let value: Value = serde_json::from_str(&completion.text).unwrap();
            for item in value.as_array().unwrap() {
                assert!(
                    item["name"].is_string() && ["plan", "work"].contains(&item["kind"].as_str().unwrap())
                );
            }
        }
    }
}

#[tokio::test]
async fn greedy_completions_equal_those_of_transformers() {
    let Some(engine) = smollm() else { return };
    let text = std::fs::read_to_string(data("conformance/smollm2-greedy.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.len(), 20);
    let ids = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
    let running: Vec<_> = rows
        .iter()
        .map(|row| {
            let request = Request {
                policy: 0,
                prompt: ids(&row["prompt"]).into(),
                seeds: vec![[0; 32]],
                max_tokens: 64,
                sampling: Sampling::with_temperature(0.0),
                stop: Arc::new([]),
                stop_ids: Arc::new([]),
                top_logprobs: 0,
                listener: None,
            };
            let engine = engine.clone();
            tokio::spawn(async move { engine.generate(request).await })
        })
        .collect();
    for (row, task) in rows.iter().zip(running) {
        let completion = task.await.unwrap().unwrap().remove(0);
        assert_eq!(completion.tokens, ids(&row["completion"]), "{}", row["question"]);
        assert!(!completion.text.contains("<|im_end|>"));
    }
}
