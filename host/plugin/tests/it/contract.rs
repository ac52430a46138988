//! Which contract a component speaks, and that what was built for one goes on to work: a compiled guest of each
//! version stands in `fixtures/`.

use std::path::Path;

use pl_plugin::{Agent, Completion, Contract, Environment, Error, Plugin, PluginSpec, Reward, Stream, Surface, Turn};
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

/// BLAKE3 of everything that an episode of six steps shows: views, requests, actions, outcomes, scores, snapshots.
async fn trajectory(plugin: &Plugin, rests: bool) -> String {
    let environment = Environment::new(plugin, "tally", Map::new(), services()).unwrap();
    let agent = Agent::new(plugin, "teller", Map::new()).unwrap();
    let reward = Reward::new(plugin, "count", Map::new()).unwrap();
    let task = environment.tasks("train", 7, 1, 2).await.unwrap().remove(0);
    let mut seen = blake3::Hasher::new();
    let mut show = |what: &dyn std::fmt::Debug| {
        seen.update(format!("{what:?}\n").as_bytes());
    };
    let mut episode = environment.start(&task, 3, Stream::of(&[b"trajectory"])).await.unwrap();
    for visit in 0..6 {
        let view = episode.view("a").await.unwrap();
        if rests {
            episode.rest().await.unwrap();
        }
        show(&agent.prompt(&view, &Turn { agent: "a".to_owned(), visit }).await.unwrap());
        let said = Completion::new(format!("{view} and {visit}"), Finish::Stop);
        let actions = vec![("a".to_owned(), agent.parse(&view, &said).await.unwrap())];
        let outcome = episode.apply(actions.clone()).await.unwrap();
        show(&(&view, &actions, &outcome));
        show(&reward.score(&task, &actions, &outcome).await.unwrap());
        show(&episode.snapshot().await.unwrap().hash());
    }
    seen.finalize().to_hex()[..32].to_owned()
}

#[tokio::test]
async fn a_guest_of_version_0_1_plays_the_same_episode_on_every_machine() {
    // Another processor, or another release of the engine, that came to another number would not be told by any
    // other test.
    const EXPECTED: &str = "2cfc7260a44dc1d2c2e9699374562d0f";
    let bytes = fixture("0.1");
    assert_eq!(Surface::read(&bytes).unwrap().contract(), Ok(Contract::V0_1));
    let plugin = common::load(&bytes, PluginSpec::new("tally")).await;
    assert_eq!(trajectory(&plugin, false).await, EXPECTED);
    assert_eq!(trajectory(&plugin, true).await, EXPECTED, "an episode that rests goes another way");
}

#[test]
fn every_version_has_its_fixture() {
    // The newest is the one that `wit/` has the text of; the fixture is what its guests were compiled to.
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    for folder in std::fs::read_dir(wit).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let bytes = fixture(name.strip_prefix('v').unwrap());
        assert!(bytes.len() < 100 << 10, "{name} has {} bytes", bytes.len());
        let contract = Surface::read(&bytes).unwrap().contract().unwrap();
        assert_eq!(name, format!("v{contract}"));
    }
}

/// The fixture as if another version of the contract had been its own.
fn of_version(version: &[u8; 6]) -> Vec<u8> {
    let mut bytes = fixture("0.1");
    let at: Vec<usize> = (0..bytes.len() - 6).filter(|at| bytes[*at..].starts_with(b"@0.1.0")).collect();
    at.iter().for_each(|at| bytes[*at..at + 6].copy_from_slice(version));
    bytes
}

#[tokio::test]
async fn a_guest_that_is_newer_than_the_host_is_told_so() {
    let words = refusal(&of_version(b"@0.2.0")).await;
    assert!(
        words.contains("version 0.2.0 of the contract") && words.contains("take a newer pl-host"),
        "{words}"
    );
    let older = refusal(&of_version(b"@0.0.1")).await;
    assert!(older.contains("no pl-host speaks any more"), "{older}");
    // Before it is compiled: what follows the names may make no sense at all.
    let mut cut = of_version(b"@0.3.0");
    let middle = cut.windows(4).position(|bytes| bytes == b"\0asm").unwrap();
    let inside = cut[8..].windows(4).position(|bytes| bytes == b"\0asm").unwrap() + 8;
    assert!(inside > middle);
    cut[inside + 40..inside + 400].fill(0xff);
    assert!(refusal(&cut).await.contains("version 0.3.0"));
}

#[tokio::test]
async fn what_speaks_no_contract_is_told_what_it_has_instead() {
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
async fn every_import_that_nothing_offers_is_named() {
    let importing = wat::parse_str(
        r#"(component
            (import "their:api/thing" (instance (export "f" (func))))
            (import "wasi:nn/graph@0.2.0" (instance))
            (import "pl-host:plugin/random@0.1.0" (instance (export "next" (func (result u64))))))"#,
    );
    let words = refusal(&importing.unwrap()).await;
    assert!(
        words.contains("nothing here offers what it imports: their:api/thing, wasi:nn/graph@0.2.0"),
        "{words}"
    );
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
