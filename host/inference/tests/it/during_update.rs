//! New weights that take over within completions in progress, and their repetition.

use std::time::Duration;

use pl_inference::{
    DuringUpdate, EngineCommand, LlmEngine, LlmEngineConfig, OldCache, PlannedVersions, PolicyWeights,
};
use pl_model::{Model, Projection};
use pl_types::{Completion, Generate, Request};

use crate::{adapter, base, prompt, request, small, tiny};

const POLICY: usize = 0;

/// Version `n` of a policy that is an adapter.
fn version(model: &Model, n: u64) -> PolicyWeights {
    let adapter = adapter(&model.config, 4, &Projection::ALL, 1 + n as u8);
    PolicyWeights { base: 0, adapter: Some(adapter), version: n }
}

/// An engine with version 0 of the policy, and room for few completions at a time.
fn engine_at(model: &Model, first: u64, config: LlmEngineConfig) -> LlmEngine {
    LlmEngine::start(vec![base(model)], vec![version(model, first)], config).unwrap()
}

fn publish(engine: &LlmEngine, model: &Model, n: u64) {
    engine.publish(POLICY, version(model, n).adapter.unwrap(), n).unwrap();
}

/// Requests of several siblings each, with prompts that share a prefix. They can't all run at once.
fn requests() -> Vec<Request> {
    let long = |index: u8| {
        let mut own =
            request(POLICY, prompt(1, 40 + 3 * usize::from(index)), &[index, index + 50, index + 100]);
        own.max_tokens = 90;
        own
    };
    (1..=4).map(long).collect()
}

/// A KV cache that is too small for three of the sequences.
fn tight() -> LlmEngineConfig {
    LlmEngineConfig { slots: 4, kv_cache: 14 * 4096, ..small() }
}

/// Completes the requests while versions 1, 2 and 3 are published, each after some more steps.
async fn play_live(model: &Model, cache: OldCache, every: u64) -> Vec<Vec<Completion>> {
    let engine = engine_at(model, 0, tight());
    let running: Vec<_> = requests()
        .into_iter()
        .map(|request| {
            let engine = engine.clone();
            tokio::spawn(async move {
                engine.generate_during_updates(request, DuringUpdate::TakeOver(cache)).await.unwrap()
            })
        })
        .collect();
    for n in 1..=3 {
        while engine.stats().steps < n * every {
            tokio::task::yield_now().await;
        }
        publish(&engine, model, n);
    }
    let mut completions = Vec::new();
    for own in running {
        completions.push(own.await.unwrap());
    }
    assert!(engine.stats().preemptions > 0, "{:?}", engine.stats());
    completions
}

/// Completions whose weights have changed at least three times. On a busy machine the engine can be done
/// before the versions reach it: then they are played once more.
async fn play_with_changes(model: &Model, cache: OldCache) -> Vec<Vec<Completion>> {
    let mut attempts = 0;
    loop {
        let recorded = play_live(model, cache, 40).await;
        let changes: usize = recorded.iter().flatten().map(|own| own.version_changes.len()).sum();
        if changes >= 3 {
            return recorded;
        }
        attempts += 1;
        assert!(attempts < 20, "fewer than three changes in each of {attempts} attempts");
    }
}

/// Repeats completions on an engine whose versions come at other moments.
async fn repeat(
    model: &Model,
    cache: OldCache,
    recorded: &[Vec<Completion>],
    config: LlmEngineConfig,
) -> Vec<Vec<Completion>> {
    let engine = engine_at(model, 0, config);
    engine.command(EngineCommand::KeepVersions(3)).unwrap();
    publish(&engine, model, 1);
    let repeat = |(request, own): (Request, &Vec<Completion>)| {
        let planned =
            |own: &Completion| PlannedVersions { version: own.version, changes: own.version_changes.clone() };
        let planned = own.iter().map(planned).collect();
        let engine = engine.clone();
        tokio::spawn(async move {
            engine.generate_during_updates(request, DuringUpdate::Repeat(cache, planned)).await.unwrap()
        })
    };
    let mut running: Vec<_> = requests().into_iter().zip(recorded).rev().map(repeat).collect();
    running.reverse();
    for n in 2..=3 {
        // All that can be sampled without it is sampled meanwhile.
        tokio::time::sleep(Duration::from_millis(60)).await;
        publish(&engine, model, n);
    }
    let mut completions = Vec::new();
    for own in running {
        completions.push(own.await.unwrap());
    }
    completions
}

