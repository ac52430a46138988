//! The Rust SDK carries its bindings ready made, for what makes them takes longer to compile than a plugin does.
//! Here they are held to the contract.

use std::path::{Path, PathBuf};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_component::{StringEncoding, metadata};

const WORLDS: [&str; 4] = ["agent", "environment", "reward", "domain"];

/// `INSTA_UPDATE=always` writes the files anew, as it does with snapshots.
#[test]
fn the_rust_sdks_bindings_are_those_of_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let wit = root.join("wit/v0.1");
    let folder = root.join("plugins/sdk/rust/src/bindings");
    hold(folder.join("contract.rs"), &contract(&wit));
    hold(folder.join("worlds.rs"), &worlds(&wit));
}

fn hold(path: PathBuf, expected: &str) {
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: `INSTA_UPDATE=always cargo nextest run --release --workspace --test bindings` writes it",
        path.display()
    );
}

/// What wit-bindgen makes of the world with everything in it.
fn contract(wit: &Path) -> String {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).unwrap();
    let world = resolve.select_world(&[package], Some("domain")).unwrap();
    let options = wit_bindgen_rust::Opts {
        format: true,
        pub_export_macro: true,
        generate_all: true,
        ..Default::default()
    };
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files).unwrap();
    let (_, bytes) = files.iter().next().unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Each world as wit-component encodes it.
fn worlds(wit: &Path) -> String {
    let mut text = "// The contract's worlds as wit-component encodes them. Written by `host/toolchain/tests/bindings.rs`.\n"
        .to_owned();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).unwrap();
    for name in WORLDS {
        let world = resolve.select_world(&[package], Some(name)).unwrap();
        let encoded = metadata::encode(&resolve, world, StringEncoding::UTF8, None, false).unwrap();
        let (constant, length) = (name.to_uppercase(), encoded.len());
        text += &format!("pub const {constant}: &[u8; {length}] = b\"{}\";\n", encoded.escape_ascii());
    }
    text
}
