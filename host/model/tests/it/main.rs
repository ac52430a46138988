//! `pl-model` against transformers, PEFT and broken files.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod adapters;
mod broken;
mod broken_gguf;
mod conformance;
mod families;
mod fetch;
mod formats;
mod hub_server;
mod packing;
mod reference;
mod roundtrip;
mod templates;
mod text;
mod tokenizers;

use std::path::PathBuf;

use pl_model::Model;
use pl_types::Dtype;
use tch::{Device, Tensor};

/// A folder of the project's tests.
fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

fn tiny() -> Model {
    Model::load(&data("data/tiny"), Device::Cpu, Dtype::F32).unwrap()
}

/// The largest absolute difference.
fn gap(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    (a - b).abs().max().double_value(&[])
}

/// Where fetched things lie.
fn cache() -> PathBuf {
    std::env::var_os("PL_HOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cache/pl-host")))
        .unwrap_or_default()
}

/// SmolLM2's GGUF file; none (with a printed reason) where it has not been fetched.
fn smollm() -> Option<PathBuf> {
    let path = cache().join("models/smollm2-135m/model.gguf");
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there (cargo xtask setup fetches it)", path.display());
    None
}
