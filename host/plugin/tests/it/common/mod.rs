//! Common helpers of the tests.

pub mod hostile;

use std::path::Path;
use std::sync::Arc;

use pl_plugin::{Corpora, Plugin, PluginSpec, Services};
use pl_sandbox::DeniedSandbox;
use pl_wasm::{Engine, EngineConfig};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub fn engine() -> Engine {
    let config = EngineConfig { instances: 16, calls: 16, ..EngineConfig::plugins() };
    Engine::new(config.cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

pub fn services() -> Services {
    Services { sandbox: Arc::new(DeniedSandbox("no sandbox here".to_owned())), corpora: Corpora::default() }
}

/// A core module in text as a component of one of the contract's worlds.
pub fn component(text: &str, world: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/v0.1");
    let (package, _) = resolve.push_dir(contract).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// A component that `cargo xtask setup` has built.
pub fn built(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins").join(name);
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask setup` builds it", path.display()))
}

pub async fn load(bytes: &[u8], spec: PluginSpec) -> Plugin {
    Plugin::load(&engine(), spec, bytes).await.unwrap()
}

/// Bytes of this process that are in memory.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
