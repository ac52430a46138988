//! A completion is the same, bit for bit, whatever runs beside it.

use pl_inference::{Completion, EngineConfig, Generate, Request};
use proptest::prelude::*;

use crate::{engine, prompt, request, tiny};

fn requests() -> Vec<Request> {
    (0..9u32)
        .map(|i| {
            let mut request =
                request(i as usize % 3, prompt(i, 3 + 11 * i as usize), &[i as u8, 100 + i as u8]);
            request.temperature = if i == 4 { 0.0 } else { 0.6 + 0.1 * f64::from(i) };
            request.max_tokens = 5 + 3 * i;
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Any order, any number of slots, any company: the answers of each request alone.
    #[test]
    fn company_changes_nothing(
        order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
        taken in 1..=9usize,
        slots in 1..12usize,
        prompt_cache in prop_oneof![Just(0usize), Just(64), Just(4096)],
    ) {
        thread_local! {
            static ALONE: Vec<Vec<Completion>> = {
                let model = tiny();
                let runtime = tokio::runtime::Runtime::new().unwrap();
                requests()
                    .into_iter()
                    .map(|request| {
                        let engine = engine(&model, EngineConfig { slots: 2, tile: 4, prompt_cache: 0 });
                        runtime.block_on(engine.generate(request)).unwrap()
                    })
                    .collect()
            };
        }
        let all = requests();
        let engine = engine(&tiny(), EngineConfig { slots, tile: 4, prompt_cache });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let answers: Vec<Vec<Completion>> = runtime.block_on(async {
            let running: Vec<_> = order[..taken]
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
        });
        ALONE.with(|alone| {
            for (i, answer) in order.iter().zip(&answers) {
                prop_assert_eq!(bits(answer), bits(&alone[*i]), "request {}", i);
            }
            Ok(())
        })?;
    }
}
