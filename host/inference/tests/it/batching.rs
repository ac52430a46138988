//! A completion is the same, bit for bit, whatever runs beside it, however little room there is, and whatever was
//! computed before.

use std::sync::Arc;

use pl_inference::{Backend, Completion, Engine, EngineConfig, Generate, Request};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::{base, policies, prompt, request, tiny};

fn requests() -> Vec<Request> {
    (0..9u32)
        .map(|i| {
            // Prompts that begin alike, and prompts that don't.
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

/// Bytes of one block of the tiny model's cache on the native backend.
const BLOCK_BYTES: u64 = 2 * 2 * (8 + 16) * 16 * 4;

fn ask_all(engine: &Engine, order: &[usize]) -> Vec<Vec<Completion>> {
    let all = requests();
    Runtime::new().unwrap().block_on(async {
        let running: Vec<_> = order
            .iter()
            .map(|i| {
                let (engine, request) = (engine.clone(), all[*i].clone());
                tokio::spawn(async move { engine.generate(request).await.unwrap() })
            })
            .collect();
        let mut answers = Vec::new();
        for task in running {
            answers.push(task.await.unwrap());
        }
        answers
    })
}

fn start(config: EngineConfig) -> Engine {
    let model = tiny();
    Engine::start(vec![base(&model)], policies(&model.config), config).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Any order, any number of slots and threads, any company, room for few sequences or for many: the answers of
    /// each request alone.
    #[test]
    fn company_changes_nothing(
        order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
        taken in 1..=9usize,
        slots in 1..30usize,
        threads in 1..4usize,
        blocks in prop_oneof![9..16u64, Just(1000)],
    ) {
        thread_local! {
            static ALONE: Vec<Vec<Completion>> = (0..9)
                .map(|i| {
                    let config = EngineConfig { slots: 1, threads: 1, ..EngineConfig::default() };
                    ask_all(&start(config), &[i]).remove(0)
                })
                .collect();
        }
        let config = EngineConfig { slots, threads, kv_cache: blocks * BLOCK_BYTES, backend: None };
        let engine = start(config);
        // Twice: the second time, prompts may be there already.
        for _ in 0..2 {
            let answers = ask_all(&engine, &order[..taken]);
            ALONE.with(|alone| {
                for (i, answer) in order.iter().zip(&answers) {
                    prop_assert_eq!(bits(answer), bits(&alone[*i]), "request {}", i);
                }
                Ok(())
            })?;
        }
    }
}

/// Little room is no failure: sequences leave and come back.
#[test]
fn a_full_cache_pauses_and_goes_on() {
    let roomy = start(EngineConfig::default());
    let order: Vec<usize> = (0..9).collect();
    let expected = ask_all(&roomy, &order);
    assert_eq!(roomy.stats().pauses, 0);
    let tight = start(EngineConfig { kv_cache: 9 * BLOCK_BYTES, ..EngineConfig::default() });
    assert_eq!(ask_all(&tight, &order), expected);
    assert!(tight.stats().pauses > 0, "{:?}", tight.stats());
}

/// libtorch and the processor's kernels are two ways to the same numbers.
#[test]
fn both_backends_agree() {
    let order: Vec<usize> = (0..9).collect();
    let [native, libtorch] = [Backend::Native, Backend::Libtorch].map(|backend| {
        ask_all(
            &start(EngineConfig { backend: Some(backend), kv_cache: 1 << 24, ..EngineConfig::default() }),
            &order,
        )
    });
    let mut compared = 0;
    for (a, b) in native.iter().flatten().zip(libtorch.iter().flatten()) {
        let same = a.tokens.iter().zip(&b.tokens).take_while(|(a, b)| a == b).count();
        // A draw on the border between two tokens may go either way, and ends what can be compared.
        for (a, b) in a.logprobs[..same].iter().zip(&b.logprobs) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
            compared += 1;
        }
        if let (Some(a), Some(b)) = (&a.kept, &b.kept) {
            assert_eq!(a[..same], b[..same]);
        }
    }
    let all: usize = native.iter().flatten().map(|completion| completion.tokens.len()).sum();
    assert!(compared * 10 > all * 9, "{compared} of {all} tokens alike");
}
