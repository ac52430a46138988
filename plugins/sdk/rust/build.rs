//! Encodes the contract's worlds, so that `export!` can say in a guest which of them it is.
//!
//! wit-bindgen's own macro says it too, but always for the one world that it was run on, and it cannot be run on
//! several worlds that share interfaces.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use wit_component::{StringEncoding, metadata};
use wit_parser::Resolve;

const WIT: &str = "wit";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={WIT}");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(Path::new(WIT))?;
    for name in ["agent", "environment", "reward", "domain"] {
        let world = resolve.select_world(&[package], Some(name))?;
        let encoded = metadata::encode(&resolve, world, StringEncoding::UTF8, None, false)?;
        fs::write(out.join(format!("{name}.world")), encoded)?;
    }
    Ok(())
}
