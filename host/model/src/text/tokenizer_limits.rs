//! Limits of what a tokenizer makes of a text: its file may come from anywhere.
//!
//! A normaliser that writes ten characters for one, twelve times over, makes terabytes of a sentence.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::error::Error;

/// Steps of a normaliser, a pre-tokenizer or a decoder. Published ones have up to ten.
const MOST_STEPS: usize = 64;

/// Factor by which all steps together may make a text longer. That of XLNet, the largest of published ones, is 726.
const LARGEST_GROWTH: usize = 4096;

/// Bytes that a step may put before a text.
const LONGEST_PREFIX: usize = 64;

/// Characters of a word that WordPiece looks up, for which it takes their number squared. Published tokenizers have 100.
const LONGEST_WORD: u64 = 1000;

/// Checks that a tokenizer's work is in proportion to the text.
///
/// # Errors
/// [`Error::Tokenizer`] with the limit that is exceeded.
pub(super) fn check(model: &str, tokenizer: &Tokenizer) -> Result<(), Error> {
    let refused = |reason: String| Error::Tokenizer { model: model.to_owned(), reason };
    let written = [
        ("normaliser", serde_json::to_value(tokenizer.get_normalizer())),
        ("pre-tokenizer", serde_json::to_value(tokenizer.get_pre_tokenizer())),
        ("decoder", serde_json::to_value(tokenizer.get_decoder())),
    ];
    for (name, part) in written {
        let part = part.map_err(|error| refused(error.to_string()))?;
        let steps = steps(&part);
        if steps.len() > MOST_STEPS {
            return Err(refused(format!("its {name} has more than {MOST_STEPS} steps")));
        }
        let prefix = |step: &&Value| step["prepend"].as_str().map_or(0, str::len);
        if steps.iter().map(prefix).max() > Some(LONGEST_PREFIX) {
            return Err(refused(format!("its {name} puts more than {LONGEST_PREFIX} bytes before a text")));
        }
        if steps.into_iter().map(growth).fold(1, usize::saturating_mul) > LARGEST_GROWTH {
            return Err(refused(format!(
                "its {name} may make a text more than {LARGEST_GROWTH} times as long"
            )));
        }
    }
    if let tokenizers::ModelWrapper::WordPiece(words) = tokenizer.get_model() {
        let words = serde_json::to_value(words).map_err(|error| refused(error.to_string()))?;
        if words["max_input_chars_per_word"].as_u64() > Some(LONGEST_WORD) {
            return Err(refused(format!("it looks up words of more than {LONGEST_WORD} characters")));
        }
    }
    Ok(())
}

/// Returns the steps of a part in their order, those of sequences in sequences included.
fn steps(part: &Value) -> Vec<&Value> {
    let sequence =
        ["normalizers", "pretokenizers", "decoders"].into_iter().find_map(|name| part[name].as_array());
    match sequence {
        Some(parts) => parts.iter().flat_map(steps).collect(),
        None => vec![part],
    }
}

/// Returns the factor by which a step may make a text longer.
fn growth(step: &Value) -> usize {
    match step["type"].as_str().unwrap_or_default() {
        "Replace" => {
            let content = step["content"].as_str().map_or(0, str::len);
            match step["pattern"]["String"].as_str() {
                Some(replaced) => content.div_ceil(replaced.len().max(1)).max(1),
                // It may match nothing, before each character.
                None => content + 1,
            }
        }
        // The ligature U+FDFA, of three bytes, becomes 33.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" | "BertNormalizer" | "Metaspace" => 3,
        "Lowercase" | "ByteLevel" => 2,
        "Precompiled" => step["precompiled_charsmap"].as_str().map_or(1, longest_replacement),
        _ => 1,
    }
}

/// Returns the length of the longest text that SentencePiece's table writes for another: after a trie, whose size stands before it, come
/// all texts, each with a zero at its end.
fn longest_replacement(table: &str) -> usize {
    let table = STANDARD.decode(table).unwrap_or_default();
    let Some((size, rest)) = table.split_first_chunk() else { return 1 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}
