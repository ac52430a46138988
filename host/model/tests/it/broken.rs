//! Damaged files: an error that names the file, never a panic.

use std::fs;
use std::path::Path;

use pl_model::{Adapter, Config, Model, TensorSet};
use pl_types::Dtype;
use tch::{Device, Kind, Tensor};

use crate::data;

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

/// Returns the JSON at the beginning of a safetensors file.
fn header(file: &[u8]) -> &[u8] {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    &file[8..8 + length]
}

/// Writes a safetensors file with another header and the tensors of `file`.
fn write_safetensors(path: &Path, json: &str, file: &[u8]) {
    let tensors = &file[8 + header(file).len()..];
    fs::write(path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), tensors].concat()).unwrap();
}

/// libtorch and Rust read numbers at their alignment, which a header of an odd length takes from all tensors.
#[test]
fn tensors_at_odd_addresses_are_read() {
    let odd = folder();
    let path = odd.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let json = String::from_utf8(header(&bytes).to_vec()).unwrap();
    let weights = || {
        let model = Model::load(odd.path(), Device::Cpu, Dtype::F32).unwrap();
        let parameters = model.weights.parameters();
        parameters
            .into_iter()
            .map(|(_, tensor)| Vec::<f32>::try_from(tensor.reshape([-1])).unwrap())
            .collect::<Vec<_>>()
    };
    let even = weights();
    write_safetensors(&path, &format!("{} ", json.trim_end()), &bytes);
    let length = header(&fs::read(&path).unwrap()).len();
    if length.is_multiple_of(2) {
        write_safetensors(&path, &format!("{}  ", json.trim_end()), &bytes);
    }
    assert_eq!(weights(), even);
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
    assert!(
        edit("config.json", "\"model_type\": \"llama\"", "\"model_type\": \"gemma\"")
            .contains("llama, qwen2 and qwen3")
    );
    let quantised = "\"quantization_config\": { \"quant_method\": \"gptq\" }, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", quantised).contains("gptq"));
    let windows = "\"use_sliding_window\": true, \"sliding_window\": 64, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", windows).contains("sliding windows"));
    let layers = "\"layer_types\": [\"full_attention\", \"sliding_attention\"], \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", layers).contains("sliding windows"));
    let partial = "\"partial_rotary_factor\": 0.5, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", partial).contains("partial_rotary_factor"));
    let scaling = "\"rope_scaling\": { \"type\": \"linear\" }, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", scaling).contains("`factor`"));
    let scaling = "\"rope_scaling\": { \"type\": \"linear\", \"factor\": 0 }, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", scaling).contains("are invalid"));
    let scaling = "\"rope_scaling\": { \"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [2] }, \"mlp_bias\"";
    assert!(edit("config.json", "\"mlp_bias\"", scaling).contains("longrope"));
    assert!(
        edit("config.json", "\"max_position_embeddings\": 4096", "\"max_position_embeddings\": 123456789012")
            .contains("positions")
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

    // An index that names shards that are not there, elsewhere, or without the tensor.
    let shards = folder();
    let index = shards.path().join("model.safetensors.index.json");
    let write = |map: &str| fs::write(&index, format!("{{\"weight_map\": {map}}}")).unwrap();
    write("{\"model.norm.weight\": \"other.safetensors\"}");
    assert!(refusal(shards.path()).contains("other.safetensors"));
    write("{\"model.norm.weight\": \"../model.safetensors\"}");
    assert!(refusal(shards.path()).contains("not in a file of this folder"));
    write("{\"model.norm.weight\": \"model.safetensors\"}");
    assert!(refusal(shards.path()).contains("`model.embed_tokens.weight` is missing"));
    write("[]");
    assert!(refusal(shards.path()).contains("weight_map"));

    // Sizes that are no numbers of libtorch, of a tensor without values.
    let vast = folder();
    let path = vast.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let header = String::from_utf8(header(&bytes).to_vec()).unwrap();
    let claim = "{\"vast\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808,0],\"data_offsets\":[0,0]},";
    write_safetensors(&path, &header.replacen('{', claim, 1), &bytes);
    assert!(refusal(vast.path()).contains("`vast` has a size"));

    // A tensor that the family knows nothing of.
    let odd = folder();
    let path = odd.path().join("model.safetensors");
    let mut tensors = Tensor::read_safetensors(&path).unwrap();
    tensors.push((
        "model.layers.0.self_attn.o_proj.bias".into(),
        Tensor::zeros([32], (Kind::Float, Device::Cpu)),
    ));
    Tensor::write_safetensors(&tensors, &path).unwrap();
    assert!(refusal(odd.path()).contains("o_proj.bias"));

    let odd = folder();
    fs::write(odd.path().join("tokenizer.json"), "{}").unwrap();
    assert!(refusal(odd.path()).starts_with("tokenizer of"));
}

/// A sparse file takes no space on the disk.
#[test]
fn texts_of_any_size_are_not_read() {
    let make_huge = |path: &Path| {
        let file = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(1 << 40).unwrap();
    };
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    ] {
        let folder = folder();
        make_huge(&folder.path().join(name));
        let message = refusal(folder.path());
        assert!(message.contains(name) && message.contains("it is larger than"), "{message}");
    }
    let folder = folder();
    let config = Config::read(folder.path()).unwrap();
    make_huge(&folder.path().join("config.json"));
    let message = Config::read(folder.path()).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("config.json: it is larger than 64 MiB"), "{message}");
    make_huge(&folder.path().join("adapter_config.json"));
    let message = Adapter::load(folder.path(), &config).unwrap_err().to_string();
    assert!(message.contains("adapter_config.json: it is larger than 64 MiB"), "{message}");
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
    let Some(whole) = pl_testing::smollm() else { return };
    let bytes = fs::read(whole).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for share in [0, 1, 7, 30, 200, 1000] {
        fs::write(&path, &bytes[..bytes.len() * share / 1001]).unwrap();
        assert!(refusal(&path).contains("model.gguf"), "{share}");
    }
}
