//! Invalid requests fail without affecting others.

use std::sync::Arc;

use pl_inference::{LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_types::{Generate, GenerateError, Request, Sampling};

use crate::{base, engine, prompt, request, small, tiny};

#[tokio::test]
async fn invalid_requests_are_refused_with_a_reason() {
    let model = tiny();
    let engine = engine(&model, small());
    let good = request(0, prompt(1, 10), &[1]);
    let long: Arc<[u32]> = vec![5; model.config.max_positions].into();
    let cases = [
        (request(3, prompt(1, 10), &[1]), "no such policy"),
        (request(0, Arc::new([]), &[1]), "empty"),
        (request(0, long, &[1]), "shorten the prompt"),
        (request(0, Arc::new([5, 299]), &[1]), "token 299"),
        (request(0, prompt(1, 10), &[]), "no seeds"),
        (Request { sampling: Sampling::with_temperature(-1.0), ..good.clone() }, "temperature"),
        (Request { sampling: Sampling::with_temperature(f64::NAN), ..good.clone() }, "temperature"),
        (Request { sampling: Sampling { top_p: 0.0, ..Sampling::default() }, ..good.clone() }, "top_p"),
        (Request { stop_ids: Arc::new([400]), ..good.clone() }, "token 400"),
        (Request { max_tokens: 0, ..good.clone() }, "max_tokens"),
    ];
    for (request, reason) in cases {
        let policy = request.policy;
        let error = engine.generate(request).await.unwrap_err();
        assert!(matches!(&error, GenerateError::Request { policy: p, .. } if *p == policy), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(engine.generate(good).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_larger_than_the_cache_is_refused() {
    let engine = engine(&tiny(), LlmEngineConfig { kv_cache: 1, ..small() });
    let mut request = request(0, prompt(1, 10), &[1]);
    let error = engine.generate(request.clone()).await.unwrap_err().to_string();
    assert!(error.contains("22 tokens") && error.contains("kv_cache"), "{error}");
    request.max_tokens = 6;
    assert_eq!(engine.generate(request).await.unwrap().len(), 1);
}

/// Tables for 2^24 positions would take gigabytes, and no sequence can be longer than the cache.
#[tokio::test]
async fn a_model_that_claims_millions_of_positions_takes_no_more_memory() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let mut model = tiny();
    let config = LlmEngineConfig { kv_cache: 1 << 20, ..small() };
    let expected = engine(&model, config.clone()).generate(request(2, prompt(1, 10), &[1])).await.unwrap();
    let before = peak();
    model.config.max_positions = 1 << 24;
    let completions = engine(&model, config).generate(request(2, prompt(1, 10), &[1])).await.unwrap();
    assert_eq!(completions[0].tokens, expected[0].tokens);
    assert!(peak() - before < 200 << 10, "{} KiB more", peak() - before);
}

/// Weights that are not numbers fail their request; the engine continues.
#[tokio::test]
async fn diverged_weights_fail_only_their_requests() {
    let good = tiny();
    let diverged = tiny();
    let _ = tch::no_grad(|| diverged.weights.norm.shallow_clone().fill_(f64::NAN));
    let policies = (0..2).map(|base| PolicyWeights { base, adapter: None, version: 0 }).collect::<Vec<_>>();
    let engine = LlmEngine::start(vec![base(&good), base(&diverged)], policies, small()).unwrap();
    let generate = |policy: usize| engine.generate(request(policy, prompt(1, 10), &[1, 2]));
    let (fine, failed) = tokio::join!(generate(0), generate(1));
    assert_eq!(fine.unwrap().len(), 2);
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("policy 1") && message.contains("diverged"), "{message}");
    assert_eq!(generate(0).await.unwrap().len(), 2);
}
