//! The tokenizer and the chat template that a GGUF file carries.
//!
//! The file names its pre-tokeniser (`tokenizer.ggml.pre`) instead of describing it; the ones known here are
//! written out as the models' own `tokenizer.json` have them. For SmolLM that means digits are split off
//! before the byte-level pattern runs, so that spaces before a digit stay together.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::gguf::Meta;
use crate::{ChatTemplate, Config, Error, Tokenizer};

/// Token types of the file.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Llama 3's splitting pattern.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Builds both from the metadata.
pub(crate) fn build(
    metadata: &HashMap<String, Meta>,
    config: &Config,
    model: &str,
    path: &Path,
) -> Result<(Tokenizer, ChatTemplate), Error> {
    let get = |key: &str| metadata.get(&format!("tokenizer.ggml.{key}"));
    let kind = get("model").and_then(Meta::text).unwrap_or("nothing");
    if kind != "gpt2" {
        let reason = format!("its tokenizer is of the kind {kind}; only byte-level BPE (gpt2) can be read");
        return Err(Error::format(path, reason));
    }
    let list = |key: &str| {
        get(key)
            .and_then(Meta::list)
            .ok_or_else(|| Error::format(path, format!("`tokenizer.ggml.{key}` is missing or no list")))
    };
    let tokens: Vec<&str> = list("tokens")?.iter().filter_map(Meta::text).collect();
    if tokens.len() as i64 != config.vocab {
        let reason = format!("{} tokens for an embedding of {} rows", tokens.len(), config.vocab);
        return Err(Error::format(path, reason));
    }
    let merges: Vec<&str> = list("merges")?.iter().filter_map(Meta::text).collect();

    let mut vocab = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        vocab.insert((*token).to_owned(), id.into());
    }
    let types = get("token_type").and_then(Meta::list).unwrap_or_default();
    let added: Vec<Value> = types
        .iter()
        .zip(&tokens)
        .enumerate()
        .filter_map(|(id, (kind, token))| {
            let kind = kind.int()?;
            (kind == CONTROL || kind == USER_DEFINED).then(|| {
                json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind == CONTROL,
                })
            })
        })
        .collect();
    let pre = get("pre").and_then(Meta::text).unwrap_or("default");
    let Some((pre_tokenizer, ignore_merges)) = pre_tokenizer(pre) else {
        let reason = format!(
            "its pre-tokeniser is `{pre}`; smollm, gpt-2, default and llama-bpe are known. Use the model's \
             Hugging Face folder instead"
        );
        return Err(Error::format(path, reason));
    };
    let json = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": ignore_merges, "vocab": vocab, "merges": merges,
        },
    });
    let tokenizer = Tokenizer::from_json(model, json.to_string().as_bytes(), &config.eos)?;
    let text = |id: Option<u32>| id.and_then(|id| tokens.get(id as usize)).map(|token| (*token).to_owned());
    let source = metadata.get("tokenizer.chat_template").and_then(Meta::text).map(str::to_owned);
    let template = ChatTemplate::new(model, source, text(config.bos), text(config.eos.first().copied()))?;
    Ok((tokenizer, template))
}

/// The pre-tokeniser of a name, and whether whole words skip the merges.
fn pre_tokenizer(name: &str) -> Option<(Value, bool)> {
    let bytes = |pattern: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": pattern });
    Some(match name {
        "smollm" => {
            let digits = json!({ "type": "Digits", "individual_digits": true });
            (json!({ "type": "Sequence", "pretokenizers": [digits, bytes(true)] }), false)
        }
        "gpt-2" | "default" => (bytes(true), false),
        "llama-bpe" | "llama3" => {
            let split = json!({
                "type": "Split", "pattern": { "Regex": LLAMA3 }, "behavior": "Isolated", "invert": false,
            });
            (json!({ "type": "Sequence", "pretokenizers": [split, bytes(false)] }), true)
        }
        _ => return None,
    })
}
