//! Published weights apply to later requests, not to those in progress.

use pl_inference::{Backend, LlmEngine, LlmEngineConfig, PolicyWeights, WeightUpdate};
use pl_model::{Model, Projection, TensorSet};
use pl_types::{Dtype, Generate, GenerateError, ValueHeadWeights};
use tch::Device;

use crate::{adapter, base, data, engine, policies, prompt, request, small, tiny};

#[tokio::test]
async fn a_published_adapter_serves_later_requests() {
    let model = tiny();
    let engine = engine(&model, small());
    let generate =
        async |policy: usize| engine.generate(request(policy, prompt(1, 30), &[1])).await.unwrap().remove(0);
    let (first, other) = (generate(0).await, generate(1).await);
    engine.publish(0, adapter(&model.config, 4, &Projection::ALL, 9), 11).unwrap();
    let (second, same) = (generate(0).await, generate(1).await);
    assert_eq!((first.version, second.version), (10, 11));
    assert_ne!(first.tokens, second.tokens, "the prompt cached under the old weights must not be used");
    assert_eq!(other, same);
    // A new engine with those weights generates the same: nothing of the old weights is left.
    let mut weights = policies(&model.config);
    weights[0].adapter = Some(adapter(&model.config, 4, &Projection::ALL, 9));
    let fresh = LlmEngine::start(vec![base(&model)], weights, small()).unwrap();
    let fresh = fresh.generate(request(0, prompt(1, 30), &[1])).await.unwrap().remove(0);
    assert_eq!((fresh.tokens, fresh.logprobs), (second.tokens, second.logprobs));
}

#[tokio::test]
async fn a_published_model_serves_later_requests() {
    let model = tiny();
    let policy = || PolicyWeights { base: 0, adapter: None, version: 0 };
    let engine = LlmEngine::start(vec![base(&model)], vec![policy()], small()).unwrap();
    let generate = async || engine.generate(request(0, prompt(1, 30), &[1])).await.unwrap().remove(0);
    let first = generate().await;
    let changed = model.weights.copy();
    let _ = tch::no_grad(|| changed.norm.shallow_clone().multiply_scalar_(1.5));
    engine.publish(0, changed, 1).unwrap();
    let second = generate().await;
    assert_eq!((first.version, second.version), (0, 1));
    assert_ne!(first.logprobs, second.logprobs);
}

#[tokio::test]
async fn requests_in_progress_finish_on_the_old_weights() {
    let model = tiny();
    let mut long = request(0, prompt(1, 30), &[1, 2, 3]);
    long.max_tokens = 300;
    let undisturbed = engine(&model, small()).generate(long.clone()).await.unwrap();
    let engine = engine(&model, LlmEngineConfig { slots: 2, ..small() });
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
    let other = Model::load(data("conformance/logits/grouped-untied"), Device::Cpu, Dtype::F32).unwrap();
    let foreign = || adapter(&other.config, 4, &Projection::ALL, 1);
    let engine = engine(&model, small());
    let mut mislabelled = base(&model);
    mislabelled.config.heads = 8;
    let refused = [
        engine.publish(0, foreign(), 1).unwrap_err(),
        engine.publish(7, adapter(&model.config, 4, &Projection::ALL, 1), 1).unwrap_err(),
        engine.publish(2, other.weights.shallow(), 1).unwrap_err(),
        LlmEngine::start(
            vec![base(&model)],
            vec![PolicyWeights { base: 1, adapter: None, version: 0 }],
            small(),
        )
        .unwrap_err(),
        LlmEngine::start(
            vec![base(&model)],
            vec![PolicyWeights { base: 0, adapter: Some(foreign()), version: 0 }],
            small(),
        )
        .unwrap_err(),
        LlmEngine::start(vec![mislabelled], policies(&model.config), small()).unwrap_err(),
        LlmEngine::start(vec![], vec![], LlmEngineConfig { kv_cache: 0, ..small() }).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, GenerateError::Setup(_))), "{refused:?}");
    assert!(refused[0].to_string().contains("policy 0"));
}

