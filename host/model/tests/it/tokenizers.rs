//! Token ids equal the `tokenizers` package's (data from tests/conformance/tokenizers_reference.py), for
//! Hugging Face files and for the same vocabularies in GGUF files.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pl_model::{Model, Tokenizer};
use pl_types::Dtype;
use serde_json::{Value, json};
use tch::Device;

use crate::{cache, data, smollm};

fn read<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(data(path)).unwrap()).unwrap()
}

/// Fails with the first text whose ids differ.
fn equals_reference(name: &str, tokenizer: &Tokenizer) {
    let texts: Vec<String> = read("conformance/text/corpus.json");
    let expected: Vec<Vec<u32>> = read(&format!("conformance/text/ids/{name}.json"));
    assert!(texts.len() >= 100 && texts.len() == expected.len());
    for (text, expected) in texts.iter().zip(&expected) {
        assert_eq!(&tokenizer.encode(text).unwrap(), expected, "{name}: {text:?}");
    }
}

/// Checks that decoding returns each encoded text, special tokens included.
fn assert_round_trip(tokenizer: &Tokenizer, texts: &[String]) {
    for text in texts {
        assert_eq!(&tokenizer.decode(&tokenizer.encode(text).unwrap(), false), text);
    }
}

fn gguf(path: &Path) -> Model {
    Model::load(path, Device::Cpu, Dtype::F32).unwrap()
}

fn small(name: &str) -> std::sync::Arc<Tokenizer> {
    let tokenizer = gguf(&data(&format!("conformance/text/{name}.gguf"))).tokenizer;
    equals_reference(name, &tokenizer);
    tokenizer
}

#[test]
fn small_byte_level_vocabularies() {
    let texts: Vec<String> = read("conformance/text/corpus.json");
    for name in ["small-gpt2", "small-smollm", "small-llama3"] {
        let tokenizer = small(name);
        assert_round_trip(&tokenizer, &texts);
        let [think, end] = ["<think>", "<|im_end|>"].map(|token| tokenizer.id(token).unwrap());
        assert!(tokenizer.is_special(end) && !tokenizer.is_special(think), "{name}");
        assert_eq!(tokenizer.decode(&[think, end], true), "<think>", "{name}");
    }
    // Qwen2 normalises texts to composed characters first, so not every text comes back unchanged.
    let qwen = small("small-qwen2");
    assert_round_trip(&qwen, &texts[..5]);
    assert_eq!(qwen.encode("e\u{301}").unwrap(), qwen.encode("é").unwrap());
}

#[test]
fn small_sentencepiece_vocabularies() {
    let tokenizer = small("small-llama2");
    assert_eq!(tokenizer.decode(&tokenizer.encode("a  b\n東🚀").unwrap(), false), "a  b\n東🚀");
    assert!(tokenizer.is_special(tokenizer.id("</s>").unwrap()));
    // A character that fell back to bytes, cut in half.
    let rocket = tokenizer.encode("🚀").unwrap();
    assert!(tokenizer.decode(&rocket[..rocket.len() - 1], false).contains('\u{FFFD}'));
    let plain = small("small-llama2-no-prefix");
    assert_eq!(plain.decode(&plain.encode(" a").unwrap(), false), " a");
    assert_ne!(plain.encode("a").unwrap(), tokenizer.encode("a").unwrap());
}

/// Returns the folder of a published tokenizer. Returns `None` and reports the test as
/// skipped if it was not fetched.
fn published(name: &str) -> Option<PathBuf> {
    let folder = cache().join("tokenizers").join(name);
    if folder.join("tokenizer.json").exists() && folder.join("model.gguf").exists() {
        return Some(folder);
    }
    let script = "python3 tests/conformance/tokenizers_reference.py fetch";
    pl_testing::skip_or_fail(
        pl_testing::Requirement::Tokenizers,
        &format!("{} is missing ({script} fetches it)", folder.display()),
    );
    None
}

fn both_kinds_of_files(name: &str) {
    let Some(folder) = published(name) else { return };
    let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
    equals_reference(name, &Tokenizer::from_json(name, &json, &[]).unwrap());
    equals_reference(name, &gguf(&folder.join("model.gguf")).tokenizer);
}

#[test]
fn gpt2() {
    both_kinds_of_files("gpt2");
}

#[test]
fn mistral() {
    both_kinds_of_files("mistral");
}

#[test]
fn llama3() {
    both_kinds_of_files("llama3");
    both_kinds_of_files("llama3.2");
}

#[test]
fn qwen() {
    both_kinds_of_files("qwen2.5");
    both_kinds_of_files("qwen3");
}

#[test]
fn smollm2() {
    let Some(path) = smollm() else { return };
    equals_reference("smollm2", &gguf(&path).tokenizer);
}

/// A step that writes `factor` characters for one.
fn replacement(factor: usize) -> Value {
    json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "a".repeat(factor) })
}

/// The small tokenizer with another part.
fn with(part: &str, value: Value) -> Result<Tokenizer, String> {
    let mut file: Value = read("data/tiny/tokenizer.json");
    file[part] = value;
    Tokenizer::from_json("m", file.to_string().as_bytes(), &[]).map_err(|error| error.to_string())
}

#[test]
fn a_tokenizer_whose_work_is_out_of_proportion_is_refused() {
    let normalizer =
        |steps: &[Value]| with("normalizer", json!({ "type": "Sequence", "normalizers": steps }));
    let thousand = normalizer(&[replacement(10), replacement(100)]).unwrap();
    let pieces = |text: &str| thousand.encode(text).unwrap().len();
    assert!(pieces("a") > 100 * pieces("b"), "the text grows");
    let message = normalizer(&vec![replacement(10); 12]).unwrap_err();
    assert_eq!(message, "tokenizer of m: its normaliser may make a text more than 4096 times as long");
    let nested = json!({ "type": "Sequence", "normalizers": [replacement(100)] });
    assert_eq!(normalizer(&[nested.clone(), nested]).unwrap_err(), message);
    let regex = json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "a".repeat(4096) });
    assert_eq!(with("normalizer", regex).unwrap_err(), message);

    let decoder = json!({ "type": "Sequence", "decoders": vec![replacement(10); 12] });
    let message = with("decoder", decoder).unwrap_err();
    assert_eq!(message, "tokenizer of m: its decoder may make a text more than 4096 times as long");
    let message = normalizer(&vec![json!({ "type": "NFC" }); 65]).unwrap_err();
    assert_eq!(message, "tokenizer of m: its normaliser has more than 64 steps");
    let message = with("normalizer", json!({ "type": "Prepend", "prepend": "a".repeat(65) })).unwrap_err();
    assert_eq!(message, "tokenizer of m: its normaliser puts more than 64 bytes before a text");
    let words = json!({
        "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1_000_000,
        "vocab": { "a": 3 },
    });
    assert_eq!(
        with("model", words).unwrap_err(),
        "tokenizer of m: it looks up words of more than 1000 characters"
    );
}

/// SentencePiece's table: a trie, here of no bytes, then all texts that it writes.
#[test]
fn a_table_that_writes_long_texts_is_refused() {
    let table = |longest: usize| {
        let texts = [&[0; 4][..], b"b\0", "a".repeat(longest).as_bytes(), b"\0"].concat();
        json!({ "type": "Precompiled", "precompiled_charsmap": STANDARD.encode(texts) })
    };
    with("normalizer", table(33)).unwrap();
    let message = with("normalizer", table(5000)).unwrap_err();
    assert!(message.contains("more than 4096 times as long"), "{message}");
}
