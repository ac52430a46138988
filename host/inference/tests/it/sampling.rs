//! Seeds determine tokens, and log-probabilities equal those of training's forward pass.

use std::sync::Arc;

use pl_inference::LlmEngine;
use pl_model::{Adapter, Packed, hidden_states};
use pl_types::Generate;
use tch::{Kind, Tensor};

use crate::{base, engine, policies, prompt, request, small, tiny};

#[tokio::test]
async fn seeds_determine_completions() {
    let engine = engine(&tiny(), small());
    let generate = |seeds: &'static [u8]| engine.generate(request(0, prompt(1, 20), seeds));
    let three = generate(&[1, 2, 1]).await.unwrap();
    assert_eq!(three[0], three[2]);
    assert_ne!(three[0].tokens, three[1].tokens);
    assert_eq!(generate(&[2]).await.unwrap()[0], three[1]);
    assert_eq!(three[0].version, 10);
    assert_eq!(three[0].tokens.len(), three[0].logprobs.len());
}

#[tokio::test]
async fn policies_differ_and_greedy_needs_no_seed() {
    let engine = engine(&tiny(), small());
    let mut results = Vec::new();
    for policy in 0..3 {
        let mut request = request(policy, prompt(1, 20), &[1, 2]);
        request.sampling.temperature = 0.0;
        let two = engine.generate(request).await.unwrap();
        assert_eq!(two[0].tokens, two[1].tokens);
        results.push(two[0].tokens.clone());
    }
    assert!(results[0] != results[1] && results[1] != results[2] && results[0] != results[2]);
}

/// Sampling and training see the same distribution.
#[tokio::test]
async fn logprobs_equal_the_packed_pass() {
    let model = tiny();
    let engine = LlmEngine::start(vec![base(&model)], policies(&model.config), small()).unwrap();
    let again = policies(&model.config);
    let adapters: Vec<&Adapter> = again.iter().filter_map(|p| p.adapter.as_ref()).collect();
    let temperatures = [1.0, 0.7, 1.3];
    let mut packed = Packed::default();
    let mut sampled = Vec::new();
    for (policy, temperature) in temperatures.into_iter().enumerate() {
        let mut request = request(policy, prompt(policy as u32, 30), &[1, 2, 3]);
        (request.sampling.temperature, request.max_tokens) = (temperature, 40);
        let start = Arc::clone(&request.prompt);
        for completion in engine.generate(request).await.unwrap() {
            let all = [&start, completion.tokens.as_slice()].concat();
            packed.push(&all, (policy < adapters.len()).then_some(policy));
            sampled.push((start.len(), temperature, completion));
        }
    }
    let hidden = tch::no_grad(|| hidden_states(&model.config, &model.weights, &adapters, &packed)).unwrap();
    let mut tokens = 0;
    for (span, (start, temperature, completion)) in packed.spans.iter().zip(&sampled) {
        let count = completion.tokens.len();
        let rows = hidden.narrow(0, (span.start + start - 1) as i64, count as i64);
        let logprobs = (rows.matmul(&model.weights.unembed().to_tensor().unwrap().tr()) / *temperature)
            .log_softmax(-1, Kind::Float);
        let ids: Vec<i64> = completion.tokens.iter().map(|id| i64::from(*id)).collect();
        let trained = logprobs.gather(1, &Tensor::from_slice(&ids).view([-1, 1]), false).view([-1]);
        let gap = (trained - Tensor::from_slice(&completion.logprobs)).abs().max().double_value(&[]);
        assert!(gap < 1e-4, "{gap}");
        tokens += count;
    }
    assert!(tokens > 100, "{tokens}");
}
