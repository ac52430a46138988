//! Options of requests: streamed text, likeliest tokens, scores, samplers, stop ids.

use std::sync::Arc;

use pl_inference::{Backend, LlmEngineConfig};
use pl_types::{Chunk, Finish, Generate, GenerateError, Request, Sampling};
use tokio::sync::mpsc::unbounded_channel;

use crate::{engine, prompt, request, small, tiny};

#[tokio::test]
async fn streamed_text_is_never_revoked() {
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
        let request = Request { stop: stop.into(), listener: Some(listener), ..free.clone() };
        let completions = engine.generate(request).await.unwrap();
        let mut received: Vec<Chunk> = Vec::new();
        while let Ok(chunk) = chunks.try_recv() {
            received.push(chunk);
        }
        for (index, completion) in completions.iter().enumerate() {
            let own: Vec<&Chunk> = received.iter().filter(|chunk| chunk.index == index).collect();
            let text: String = own.iter().map(|chunk| chunk.text.as_str()).collect();
            let tokens: Vec<u32> = own.iter().flat_map(|chunk| chunk.tokens.clone()).collect();
            assert_eq!((text, tokens), (completion.text.clone(), completion.tokens.clone()));
            assert!(own.len() > 5 && own.last().unwrap().last && own.iter().filter(|c| c.last).count() == 1);
        }
    }
}

#[tokio::test]
async fn scores_equal_the_logprobs_of_sampling() {
    let model = tiny();
    for backend in [Backend::Native, Backend::Libtorch] {
        let engine = engine(&model, LlmEngineConfig { backend: Some(backend), kv_cache: 1 << 24, ..small() });
        let mut sampled = request(0, prompt(1, 37), &[1, 2]);
        sampled.max_tokens = 300;
        sampled.sampling = Sampling::with_temperature(0.8);
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
    assert!(matches!(error, GenerateError::Request { .. }), "{error}");
}

#[tokio::test]
async fn the_likeliest_tokens_are_reported() {
    let engine = engine(&tiny(), small());
    let mut request = request(2, prompt(1, 20), &[1]);
    request.top_logprobs = 5;
    request.sampling = Sampling::with_temperature(0.0);
    let completion = engine.generate(request.clone()).await.unwrap().remove(0);
    assert_eq!(completion.top.len(), completion.tokens.len());
    for ((top, token), logprob) in completion.top.iter().zip(&completion.tokens).zip(&completion.logprobs) {
        assert_eq!((top.len(), top[0]), (5, (*token, *logprob)));
        assert!(top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    }
    request.top_logprobs = 0;
    assert!(engine.generate(request).await.unwrap().remove(0).top.is_empty());
}

#[tokio::test]
async fn truncated_tokens_are_never_sampled_and_the_support_is_reported() {
    let engine = engine(&tiny(), small());
    let mut request = request(2, prompt(1, 20), &[1, 2, 3, 4]);
    request.max_tokens = 40;
    let free = engine.generate(request.clone()).await.unwrap();
    assert!(free.iter().all(|completion| completion.support.is_none()));
    request.sampling.top_k = 7;
    for completion in engine.generate(request.clone()).await.unwrap() {
        let support = completion.support.unwrap();
        assert_eq!(support.len(), completion.tokens.len());
        for (ids, token) in support.iter().zip(&completion.tokens) {
            assert!(ids.len() == 7 && ids.is_sorted() && ids.contains(token));
        }
    }
    // Tokens that a bias excludes are never sampled.
    let biases: Vec<(u32, f32)> = free[0].tokens.iter().map(|token| (*token, f32::NEG_INFINITY)).collect();
    request.sampling = Sampling { logit_bias: biases.into(), ..Sampling::default() };
    for completion in engine.generate(request).await.unwrap() {
        assert!(completion.tokens.iter().all(|token| !free[0].tokens.contains(token)));
    }
}

#[tokio::test]
async fn stop_ids_end_a_completion() {
    let engine = engine(&tiny(), small());
    let mut request = request(2, prompt(3, 20), &[5]);
    request.max_tokens = 60;
    let free = engine.generate(request.clone()).await.unwrap().remove(0);
    request.stop_ids = Arc::new([free.tokens[7]]);
    let cut = engine.generate(request).await.unwrap().remove(0);
    let end = free.tokens.iter().position(|token| *token == free.tokens[7]).unwrap();
    assert_eq!((cut.tokens.as_slice(), cut.finish), (&free.tokens[..=end], Finish::Stop));
}
