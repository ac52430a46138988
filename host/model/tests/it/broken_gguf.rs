//! Odd, truncated and inconsistent GGUF files: an error that names the file and the problem, never a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pl_model::Model;
use pl_types::Dtype;
use tch::Device;

use crate::data;

fn original(name: &str) -> Vec<u8> {
    fs::read(data("conformance/families").join(name)).unwrap()
}

fn load(bytes: &[u8]) -> Result<Model, String> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    let named = |path: &Path, e: String| {
        assert!(e.contains(path.to_str().unwrap()), "{e}");
        e
    };
    Model::load(&path, Device::Cpu, Dtype::F32).map_err(|e| named(&path, e.to_string()))
}

fn refusal(bytes: &[u8]) -> String {
    load(bytes).map(|_| ()).unwrap_err()
}

/// Returns the offset of a text that a file contains once.
fn find(bytes: &[u8], text: &str) -> usize {
    let offsets: Vec<usize> =
        (0..bytes.len()).filter(|offset| bytes[*offset..].starts_with(text.as_bytes())).collect();
    assert_eq!(offsets.len(), 1, "{text}");
    offsets[0]
}

/// Returns the file with the bytes after a metadata key and its type replaced.
fn with_value(name: &str, key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = original(name);
    let at = find(&bytes, key) + key.len() + 4;
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

/// Returns the file with a text replaced by another of the same length.
fn with_text(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = original(name);
    let at = find(&bytes, from);
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    bytes
}

/// Returns the file with bytes of a tensor's description replaced, `offset` bytes behind its name.
fn with_tensor(name: &str, tensor: &str, offset: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = original(name);
    let at = find(&bytes, tensor) + tensor.len() + offset;
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

const MATRIX: &str = "blk.0.ffn_up.weight";
// Offsets behind the name of a matrix: the number of dimensions (0), columns, rows, format, offset of the data.
const COLUMNS_AT: usize = 4;
const ROWS_AT: usize = 12;
const FORMAT_AT: usize = 20;
const OFFSET_AT: usize = 24;

#[test]
fn truncated_files_are_refused() {
    for name in ["qwen2-tied.gguf", "llama3.gguf"] {
        let bytes = original(name);
        for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 33]) {
            refusal(&bytes[..len]);
        }
        load(&bytes).unwrap();
    }
}

/// A flipped bit in the header may give another valid model or an error, but never a panic.
#[test]
fn flipped_bits_never_panic() {
    let bytes = original("qwen3-wide.gguf");
    let header = find(&bytes, "output_norm.weight") + 64;
    let mut refused = 0;
    for at in (0..header).step_by(3) {
        let mut odd = bytes.clone();
        odd[at] ^= 1 << (at % 8);
        refused += usize::from(load(&odd).is_err());
    }
    assert!(refused > header / 12, "{refused} of {}", header / 3);
}

#[test]
fn unsupported_formats_are_refused() {
    // IQ4_XS, and a number without a format.
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, FORMAT_AT, &23u32.to_le_bytes()));
    assert!(message.contains(MATRIX) && message.contains("IQ4_XS"), "{message}");
    assert!(message.contains("Q6_K") && message.contains("Hugging Face folder"), "{message}");
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, FORMAT_AT, &999u32.to_le_bytes()));
    assert!(message.contains("number 999"), "{message}");
    // Rows of 32 don't fill blocks of 256.
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, FORMAT_AT, &12u32.to_le_bytes()));
    assert!(message.contains("rows of 32"), "{message}");
}

