//! Contract versions of components. A compiled guest of each version in `fixtures/` must continue to work.

use std::path::Path;

use pl_plugin::{
    Agent, Completion, ComponentInterface, Contract, DrawingForm, Environment, Error, Plugin, PluginSpec,
    RandomStream, Reward, Turn,
};
use pl_types::Finish;
use serde_json::Map;

use crate::common::{self, component, engine, services};

fn fixture(version: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}.wasm"));
    std::fs::read(path).unwrap()
}

async fn refusal(bytes: &[u8]) -> String {
    let error = Plugin::load(&engine(), PluginSpec::new("alien"), bytes).await.err().unwrap();
    assert!(matches!(error, Error::Contract { .. }), "{error}");
    error.to_string()
}

/// BLAKE3 of everything that an episode of six steps shows: views, requests, actions, outcomes, scores,
/// snapshots.
async fn trajectory(plugin: &Plugin, suspends: bool, looks: bool) -> String {
    let environment = Environment::new(plugin, "tally", Map::new(), services()).unwrap();
    let agent = Agent::new(plugin, "teller", Map::new()).unwrap();
    let reward = Reward::new(plugin, "count", Map::new()).unwrap();
    let task = environment.tasks("train", 7, 1, 2).await.unwrap().remove(0);
    let mut seen = blake3::Hasher::new();
    let mut show = |what: &dyn std::fmt::Debug| {
        seen.update(format!("{what:?}\n").as_bytes());
    };
    let mut episode = environment.start(&task, 3, RandomStream::from_parts(&[b"trajectory"])).await.unwrap();
    for visit in 0..6 {
        let view = episode.view("a").await.unwrap();
        if looks {
            assert_eq!(episode.oracle("a").await.unwrap(), None);
            assert_eq!(episode.draw(DrawingForm::Svg).await.unwrap(), None);
        }
        if suspends {
            episode.suspend().await.unwrap();
        }
        show(&agent.prompt(&view, &Turn { agent: "a".to_owned(), visit }).await.unwrap());
        let completion = Completion::new(format!("{view} and {visit}"), Finish::Stop);
        let actions = vec![("a".to_owned(), agent.parse(&view, &completion).await.unwrap())];
        let outcome = episode.apply(actions.clone()).await.unwrap();
        show(&(&view, &actions, &outcome));
        show(&reward.score(&task, &actions, &outcome).await.unwrap());
        show(&episode.snapshot().await.unwrap().hash());
    }
    seen.finalize().to_hex()[..32].to_owned()
}

#[tokio::test]
async fn a_guest_of_version_0_1_runs_the_same_episode_on_every_machine() {
    // No other test would notice a different result on another CPU or with another release of the engine.
    const EXPECTED: &str = "2cfc7260a44dc1d2c2e9699374562d0f";
    let bytes = fixture("0.1");
    assert_eq!(ComponentInterface::read(&bytes).unwrap().contract(), Ok(Contract::V0_1));
    let plugin = common::load(&bytes, PluginSpec::new("tally")).await;
    assert_eq!(trajectory(&plugin, false, false).await, EXPECTED);
    assert_eq!(trajectory(&plugin, true, false).await, EXPECTED, "a suspended episode continues differently");
    assert_eq!(trajectory(&plugin, false, true).await, EXPECTED, "a drawing changes the random stream");
}

#[test]
fn every_version_has_its_fixture() {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    for folder in std::fs::read_dir(wit).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let bytes = fixture(name.strip_prefix('v').unwrap());
        assert!(bytes.len() < 100 << 10, "{name} has {} bytes", bytes.len());
        let contract = ComponentInterface::read(&bytes).unwrap().contract().unwrap();
        assert_eq!(name, format!("v{contract}"));
    }
}

/// Returns the fixture with another version of the contract in its names.
fn with_version(version: &[u8; 6]) -> Vec<u8> {
    let mut bytes = fixture("0.1");
    let at: Vec<usize> = (0..bytes.len() - 6).filter(|at| bytes[*at..].starts_with(b"@0.1.0")).collect();
    at.iter().for_each(|at| bytes[*at..at + 6].copy_from_slice(version));
    bytes
}

#[tokio::test]
async fn a_guest_of_an_unsupported_version_is_refused() {
    let words = refusal(&with_version(b"@0.2.0")).await;
    assert!(
        words.contains("version 0.2.0 of the contract") && words.contains("use a newer pl-host"),
        "{words}"
    );
    let older = refusal(&with_version(b"@0.0.1")).await;
    assert!(older.contains("no longer supported"), "{older}");
    // Before it is compiled: what follows the names may make no sense at all.
    let mut cut = with_version(b"@0.3.0");
    let middle = cut.windows(4).position(|bytes| bytes == b"\0asm").unwrap();
    let inside = cut[8..].windows(4).position(|bytes| bytes == b"\0asm").unwrap() + 8;
    assert!(inside > middle);
    cut[inside + 40..inside + 400].fill(0xff);
    assert!(refusal(&cut).await.contains("version 0.3.0"));
}

#[tokio::test]
async fn a_component_without_the_contract_is_refused_with_its_names() {
    let alien = wat::parse_str("(component)").unwrap();
    assert!(refusal(&alien).await.contains("it exports nothing and imports nothing"));
    let importing = wat::parse_str(
        r#"(component
            (import "their:api/thing" (instance (export "f" (func))))
            (import "wasi:nn/graph@0.2.0" (instance)))"#,
    );
    let words = refusal(&importing.unwrap()).await;
    assert!(words.contains("imports their:api/thing, wasi:nn/graph@0.2.0"), "{words}");
}

#[tokio::test]
async fn every_unknown_import_is_named() {
    let importing = wat::parse_str(
        r#"(component
            (import "their:api/thing" (instance (export "f" (func))))
            (import "wasi:nn/graph@0.2.0" (instance))
            (import "pl-host:plugin/random@0.1.0" (instance (export "next" (func (result u64))))))"#,
    );
    let words = refusal(&importing.unwrap()).await;
    assert!(words.contains("does not provide its imports their:api/thing, wasi:nn/graph@0.2.0"), "{words}");
}

/// Writes the fixture of the version that is being worked on. A version that is released keeps its own.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_fixture() {
    let bytes = component(include_str!("../guests/tally.wat"), "domain");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("v{}.wasm", Contract::NEWEST)), bytes).unwrap();
}
