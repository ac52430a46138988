//! `pl-host`: builds and trains teams of language-model agents.

/// Components that the program embeds. Set-up builds them while this crate's dependencies compile.
const EMBEDDED: pl_run::Embedded = pl_run::Embedded {
    std_chat: include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/std_chat.wasm")),
    python_worker: include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/python.wasm.zst")),
    worker_arguments: Some(&["sandbox", "worker"]),
};

#[cfg(target_os = "linux")]
#[used]
// SAFETY: The dynamic loader calls the functions of this section with arguments of this type.
#[unsafe(link_section = ".preinit_array")]
static SET_VARIABLES: pl_host::Preinit = pl_host::set_variables;

fn main() {
    pl_host::main(EMBEDDED);
}
