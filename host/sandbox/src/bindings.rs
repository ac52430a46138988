//! The worker's contract, generated from `python/worker.wit`.

#![allow(missing_docs, reason = "generated; documented in the WIT file")]

wasmtime::component::bindgen!({
    path: "python/worker.wit",
    world: "worker",
    imports: { default: trappable },
    exports: { default: async },
});
