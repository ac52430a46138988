//! Common prefixes of sequences are computed once.

use pl_inference::{LlmEngineConfig, PassCount};
use pl_types::Generate;

use crate::{engine, prompt, request, small, tiny};

#[tokio::test]
async fn samples_and_equal_prompts_share_a_prefill() {
    let engine = engine(&tiny(), small());
    // Twenty samples over four slots, all of one prompt, in several concurrent requests; another prompt;
    // and the first prompt under another policy, whose keys and values are not the same.
    let a = engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    let b = engine.generate(request(0, prompt(1, 40), &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20]));
    let c = engine.generate(request(0, prompt(2, 25), &[1, 2]));
    let d = engine.generate(request(1, prompt(1, 40), &[1, 2]));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let results = [a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap()];
    let stats = engine.stats();
    // A sequence that finds a prompt's full blocks cached computes only the last 8 or 9 tokens.
    let (first_prefills, later) = (40 + 25 + 40, stats.prefills - 3);
    let again = stats.prefilled_tokens - first_prefills;
    assert!(8 * later <= again && again <= 9 * later, "{stats:?}");
    let tokens: usize = results.iter().flatten().map(|completion| completion.tokens.len()).sum();
    assert_eq!(stats.generated_tokens, tokens as u64);
    // Four at a time: at least a quarter of a step per token beyond each completion's first.
    assert!(stats.steps as usize * 4 >= tokens - 24, "{stats:?}");
}

#[tokio::test]
async fn samples_of_one_request_share_the_whole_prefill() {
    let engine = engine(&tiny(), LlmEngineConfig { slots: 32, ..small() });
    engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8])).await.unwrap();
    assert_eq!((engine.stats().prefills, engine.stats().prefilled_tokens), (1, 40));
}

#[tokio::test]
async fn passes_are_counted_by_the_completions_that_go_on_in_them() {
    let engine = engine(&tiny(), LlmEngineConfig { slots: 32, ..small() });
    engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8])).await.unwrap();
    let stats = engine.stats();
    let ranges = &stats.passes_by_rows;
    assert_eq!(ranges.iter().map(|range| range.passes).sum::<u64>(), stats.steps);
    // The prompt has no row. Its logits gave the first token of each completion, and every row one more.
    assert_eq!(ranges[0], PassCount { passes: 1, rows: 0 });
    assert_eq!(ranges.iter().map(|range| range.rows).sum::<u64>(), stats.generated_tokens - 8);
    // 4 to 7 or 8 go on at first, never more.
    assert!(ranges[3..5].iter().any(|range| range.passes > 0), "{stats:?}");
    assert!(ranges[5..].iter().all(|range| range.passes == 0), "{stats:?}");
}

#[tokio::test]
async fn a_longer_prompt_reuses_the_blocks_of_a_shorter_one() {
    let engine = engine(&tiny(), small());
    let whole = prompt(1, 100);
    engine.generate(request(0, whole[..60].into(), &[1])).await.unwrap();
    assert_eq!(engine.stats().prefilled_tokens, 60);
    // Three full blocks of the sixty tokens are cached.
    let again = engine.generate(request(0, whole.clone(), &[1])).await.unwrap();
    assert_eq!(engine.stats().prefilled_tokens, 60 + 52);
    let fresh = crate::engine(&tiny(), small()).generate(request(0, whole, &[1])).await.unwrap();
    assert_eq!(again, fresh);
}

#[tokio::test]
async fn a_turn_reuses_the_blocks_of_the_previous_turn() {
    let engine = engine(&tiny(), small());
    let first = prompt(1, 40);
    let mut opening = request(2, first.clone(), &[1]);
    opening.max_tokens = 30;
    let completion = engine.generate(opening).await.unwrap().remove(0).tokens;
    let before = engine.stats().prefilled_tokens;
    let next: Vec<u32> = first.iter().chain(&completion).chain(&prompt(7, 20)[..]).copied().collect();
    engine.generate(request(2, next.as_slice().into(), &[1])).await.unwrap();
    // The last token of a completion was never an input.
    let cached = (first.len() + completion.len() - 1) / 16 * 16;
    assert_eq!(engine.stats().prefilled_tokens - before, (next.len() - cached) as u64);
}
