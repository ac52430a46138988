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
