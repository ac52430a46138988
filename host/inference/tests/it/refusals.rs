//! Requests that can't be served cost themselves alone.

use std::sync::Arc;

use pl_inference::{Engine, Error, Generate, PolicyWeights};

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
        (pl_inference::Request { temperature: -1.0, ..good.clone() }, "temperature"),
        (pl_inference::Request { temperature: f64::NAN, ..good.clone() }, "temperature"),
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

/// libtorch's exceptions and weights that hold no numbers: the request fails, the engine goes on.
#[tokio::test]
async fn failures_in_the_middle_of_the_work() {
    let good = tiny();
    // A base whose configuration lies about its heads: libtorch refuses the shapes.
    let mut lying = base(&tiny());
    lying.config.heads = 8;
    let diverged = tiny();
    let _ = tch::no_grad(|| diverged.weights.norm.shallow_clone().fill_(f64::NAN));
    let policies = (0..3).map(|base| PolicyWeights { base, adapter: None, version: 0 }).collect::<Vec<_>>();
    let engine = Engine::start(vec![base(&good), lying, base(&diverged)], policies, small()).unwrap();
    let ask = |policy: usize| engine.generate(request(policy, prompt(1, 10), &[1, 2]));
    let (fine, shapes, numbers) = tokio::join!(ask(0), ask(1), ask(2));
    assert_eq!(fine.unwrap().len(), 2);
    assert!(matches!(shapes, Err(Error::Failed { policy: 1, .. })), "{shapes:?}");
    let numbers = numbers.unwrap_err().to_string();
    assert!(numbers.contains("policy 2") && numbers.contains("diverged"), "{numbers}");
    assert_eq!(ask(0).await.unwrap().len(), 2);
}
