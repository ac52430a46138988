//! Requests that can't be served cost themselves alone.

use std::sync::Arc;

use pl_inference::{Engine, EngineConfig, Error, Generate, PolicyWeights, Sampling};

use crate::{base, engine, prompt, request, small, tiny};

#[tokio::test]
async fn bad_requests() {
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
        (pl_inference::Request { sampling: Sampling::at(-1.0), ..good.clone() }, "temperature"),
        (pl_inference::Request { sampling: Sampling::at(f64::NAN), ..good.clone() }, "temperature"),
        (
            pl_inference::Request {
                sampling: Sampling { top_p: 0.0, ..Sampling::default() },
                ..good.clone()
            },
            "top_p",
        ),
        (pl_inference::Request { stop_ids: Arc::new([400]), ..good.clone() }, "token 400"),
        (pl_inference::Request { max_tokens: 0, ..good.clone() }, "max_tokens"),
    ];
    for (request, reason) in cases {
        let policy = request.policy;
        let error = engine.generate(request).await.unwrap_err();
        assert!(matches!(&error, Error::Request { policy: p, .. } if *p == policy), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(engine.generate(good).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_that_no_cache_can_hold() {
    let engine = engine(&tiny(), EngineConfig { kv_cache: 1, ..small() });
    let mut ask = request(0, prompt(1, 10), &[1]);
    let error = engine.generate(ask.clone()).await.unwrap_err().to_string();
    assert!(error.contains("22 tokens") && error.contains("kv_cache"), "{error}");
    ask.max_tokens = 6;
    assert_eq!(engine.generate(ask).await.unwrap().len(), 1);
}

/// Weights that hold no numbers: the request fails, the engine goes on.
#[tokio::test]
async fn failures_in_the_middle_of_the_work() {
    let good = tiny();
    let diverged = tiny();
    let _ = tch::no_grad(|| diverged.weights.norm.shallow_clone().fill_(f64::NAN));
    let policies = (0..2).map(|base| PolicyWeights { base, adapter: None, version: 0 }).collect::<Vec<_>>();
    let engine = Engine::start(vec![base(&good), base(&diverged)], policies, small()).unwrap();
    let ask = |policy: usize| engine.generate(request(policy, prompt(1, 10), &[1, 2]));
    let (fine, numbers) = tokio::join!(ask(0), ask(1));
    assert_eq!(fine.unwrap().len(), 2);
    let numbers = numbers.unwrap_err().to_string();
    assert!(numbers.contains("policy 1") && numbers.contains("diverged"), "{numbers}");
    assert_eq!(ask(0).await.unwrap().len(), 2);
}
