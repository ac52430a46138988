//! Stop strings, ends of turn, length limits and cancellation.

use std::sync::Arc;

use pl_inference::{LlmEngine, PolicyWeights};
use pl_model::Tokenizer;
use pl_types::{Finish, Generate};

use crate::{base, engine, prompt, request, small, tiny};

/// Text of tokens without special tokens, as the engine decodes it.
fn text(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    tokenizer.decode(tokens, true)
}

#[tokio::test]
async fn stop_strings_across_token_borders() {
    let model = tiny();
    let engine = engine(&model, small());
    let mut free = request(2, prompt(3, 20), &[5]);
    free.max_tokens = 60;
    let whole = engine.generate(free.clone()).await.unwrap().remove(0);
    let full = text(&model.tokenizer, &whole.tokens);
    let mut crossed = 0;
    // Every three consecutive characters of the unconstrained text as a stop string.
    let characters: Vec<(usize, char)> = full.char_indices().collect();
    for window in characters.windows(3) {
        let stop: String = window.iter().map(|(_, c)| *c).collect();
        if stop.contains('\u{FFFD}') {
            continue;
        }
        let mut request = free.clone();
        request.stop = Arc::new(["not in the text".into(), stop.clone()]);
        let cut = engine.generate(request).await.unwrap().remove(0);
        assert_eq!(cut.text, full[..full.find(&stop).unwrap()], "{stop:?}");
        assert_eq!(cut.finish, Finish::Stop);
        // Keeps every sampled token up to the one that completed the string.
        assert_eq!(cut.tokens, whole.tokens[..cut.tokens.len()]);
        assert!(text(&model.tokenizer, &cut.tokens).contains(&stop));
        assert!(!text(&model.tokenizer, &cut.tokens[..cut.tokens.len() - 1]).contains(&stop));
        crossed += 1;
    }
    assert!(crossed > 10, "{crossed}");
}

#[tokio::test]
async fn an_empty_stop_string_is_ignored() {
    let engine = engine(&tiny(), small());
    let mut request = request(2, prompt(3, 20), &[5]);
    let free = engine.generate(request.clone()).await.unwrap();
    request.stop = Arc::new([String::new()]);
    assert_eq!(engine.generate(request).await.unwrap(), free);
}

#[tokio::test]
async fn an_end_of_turn_token_ends_the_completion() {
    let model = tiny();
    // Makes the end of turn the likeliest token: its row becomes the last hidden state, scaled up.
    let ids: Vec<u32> = prompt(1, 40).to_vec();
    let mut packed = pl_model::Packed::default();
    packed.push(&ids, None);
    tch::no_grad(|| {
        let hidden = pl_model::hidden_states(&model.config, &model.weights, &[], &packed).unwrap();
        let last = hidden.get(39);
        model.weights.embed.to_tensor().unwrap().get(2).copy_(&(&last * 10.0));
    });
    let policy = PolicyWeights { base: 0, adapter: None, version: 1 };
    let engine = LlmEngine::start(vec![base(&model)], vec![policy], small()).unwrap();
    let mut request = request(0, prompt(1, 40), &[1]);
    request.sampling.temperature = 0.0;
    let done = engine.generate(request).await.unwrap().remove(0);
    assert_eq!((done.tokens.as_slice(), done.text.as_str(), done.finish), ([2].as_slice(), "", Finish::Stop));
}

#[tokio::test]
async fn length_limits_end_completions() {
    let mut model = tiny();
    model.config.max_positions = 32;
    let engine = engine(&model, small());
    let mut request = request(2, prompt(3, 20), &[5, 6]);
    request.max_tokens = 7;
    for completion in engine.generate(request.clone()).await.unwrap() {
        assert_eq!((completion.tokens.len(), completion.finish), (7, Finish::Length));
    }
    // The model's own limit comes first.
    request.max_tokens = 500;
    for completion in engine.generate(request).await.unwrap() {
        assert_eq!((completion.tokens.len(), completion.finish), (12, Finish::Length));
    }
}

#[tokio::test]
async fn cancelled_requests_free_their_slots() {
    let model = tiny();
    let engine = engine(&model, small());
    let mut endless = request(2, prompt(3, 20), &[1, 2, 3, 4, 5, 6]);
    endless.max_tokens = 4000;
    let held = tokio::spawn({
        let engine = engine.clone();
        async move { engine.generate(endless).await }
    });
    while engine.stats().steps < 3 {
        tokio::task::yield_now().await;
    }
    held.abort();
    let _ = held.await;
    let before = engine.stats().generated_tokens;
    let answer = engine.generate(request(2, prompt(4, 20), &[1])).await.unwrap();
    let after = engine.stats().generated_tokens;
    // The cancelled request may have run a few more steps.
    assert!(after - before <= answer[0].tokens.len() as u64 + 4 * 50, "{}", after - before);
}
