//! The bindings in the Rust SDK are generated in advance, because their generator takes longer to compile
//! than a plugin. This test compares them with the contract.

use std::error::Error;
use std::path::Path;

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_component::{StringEncoding, metadata};

const WORLDS: [&str; 4] = ["agent", "environment", "reward", "domain"];

/// `INSTA_UPDATE=always` rewrites the files, as it does with snapshots.
#[test]
fn the_bindings_of_the_rust_sdk_match_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let wit = root.join("wit/v0.1");
    let folder = root.join("plugins/sdk/rust/src/bindings");
    for (name, expected) in [("contract.rs", contract(&wit)), ("worlds.rs", worlds(&wit))] {
        let (path, expected) = (folder.join(name), expected.unwrap());
        if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == expected,
            "{name} is out of date: `INSTA_UPDATE=always cargo nextest run --release --workspace --test bindings` \
             writes it"
        );
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Generates the bindings of the world with all interfaces.
fn contract(wit: &Path) -> Result<String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some("domain"))?;
    let options = wit_bindgen_rust::Opts {
        format: true,
        pub_export_macro: true,
        generate_all: true,
        ..Default::default()
    };
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files)?;
    let (_, bytes) = files.iter().next().ok_or("wit-bindgen made no file")?;
    Ok(String::from_utf8(bytes.to_vec())?)
}

/// Generates constants with the encoded worlds.
fn worlds(wit: &Path) -> Result<String> {
    let mut text = "// The contract's worlds as wit-component encodes them. Written by `host/toolchain/tests/bindings.rs`.\n"
        .to_owned();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    for name in WORLDS {
        let world = resolve.select_world(&[package], Some(name))?;
        let encoded = metadata::encode(&resolve, world, StringEncoding::UTF8, None, false)?;
        let (constant, length) = (name.to_uppercase(), encoded.len());
        text += &format!("pub const {constant}: &[u8; {length}] = b\"{}\";\n", encoded.escape_ascii());
    }
    Ok(text)
}
