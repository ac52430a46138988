//! One prefill per unique prompt of a policy.

use pl_inference::{EngineConfig, Generate};

use crate::{engine, prompt, request, small, tiny};

#[tokio::test]
async fn samples_and_equal_prompts_share_a_prefill() {
    let engine = engine(&tiny(), EngineConfig { prompt_cache: 0, ..small() });
    // Twenty samples over four slots, all of one prompt, asked for in three requests at once; another prompt;
    // and the first prompt under another policy, whose keys and values are not the same.
    let a = engine.generate(request(0, prompt(1, 40), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    let b = engine.generate(request(0, prompt(1, 40), &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20]));
    let c = engine.generate(request(0, prompt(2, 25), &[1, 2]));
    let d = engine.generate(request(1, prompt(1, 40), &[1, 2]));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let answers = [a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap()];
    let stats = engine.stats();
    assert_eq!((stats.prefills, stats.prefilled_tokens), (3, 40 + 25 + 40));
    let tokens: usize = answers.iter().flatten().map(|completion| completion.tokens.len()).sum();
    assert_eq!(stats.generated_tokens, tokens as u64);
    // Four at a time: at least a quarter of a step per token beyond each completion's first.
    assert!(stats.steps as usize * 4 >= tokens - 24, "{stats:?}");
}

#[tokio::test]
async fn prompts_lately_seen_are_kept_up_to_the_limit() {
    let engine = engine(&tiny(), EngineConfig { prompt_cache: 100, ..small() });
    let ask =
        async |seed: u32, len: usize| engine.generate(request(0, prompt(seed, len), &[1])).await.unwrap();
    let first = ask(1, 60).await;
    assert_eq!(ask(1, 60).await, first);
    assert_eq!(engine.stats().prefilled_tokens, 60);
    ask(2, 30).await;
    ask(1, 60).await;
    assert_eq!(engine.stats().prefilled_tokens, 90);
    // Twenty more make 110: the one used longest ago goes.
    ask(3, 20).await;
    ask(1, 60).await;
    assert_eq!(engine.stats().prefilled_tokens, 110);
    ask(2, 30).await;
    assert_eq!(engine.stats().prefilled_tokens, 140);
    // One past the limit is served and not kept.
    ask(4, 101).await;
    ask(4, 101).await;
    assert_eq!(engine.stats().prefilled_tokens, 140 + 202);
}
