//! Limits of what a tokenizer makes of a text: its file may come from anywhere.
//!
//! A normaliser that writes ten characters for one, twelve times over, makes terabytes of a sentence. The library normalises added
//! tokens as soon as it reads the file, so that all of this is checked before.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

/// Steps of a part. Published tokenizers have up to ten.
const MOST_STEPS: usize = 64;

/// Factor by which the steps of a normaliser and a pre-tokenizer together, or those of a decoder, may make a text longer. By this
/// count, ALBERT's, the largest of published ones, has some 7,000. Each byte takes 17 of memory.
const LARGEST_GROWTH: usize = 8192;

/// Bytes that a model puts before or after each part of a word.
const LONGEST_AFFIX: usize = 64;

/// Characters of a word that WordPiece looks up, for which it copies their number cubed. Published tokenizers have 100.
const LONGEST_WORD: u64 = 1000;

/// Ids without a token that a vocabulary may have for each token, beyond the first [`FREE_IDS`]: the library lists them one by one when
/// it writes a file.
const IDS_PER_TOKEN: usize = 16;
const FREE_IDS: usize = 1 << 16;

/// Parts of a `tokenizer.json`, as the library reads them. None may be there twice.
#[derive(Deserialize)]
struct Parts {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    model: Model,
}

/// Settings of models of several kinds.
#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    max_input_chars_per_word: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
}

/// Returns the limit that the tokenizer of a file exceeds, in words, or why it can't be read.
pub(super) fn excess(json: &[u8]) -> Option<String> {
    let (parts, model) = match written(json) {
        Ok(parts) => parts,
        Err(error) => return Some(error.to_string()),
    };
    let [normalizer, pre_tokenizer, post_processor, decoder] = parts.each_ref().map(steps);
    for (name, steps) in [
        ("normaliser", &normalizer),
        ("pre-tokenizer", &pre_tokenizer),
        ("post-processor", &post_processor),
        ("decoder", &decoder),
    ] {
        if steps.len() > MOST_STEPS {
            return Some(format!("its {name} has more than {MOST_STEPS} steps"));
        }
    }
    for (names, steps) in
        [("normaliser and pre-tokenizer", [&normalizer[..], &pre_tokenizer].concat()), ("decoder", decoder)]
    {
        if steps.into_iter().map(growth).fold(1, usize::saturating_mul) > LARGEST_GROWTH {
            return Some(format!("its {names} may make a text more than {LARGEST_GROWTH} times as long"));
        }
    }
    if !post_processor.into_iter().all(keeps_length) {
        return Some("its post-processor repeats a text".to_owned());
    }
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if affixes.into_iter().any(|affix| affix.as_str().map_or(0, str::len) > LONGEST_AFFIX) {
        return Some(format!("it puts more than {LONGEST_AFFIX} bytes at each part of a word"));
    }
    if model.max_input_chars_per_word.as_u64() > Some(LONGEST_WORD) {
        return Some(format!("it looks up words of more than {LONGEST_WORD} characters"));
    }
    None
}

/// Returns the limit that the ids of a tokenizer exceed, in words.
pub(super) fn excess_of_ids(tokenizer: &tokenizers::Tokenizer) -> Option<String> {
    let vocabulary = tokenizer.get_vocab(true);
    let largest = vocabulary.values().max().copied().unwrap_or(0);
    let limit = FREE_IDS + IDS_PER_TOKEN * vocabulary.len();
    (largest as usize > limit)
        .then(|| format!("a token has the id {largest}, of {} tokens", vocabulary.len()))
}

/// Returns the normaliser, pre-tokenizer, post-processor and decoder in one form, and the model.
fn written(json: &[u8]) -> serde_json::Result<([Value; 4], Model)> {
    let Parts { normalizer, pre_tokenizer, post_processor, decoder, model } = serde_json::from_slice(json)?;
    let parts = [
        serde_json::to_value(normalizer)?,
        serde_json::to_value(pre_tokenizer)?,
        serde_json::to_value(post_processor)?,
        serde_json::to_value(decoder)?,
    ];
    Ok((parts, model))
}

/// Returns the steps of a part in their order, those of sequences in sequences included.
fn steps(part: &Value) -> Vec<&Value> {
    let names = ["normalizers", "pretokenizers", "processors", "decoders"];
    match names.into_iter().find_map(|name| part[name].as_array()) {
        Some(parts) => parts.iter().flat_map(steps).collect(),
        None => vec![part],
    }
}

/// Returns the factor by which a step may make a text longer.
fn growth(step: &Value) -> usize {
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    // What is replaced may be nothing, before each character and at the end.
    let doubles = |replaced: &Value| if length(replaced) == 0 { 3 } else { 1 };
    match step["type"].as_str().unwrap_or_default() {
        "Replace" => match (length(&step["content"]), length(&step["pattern"]["String"])) {
            (content, 0) => content + 1,
            (content, replaced) => content.div_ceil(replaced).max(1),
        },
        "Prepend" => 1 + length(&step["prepend"]),
        // The ligature U+FDFA, of three bytes, becomes 33.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" | "BertNormalizer" => 3,
        "Lowercase" => 2,
        // A space before each part, of two bytes, and two bytes for others.
        "ByteLevel" if step["add_prefix_space"] == true => 4,
        "ByteLevel" => 2,
        // A character of up to four bytes before each part.
        "Metaspace" => 5,
        "Precompiled" => length_of_longest_replacement(&step["precompiled_charsmap"]),
        "BPEDecoder" => doubles(&step["suffix"]),
        "CTC" => doubles(&step["word_delimiter_token"]),
        _ => 1,
    }
}

/// Returns the length of the longest text that SentencePiece's table writes for another: after a trie, whose size stands before it, come
/// all texts, each with a zero at its end.
fn length_of_longest_replacement(table: &Value) -> usize {
    let table = STANDARD.decode(table.as_str().unwrap_or_default()).unwrap_or_default();
    let Some((size, rest)) = table.split_first_chunk() else { return 1 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}

/// Returns true if a step of a post-processor has the tokens of a text once.
fn keeps_length(step: &Value) -> bool {
    let Some(pieces) = step["single"].as_array() else { return true };
    let texts: Vec<&Value> = pieces.iter().filter_map(|piece| piece.get("Sequence")).collect();
    texts.len() == 1 && texts[0]["id"] == "A"
}
