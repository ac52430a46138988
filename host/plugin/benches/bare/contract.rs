//! The contract's bindings as wasmtime makes them, for a host that does nothing.

/// A host that does nothing.
pub struct Bare;

/// Exports are called as they are.
pub mod synchronous {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        world: "pl-host:plugin/domain",
    });
}

/// Exports are called on stacks of their own.
pub mod asynchronous {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        world: "pl-host:plugin/domain",
        with: { "pl-host:plugin": super::synchronous::pl_host::plugin },
        exports: { default: async },
    });
}

use synchronous::pl_host::plugin::{log, policies, random, retrieval, sandbox, types};

impl types::Host for Bare {}

impl log::Host for Bare {
    fn write(&mut self, _: log::Level, _: String) {}
}

impl random::Host for Bare {
    fn next(&mut self) -> u64 {
        4
    }
}

impl sandbox::Host for Bare {
    fn execute(&mut self, _: Vec<sandbox::Job>) -> Vec<sandbox::Verdict> {
        Vec::new()
    }
}

impl retrieval::Host for Bare {
    fn retrieve(&mut self, _: Option<String>, _: String, _: u32) -> Result<Vec<retrieval::Passage>, String> {
        Ok(Vec::new())
    }
}

impl policies::Host for Bare {
    fn ask(&mut self, _: String, _: Vec<policies::Message>, _: u32) -> Result<String, String> {
        Ok(String::new())
    }
}
