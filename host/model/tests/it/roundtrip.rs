//! Saved models and adapters load in transformers and peft with the same logits, and their copies load here.
//!
//! Needs `PL_HOST_REFERENCE_PYTHON`, a Python with torch, transformers and peft. The tests are skipped without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use pl_model::{Adapter, Model, Projection, TensorSet, Weights};
use pl_types::Dtype;
use tch::{Device, Tensor};

use crate::conformance::logits;
use crate::{data, gap, tiny};

/// Returns the reference Python. Returns `None` and reports the test as skipped without transformers and peft.
fn python() -> Option<PathBuf> {
    let Some(python) = std::env::var_os("PL_HOST_REFERENCE_PYTHON").map(PathBuf::from) else {
        pl_testing::skip_or_fail(
            pl_testing::Requirement::ReferencePython,
            "PL_HOST_REFERENCE_PYTHON names no Python with transformers and peft",
        );
        return None;
    };
    let found = Command::new(&python).args(["-c", "import peft, torch, transformers"]).output();
    if found.is_ok_and(|out| out.status.success()) {
        return Some(python);
    }
    pl_testing::skip_or_fail(
        pl_testing::Requirement::ReferencePython,
        &format!("{} has no transformers and peft", python.display()),
    );
    None
}

/// Runs the reference over folders, each with its expected logits.
fn check(python: &Path, options: &[&Path], folders: &[(PathBuf, PathBuf)]) {
    let mut command = Command::new(python);
    command.arg(data("conformance/roundtrip.py")).args(options);
    for (folder, expected) in folders {
        command.args([folder, expected]);
    }
    let out = command.env("HF_HUB_OFFLINE", "1").output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{output}");
    eprint!("{}", String::from_utf8_lossy(&out.stdout));
}

fn tokens(vocab: i64) -> Vec<u32> {
    (0..64u32).map(|i| (i * i * 7 + 3 * i) % vocab as u32).collect()
}

/// Writes the tokens and logits of a model.
fn write_expected(path: &Path, model: &Model, adapters: &[&Adapter]) {
    let tokens = tokens(model.config.vocab);
    let logits = tch::no_grad(|| logits(model, adapters, &tokens));
    let ids: Vec<i64> = tokens.iter().map(|id| i64::from(*id)).collect();
    Tensor::write_safetensors(&[("tokens", &Tensor::from_slice(&ids)), ("logits", &logits)], path).unwrap();
}

fn same(a: &Weights, b: &Weights) -> bool {
    a.parameters() == b.parameters()
}

#[test]
fn models_of_all_families() {
    let Some(python) = python() else { return };
    let saved = tempfile::tempdir().unwrap();
    let families = data("conformance/families");
    let sources = [
        "llama2",
        "llama3",
        "llama-linear",
        "llama-yarn",
        "llama-factors",
        "llama3.gguf",
        "qwen2-tied",
        "qwen2-yarn",
        "qwen3-wide",
        "qwen3-untied",
    ];
    let mut folders = Vec::new();
    let mut models = Vec::new();
    for name in sources {
        let model = Model::load(families.join(name), Device::Cpu, Dtype::F32).unwrap();
        let folder = saved.path().join(name);
        let (tokenizer, template) = (&model.tokenizer, &model.template);
        model.weights.save_folder(&folder, &model.config, tokenizer, template, Dtype::F32).unwrap();
        let expected = folder.join("expected.safetensors");
        write_expected(&expected, &model, &[]);
        folders.push((folder, expected));
        models.push(model);
    }
    let again = saved.path().join("again");
    check(&python, &["--again".as_ref(), &again], &folders);
    for (number, (model, (folder, _))) in models.iter().zip(&folders).enumerate() {
        let back = again.join(number.to_string());
        std::fs::copy(folder.join("tokenizer.json"), back.join("tokenizer.json")).unwrap();
        let back = Model::load(&back, Device::Cpu, Dtype::F32).unwrap();
        assert_eq!(back.config, model.config);
        assert!(same(&back.weights, &model.weights), "{}", folder.display());
    }
}

#[test]
fn sixteen_bits() {
    let Some(python) = python() else { return };
    let saved = tempfile::tempdir().unwrap();
    let source = data("conformance/families/qwen3-wide");
    let mut folders = Vec::new();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let model = Model::load(&source, Device::Cpu, Dtype::F32).unwrap();
        let folder = saved.path().join(dtype.name());
        model.weights.save_folder(&folder, &model.config, &model.tokenizer, &model.template, dtype).unwrap();
        // Norms are stored in 16 bits too, so the expected logits are those of the saved model.
        let stored = Model::load(&folder, Device::Cpu, Dtype::F32).unwrap();
        let expected = folder.join("expected.safetensors");
        write_expected(&expected, &stored, &[]);
        folders.push((folder, expected));
    }
    check(&python, &[], &folders);
}

#[test]
fn adapters() {
    let Some(python) = python() else { return };
    let saved = tempfile::tempdir().unwrap();
    let model = tiny();
    let adapter = Adapter::new(&model.config, 4, 6.0, &Projection::ALL, [9; 32]).unwrap();
    for (name, mut tensor) in adapter.parameters() {
        if name.contains("lora_B") {
            let values: Vec<f32> = (0..tensor.numel()).map(|i| (i as f32 * 0.7).sin() * 0.1).collect();
            tch::no_grad(|| tensor.copy_(&Tensor::from_slice(&values).view_as(&tensor)));
        }
    }
    let folder = saved.path().join("adapter");
    adapter.save(&folder).unwrap();
    let expected = folder.join("expected.safetensors");
    write_expected(&expected, &model, &[&adapter]);
    let tokens = tokens(model.config.vocab);
    let (with, without) = (logits(&model, &[&adapter], &tokens), logits(&model, &[], &tokens));
    assert!(gap(&with, &without) > 0.1, "the adapter must make a difference");
    let again = saved.path().join("again");
    check(
        &python,
        &["--base".as_ref(), &data("data/tiny"), "--again".as_ref(), &again],
        &[(folder, expected)],
    );
    let back = Adapter::load(again.join("0"), &model.config).unwrap();
    assert_eq!((back.rank, back.alpha, back.targets()), (4, 6.0, adapter.targets()));
    assert_eq!(back.parameters(), adapter.parameters());
}
