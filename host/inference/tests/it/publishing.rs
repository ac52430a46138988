//! New weights: for what comes after, not for what is under way.

use pl_inference::{Engine, EngineConfig, Error, Generate, PolicyWeights};
use pl_model::{Dtype, Model, Projection};
use tch::Device;

use crate::{adapter, base, data, engine, policies, prompt, request, small, tiny};

#[tokio::test]
async fn an_adapter() {
    let model = tiny();
    let engine = engine(&model, small());
    let ask =
        async |policy: usize| engine.generate(request(policy, prompt(1, 30), &[1])).await.unwrap().remove(0);
    let (first, other) = (ask(0).await, ask(1).await);
    engine.publish(0, adapter(&model.config, 4, &Projection::ALL, 9), 11).unwrap();
    let (second, same) = (ask(0).await, ask(1).await);
    assert_eq!((first.version, second.version), (10, 11));
    assert_ne!(first.tokens, second.tokens, "the prompt kept from the old weights must not be used");
    assert_eq!(other, same);
    // A fresh engine with those weights says the same: nothing of the old ones is left.
    let mut weights = policies(&model.config);
    weights[0].adapter = Some(adapter(&model.config, 4, &Projection::ALL, 9));
    let fresh = Engine::start(vec![base(&model)], weights, small()).unwrap();
    let fresh = fresh.generate(request(0, prompt(1, 30), &[1])).await.unwrap().remove(0);
    assert_eq!((fresh.tokens, fresh.logprobs), (second.tokens, second.logprobs));
}

#[tokio::test]
async fn a_whole_model() {
    let model = tiny();
    let policy = || PolicyWeights { base: 0, adapter: None, version: 0 };
    let engine = Engine::start(vec![base(&model)], vec![policy()], small()).unwrap();
    let ask = async || engine.generate(request(0, prompt(1, 30), &[1])).await.unwrap().remove(0);
    let first = ask().await;
    let changed = model.weights.copy();
    let _ = tch::no_grad(|| changed.norm.shallow_clone().multiply_scalar_(1.5));
    engine.publish(0, changed, 1).unwrap();
    let second = ask().await;
    assert_eq!((first.version, second.version), (0, 1));
    assert_ne!(first.logprobs, second.logprobs);
}

#[tokio::test]
async fn what_is_under_way_ends_on_the_old_weights() {
    let model = tiny();
    let mut long = request(0, prompt(1, 30), &[1, 2, 3]);
    long.max_tokens = 300;
    let undisturbed = engine(&model, small()).generate(long.clone()).await.unwrap();
    let engine = engine(&model, EngineConfig { slots: 2, ..small() });
    let running = tokio::spawn({
        let (engine, long) = (engine.clone(), long.clone());
        async move { engine.generate(long).await.unwrap() }
    });
    while engine.stats().steps < 5 {
        tokio::task::yield_now().await;
    }
    engine.publish(0, adapter(&model.config, 4, &Projection::ALL, 9), 11).unwrap();
    assert_eq!(running.await.unwrap(), undisturbed);
    let after = engine.generate(long).await.unwrap();
    assert!(after.iter().all(|completion| completion.version == 11));
    assert_ne!(after[0].tokens, undisturbed[0].tokens);
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let model = tiny();
    let other = Model::load(&data("conformance/logits/grouped-untied"), Device::Cpu, Dtype::F32).unwrap();
    let alien = || adapter(&other.config, 4, &Projection::ALL, 1);
    let engine = engine(&model, small());
    let refused = [
        engine.publish(0, alien(), 1).unwrap_err(),
        engine.publish(7, adapter(&model.config, 4, &Projection::ALL, 1), 1).unwrap_err(),
        engine.publish(2, other.weights.shallow(), 1).unwrap_err(),
        Engine::start(
            vec![base(&model)],
            vec![PolicyWeights { base: 1, adapter: None, version: 0 }],
            small(),
        )
        .unwrap_err(),
        Engine::start(
            vec![base(&model)],
            vec![PolicyWeights { base: 0, adapter: Some(alien()), version: 0 }],
            small(),
        )
        .unwrap_err(),
        Engine::start(vec![], vec![], EngineConfig { tile: 0, ..small() }).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Error::Setup(_))), "{refused:?}");
    assert!(refused[0].to_string().contains("policy 0"));
}
