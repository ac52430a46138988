//! What the engine's safeguards cost: a call and an instantiation under limits, beside the bare engine's on the
//! same bytes.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use divan::Bencher;
use pl_wasm::{Engine, EngineConfig, Limits, Stay, call};

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
            let _seat = engine.seat(Stay::Long).await;
            let mut store = engine.store((), &Limits::default());
            call(&mut store, async |store| ready.instantiate_async(store).await).await.expect("ready");
        });
    });
}

#[divan::bench]
fn peer_bare_call(bencher: Bencher<'_, '_>) {
    let engine = wasmtime::Engine::default();
    let component =
        wasmtime::component::Component::new(&engine, wat::parse_str(GUEST).expect("text")).expect("compiled");
    let linker = wasmtime::component::Linker::<()>::new(&engine);
    let mut store = wasmtime::Store::new(&engine, ());
    let instance = linker.instantiate(&mut store, &component).expect("ready");
    let add = instance.get_typed_func::<(u32, u32), (u32,)>(&mut store, "add").expect("add");
    bencher.bench_local(|| add.call(&mut store, (1, 2)).expect("a sum"));
}
