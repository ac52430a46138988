//! `pl-host`: builds and trains teams of language-model agents.

use std::process::ExitCode;

/// Components that the program embeds. Set-up builds them while this crate's dependencies compile.
const EMBEDDED: pl_run::Embedded = pl_run::Embedded {
    std_chat: include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/std_chat.wasm")),
    python_worker: include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/python.wasm.zst")),
    worker_arguments: Some(&["sandbox", "worker"]),
};

fn main() -> ExitCode {
    pl_host::main(EMBEDDED)
}