#[tokio::test]
async fn policies_come_and_go_while_the_engine_runs() {
    let model = tiny();
    let engine = engine(&model, small());
    let generate = async |policy: usize| engine.generate(request(policy, prompt(1, 30), &[1])).await;
    let before = generate(0).await.unwrap();
    let new = |seed| PolicyWeights {
        base: 0,
        adapter: Some(adapter(&model.config, 4, &Projection::ALL, seed)),
        version: 7,
    };
    let added = engine.add_policy(new(9)).unwrap();
    let generated = generate(added).await.unwrap();
    assert_eq!(generated[0].version, 7);
    // The same weights as those of a published adapter give the same tokens.
    engine.publish(1, adapter(&model.config, 4, &Projection::ALL, 9), 7).unwrap();
    assert_eq!(generate(1).await.unwrap(), generated);
    assert_eq!(generate(0).await.unwrap(), before, "other policies stay as they are");

    let mut long = request(added, prompt(2, 30), &[1, 2]);
    long.max_tokens = 200;
    let undisturbed = engine.generate(long.clone()).await.unwrap();
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.generate(long).await }
    });
    let steps = engine.stats().steps;
    while engine.stats().steps < steps + 5 {
        tokio::task::yield_now().await;
    }
    engine.remove_policy(added).unwrap();
    assert_eq!(running.await.unwrap().unwrap(), undisturbed);
    assert!(matches!(generate(added).await, Err(GenerateError::Request { .. })));
    assert!(matches!(engine.remove_policy(added), Err(GenerateError::Setup(_))));
    assert_ne!(engine.add_policy(new(3)).unwrap(), added, "an index is never used again");
}

/// With the difference of two tokens' output rows as its weight, a head's value is the difference of their logits.
#[tokio::test]
async fn values_are_those_of_the_states_that_tokens_were_sampled_in() {
    let model = tiny();
    for backend in [Backend::Native, Backend::Libtorch] {
        let engine = engine(&model, LlmEngineConfig { backend: Some(backend), ..small() });
        let row =
            |id: i64| Vec::<f32>::try_from(model.weights.unembed().to_tensor().unwrap().get(id)).unwrap();
        let weight = row(3).iter().zip(row(5)).map(|(a, b)| a - b).collect();
        let mut asked = request(0, prompt(1, 30), &[1, 2]);
        asked.top_logprobs = model.config.vocab as usize;
        let before = engine.generate(asked.clone()).await.unwrap();
        assert!(before.iter().all(|completion| completion.values.is_none()));
        let head = ValueHeadWeights { weight, bias: 0.5 };
        engine.publish(0, WeightUpdate::ValueHead(head), 10).unwrap();
        let after = engine.generate(asked).await.unwrap();
        for (completion, before) in after.iter().zip(&before) {
            assert_eq!((&completion.tokens, completion.version), (&before.tokens, before.version));
            let values = completion.values.as_ref().unwrap();
            assert_eq!(values.len(), completion.tokens.len());
            for (value, top) in values.iter().zip(&completion.top) {
                let logprob = |id: u32| top.iter().find(|(own, _)| *own == id).unwrap().1;
                let expected = logprob(3) - logprob(5) + 0.5;
                assert!((value - expected).abs() < 1e-4, "{backend:?}: {value} {expected}");
            }
        }
        // The head belongs to one policy.
        let other = engine.generate(request(1, prompt(1, 30), &[1])).await.unwrap();
        assert!(other[0].values.is_none());
        let wrong = ValueHeadWeights { weight: vec![1.0], bias: 0.0 };
        let refused = engine.publish(0, WeightUpdate::ValueHead(wrong), 10).unwrap_err();
        assert!(refused.to_string().contains("hidden dimensions"), "{refused}");
    }
}
