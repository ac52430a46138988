//! Token ids equal the `tokenizers` package's (data from tests/conformance/tokenizers_reference.py), for
//! Hugging Face files and for the same vocabularies in GGUF files.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pl_model::{Error, Model, Tokenizer};
use pl_types::Dtype;
use serde_json::{Value, json};
use tch::Device;

use crate::data;

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
    let folder = pl_testing::cache().join("tokenizers").join(name);
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
    let Some(path) = pl_testing::smollm() else { return };
    equals_reference("smollm2", &gguf(&path).tokenizer);
}

#[test]
fn tokens_have_their_bytes_within_a_text() {
    let bytes_of = |tokenizer: &Tokenizer, text: &str| -> Vec<u8> {
        tokenizer.encode(text).unwrap().iter().flat_map(|id| tokenizer.token_bytes(*id)).collect()
    };
    let byte_level = with("normalizer", Value::Null).unwrap();
    for text in ["the\u{a0}é\u{ad} 🙂\n", "<|im_end|>", "\u{fffd}"] {
        assert_eq!(bytes_of(&byte_level, text), text.as_bytes(), "{text:?}");
    }
    assert!(byte_level.token_bytes(u32::MAX).is_empty());

    // As of SentencePiece: `▁` is a space, which a text doesn't begin with.
    let vocab =
        json!({ "<unk>": 0, "<0xF0>": 1, "<0x9F>": 2, "<0x99>": 3, "<0x82>": 4, "▁": 5, "a": 6, "▁a": 7 });
    let step = |kind: &str| json!({ "type": kind });
    let decoders = json!([
        { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
        step("ByteFallback"),
        step("Fuse"),
        { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
    ]);
    let file = json!({
        "added_tokens": [],
        "normalizer": { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": { "type": "BPE", "vocab": vocab, "merges": [["▁", "a"]], "byte_fallback": true, "unk_token": "<unk>" },
    });
    let pieces = Tokenizer::from_json("m", file.to_string().as_bytes(), &[]).unwrap();
    assert_eq!(pieces.decode(&pieces.encode(" a a").unwrap(), false), "a a");
    assert_eq!(bytes_of(&pieces, " a 🙂a"), " a 🙂a".as_bytes());
    assert_eq!(pieces.token_bytes(2), [0x9F]);
}

/// A step that writes `factor` characters for one.
fn replacement(factor: usize) -> Value {
    json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "a".repeat(factor) })
}

/// The small tokenizer with another part.
fn with(part: &str, value: Value) -> Result<Tokenizer, Error> {
    let mut file: Value = read("data/tiny/tokenizer.json");
    file[part] = value;
    Tokenizer::from_json("m", file.to_string().as_bytes(), &[])
}

#[test]
fn a_tokenizer_whose_work_is_out_of_proportion_is_refused() {
    let refusal = |part: &str, value: Value| with(part, value).unwrap_err().to_string();
    let sequence = |steps: &[Value]| json!({ "type": "Sequence", "normalizers": steps });
    let thousand = with("normalizer", sequence(&[replacement(10), replacement(100)])).unwrap();
    let pieces = |text: &str| thousand.encode(text).unwrap().len();
    assert!(pieces("a") > 100 * pieces("b"), "the text grows");
    let grows =
        "tokenizer of m: its normaliser and pre-tokenizer may make a text more than 8192 times as long";
    let nested = sequence(&[replacement(100)]);
    let nothing = |pattern: &str| json!({ "type": "Replace", "pattern": { pattern: "" }, "content": "a" });
    for steps in [
        vec![replacement(10); 12],
        vec![nested.clone(), nested],
        vec![nothing("Regex"); 14],
        vec![nothing("String"); 14],
        vec![json!({ "type": "Prepend", "prepend": "a".repeat(64) }), replacement(200)],
    ] {
        assert_eq!(refusal("normalizer", sequence(&steps)), grows);
    }
    // Files of old versions don't say the type of a step.
    let untyped = json!({ "pattern": { "String": "a" }, "content": "a".repeat(10_000) });
    assert_eq!(refusal("normalizer", untyped), grows);
    let levels =
        json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true });
    assert_eq!(
        refusal("pre_tokenizer", json!({ "type": "Sequence", "pretokenizers": vec![levels; 7] })),
        grows
    );

    let decoder = |steps: Vec<Value>| refusal("decoder", json!({ "type": "Sequence", "decoders": steps }));
    let grows = "tokenizer of m: its decoder may make a text more than 8192 times as long";
    assert_eq!(decoder(vec![replacement(10); 12]), grows);
    assert_eq!(decoder(vec![json!({ "type": "BPEDecoder", "suffix": "" }); 12]), grows);
    let steps = refusal(
        "normalizer",
        sequence(&vec![json!({ "type": "Strip", "strip_left": true, "strip_right": true }); 65]),
    );
    assert_eq!(steps, "tokenizer of m: its normaliser has more than 64 steps");

    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let template = |single: &[Value]| json!({ "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {} });
    with("post_processor", template(std::slice::from_ref(&text))).unwrap();
    let message = refusal("post_processor", template(&[text.clone(), text]));
    assert_eq!(message, "tokenizer of m: its post-processor repeats a text");

    let words = |longest: u64, prefix: &str| {
        json!({
            "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": prefix, "max_input_chars_per_word": longest,
            "vocab": { "a": 3 },
        })
    };
    let message = refusal("model", words(1_000_000, "##"));
    assert_eq!(message, "tokenizer of m: it looks up words of more than 1000 characters");
    let message = refusal("model", words(100, &"#".repeat(65)));
    assert_eq!(message, "tokenizer of m: it puts more than 64 bytes at each part of a word");
}

/// The library normalises added tokens as soon as it reads a file.
#[test]
fn a_normaliser_is_checked_before_it_normalises_added_tokens() {
    let mut file: Value = read("data/tiny/tokenizer.json");
    file["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![replacement(10); 12] });
    file["added_tokens"].as_array_mut().unwrap()[0]["content"] = json!("aaaa");
    file["added_tokens"].as_array_mut().unwrap()[0]["normalized"] = json!(true);
    let error = Tokenizer::from_json("m", file.to_string().as_bytes(), &[]).unwrap_err().to_string();
    assert!(error.contains("more than 8192 times as long"), "{error}");
}

/// The library lists all ids without a token when it writes a file.
#[test]
fn an_id_far_beyond_the_vocabulary_is_refused() {
    let words = |id: u32| json!({ "type": "WordLevel", "unk_token": "a", "vocab": { "a": id } });
    with("model", words(65_536)).unwrap();
    let message = with("model", words(u32::MAX - 1)).unwrap_err().to_string();
    assert!(message.starts_with("tokenizer of m: a token has the id 4294967294, of "), "{message}");
}

/// The library panics.
#[test]
fn a_step_that_fails_is_an_error_of_the_text() {
    let tokenizer = with("pre_tokenizer", json!({ "type": "FixedLength", "length": 0 })).unwrap();
    assert_eq!(tokenizer.encode("a text").unwrap_err().to_string(), "tokenizer of m: it can't encode a text");
}

/// SentencePiece's table: a trie, here of no bytes, then all texts that it writes.
#[test]
fn a_table_that_writes_long_texts_is_refused() {
    let table = |longest: usize| {
        let texts = [&[0; 4][..], b"b\0", "a".repeat(longest).as_bytes(), b"\0"].concat();
        json!({ "type": "Precompiled", "precompiled_charsmap": STANDARD.encode(texts) })
    };
    with("normalizer", table(33)).unwrap();
    let message = with("normalizer", table(9000)).unwrap_err().to_string();
    assert!(message.contains("more than 8192 times as long"), "{message}");
}
