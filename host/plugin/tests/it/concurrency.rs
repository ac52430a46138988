//! Many concurrent episodes: more than the pool's capacity, in little memory, with unchanged results.

use pl_plugin::{Cause, Environment, Episode, Error, Plugin, PluginSpec, RandomStream, RefusalKind, Task};
use pl_types::ItemKind;
use pl_wasm::{Engine, EngineConfig, Lifetime};
use serde_json::Map;

use crate::common::{self, built, resident, services};

async fn board(config: EngineConfig) -> (Engine, Environment) {
    let engine = Engine::new(config.cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let plugin = Plugin::load(&engine, PluginSpec::new("letters"), &built("letters.wasm")).await.unwrap();
    let board = Environment::new(&plugin, "board", Map::new(), services()).unwrap();
    (engine, board)
}

async fn start(board: &Environment, n: u64) -> Episode {
    let task = Task { id: n.to_string(), data: format!(r#"{{"topic": "topic {n}"}}"#) };
    board.start(&task, n, RandomStream::from_parts(&[&n.to_le_bytes()])).await.unwrap()
}

/// Runs a turn and returns its observations. If `suspends`, the episode releases its instance while it would
/// wait for a model.
async fn turn(episode: &mut Episode, visit: u32, suspends: bool) -> String {
    let view = episode.view("poet").await.unwrap();
    if suspends {
        episode.suspend().await.unwrap();
    }
    let action = format!("\"line {visit}, aeiou\"");
    let outcome = episode.apply(vec![("poet".to_owned(), action)]).await.unwrap();
    format!("{view} {outcome:?} {}", episode.snapshot().await.unwrap().hash())
}

#[tokio::test]
async fn a_suspended_episode_continues_unchanged() {
    let (engine, board) = board(EngineConfig { instances: 2, calls: 2, ..EngineConfig::plugins() }).await;
    let (mut awake, mut resting) = (start(&board, 1).await, start(&board, 1).await);
    for visit in 0..4 {
        assert_eq!(turn(&mut awake, visit, false).await, turn(&mut resting, visit, true).await);
    }
    drop(awake);
    resting.suspend().await.unwrap();
    assert_eq!(engine.free_permits(Lifetime::Episode), 2, "it kept its permit");
    // Its snapshot needs no permit.
    let permits = (engine.permit(Lifetime::Episode).await, engine.permit(Lifetime::Episode).await);
    let before = resting.snapshot().await.unwrap();
    resting.suspend().await.unwrap();
    assert_eq!(resting.snapshot().await.unwrap(), before);
    drop(permits);
    assert!(resting.view("poet").await.unwrap().contains("line 3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_episodes_than_permits_wait_and_none_fails() {
    let config = || EngineConfig { instances: 3, calls: 2, ..EngineConfig::plugins() };
    let (_, roomy) = board(EngineConfig { instances: 64, ..config() }).await;
    let (_, full) = board(config()).await;
    let play = |board: &Environment, n: u64, suspends: bool| {
        let board = board.clone();
        tokio::spawn(async move {
            let mut episode = start(&board, n).await;
            let mut seen = Vec::new();
            for visit in 0..3 {
                seen.push(turn(&mut episode, visit, suspends).await);
            }
            seen
        })
    };
    let alone: Vec<_> = (0..64).map(|n| play(&roomy, n, false)).collect();
    let crowded: Vec<_> = (0..64).map(|n| play(&full, n, true)).collect();
    for (alone, crowded) in alone.into_iter().zip(crowded) {
        assert_eq!(alone.await.unwrap(), crowded.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_episodes_are_in_flight_within_2_gib() {
    const EPISODES: u64 = 10_000;
    let (engine, board) = board(EngineConfig::plugins()).await;
    assert!(board.capacity() < EPISODES as usize);
    let before = resident();
    let mut most = before;
    let mut episodes = Vec::new();
    for n in 0..EPISODES {
        let mut episode = start(&board, n).await;
        episode.apply(vec![("poet".to_owned(), "\"a first line\"".to_owned())]).await.unwrap();
        episode.suspend().await.unwrap();
        episodes.push(episode);
        if n % 1000 == 0 {
            most = most.max(resident());
        }
    }
    // All permits in use at once, as if all models answered together.
    let mut awake = Vec::new();
    for mut episode in episodes {
        if awake.len() == board.capacity() {
            most = most.max(resident());
            awake.clear();
        }
        episode.view("poet").await.unwrap();
        awake.push(episode);
    }
    most = most.max(resident());
    drop(awake);
    assert_eq!(engine.free_permits(Lifetime::Episode), board.capacity());
    println!("{} MiB before, {} MiB at most, {} MiB after", before >> 20, most >> 20, resident() >> 20);
    assert!(most < 2 << 30, "{most} bytes");
}

/// None is suspended: each has an interpreter of its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a domain in Python with generated tasks; give its path as PL_PYTHON_PLUGIN"]
async fn two_hundred_episodes_in_python_are_in_flight_within_6_gib() {
    let bytes = std::fs::read(std::env::var("PL_PYTHON_PLUGIN").unwrap()).unwrap();
    let engine = Engine::new(EngineConfig::plugins().cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let spec = PluginSpec { memory: 256 << 20, fuel: 20_000_000_000, ..PluginSpec::new("python") };
    let plugin = Plugin::load(&engine, spec, &bytes).await.unwrap();
    let item = plugin.items().iter().find(|item| item.kind == ItemKind::Environment).unwrap();
    let environment = Environment::new(&plugin, &item.name, Map::new(), services()).unwrap();
    let task = environment.tasks("train", 0, 1, 1).await.unwrap().remove(0);
    let (before, mut episodes) = (resident(), Vec::new());
    for n in 0..200_u64 {
        let mut episode =
            environment.start(&task, n, RandomStream::from_parts(&[&n.to_le_bytes()])).await.unwrap();
        episode.view("one").await.unwrap();
        episodes.push(episode);
    }
    let most = resident();
    drop(episodes);
    println!("{} MiB before, {} MiB with all, {} MiB after", before >> 20, most >> 20, resident() >> 20);
    assert!(most < 6 << 30, "{most} bytes");
}

#[tokio::test]
async fn a_refused_snapshot_loses_the_suspended_episode() {
    // Only `restore` of the hostile guest fails.
    use crate::common::hostile::{Attack, EntryPoint, component_of};
    let plugin =
        common::load(&component_of(EntryPoint::Restore, Attack::Refuse), PluginSpec::new("liar")).await;
    let problems = Environment::new(&plugin, "problems", Map::new(), services()).unwrap();
    let mut episode = start(&problems, 1).await;
    let mut other = start(&problems, 2).await;
    episode.view("one").await.unwrap();
    episode.suspend().await.unwrap();
    let Err(Error::Call(refused)) = episode.view("one").await else { panic!("it was restored") };
    assert_eq!(refused.function, "restore");
    assert!(matches!(refused.cause, Cause::Refused { kind: RefusalKind::Internal, .. }), "{refused}");
    assert_eq!(episode.view("one").await.unwrap_err().cause(), Some(&Cause::Lost));
    other.view("one").await.unwrap();
}
