//! Cost of the engine's safeguards: a call and an instantiation under limits, next to those of the bare engine on the
//! same bytes with the same settings; and how long a large component takes from the cache.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::path::Path;

use divan::Bencher;
use pl_wasm::{Engine, EngineConfig, Lifetime, Limits, call};

fn main() {
    divan::main();
}

const GUEST: &str = include_str!("../tests/guests/temper.wat");

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

#[divan::bench]
fn call_under_limits(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let engine = Engine::new(EngineConfig::plugins()).expect("an engine");
    let component = engine.load("guest", &wat::parse_str(GUEST).expect("text")).expect("a component");
    let ready = engine.linker::<()>().expect("a linker").instantiate_pre(component.inner()).expect("linked");
    let mut store = engine.store((), &Limits::default());
    let instance = runtime
        .block_on(call(&mut store, async |store| ready.instantiate_async(store).await))
        .expect("ready");
    let add = instance.get_typed_func::<(u32, u32), (u32,)>(&mut store, "add").expect("add");
    bencher.bench_local(|| {
        runtime.block_on(call(&mut store, async |store| add.call_async(store, (1, 2)).await)).expect("a sum")
    });
}

#[divan::bench]
fn instantiate_under_limits(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let engine = Engine::new(EngineConfig::plugins()).expect("an engine");
    let component = engine.load("guest", &wat::parse_str(GUEST).expect("text")).expect("a component");
    let ready = engine.linker::<()>().expect("a linker").instantiate_pre(component.inner()).expect("linked");
    bencher.bench_local(|| {
        runtime.block_on(async {
            let _permit = engine.permit(Lifetime::Episode).await;
            let mut store = engine.store((), &Limits::default());
            call(&mut store, async |store| ready.instantiate_async(store).await).await.expect("ready");
        });
    });
}

/// The same engine and component, without stores of ours: sync and async.
fn bare() -> (Engine, wasmtime::component::InstancePre<()>) {
    let engine = Engine::new(EngineConfig::plugins()).expect("an engine");
    let component = engine.load("guest", &wat::parse_str(GUEST).expect("text")).expect("a component");
    let linker = wasmtime::component::Linker::<()>::new(engine.inner());
    let ready = linker.instantiate_pre(component.inner()).expect("linked");
    (engine, ready)
}

fn bare_store(engine: &Engine) -> wasmtime::Store<()> {
    let mut store = wasmtime::Store::new(engine.inner(), ());
    store.set_fuel(u64::MAX / 4).expect("fuel");
    store.set_epoch_deadline(u64::MAX / 4);
    store
}

#[divan::bench]
fn peer_bare_call(bencher: Bencher<'_, '_>) {
    let (engine, ready) = bare();
    let mut store = bare_store(&engine);
    let instance = ready.instantiate(&mut store).expect("ready");
    let add = instance.get_typed_func::<(u32, u32), (u32,)>(&mut store, "add").expect("add");
    bencher.bench_local(|| add.call(&mut store, (1, 2)).expect("a sum"));
}

#[divan::bench]
fn peer_bare_call_async(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let (engine, ready) = bare();
    let mut store = bare_store(&engine);
    let instance = runtime.block_on(ready.instantiate_async(&mut store)).expect("ready");
    let add = instance.get_typed_func::<(u32, u32), (u32,)>(&mut store, "add").expect("add");
    bencher.bench_local(|| runtime.block_on(add.call_async(&mut store, (1, 2))).expect("a sum"));
}

#[divan::bench]
fn peer_bare_instantiate_async(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let (engine, ready) = bare();
    bencher.bench_local(|| {
        runtime.block_on(async {
            let mut store = bare_store(&engine);
            ready.instantiate_async(&mut store).await.expect("ready");
        });
    });
}

/// A component of 69 MB with an interpreter in it, its code in the cache: the first load of a process.
#[divan::bench(sample_count = 20)]
fn load_python_from_the_cache(bencher: Bencher<'_, '_>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
    let bytes = std::fs::read(path).expect("`cargo xtask setup` builds it");
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/python");
    let engine = || Engine::new(EngineConfig::workers().cache_dir(folder)).expect("an engine");
    engine().load("python", &bytes).expect("a component");
    bencher
        .with_inputs(engine)
        .bench_local_values(|engine| engine.load("python", &bytes).expect("a component"));
}
