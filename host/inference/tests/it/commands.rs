//! Commands to the engine as a whole.

use pl_inference::{Backend, EngineCommand, LlmEngineConfig};
use pl_types::{Generate, GenerateError};

use crate::{engine, prompt, request, small, tiny};

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_between_two_tokens_changes_none() {
    let model = tiny();
    let mut long = request(0, prompt(1, 30), &[1, 2]);
    long.max_tokens = 1000;
    let undisturbed = engine(&model, small()).generate(long.clone()).await.unwrap();
    let all_tokens: usize = undisturbed.iter().map(|completion| completion.tokens.len()).sum();
    // On a busy machine the engine can be done before the pause reaches it: then once more.
    let (engine, running) = loop {
        let engine = engine(&model, small());
        let running = tokio::spawn({
            let (engine, long) = (engine.clone(), long.clone());
            async move { engine.generate(long).await.unwrap() }
        });
        while engine.stats().steps < 5 {
            tokio::task::yield_now().await;
        }
        engine.command(EngineCommand::Pause).unwrap();
        if engine.stats().generated_tokens < all_tokens as u64 {
            break (engine, running);
        }
    };
    let steps = engine.stats().steps;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.generate(request(0, prompt(1, 30), &[3])).await.unwrap() }
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(engine.stats().steps, steps, "nothing runs");
    assert!(!waiting.is_finished() && !running.is_finished());
    engine.command(EngineCommand::ClearPrefixes).unwrap();
    engine.command(EngineCommand::Resume).unwrap();
    assert_eq!(running.await.unwrap(), undisturbed);
    assert_eq!(waiting.await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_slept_generates_the_same() {
    let model = tiny();
    for backend in [Backend::Native, Backend::Libtorch] {
        let engine = engine(&model, LlmEngineConfig { backend: Some(backend), ..small() });
        let ask = || request(0, prompt(1, 40), &[1, 2]);
        let before = engine.generate(ask()).await.unwrap();
        engine.command(EngineCommand::Sleep).unwrap();
        engine.command(EngineCommand::Sleep).unwrap();
        let waiting = tokio::spawn({
            let (engine, asked) = (engine.clone(), ask());
            async move { engine.generate(asked).await.unwrap() }
        });
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        let refused = engine.command(EngineCommand::Sleep).unwrap_err();
        assert!(matches!(refused, GenerateError::Setup(_)), "{refused}");
        engine.command(EngineCommand::WakeUp).unwrap();
        assert_eq!(waiting.await.unwrap(), before, "{backend:?}");
    }
}