#[tokio::test]
async fn the_versions_of_completions_can_be_repeated() {
    let model = tiny();
    for cache in [OldCache::Recompute, OldCache::Keep] {
        let recorded = play_with_changes(&model, cache).await;
        for siblings in &recorded {
            assert!(siblings.iter().all(|own| own.version == siblings[0].version), "siblings begin alike");
        }
        assert_eq!(repeat(&model, cache, &recorded, small()).await, recorded);
        assert_eq!(repeat(&model, cache, &recorded, tight()).await, recorded);
    }
}

/// A completion that the same weights have sampled to its end.
async fn undisturbed(model: &Model, n: u64, request: Request) -> Vec<Completion> {
    engine_at(model, n, small()).generate(request).await.unwrap()
}

#[tokio::test]
async fn tokens_have_the_probabilities_of_their_versions() {
    let model = tiny();
    let recorded = play_live(&model, OldCache::Recompute, 30).await;
    for (request, completions) in requests().into_iter().zip(recorded) {
        for (index, own) in completions.into_iter().enumerate() {
            let first = undisturbed(&model, own.version, request.clone()).await.remove(index);
            let begins = own.version_changes.first().map_or(own.tokens.len(), |change| change.token as usize);
            assert_eq!(own.tokens[..begins], first.tokens[..begins]);
            let mut starts: Vec<(usize, u64)> = vec![(0, own.version)];
            starts.extend(own.version_changes.iter().map(|change| (change.token as usize, change.version)));
            let ends = starts[1..].iter().map(|(start, _)| *start).chain([own.tokens.len()]);
            for ((start, n), end) in starts.iter().zip(ends) {
                let context: Vec<u32> = request.prompt.iter().chain(&own.tokens[..*start]).copied().collect();
                let scored = engine_at(&model, *n, small())
                    .score(POLICY, context.into(), own.tokens[*start..end].into(), 1.0)
                    .await
                    .unwrap();
                assert_eq!(scored, own.logprobs[*start..end], "version {n} from token {start}");
            }
        }
    }
}

#[tokio::test]
async fn a_kept_cache_is_that_of_earlier_versions() {
    let model = tiny();
    let planned = || {
        vec![PlannedVersions { version: 0, changes: vec![pl_types::VersionChange { token: 5, version: 1 }] }]
    };
    let one = || requests()[0].clone();
    let single = || Request { seeds: vec![[7; 32]], ..one() };
    let mut results = Vec::new();
    for cache in [OldCache::Keep, OldCache::Recompute] {
        let engine = engine_at(&model, 0, small());
        engine.command(EngineCommand::KeepVersions(1)).unwrap();
        publish(&engine, &model, 1);
        let own = engine.generate_during_updates(single(), DuringUpdate::Repeat(cache, planned())).await;
        results.push(own.unwrap().remove(0));
    }
    let [keep, recompute] = &results[..] else { panic!() };
    assert_eq!(keep.logprobs[..5], recompute.logprobs[..5]);
    assert_ne!(keep.logprobs[5], recompute.logprobs[5]);
    // Prompts that begin later don't find keys and values of both versions under one of them.
    let engine = engine_at(&model, 0, small());
    engine.command(EngineCommand::KeepVersions(1)).unwrap();
    publish(&engine, &model, 1);
    engine.generate_during_updates(single(), DuringUpdate::Repeat(OldCache::Keep, planned())).await.unwrap();
    let again = |completion: &Completion| {
        let tokens: Vec<u32> = single().prompt.iter().chain(&completion.tokens).copied().collect();
        Request { prompt: tokens.into(), ..single() }
    };
    let fresh = engine_at(&model, 1, small()).generate(again(keep)).await.unwrap();
    assert_eq!(engine.generate(again(keep)).await.unwrap(), fresh);
}

#[tokio::test]
async fn versions_that_can_not_be_repeated_are_refused() {
    let model = tiny();
    let engine = engine_at(&model, 0, small());
    let begin = |n| PlannedVersions { version: n, changes: Vec::new() };
    let repeat = async |planned: Vec<PlannedVersions>| {
        let single = Request { seeds: vec![[7; 32]], ..requests()[0].clone() };
        engine.generate_during_updates(single, DuringUpdate::Repeat(OldCache::Keep, planned)).await
    };
    assert!(repeat(vec![begin(0)]).await.is_ok());
    assert!(repeat(vec![]).await.unwrap_err().to_string().contains("one completion each"));
    // Without the command, versions are not kept.
    publish(&engine, &model, 1);
    let gone = repeat(vec![begin(0)]).await.unwrap_err().to_string();
    assert!(gone.contains("its version 0 is no longer kept"), "{gone}");
    // A request whose version never comes ends when it is dropped.
    let waited = tokio::time::timeout(Duration::from_millis(50), repeat(vec![begin(2)])).await;
    assert!(waited.is_err());
    assert!(repeat(vec![begin(1)]).await.is_ok());
}
