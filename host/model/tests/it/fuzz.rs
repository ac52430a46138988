//! Model files from strangers, mutated: an error or a model, never a panic, and never memory by a number that a file
//! claims (a huge allocation aborts the test).

use std::fs;
use std::path::Path;

use pl_model::{ChatMessage, ChatTemplate, Config, Model, RenderOptions, Tokenizer};
use pl_testing::fuzz::fuzz;
use pl_types::{Dtype, ModelDtype};
use tch::Device;

use crate::data;

fn seed(path: &str) -> Vec<u8> {
    fs::read(data(path)).unwrap()
}

/// Loads a model and names no other file in its errors.
fn load(path: &Path) {
    let tensors = Model::load(path, Device::Cpu, Dtype::F32).map(drop);
    let packed = Model::load(path, Device::Cpu, ModelDtype::File).map(drop);
    assert_eq!(tensors.is_ok(), packed.is_ok(), "{tensors:?}, {packed:?}");
    for error in [tensors, packed, Model::packed_bytes(path).map(drop)].into_iter().filter_map(Result::err) {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn gguf() {
    let seeds: Vec<_> = ["llama3", "llama-linear", "qwen2-tied", "qwen3-wide"]
        .map(|name| seed(&format!("conformance/families/{name}.gguf")))
        .into();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let words =
        ["GGUF", "general.architecture", "tokenizer.ggml.tokens", "general.alignment", "blk.0.attn_q.weight"];
    fuzz("gguf", &seeds, &words, |bytes| {
        fs::write(&path, bytes).unwrap();
        load(&path);
    });
}

/// Mutates the JSON at the beginning of a safetensors file; its length is right, and the tensors' bytes follow.
#[test]
fn safetensors_headers() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(data("data/tiny").join(name), folder.path().join(name)).unwrap();
    }
    let file = seed("data/tiny/model.safetensors");
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let (header, rest) = file[8..].split_at(length);
    let words = [
        "\"F64\"",
        "\"BF16\"",
        "\"shape\":[]",
        "\"data_offsets\":[0,0]",
        "null",
        "{}",
        "\"__metadata__\":{}",
    ];
    let path = folder.path().join("model.safetensors");
    fuzz("safetensors headers", &[header.to_vec()], &words, |header| {
        let file = [&(header.len() as u64).to_le_bytes()[..], header, rest].concat();
        fs::write(&path, file).unwrap();
        load(folder.path());
    });
}

#[test]
fn config_json() {
    let seeds: Vec<_> = [
        "data/tiny",
        "conformance/families/llama-yarn",
        "conformance/families/qwen3-wide",
        "conformance/families/llama-factors",
    ]
    .map(|folder| seed(&format!("{folder}/config.json")))
    .into();
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(data("data/tiny").join(name), folder.path().join(name)).unwrap();
    }
    let words = ["null", "[]", "{}", "\"llama\"", "\"rope_type\": \"yarn\"", "\"factor\": 0", "true"];
    fuzz("config.json", &seeds, &words, |bytes| {
        fs::write(folder.path().join("config.json"), bytes).unwrap();
        if Config::read(folder.path()).is_ok() {
            load(folder.path());
        }
    });
}

#[test]
fn tokenizer_json() {
    let words = [
        "null",
        "[]",
        "{}",
        "\"normalizer\": {\"type\": \"NFKC\"}",
        "\"type\": \"Metaspace\"",
        "<|im_start|>",
        "\\u0000",
    ];
    let template = "{% for message in messages %}<|im_start|>{{ message.content }}{% endfor %}";
    let template = ChatTemplate::new("fuzz", Some(template.to_owned()), None, None).unwrap();
    let messages = [ChatMessage::new("user", "the naïve <|im_end|> 東京 ＜|im_start|> <")];
    fuzz("tokenizer.json", &[seed("data/tiny/tokenizer.json")], &words, |bytes| {
        let Ok(tokenizer) = Tokenizer::from_json("fuzz", bytes, &[]) else { return };
        if let Ok(ids) = template.encode(&tokenizer, &messages, &RenderOptions::default()) {
            tokenizer.decode(&ids, false);
        }
    });
}
