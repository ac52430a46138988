//! `pl-model` against transformers, PEFT and broken files.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod adapters;
mod broken;
mod broken_gguf;
mod conformance;
mod families;
mod fetch;
mod formats;
mod fuzz;
mod hostile_templates;
mod hub_server;
mod packed_weights;
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

/// Returns a path below the project's tests.
fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

fn tiny() -> Model {
    Model::load(data("data/tiny"), Device::Cpu, Dtype::F32).unwrap()
}

/// Returns the largest absolute difference.
fn gap(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    (a - b).abs().max().double_value(&[])
}

/// Returns the cache folder of downloads.
fn cache() -> PathBuf {
    std::env::var_os("PL_HOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cache/pl-host")))
        .unwrap_or_default()
}

/// Returns SmolLM2's GGUF file. Returns `None` and reports the test as skipped if it was not fetched.
fn smollm() -> Option<PathBuf> {
    let path = cache().join("models/smollm2-135m/model.gguf");
    if path.exists() {
        return Some(path);
    }
    pl_testing::skip_or_fail(
        pl_testing::Requirement::Model,
        &format!("{} is missing (cargo xtask setup fetches it)", path.display()),
    );
    None
}
