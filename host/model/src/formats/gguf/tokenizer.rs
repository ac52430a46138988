//! Tokenizer and chat template of a GGUF file.
//!
//! The file has a vocabulary and the name of an algorithm. Each algorithm is expressed here as the
//! `tokenizer.json` of the same models, so that one tokenizer serves both kinds of files: byte-level BPE
//! (`gpt2`), and the pair merging of SentencePiece (`llama`, in [`sentencepiece`]).

mod sentencepiece;
mod vocabulary;

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use self::vocabulary::Vocabulary;
use crate::error::Error;
use crate::formats::gguf::file::MetadataValue;
use crate::network::config::Config;
use crate::text::template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// Splitting pattern of Llama 3 and Qwen2, which differ in `{DIGITS}`: Qwen2 splits off single digits.
const WORD_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|{DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Builds the tokenizer and the chat template from the metadata.
pub(crate) fn build(
    metadata: &HashMap<String, MetadataValue>,
    config: &Config,
    model: &str,
    path: &Path,
) -> Result<(Tokenizer, ChatTemplate), Error> {
    let vocabulary = Vocabulary::read(metadata, path)?;
    let tokens = &vocabulary.tokens;
    if tokens.len() as i64 != config.vocab {
        let reason = format!("{} tokens for an embedding of {} rows", tokens.len(), config.vocab);
        return Err(Error::format(path, reason));
    }
    let json = match vocabulary.get("model").and_then(MetadataValue::text).unwrap_or("nothing") {
        "gpt2" => byte_level(&vocabulary)?,
        "llama" => sentencepiece::tokenizer(&vocabulary)?,
        kind => {
            let reason = format!(
                "its tokenizer is of the kind {kind}; byte-level BPE (gpt2) and SentencePiece (llama) can be \
                 read. Use the model's Hugging Face folder instead"
            );
            return Err(Error::format(path, reason));
        }
    };
    let mut eos = config.eos.clone();
    // The ends of a turn and of a message with tool calls, if they are not the end of a text.
    eos.extend(["eot_token_id", "eom_token_id"].iter().filter_map(|key| {
        let id = u32::try_from(vocabulary.get(key)?.int()?).ok()?;
        ((id as usize) < tokens.len()).then_some(id)
    }));
    let tokenizer = Tokenizer::from_json(model, json.to_string().as_bytes(), &eos)?;
    let text = |id: Option<u32>| id.and_then(|id| tokens.get(id as usize)).map(|token| (*token).to_owned());
    let source = metadata.get("tokenizer.chat_template").and_then(MetadataValue::text).map(str::to_owned);
    let template = ChatTemplate::new(model, source, text(config.bos), text(config.eos.first().copied()))?;
    Ok((tokenizer, template))
}

/// Steps of a byte-level tokenizer before the merges.
struct Pretokenization {
    normalizer: Value,
    pre_tokenizer: Value,
    /// True if a word that is a token skips the merges.
    ignore_merges: bool,
}

fn byte_level(vocabulary: &Vocabulary) -> Result<Value, Error> {
    let name = vocabulary.get("pre").and_then(MetadataValue::text).unwrap_or("default");
    let Some(pretokenization) = pretokenization(name) else {
        let reason = format!(
            "its pre-tokeniser is `{name}`; smollm, gpt-2, default, llama-bpe and qwen2 are supported. Use the \
             model's Hugging Face folder instead"
        );
        return Err(Error::format(vocabulary.path, reason));
    };
    let merges = vocabulary
        .texts("merges")?
        .into_iter()
        .map(|merge| {
            merge.split_once(' ').ok_or_else(|| {
                Error::format(
                    vocabulary.path,
                    format!("the merge {merge:?} is not a pair; download the file again"),
                )
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": pretokenization.normalizer,
        "pre_tokenizer": pretokenization.pre_tokenizer,
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": pretokenization.ignore_merges, "vocab": vocabulary.vocab(), "merges": merges,
        },
    }))
}

/// Returns the steps for a value of `tokenizer.ggml.pre`.
fn pretokenization(name: &str) -> Option<Pretokenization> {
    let bytes = |pattern: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": pattern });
    let sequence = |parts: [Value; 2]| json!({ "type": "Sequence", "pretokenizers": parts });
    let word_splitter = |digits: &str| {
        let pattern = WORD_PATTERN.replace("{DIGITS}", digits);
        let split = json!({
            "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false,
        });
        sequence([split, bytes(false)])
    };
    let (normalizer, pre_tokenizer, ignore_merges) = match name {
        // Digits are split off first, so that spaces before a digit stay together.
        "smollm" => {
            let digits = json!({ "type": "Digits", "individual_digits": true });
            (Value::Null, sequence([digits, bytes(true)]), false)
        }
        "gpt-2" | "default" => (Value::Null, bytes(true), false),
        "llama-bpe" | "llama3" | "llama-v3" => (Value::Null, word_splitter(r"\p{N}{1,3}"), true),
        // `deepseek-r1-qwen` is the same algorithm in Qwen models that DeepSeek distilled.
        "qwen2" | "deepseek-r1-qwen" => (json!({ "type": "NFC" }), word_splitter(r"\p{N}"), false),
        _ => return None,
    };
    Some(Pretokenization { normalizer, pre_tokenizer, ignore_merges })
}
