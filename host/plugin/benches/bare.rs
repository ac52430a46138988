//! Overhead of the host over bare wasmtime: the same component, compiled by the same engine with the same
//! settings (fuel, epochs, the pool), called with the same arguments, by wasmtime's own bindings and by this
//! crate.
//!
//! `bare_sync` and `bare_async` are the two ways that wasmtime has to call. The host takes the second: only a
//! call on its own stack can yield its thread in a loop, and wait for a sandbox without blocking the thread.
//! The difference between the two is the cost of this.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use pl_plugin::{
    Agent, Completion, Corpora, Environment, Episode, Plugin, PluginSpec, RandomStream, Services, Snapshot,
    Task, Turn,
};
use pl_sandbox::DeniedSandbox;
use pl_types::Finish;
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

const COMPLETION: &str = "And so the poet goes home to bed, with another line that he never said.";

struct Setup {
    runtime: Runtime,
    engine: Engine,
    bytes: Vec<u8>,
    board: Environment,
    writer: Agent,
    task: Task,
}

fn setup() -> Setup {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/letters.wasm");
    let bytes = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let engine =
        Engine::new(EngineConfig::plugins().cache_dir(env!("CARGO_TARGET_TMPDIR"))).expect("an engine");
    let plugin =
        runtime.block_on(Plugin::load(&engine, PluginSpec::new("letters"), &bytes)).expect("the plugin");
    let services = Services {
        sandbox: Arc::new(DeniedSandbox("benchmarks run no code".to_owned())),
        corpora: Corpora::default(),
    };
    Setup {
        board: Environment::new(&plugin, "board", Map::new(), services).expect("a board"),
        writer: Agent::new(&plugin, "writer", Map::new()).expect("a writer"),
        task: Task { id: "one".to_owned(), data: r#"{"topic": "the sea"}"#.to_owned() },
        runtime,
        engine,
        bytes,
    }
}

impl Setup {
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
        self.board.start(&self.task, 0, RandomStream::new([0; 32])).await.expect("an episode")
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

/// An agent's step: a prompt and the parsing of a completion.
mod step {
    use super::*;

    #[divan::bench]
    fn host(bencher: Bencher<'_, '_>) {
        let setup = setup();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let completion = Completion::new(COMPLETION, Finish::Stop);
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                let asked = setup.writer.prompt(VIEW, &turn).await.expect("a request");
                (asked, setup.writer.parse(VIEW, &completion).await.expect("an action"))
            })
        });
    }

    #[divan::bench]
    fn bare_async(bencher: Bencher<'_, '_>) {
        use asynchronous::exports::pl_host::plugin::agents::{Completion, Finish, Turn};
        let setup = setup();
        let mut store = setup.store();
        let domain =
            setup.runtime.block_on(setup.async_pre().instantiate_async(&mut store)).expect("an instance");
        let agents = domain.pl_host_plugin_agents();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let (settings, view) = ("{}".to_owned(), VIEW.to_owned());
        let completion =
            Completion { text: COMPLETION.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                let asked = agents.call_prompt(&mut store, "writer", &settings, &view, &turn).await;
                let meant = agents.call_parse(&mut store, "writer", &settings, &view, &completion).await;
                (asked.expect("a return").expect("a request"), meant.expect("a return").expect("an action"))
            })
        });
    }

    #[divan::bench]
    fn bare_sync(bencher: Bencher<'_, '_>) {
        use synchronous::exports::pl_host::plugin::agents::{Completion, Finish, Turn};
        let setup = setup();
        let mut store = setup.store();
        let domain = setup.sync_pre().instantiate(&mut store).expect("an instance");
        let agents = domain.pl_host_plugin_agents();
        let turn = Turn { agent: "poet".to_owned(), visit: 0 };
        let (settings, view) = ("{}".to_owned(), VIEW.to_owned());
        let completion =
            Completion { text: COMPLETION.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        bencher.bench_local(|| {
            let asked = agents.call_prompt(&mut store, "writer", &settings, &view, &turn);
            let meant = agents.call_parse(&mut store, "writer", &settings, &view, &completion);
            (asked.expect("a return").expect("a request"), meant.expect("a return").expect("an action"))
        });
    }
}

/// An episode's start and end: an instance, the call of `start`, and the end of both.
mod start {
    use super::*;

    #[divan::bench]
    fn host(bencher: Bencher<'_, '_>) {
        let setup = setup();
        bencher.bench_local(|| setup.runtime.block_on(async { drop(setup.start().await) }));
    }

    #[divan::bench]
    fn bare_async(bencher: Bencher<'_, '_>) {
        use synchronous::pl_host::plugin::types::Task;
        let setup = setup();
        let pre = setup.async_pre();
        let settings = "{}".to_owned();
        let task = Task { id: setup.task.id.clone(), data: setup.task.data.clone() };
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                let mut store = setup.store();
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
        let setup = setup();
        let pre = setup.sync_pre();
        let settings = "{}".to_owned();
        let task = Task { id: setup.task.id.clone(), data: setup.task.data.clone() };
        bencher.bench_local(|| {
            let mut store = setup.store();
            let domain = pre.instantiate(&mut store).expect("an instance");
            let episode = domain.pl_host_plugin_environments().episode();
            episode
                .call_start(&mut store, "board", &settings, &task, 0)
                .expect("a return")
                .expect("an episode")
        });
    }

    /// The same without the call.
    #[divan::bench]
    fn bare_instantiate(bencher: Bencher<'_, '_>) {
        let setup = setup();
        let pre = setup.async_pre();
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                let mut store = setup.store();
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
        let setup = setup();
        let mut episode = setup.runtime.block_on(async {
            let full = setup.full().await;
            setup.board.restore(&full).await.expect("an episode")
        });
        bencher.bench_local(|| setup.runtime.block_on(episode.snapshot()).expect("a snapshot"));
    }

    #[divan::bench]
    fn bare_snapshot(bencher: Bencher<'_, '_>) {
        let setup = setup();
        let full = setup.runtime.block_on(setup.full());
        let (settings, mut store) = ("{}".to_owned(), setup.store());
        let domain =
            setup.runtime.block_on(setup.async_pre().instantiate_async(&mut store)).expect("an instance");
        let episode = domain.pl_host_plugin_environments().episode();
        let restored = episode.call_restore(&mut store, "board", &settings, &full.bytes);
        let handle = setup.runtime.block_on(restored).expect("a return").expect("an episode");
        bencher.bench_local(|| {
            setup.runtime.block_on(episode.call_snapshot(&mut store, handle)).expect("a snapshot")
        });
    }

    #[divan::bench]
    fn bare_restore(bencher: Bencher<'_, '_>) {
        let setup = setup();
        let (full, pre) = (setup.runtime.block_on(setup.full()), setup.async_pre());
        let settings = "{}".to_owned();
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                let mut store = setup.store();
                let domain = pre.instantiate_async(&mut store).await.expect("an instance");
                let episode = domain.pl_host_plugin_environments().episode();
                let restored = episode.call_restore(&mut store, "board", &settings, &full.bytes).await;
                restored.expect("a return").expect("an episode")
            })
        });
    }

    #[divan::bench]
    fn restore(bencher: Bencher<'_, '_>) {
        let setup = setup();
        let full = setup.runtime.block_on(setup.full());
        bencher.bench_local(|| {
            setup.runtime.block_on(async {
                drop(setup.board.restore(&full).await.expect("an episode"));
            })
        });
    }
}
