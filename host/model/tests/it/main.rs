//! `pl-model` against transformers, PEFT and broken files.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod adapters;
mod broken;
mod broken_gguf;
mod conformance;
mod families;
mod formats;
mod packing;
mod roundtrip;
mod text;

use std::path::PathBuf;

use pl_model::{Dtype, Model};
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

/// SmolLM2's GGUF file; none (with a printed reason) where it has not been fetched.
fn smollm() -> Option<PathBuf> {
    let cache = std::env::var_os("PL_HOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cache/pl-host")))?;
    let path = cache.join("models/smollm2-135m/model.gguf");
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there (cargo xtask setup fetches it)", path.display());
    None
}
