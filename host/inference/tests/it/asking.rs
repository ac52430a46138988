//! What a request may ask for beside tokens: text as it comes, the likeliest tokens, scores, other samplers.

use std::sync::Arc;

use pl_inference::{Backend, Chunk, EngineConfig, Error, Finish, Generate, Sampling};
use tokio::sync::mpsc::unbounded_channel;

use crate::{engine, prompt, request, small, tiny};

#[tokio::test]
async fn text_comes_in_pieces_that_stay() {
    let model = tiny();
    let engine = engine(&model, small());
    let mut free = request(2, prompt(3, 20), &[5, 6]);
    free.max_tokens = 60;
    let whole = engine.generate(free.clone()).await.unwrap();
    let text = &whole[0].text;
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    let stop = characters.windows(3).rev().find(|w| w.iter().all(|(_, c)| c.is_ascii())).unwrap();
    let stop: String = stop.iter().map(|(_, c)| c).collect();
    for stop in [vec![], vec![stop]] {
        let (listener, mut chunks) = unbounded_channel();
        let request = pl_inference::Request { stop: stop.into(), listener: Some(listener), ..free.clone() };
        let completions = engine.generate(request).await.unwrap();
        let mut heard: Vec<Chunk> = Vec::new();
        while let Ok(chunk) = chunks.try_recv() {
            heard.push(chunk);
        }
        for (index, completion) in completions.iter().enumerate() {
            let own: Vec<&Chunk> = heard.iter().filter(|chunk| chunk.index == index).collect();
            let text: String = own.iter().map(|chunk| chunk.text.as_str()).collect();
            let tokens: Vec<u32> = own.iter().flat_map(|chunk| chunk.tokens.clone()).collect();
            assert_eq!((text, tokens), (completion.text.clone(), completion.tokens.clone()));
            assert!(own.len() > 5 && own.last().unwrap().last && own.iter().filter(|c| c.last).count() == 1);
        }
    }
}

#[tokio::test]
async fn scores_are_the_logprobs_that_were_sampled_with() {
    let model = tiny();
    for backend in [Backend::Native, Backend::Libtorch] {
        let engine = engine(&model, EngineConfig { backend: Some(backend), kv_cache: 1 << 24, ..small() });
        let mut sampled = request(0, prompt(1, 37), &[1, 2]);
        sampled.max_tokens = 300;
        sampled.sampling = Sampling::at(0.8);
        for completion in engine.generate(sampled.clone()).await.unwrap() {
            let scores = engine
                .score(0, Arc::clone(&sampled.prompt), completion.tokens.as_slice().into(), 0.8)
                .await
                .unwrap();
            assert_eq!(scores.len(), completion.tokens.len());
            for (i, (score, logprob)) in scores.iter().zip(&completion.logprobs).enumerate() {
                match backend {
                    Backend::Native => assert_eq!(score.to_bits(), logprob.to_bits()),
                    Backend::Libtorch => {
                        assert!((score - logprob).abs() < 1e-4, "{i}: {score} and {logprob}")
                    }
                }
            }
        }
    }
    let engine = engine(&model, small());
    assert!(engine.score(0, prompt(1, 5), Arc::new([]), 1.0).await.unwrap().is_empty());
    let error = engine.score(0, prompt(1, 5), Arc::new([9999]), 1.0).await.unwrap_err();
    assert!(matches!(error, Error::Request { .. }), "{error}");
}

#[tokio::test]
async fn the_likeliest_tokens_are_told() {
    let engine = engine(&tiny(), small());
    let mut ask = request(2, prompt(1, 20), &[1]);
    ask.top_logprobs = 5;
    ask.sampling = Sampling::at(0.0);
    let completion = engine.generate(ask.clone()).await.unwrap().remove(0);
    assert_eq!(completion.top.len(), completion.tokens.len());
    for ((top, token), logprob) in completion.top.iter().zip(&completion.tokens).zip(&completion.logprobs) {
        assert_eq!((top.len(), top[0]), (5, (*token, *logprob)));
        assert!(top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    }
    ask.top_logprobs = 0;
    assert!(engine.generate(ask).await.unwrap().remove(0).top.is_empty());
}

#[tokio::test]
async fn tokens_left_out_are_never_drawn_and_the_kept_are_told() {
    let engine = engine(&tiny(), small());
    let mut ask = request(2, prompt(1, 20), &[1, 2, 3, 4]);
    ask.max_tokens = 40;
    let free = engine.generate(ask.clone()).await.unwrap();
    assert!(free.iter().all(|completion| completion.kept.is_none()));
    ask.sampling.top_k = 7;
    for completion in engine.generate(ask.clone()).await.unwrap() {
        let kept = completion.kept.unwrap();
        assert_eq!(kept.len(), completion.tokens.len());
        for (kept, token) in kept.iter().zip(&completion.tokens) {
            assert!(kept.len() == 7 && kept.is_sorted() && kept.contains(token));
        }
    }
    // What a bias bars never comes.
    let bars: Vec<(u32, f32)> = free[0].tokens.iter().map(|token| (*token, f32::NEG_INFINITY)).collect();
    ask.sampling = Sampling { logit_bias: bars.into(), ..Sampling::default() };
    for completion in engine.generate(ask).await.unwrap() {
        assert!(completion.tokens.iter().all(|token| !free[0].tokens.contains(token)));
    }
}

#[tokio::test]
async fn stop_ids_end_a_completion() {
    let engine = engine(&tiny(), small());
    let mut ask = request(2, prompt(3, 20), &[5]);
    ask.max_tokens = 60;
    let free = engine.generate(ask.clone()).await.unwrap().remove(0);
    ask.stop_ids = Arc::new([free.tokens[7]]);
    let cut = engine.generate(ask).await.unwrap().remove(0);
    let end = free.tokens.iter().position(|token| *token == free.tokens[7]).unwrap();
    assert_eq!((cut.tokens.as_slice(), cut.finish), (&free.tokens[..=end], Finish::Stop));
}
