//! Truncated and modified plugins. Each is an error or still a plugin, never a panic.

use std::sync::LazyLock;

use pl_plugin::{Error, PluginSpec};
use pl_wasm::{Engine, EngineConfig};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::common::hostile::{harmless, play};

/// Engine without a cache: nothing is loaded twice.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(EngineConfig { instances: 4, calls: 4, ..EngineConfig::plugins() }).unwrap()
});

static GUEST: LazyLock<Vec<u8>> = LazyLock::new(harmless);

fn outcome(bytes: &[u8]) -> Result<(), Error> {
    let spec = PluginSpec { memory: 4 << 20, fuel: 20_000_000, ..PluginSpec::new("maths") };
    Runtime::new().unwrap().block_on(play(&ENGINE, bytes, spec)).map(|_| ())
}

#[test]
fn the_guest_is_a_plugin_before_it_is_damaged() {
    outcome(&GUEST).unwrap();
}

#[test]
fn every_beginning_of_a_plugin_is_refused() {
    // All of the header, and the rest in steps that share no factor with any alignment.
    for end in (0..64).chain((64..GUEST.len()).step_by(61)) {
        let error = outcome(&GUEST[..end]).expect_err(&format!("the first {end} bytes"));
        assert!(matches!(error, Error::Load { .. } | Error::Contract { .. }), "{end}: {error}");
        let words = error.to_string();
        assert!(words.starts_with("plugin maths"), "{words}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_are_an_error_or_a_plugin(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = GUEST.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Err(error) = outcome(&bytes) {
            prop_assert!(!error.to_string().is_empty());
            prop_assert!(error.reproducible(), "{error}");
        }
    }

    #[test]
    fn any_bytes_behind_the_header_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = b"\0asm\x0d\0\x01\0".to_vec();
        file.extend(bytes);
        prop_assert!(outcome(&file).is_err());
    }
}