#[test]
fn inconsistent_tensors_are_refused() {
    let far = u64::MAX - 7;
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, OFFSET_AT, &far.to_le_bytes()));
    assert!(message.contains("past the end"), "{message}");
    for (at, count) in [(COLUMNS_AT, 1u64 << 62), (ROWS_AT, 1 << 62), (ROWS_AT, u64::MAX / 2)] {
        let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, at, &count.to_le_bytes()));
        assert!(message.contains(MATRIX), "{message}");
    }
    for (at, shape) in [(COLUMNS_AT, ", 0]"), (ROWS_AT, "[0, ")] {
        let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, at, &0u64.to_le_bytes()));
        assert!(
            message.contains(MATRIX) && message.contains("has no values") && message.contains(shape),
            "{message}"
        );
    }
    // Of no rows as long as they like: found by the fuzzer.
    let sizes = [(1u64 << 62).to_le_bytes(), 0u64.to_le_bytes()].concat();
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, COLUMNS_AT, &sizes));
    assert!(message.contains("has no values: its shape is [0, 4611686018427387904]"), "{message}");
    let message = refusal(&with_tensor("qwen2-tied.gguf", MATRIX, ROWS_AT, &31u64.to_le_bytes()));
    assert!(message.contains("[31, 32]") && message.contains("[32, 32]"), "{message}");
    let message = refusal(&with_tensor("llama3.gguf", "blk.0.attn_q.weight", ROWS_AT, &24u64.to_le_bytes()));
    assert!(message.contains("[24, 32]") && message.contains("[32, 32]"), "{message}");

    // Each family requires exactly its own tensors.
    let message = refusal(&with_text("qwen2-tied.gguf", "blk.1.attn_k.bias", "blk.1.attn_x.bias"));
    assert!(message.contains("blk.1.attn_k.bias") && message.contains("missing"), "{message}");
    let message =
        refusal(&with_text("qwen3-wide.gguf", "blk.1.attn_k_norm.weight", "blk.1.attn_z_norm.weight"));
    assert!(message.contains("blk.1.attn_k_norm.weight"), "{message}");
    let spare = with_text("llama3.gguf", "rope_freqs.weight", "blk.0.attn_q.bias");
    assert!(refusal(&spare).contains("does not belong to a llama model"), "{}", refusal(&spare));
}

#[test]
fn inconsistent_settings_are_refused() {
    let message = refusal(&with_text("llama-linear.gguf", "linear", "dynamo"));
    assert!(message.contains("dynamo") && message.contains("yarn"), "{message}");
    let number = |value: f32| value.to_le_bytes();
    let negative = with_value("llama-linear.gguf", "llama.rope.scaling.factor", &number(-1.0));
    assert!(refusal(&negative).contains("are invalid"));
    let not_a_number = with_value("qwen2-yarn.gguf", "qwen2.rope.scaling.factor", &number(f32::NAN));
    assert!(refusal(&not_a_number).contains("are invalid"));
    let key = "qwen3.context_length";
    assert!(refusal(&with_value("qwen3-wide.gguf", key, &u32::MAX.to_le_bytes())).contains("positions"));
    let key = "qwen3.block_count";
    let message = refusal(&with_value("qwen3-wide.gguf", key, &u32::MAX.to_le_bytes()));
    assert!(message.contains("layers"), "{message}");
    let key = "qwen3.attention.value_length";
    let message = refusal(&with_value("qwen3-wide.gguf", key, &8u32.to_le_bytes()));
    assert!(message.contains("value_length") && message.contains("12 wide"), "{message}");

    // Each frequency needs a factor of the rotary embedding.
    let bytes = original("llama3.gguf");
    let cut = with_tensor("llama3.gguf", "rope_freqs.weight", COLUMNS_AT, &3u64.to_le_bytes());
    assert!(refusal(&cut).contains("3 rotary factors for the 4 frequencies"));
    assert!(matches!(load(&bytes).unwrap().config.rope_scaling, pl_model::RopeScaling::Factors { .. }));
}

/// A sparse file takes no space on the disk, and lists of bytes would take 32 times its size in memory.
#[test]
fn headers_that_claim_too_much_are_refused_soon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let claims = |tensors: u64, entries: u64, rest: &[u8]| {
        let (tensors, entries) = (tensors.to_le_bytes(), entries.to_le_bytes());
        let bytes = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &tensors, &entries, rest].concat();
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        let started = Instant::now();
        let refused = Model::load(&path, Device::Cpu, Dtype::F32).map(|_| ()).unwrap_err().to_string();
        assert!(started.elapsed() < Duration::from_secs(5), "{refused}: {:?}", started.elapsed());
        refused
    };
    let (key, list, bytes) = ([&1u64.to_le_bytes(), b"k".as_slice()].concat(), 9u32, 0u32);
    let of_bytes =
        [&key, &list.to_le_bytes()[..], &bytes.to_le_bytes(), &(1u64 << 29).to_le_bytes()].concat();
    assert!(claims(0, 1, &of_bytes).contains("values of metadata"));
    assert!(claims(u64::MAX, 0, &[]).contains("tensors are more than any model has"));
    // Keys without letters and values of one byte.
    assert!(claims(0, u64::MAX, &[]).contains("values of metadata"));
}
