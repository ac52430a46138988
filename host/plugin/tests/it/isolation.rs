//! Valid episodes together with hostile ones in one process and one pool: their results are unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pl_plugin::{Agent, Completion, Environment, Plugin, PluginSpec, RandomStream, Reward, Task, Turn};
use pl_types::Finish;
use pl_wasm::{Engine, EngineConfig};
use serde_json::Map;

use crate::common::hostile::{Attack, ENTRY_POINTS, component_of, play};
use crate::common::{built, services};

/// An environment with its agent and reward.
#[derive(Clone)]
struct CorrectPlugin {
    board: Environment,
    writer: Agent,
    vowels: Reward,
}

impl CorrectPlugin {
    async fn load(engine: &Engine) -> Self {
        let plugin = Plugin::load(engine, PluginSpec::new("letters"), &built("letters.wasm")).await.unwrap();
        Self {
            board: Environment::new(&plugin, "board", Map::new(), services()).unwrap(),
            writer: Agent::new(&plugin, "writer", Map::new()).unwrap(),
            vowels: Reward::new(&plugin, "vowels", Map::new()).unwrap(),
        }
    }

    /// Returns the hash of all observations of episode `n`.
    async fn episode(&self, n: u64) -> blake3::Hash {
        let task = Task { id: n.to_string(), data: format!(r#"{{"topic": "topic {n}"}}"#) };
        let mut seen = blake3::Hasher::new();
        let stream = RandomStream::from_parts(&[&n.to_le_bytes()]);
        let mut episode = self.board.start(&task, n, stream).await.unwrap();
        for visit in 0..3 {
            let view = episode.view("poet").await.unwrap();
            let turn = Turn { agent: "poet".to_owned(), visit };
            let asked = self.writer.prompt(&view, &turn).await.unwrap();
            let completion = Completion::new(format!("line {visit} of {n}, aeiou"), Finish::Stop);
            let actions = vec![("poet".to_owned(), self.writer.parse(&view, &completion).await.unwrap())];
            let outcome = episode.apply(actions.clone()).await.unwrap();
            let scores = self.vowels.score(&task, &actions, &outcome).await.unwrap();
            let state = episode.snapshot().await.unwrap().hash();
            seen.update(format!("{view} {asked:?} {actions:?} {outcome:?} {scores:?} {state}").as_bytes());
        }
        assert!(episode.reproducible());
        seen.finalize()
    }

    async fn episodes(&self, count: u64) -> Vec<blake3::Hash> {
        let running: Vec<_> = (0..count)
            .map(|n| {
                let plugin = self.clone();
                tokio::spawn(async move { plugin.episode(n).await })
            })
            .collect();
        let mut seen = Vec::with_capacity(running.len());
        for episode in running {
            seen.push(episode.await.unwrap());
        }
        seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hostile_guests_do_not_change_a_thousand_episodes() {
    const EPISODES: u64 = 1000;
    // Fewer permits than episodes and hostile guests.
    let config = EngineConfig { instances: 40, calls: 40, ..EngineConfig::plugins() };
    let engine = Engine::new(config.cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let plugin = CorrectPlugin::load(&engine).await;
    let alone = plugin.episodes(EPISODES).await;
    assert_eq!(plugin.episodes(EPISODES).await, alone);

    let (over, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let hostile: Vec<_> = (0..8)
        .map(|worker| {
            let (engine, over, ended) = (engine.clone(), Arc::clone(&over), Arc::clone(&ended));
            tokio::spawn(async move {
                let cases =
                    ENTRY_POINTS.iter().flat_map(|entry| Attack::ON_ENTRY.map(|attack| (*entry, attack)));
                for (entry, attack) in cases.skip(worker).step_by(8).cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let spec = PluginSpec { memory: 4 << 20, fuel: 50_000_000, ..PluginSpec::new("hostile") };
                    // A start function whose host calls are not linked yet traps as well.
                    assert!(play(&engine, &component_of(entry, attack), spec).await.is_err());
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // Until every attack has run in every entry point.
    while ended.load(Ordering::Relaxed) < ENTRY_POINTS.len() * Attack::ON_ENTRY.len() {
        assert_eq!(plugin.episodes(EPISODES).await, alone);
    }
    over.store(true, Ordering::Relaxed);
    for worker in hostile {
        worker.await.unwrap();
    }
    assert_eq!(plugin.episodes(EPISODES).await, alone);
}
