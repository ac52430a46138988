//! What the host adds to bare wasmtime: the same component, compiled by the same engine with the same settings (fuel,
//! epochs, the pool), called with the same arguments, by wasmtime's own bindings and by this crate.
//!
//! `bare_sync` and `bare_async` are the two ways that wasmtime has to call. The host takes the second: only what runs
//! on a stack of its own can give way to others on its thread while it loops, and wait for a sandbox without holding
//! the thread. What that costs is the difference between the two.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use pl_plugin::{Agent, Completion, Environment, Episode, Plugin, PluginSpec, Services, Snapshot, Stream, Task, Turn};
use pl_types::Finish;
use pl_sandbox::DeniedSandbox;
use pl_wasm::{Engine, EngineConfig};
use serde_json::Map;
use tokio::runtime::{Builder, Runtime};
use wasmtime::Store;
use wasmtime::component::{HasSelf, Linker};

#[path = "bare/contract.rs"]
mod contract;

use contract::{Bare, asynchronous, synchronous};

fn main() {
    divan::main();
}

/// A view of some 300 bytes, as the reasoner of maths might see.
const VIEW: &str = r#"{"topic": "the sea, and what a poet might say of it to whoever listens", "lines": ["The waves go out and the waves come in,", "and nobody asks them where they have been.", "The moon looks on and says no word,", "the only sound is a tired bird."]}"#;

const SAID: &str = "And so the poet goes home to bed, with another line that he never said.";

struct Stage {
    runtime: Runtime,
    engine: Engine,
    bytes: Vec<u8>,
    board: Environment,
    writer: Agent,
    task: Task,
}

fn stage() -> Stage {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/letters.wasm");
    let bytes = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let engine =
        Engine::new(EngineConfig::plugins().cache_dir(env!("CARGO_TARGET_TMPDIR"))).expect("an engine");
    let plugin =
        runtime.block_on(Plugin::load(&engine, PluginSpec::new("letters"), &bytes)).expect("the plugin");
    let services = Services { sandbox: Arc::new(DeniedSandbox("benchmarks run no code".to_owned())) };
    Stage {
        board: Environment::new(&plugin, "board", Map::new(), services).expect("a board"),
        writer: Agent::new(&plugin, "writer", Map::new()).expect("a writer"),
        task: Task { id: "one".to_owned(), data: r#"{"topic": "the sea"}"#.to_owned() },
        runtime,
        engine,
        bytes,
    }
}

impl Stage {
    /// A store as bare as the engine's settings let it be.
    fn store(&self) -> Store<Bare> {
        let mut store = Store::new(self.engine.inner(), Bare);
        store.set_fuel(u64::MAX / 4).expect("fuel");
        store.set_epoch_deadline(u64::MAX / 4);
        store
    }

    fn linker(&self) -> Linker<Bare> {
        let mut linker = Linker::new(self.engine.inner());
        synchronous::Domain::add_to_linker::<_, HasSelf<Bare>>(&mut linker, |bare| bare).expect("linked");
        linker
    }

    fn sync_pre(&self) -> synchronous::DomainPre<Bare> {
        let component = self.engine.load("letters", &self.bytes).expect("a component");
        let ready = self.linker().instantiate_pre(component.inner()).expect("ready");
        synchronous::DomainPre::new(ready).expect("a domain")
    }

    fn async_pre(&self) -> asynchronous::DomainPre<Bare> {
        let component = self.engine.load("letters", &self.bytes).expect("a component");
        let ready = self.linker().instantiate_pre(component.inner()).expect("ready");
        asynchronous::DomainPre::new(ready).expect("a domain")
    }

    async fn start(&self) -> Episode {
        self.board.start(&self.task, 0, Stream::new([0; 32])).await.expect("an episode")
    }

    /// A board of ten thousand bytes: lines of a hundred characters, and a number of each turn.
    async fn full(&self) -> Snapshot {
        let mut episode = self.start().await;
        let line = "a line of fifty characters, a hundred of them here".repeat(2);
        for _ in 0..90 {
            let action = serde_json::to_string(&line).expect("text");
            episode.apply(vec![("poet".to_owned(), action)]).await.expect("an outcome");
        }
        episode.snapshot().await.expect("a snapshot")
    }
}

/// An agent's step: what to ask, and what the answer means.
mod step {
    use super::*;

    #[divan::bench]
    fn host(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let said = Completion::new(SAID, Finish::Stop);
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                let asked = stage.writer.prompt(VIEW, &turn).await.expect("a request");
                (asked, stage.writer.parse(VIEW, &said).await.expect("an action"))
            })
        });
    }

    #[divan::bench]
    fn bare_async(bencher: Bencher<'_, '_>) {
        use asynchronous::exports::pl_host::plugin::agents::{Completion, Finish, Turn};
        let stage = stage();
        let mut store = stage.store();
        let domain =
            stage.runtime.block_on(stage.async_pre().instantiate_async(&mut store)).expect("an instance");
        let agents = domain.pl_host_plugin_agents();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let (settings, view) = ("{}".to_owned(), VIEW.to_owned());
        let said = Completion { text: SAID.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                let asked = agents.call_prompt(&mut store, "writer", &settings, &view, &turn).await;
                let meant = agents.call_parse(&mut store, "writer", &settings, &view, &said).await;
                (asked.expect("a return").expect("a request"), meant.expect("a return").expect("an action"))
            })
        });
    }

    #[divan::bench]
    fn bare_sync(bencher: Bencher<'_, '_>) {
        use synchronous::exports::pl_host::plugin::agents::{Completion, Finish, Turn};
        let stage = stage();
        let mut store = stage.store();
        let domain = stage.sync_pre().instantiate(&mut store).expect("an instance");
        let agents = domain.pl_host_plugin_agents();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let (settings, view) = ("{}".to_owned(), VIEW.to_owned());
        let said = Completion { text: SAID.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        bencher.bench_local(|| {
            let asked = agents.call_prompt(&mut store, "writer", &settings, &view, &turn);
            let meant = agents.call_parse(&mut store, "writer", &settings, &view, &said);
            (asked.expect("a return").expect("a request"), meant.expect("a return").expect("an action"))
        });
    }
}

