//! Bindings of version 0.1, generated from `wit/v0.1`.
//!
//! One module per world, since a plugin exports one or more of them; the imports that they share are generated once.

#![allow(missing_docs, reason = "generated; documented in the WIT files")]

/// The services that every plugin may import, and `catalog`, which every plugin exports.
pub mod base {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package pl-host:base;
            world base {
                include pl-host:plugin/services@0.1.0;
                import pl-host:plugin/types@0.1.0;
                export pl-host:plugin/catalog@0.1.0;
            }
        ",
        world: "pl-host:base/base",
        imports: {
            "pl-host:plugin/policies.ask": async | trappable,
            "pl-host:plugin/retrieval.retrieve": async | trappable,
            "pl-host:plugin/sandbox.execute": async | trappable,
        },
        exports: { default: async },
    });
}

/// Plugins with environments.
pub mod environment {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        world: "pl-host:plugin/environment",
        with: { "pl-host:plugin": crate::bindings::v0_1::base::pl_host::plugin },
        exports: { default: async },
    });
}

/// Plugins with agents.
pub mod agent {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        world: "pl-host:plugin/agent",
        with: { "pl-host:plugin": crate::bindings::v0_1::base::pl_host::plugin },
        exports: { default: async },
    });
}

/// Plugins with rewards.
pub mod reward {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        world: "pl-host:plugin/reward",
        with: { "pl-host:plugin": crate::bindings::v0_1::base::pl_host::plugin },
        exports: { default: async },
    });
}

pub use base::pl_host::plugin::{log, policies, random, retrieval, sandbox, types};
