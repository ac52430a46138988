//! SentencePiece's pair merging, the tokenizer of Llama 1 and 2 and of TinyLlama.
//!
//! SentencePiece merges the neighbours whose union has the best score; the file has scores and no merges. The
//! merges are derived as in transformers (`generate_merges`): every split of a token into two tokens is a
//! merge, in descending order of score. A character outside of the vocabulary falls back to its bytes.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::vocabulary::{BYTE, CONTROL, UNKNOWN, Vocabulary};
use crate::error::Error;
use crate::formats::gguf::file::MetadataValue;

/// Character for a space inside of tokens.
const SPACE: &str = "\u{2581}";

/// Returns the `tokenizer.json` of a vocabulary with scores.
pub(super) fn tokenizer(vocabulary: &Vocabulary) -> Result<Value, Error> {
    // By default, a text starts like a word inside of a sentence.
    let prefix = !matches!(vocabulary.get("add_space_prefix"), Some(MetadataValue::Bool(false)));
    let spaces = json!({ "type": "Replace", "pattern": { "String": " " }, "content": SPACE });
    let mut normalizers = vec![spaces];
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": SPACE }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        normalizers.insert(0, json!({ "type": "Prepend", "prepend": SPACE }));
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let of = |wanted: i64| (0..vocabulary.tokens.len()).filter(move |id| vocabulary.kind(*id) == wanted);
    let unknown = of(UNKNOWN).next().map(|id| vocabulary.tokens[id]);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": of(BYTE).count() == 256,
            "ignore_merges": false, "vocab": vocabulary.vocab(), "merges": merges(vocabulary)?,
        },
    }))
}

/// A split of a token into two.
struct Cut<'a> {
    left: &'a str,
    right: &'a str,
    score: f64,
    /// Number of characters of each side.
    lengths: (usize, usize),
}

/// Returns all splits into two tokens, sorted by descending score, then by descending length of the left
/// side, then by id.
fn merges<'a>(vocabulary: &Vocabulary<'a>) -> Result<Vec<(&'a str, &'a str)>, Error> {
    let scores = vocabulary.list("scores")?;
    if scores.len() != vocabulary.tokens.len() {
        let reason =
            format!("{} scores for {} tokens; fetch it again", scores.len(), vocabulary.tokens.len());
        return Err(Error::format(vocabulary.path, reason));
    }
    // Control, byte and unknown tokens are never the union of other tokens, nor part of one.
    let text = |id: &usize| !matches!(vocabulary.kind(*id), UNKNOWN | CONTROL | BYTE);
    let ids: HashMap<&str, usize> =
        (0..scores.len()).filter(text).map(|id| (vocabulary.tokens[id], id)).collect();
    let mut cuts = Vec::new();
    for id in (0..scores.len()).filter(text) {
        let Some(score) = scores[id].float() else {
            let reason = format!("entry {id} of `tokenizer.ggml.scores` is not a number; fetch it again");
            return Err(Error::format(vocabulary.path, reason));
        };
        let token = vocabulary.tokens[id];
        let count = token.chars().count();
        let mut own: Vec<_> = token
            .char_indices()
            .enumerate()
            .skip(1)
            .filter_map(|(chars, (at, _))| {
                let (left, right) = token.split_at(at);
                let order = (ids.get(left)?, ids.get(right)?);
                Some((order, Cut { left, right, score, lengths: (chars, count - chars) }))
            })
            .collect();
        own.sort_by_key(|(order, _)| *order);
        cuts.extend(own.into_iter().map(|(_, cut)| cut));
    }
    let better =
        |a: &Cut, b: &Cut| -> Ordering { b.score.total_cmp(&a.score).then(b.lengths.cmp(&a.lengths)) };
    cuts.sort_by(better);
    Ok(cuts.into_iter().map(|cut| (cut.left, cut.right)).collect())
}