/// An episode's start and end: an instance, the call of `start`, and the end of both.
mod start {
    use super::*;

    #[divan::bench]
    fn host(bencher: Bencher<'_, '_>) {
        let stage = stage();
        bencher.bench_local(|| stage.runtime.block_on(async { drop(stage.start().await) }));
    }

    #[divan::bench]
    fn bare_async(bencher: Bencher<'_, '_>) {
        use synchronous::pl_host::plugin::types::Task;
        let stage = stage();
        let pre = stage.async_pre();
        let settings = "{}".to_owned();
        let task = Task { id: stage.task.id.clone(), data: stage.task.data.clone() };
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                let mut store = stage.store();
                let domain = pre.instantiate_async(&mut store).await.expect("an instance");
                let episode = domain.pl_host_plugin_environments().episode();
                let started = episode.call_start(&mut store, "board", &settings, &task, 0).await;
                started.expect("a return").expect("an episode")
            })
        });
    }

    #[divan::bench]
    fn bare_sync(bencher: Bencher<'_, '_>) {
        use synchronous::pl_host::plugin::types::Task;
        let stage = stage();
        let pre = stage.sync_pre();
        let settings = "{}".to_owned();
        let task = Task { id: stage.task.id.clone(), data: stage.task.data.clone() };
        bencher.bench_local(|| {
            let mut store = stage.store();
            let domain = pre.instantiate(&mut store).expect("an instance");
            let episode = domain.pl_host_plugin_environments().episode();
            episode
                .call_start(&mut store, "board", &settings, &task, 0)
                .expect("a return")
                .expect("an episode")
        });
    }

    /// Without the call.
    #[divan::bench]
    fn bare_instantiate(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let pre = stage.async_pre();
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                let mut store = stage.store();
                pre.instantiate_async(&mut store).await.expect("an instance");
            })
        });
    }
}

/// A state of ten thousand bytes, put aside and taken up again on a fresh instance.
mod state_of_10_kb {
    use super::*;

    #[divan::bench]
    fn snapshot(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let mut episode = stage.runtime.block_on(async {
            let full = stage.full().await;
            stage.board.restore(&full).await.expect("an episode")
        });
        bencher.bench_local(|| stage.runtime.block_on(episode.snapshot()).expect("a snapshot"));
    }

    #[divan::bench]
    fn bare_snapshot(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let full = stage.runtime.block_on(stage.full());
        let (settings, mut store) = ("{}".to_owned(), stage.store());
        let domain =
            stage.runtime.block_on(stage.async_pre().instantiate_async(&mut store)).expect("an instance");
        let episode = domain.pl_host_plugin_environments().episode();
        let restored = episode.call_restore(&mut store, "board", &settings, &full.bytes);
        let handle = stage.runtime.block_on(restored).expect("a return").expect("an episode");
        bencher.bench_local(|| {
            stage.runtime.block_on(episode.call_snapshot(&mut store, handle)).expect("a snapshot")
        });
    }

    #[divan::bench]
    fn bare_restore(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let (full, pre) = (stage.runtime.block_on(stage.full()), stage.async_pre());
        let settings = "{}".to_owned();
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                let mut store = stage.store();
                let domain = pre.instantiate_async(&mut store).await.expect("an instance");
                let episode = domain.pl_host_plugin_environments().episode();
                let restored = episode.call_restore(&mut store, "board", &settings, &full.bytes).await;
                restored.expect("a return").expect("an episode")
            })
        });
    }

    #[divan::bench]
    fn restore(bencher: Bencher<'_, '_>) {
        let stage = stage();
        let full = stage.runtime.block_on(stage.full());
        bencher.bench_local(|| {
            stage.runtime.block_on(async {
                drop(stage.board.restore(&full).await.expect("an episode"));
            })
        });
    }
}
