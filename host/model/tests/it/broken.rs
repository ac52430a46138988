//! Files that are not what they should be: an error that names the file, never a panic.

use std::fs;
use std::path::Path;

use pl_model::{Dtype, Model};
use tch::Device;

use crate::{data, smollm};

/// A copy of the tiny model's folder.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(data("data/tiny")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn refusal(path: &Path) -> String {
    Model::load(path, Device::Cpu, Dtype::F32).unwrap_err().to_string()
}

#[test]
fn folders() {
    let edit = |name: &str, from: &str, to: &str| {
        let folder = folder();
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(&path, text.replace(from, to)).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(folder.path().to_str().unwrap()), "{message}");
        message
    };
    assert!(edit("config.json", "\"llama\"", "\"mamba\"").contains("mamba"));
    assert!(edit("config.json", "\"hidden_size\": 32", "\"hidden_size\": 48").contains("[299, 48]"));
    assert!(edit("config.json", "\"hidden_size\": 32", "\"hidden_size\": 0").contains("hidden_size"));
    assert!(
        edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3").contains("layers.2.")
    );
    assert!(
        edit("config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")
            .contains("can't be shared")
    );
    assert!(edit("config.json", "\"attention_bias\": false", "\"attention_bias\": true").contains("biases"));
    assert!(
        edit("config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"").contains("dynamic")
    );
    assert!(edit("config.json", "\"eos_token_id\": 2", "\"eos_token_id\": 999").contains("999"));
    assert!(edit("config.json", "{", "[").contains("not JSON"));

    let cut = folder();
    let path = cut.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(refusal(cut.path()).contains("model.safetensors"));
    fs::remove_file(&path).unwrap();
    assert!(refusal(cut.path()).contains("no model.safetensors"));
    fs::remove_file(cut.path().join("tokenizer.json")).unwrap();
    assert!(refusal(cut.path()).contains("tokenizer.json"));

    let odd = folder();
    fs::write(odd.path().join("tokenizer.json"), "{}").unwrap();
    assert!(refusal(odd.path()).starts_with("tokenizer of"));
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    assert!(refusal(&path).contains("model.gguf"));
    fs::write(&path, b"PK\x03\x04 something else").unwrap();
    assert!(refusal(&path).contains("not a GGUF file"));
    // Lengths that run past the end of the file.
    let mut lying = b"GGUF\x03\0\0\0".to_vec();
    lying.extend(1u64.to_le_bytes());
    lying.extend(1u64.to_le_bytes());
    lying.extend(u64::MAX.to_le_bytes());
    fs::write(&path, &lying).unwrap();
    assert!(refusal(&path).contains("ends in its header"));
}

#[test]
fn a_gguf_cut_anywhere() {
    let Some(whole) = smollm() else { return };
    let bytes = fs::read(whole).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for share in [0, 1, 7, 30, 200, 1000] {
        fs::write(&path, &bytes[..bytes.len() * share / 1001]).unwrap();
        assert!(refusal(&path).contains("model.gguf"), "{share}");
    }
}
