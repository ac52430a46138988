//! Cost of a turn without the model: the start of an episode, each call, and all five calls on the maths
//! domain.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use pl_plugin::{
    Agent, Completion, Corpora, Environment, Episode, Plugin, PluginSpec, RandomStream, Reward, Services,
    Task, Turn,
};
use pl_sandbox::DeniedSandbox;
use pl_types::Finish;
use pl_wasm::{Engine, EngineConfig};
use serde_json::Map;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

struct Domain {
    runtime: Runtime,
    environment: Environment,
    reasoner: Agent,
    reward: Reward,
    task: Task,
}

fn domain() -> Domain {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/math.wasm");
    let bytes = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let runtime = Runtime::new().expect("a runtime");
    let engine =
        Engine::new(EngineConfig::plugins().cache_dir(env!("CARGO_TARGET_TMPDIR"))).expect("an engine");
    let plugin =
        runtime.block_on(Plugin::load(&engine, PluginSpec::new("maths"), &bytes)).expect("the plugin");
    let services = Services {
        sandbox: Arc::new(DeniedSandbox("benchmarks run no code".to_owned())),
        corpora: Corpora::default(),
    };
    let environment = Environment::new(&plugin, "problems", Map::new(), services).expect("problems");
    let task = runtime.block_on(environment.tasks("train", 0, 1, 2)).expect("a task").remove(0);
    Domain {
        runtime,
        reasoner: Agent::new(&plugin, "reasoner", Map::new()).expect("reasoner"),
        reward: Reward::new(&plugin, "score", Map::new()).expect("score"),
        environment,
        task,
    }
}

impl Domain {
    async fn start(&self) -> Episode {
        self.environment.start(&self.task, 0, RandomStream::new([0; 32])).await.expect("an episode")
    }

    /// One turn of the reasoner, with a model that answers at once.
    async fn turn(&self, episode: &mut Episode) {
        let view = episode.view("reasoner").await.expect("a view");
        let turn = Turn { agent: "reasoner".to_owned(), visit: 0 };
        self.reasoner.prompt(&view, &turn).await.expect("a request").expect("a turn");
        let completion = Completion::new("The answer is \\boxed{12}.", Finish::Stop);
        let action = self.reasoner.parse(&view, &completion).await.expect("an action");
        let actions = vec![("reasoner".to_owned(), action)];
        let outcome = episode.apply(actions.clone()).await.expect("an outcome");
        self.reward.score(&self.task, &actions, &outcome).await.expect("scores");
    }
}

#[divan::bench]
fn start_and_drop(bencher: Bencher<'_, '_>) {
    let domain = domain();
    bencher.bench_local(|| domain.runtime.block_on(async { drop(domain.start().await) }));
}

#[divan::bench]
fn view(bencher: Bencher<'_, '_>) {
    let domain = domain();
    let mut episode = domain.runtime.block_on(domain.start());
    bencher.bench_local(|| domain.runtime.block_on(episode.view("reasoner")).expect("a view"));
}

#[divan::bench]
fn snapshot(bencher: Bencher<'_, '_>) {
    let domain = domain();
    let mut episode = domain.runtime.block_on(domain.start());
    bencher.bench_local(|| domain.runtime.block_on(episode.snapshot()).expect("a snapshot"));
}

#[divan::bench]
fn prompt(bencher: Bencher<'_, '_>) {
    let domain = domain();
    let mut episode = domain.runtime.block_on(domain.start());
    let view = domain.runtime.block_on(episode.view("reasoner")).expect("a view");
    let turn = Turn { agent: "reasoner".to_owned(), visit: 0 };
    bencher.bench_local(|| domain.runtime.block_on(domain.reasoner.prompt(&view, &turn)).expect("a request"));
}

/// An episode of four turns, its start included; divide by four.
#[divan::bench]
fn four_turns(bencher: Bencher<'_, '_>) {
    let domain = domain();
    bencher.bench_local(|| {
        domain.runtime.block_on(async {
            let mut episode = domain.start().await;
            for _ in 0..4 {
                domain.turn(&mut episode).await;
            }
        });
    });
}
