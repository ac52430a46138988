//! What sequences have in common is computed once.

use pl_inference::{EngineConfig, Generate};

use crate::{engine, prompt, request, small, tiny};

#[tokio::test]
async fn samples_and_equal_prompts_share_a_prefill() {
    let engine = engine(&tiny(), small());
    // Twenty samples over four slots, all of one prompt, asked for in three requests at once; another prompt;
    // and the first prompt under another policy, whose keys and values are not the same.
    let a = engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    let b = engine.generate(request(0, prompt(1, 40), &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20]));
    let c = engine.generate(request(0, prompt(2, 25), &[1, 2]));
    let d = engine.generate(request(1, prompt(1, 40), &[1, 2]));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let answers = [a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap()];
    let stats = engine.stats();
    // Whoever comes when a prompt's whole blocks are there computes the last 8 or 9 tokens alone.
    let (first_times, later) = (40 + 25 + 40, stats.prefills - 3);
    let again = stats.prefilled_tokens - first_times;
    assert!(8 * later <= again && again <= 9 * later, "{stats:?}");
    let tokens: usize = answers.iter().flatten().map(|completion| completion.tokens.len()).sum();
    assert_eq!(stats.generated_tokens, tokens as u64);
    // Four at a time: at least a quarter of a step per token beyond each completion's first.
    assert!(stats.steps as usize * 4 >= tokens - 24, "{stats:?}");
}

#[tokio::test]
async fn all_samples_of_a_request_that_fit_share_it_whole() {
    let engine = engine(&tiny(), EngineConfig { slots: 32, ..small() });
    engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8])).await.unwrap();
    assert_eq!((engine.stats().prefills, engine.stats().prefilled_tokens), (1, 40));
}

#[tokio::test]
async fn a_longer_prompt_goes_on_from_a_shorter_one() {
    let engine = engine(&tiny(), small());
    let whole = prompt(1, 100);
    engine.generate(request(0, whole[..60].into(), &[1])).await.unwrap();
    assert_eq!(engine.stats().prefilled_tokens, 60);
    // Three whole blocks of the sixty are found.
    let again = engine.generate(request(0, whole.clone(), &[1])).await.unwrap();
    assert_eq!(engine.stats().prefilled_tokens, 60 + 52);
    let fresh = crate::engine(&tiny(), small()).generate(request(0, whole, &[1])).await.unwrap();
    assert_eq!(again, fresh);
}

#[tokio::test]
async fn a_turn_goes_on_from_the_turn_before() {
    let engine = engine(&tiny(), small());
    let first = prompt(1, 40);
    let mut ask = request(2, first.clone(), &[1]);
    ask.max_tokens = 30;
    let said = engine.generate(ask).await.unwrap().remove(0).tokens;
    let before = engine.stats().prefilled_tokens;
    let next: Vec<u32> = first.iter().chain(&said).chain(&prompt(7, 20)[..]).copied().collect();
    engine.generate(request(2, next.as_slice().into(), &[1])).await.unwrap();
    // The newest token of a completion never was an input.
    let known = (first.len() + said.len() - 1) / 16 * 16;
    assert_eq!(engine.stats().prefilled_tokens - before, (next.len() - known) as u64);
}
