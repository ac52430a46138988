//! Completions are bit-identical regardless of the other requests in the batch, the size of the cache and its
//! previous contents.

use std::sync::Arc;

use pl_inference::{Backend, LlmEngine, LlmEngineConfig};
use pl_types::{Completion, Generate, Request};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::{base, policies, prompt, request, tiny};

fn requests() -> Vec<Request> {
    (0..9u32)
        .map(|i| {
            // Some prompts share a prefix, others don't.
            let whole = prompt(i / 3, 3 + 60);
            let own = prompt(i, 2 + 5 * i as usize);
            let tokens: Arc<[u32]> = whole[..20 * (i as usize % 4)].iter().chain(&own[..]).copied().collect();
            let mut request = request(i as usize % 3, tokens, &[i as u8, 100 + i as u8, 200]);
            request.sampling.temperature = if i == 4 { 0.0 } else { 0.6 + 0.1 * f64::from(i) };
            request.sampling.top_k = if i == 5 { 20 } else { 0 };
            request.sampling.frequency_penalty = if i == 6 { 0.4 } else { 0.0 };
            request.max_tokens = 5 + 5 * i;
            request
        })
        .collect()
}

fn bits(completions: &[Completion]) -> Vec<(Vec<u32>, Vec<u32>, &str)> {
    completions
        .iter()
        .map(|c| (c.tokens.clone(), c.logprobs.iter().map(|x| x.to_bits()).collect(), c.text.as_str()))
        .collect()
}

/// Size in bytes of one cache block of the tiny model on the native backend.
const BLOCK_BYTES: u64 = 2 * 2 * (8 + 16) * 16 * 4;

fn generate_all(engine: &LlmEngine, order: &[usize]) -> Vec<Vec<Completion>> {
    let all = requests();
    Runtime::new().unwrap().block_on(async {
        let running: Vec<_> = order
            .iter()
            .map(|i| {
                let (engine, request) = (engine.clone(), all[*i].clone());
                tokio::spawn(async move { engine.generate(request).await.unwrap() })
            })
            .collect();
        let mut results = Vec::new();
        for task in running {
            results.push(task.await.unwrap());
        }
        results
    })
}

fn start(config: LlmEngineConfig) -> LlmEngine {
    let model = tiny();
    LlmEngine::start(vec![base(&model)], policies(&model.config), config).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Each request's results are, for any order, other requests, slots, threads and cache size, those of
    /// running it alone.
    #[test]
    fn other_requests_change_nothing(
        order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
        taken in 1..=9usize,
        slots in 1..30usize,
        threads in 1..4usize,
        blocks in prop_oneof![9..16u64, Just(1000)],
    ) {
        thread_local! {
            static ALONE: Vec<Vec<Completion>> = (0..9)
                .map(|i| {
                    let config = LlmEngineConfig { slots: 1, threads: 1, ..LlmEngineConfig::default() };
                    generate_all(&start(config), &[i]).remove(0)
                })
                .collect();
        }
        let config = LlmEngineConfig { slots, threads, kv_cache: blocks * BLOCK_BYTES, ..LlmEngineConfig::default() };
        let engine = start(config);
        // Twice: the second time, prompts may be cached already.
        for _ in 0..2 {
            let results = generate_all(&engine, &order[..taken]);
            ALONE.with(|alone| {
                for (i, result) in order.iter().zip(&results) {
                    prop_assert_eq!(bits(result), bits(&alone[*i]), "request {}", i);
                }
                Ok(())
            })?;
        }
    }
}

/// A full cache is not a failure: sequences are preempted and resumed.
#[test]
fn a_full_cache_preempts_and_completes() {
    let roomy = start(LlmEngineConfig::default());
    let order: Vec<usize> = (0..9).collect();
    let expected = generate_all(&roomy, &order);
    assert_eq!(roomy.stats().preemptions, 0);
    let tight = start(LlmEngineConfig { kv_cache: 9 * BLOCK_BYTES, ..LlmEngineConfig::default() });
    assert_eq!(generate_all(&tight, &order), expected);
    assert!(tight.stats().preemptions > 0, "{:?}", tight.stats());
}

/// libtorch and the CPU kernels give the same numbers, up to rounding.
#[test]
fn both_backends_agree() {
    let order: Vec<usize> = (0..9).collect();
    let [native, libtorch] = [Backend::Native, Backend::Libtorch].map(|backend| {
        generate_all(
            &start(LlmEngineConfig {
                backend: Some(backend),
                kv_cache: 1 << 24,
                ..LlmEngineConfig::default()
            }),
            &order,
        )
    });
    let mut compared = 0;
    for (a, b) in native.iter().flatten().zip(libtorch.iter().flatten()) {
        let agreed = a.tokens.iter().zip(&b.tokens).take_while(|(a, b)| a == b).count();
        // Rounding may tip a quantile at the border between two tokens; the rest cannot be compared then.
        for (a, b) in a.logprobs[..agreed].iter().zip(&b.logprobs) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
            compared += 1;
        }
        if let (Some(a), Some(b)) = (&a.support, &b.support) {
            assert_eq!(a[..agreed], b[..agreed]);
        }
    }
    let all: usize = native.iter().flatten().map(|completion| completion.tokens.len()).sum();
    assert!(compared * 10 > all * 9, "{compared} of {all} tokens agree");
}
