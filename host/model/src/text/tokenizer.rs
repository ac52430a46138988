//! Text to token ids and back, through Hugging Face's `tokenizers`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pl_types::erased::Erased;
use tokenizers::AddedToken;

use crate::error::Error;
use crate::text::control_tokens::{AddedText, ControlTokens, MARK};
use crate::text::tokenizer_limits;

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    model: String,
    inner: Erased<tokenizers::Tokenizer>,
    end_of_turn: Vec<u32>,
    /// Sorted ids of special tokens.
    special: Vec<u32>,
    control: ControlTokens,
    /// Knows [`MARK`]. Made for the first text with one.
    marking: OnceLock<Option<MarkingTokenizer>>,
    len: usize,
}

/// A tokenizer to which a mark inside control tokens is a token of its own.
#[derive(Debug)]
struct MarkingTokenizer {
    inner: Erased<tokenizers::Tokenizer>,
    mark: u32,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. `model` names the model in messages; `eos` has the ids that end a completion
    /// according to the model's files. `<|im_end|>`, `<|eot_id|>`, `<|eom_id|>` and `<|end_of_turn|>` of chat
    /// models are added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the text is not a valid tokenizer, or makes a text too long.
    pub fn from_json(model: impl Into<String>, json: &[u8], eos: &[u32]) -> Result<Self, Error> {
        let model = model.into();
        let mut inner = parse(&model, json)?;
        // Prompts are neither padded nor truncated, whatever the file requests.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| Error::Tokenizer { model: model.clone(), reason: e.to_string() })?;
        let mut end_of_turn = eos.to_vec();
        let chat_ends = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_turn|>"];
        end_of_turn.extend(chat_ends.iter().filter_map(|token| inner.token_to_id(token)));
        end_of_turn.sort_unstable();
        end_of_turn.dedup();
        let mut special: Vec<u32> = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        special.sort_unstable();
        let added = inner.get_added_tokens_decoder();
        let ends = end_of_turn.iter().filter_map(|id| inner.id_to_token(*id));
        let ends = ends.map(|text| AddedText { text, special: true, normalized: false });
        let added = added.values().map(|token| AddedText {
            text: token.content.clone(),
            special: token.special,
            normalized: token.normalized,
        });
        let control = ControlTokens::new(added.chain(ends), inner.get_normalizer());
        let len = inner.get_vocab_size(true);
        let inner = Erased::new(inner);
        Ok(Self { model, inner, end_of_turn, special, control, marking: OnceLock::new(), len })
    }

    /// Returns the token ids of a text. Special tokens in the text are recognised; none are added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the tokenizer can't encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(&self.inner, text)
    }

    /// Returns the token ids that this tokenizer, or the marking one, gives a text. The library panics at some texts with some files.
    fn encode_with(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>, Error> {
        let failed = |reason: String| Error::Tokenizer { model: self.model.clone(), reason };
        let encoded = catch_unwind(AssertUnwindSafe(|| tokenizer.encode_fast(text, false)))
            .map_err(|_| failed("it can't encode a text".to_owned()))?;
        Ok(encoded.map_err(|error| failed(error.to_string()))?.get_ids().to_vec())
    }

    pub(super) fn control_tokens(&self) -> &ControlTokens {
        &self.control
    }

    /// Returns the token ids of a text whose marked control tokens are text.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the tokenizer can't encode the text.
    pub(super) fn encode_marked(&self, text: &str) -> Result<Vec<u32>, Error> {
        if !text.contains(MARK) {
            return self.encode(text);
        }
        let failed = |reason: String| Error::Tokenizer { model: self.model.clone(), reason };
        let marking = self.marking.get_or_init(|| MarkingTokenizer::new(&self.inner)).as_ref();
        let marking =
            marking.ok_or_else(|| failed("it can't keep control tokens in texts apart".to_owned()))?;
        let ids = self.encode_with(&marking.inner, text)?;
        Ok(ids.into_iter().filter(|id| *id != marking.mark).collect())
    }

    /// Returns the text of token ids. Invalid UTF-8 becomes U+FFFD; ids outside of the vocabulary are
    /// skipped.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.inner.decode(ids, skip_special)));
        decoded.ok().and_then(Result::ok).unwrap_or_else(|| {
            // If the decoder fails: the tokens as written in the vocabulary.
            ids.iter().filter_map(|id| self.inner.id_to_token(*id)).collect()
        })
    }

    /// Returns the bytes of a token within a text, special tokens included. A token may have only a part of a character. Empty
    /// if there is no such token.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let alone = self.decode(&[id], false);
        if alone.contains(char::REPLACEMENT_CHARACTER) {
            let written = self.token(id).unwrap_or_default();
            let bytes = fallback_byte(&written).map(|byte| vec![byte]).or_else(|| byte_level(&written));
            return bytes.unwrap_or_else(|| alone.into_bytes());
        }
        // Some tokenizers write no space before the first token of a text.
        let pair = self.decode(&[id, id], false);
        let second = pair.strip_prefix(&alone).filter(|second| !second.is_empty());
        second.unwrap_or(&alone).as_bytes().to_vec()
    }

    /// Returns the ids that end a completion, sorted.
    pub fn end_of_turn(&self) -> &[u32] {
        &self.end_of_turn
    }

    /// Returns the id of a token, given as written in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the token of an id, as written in the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns true for special tokens, which are not part of a decoded text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.binary_search(&id).is_ok()
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the `tokenizer.json` of this tokenizer.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if it can't be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        self.inner
            .to_string(false)
            .map_err(|e| Error::Tokenizer { model: self.model.clone(), reason: e.to_string() })
    }
}

/// Returns the byte that a token such as `<0xE2>` stands for.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

/// Returns the bytes of a token as byte-level tokenizers write it. Returns `None` if it has other characters than these.
fn byte_level(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Returns the byte of a character in GPT-2's table: bytes that print stand for themselves, the others follow from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u32::from(character) {
        code @ 0..=0xFF => u8::try_from(code).ok().filter(prints),
        code => (0..=u8::MAX).filter(|byte| !prints(byte)).nth(code.checked_sub(0x100)? as usize),
    }
}

/// Parses a tokenizer that may come from anywhere. The library panics on some invalid files.
fn parse(model: &str, json: &[u8]) -> Result<tokenizers::Tokenizer, Error> {
    let failed = |reason: String| Error::Tokenizer { model: model.to_owned(), reason };
    let invalid = || failed("a part of it is invalid".to_owned());
    if let Some(excess) = catch_unwind(|| tokenizer_limits::excess(json)).map_err(|_| invalid())? {
        return Err(failed(excess));
    }
    let parsed = catch_unwind(|| tokenizers::Tokenizer::from_bytes(json)).map_err(|_| invalid())?;
    let tokenizer = parsed.map_err(|error| failed(error.to_string()))?;
    match tokenizer_limits::excess_of_ids(&tokenizer) {
        Some(excess) => Err(failed(excess)),
        None => Ok(tokenizer),
    }
}

impl MarkingTokenizer {
    fn new(inner: &tokenizers::Tokenizer) -> Option<MarkingTokenizer> {
        let mut inner = inner.clone();
        inner.add_special_tokens(&[AddedToken::from(MARK.to_string(), true).normalized(false)]);
        let mark = inner.token_to_id(&MARK.to_string())?;
        Some(MarkingTokenizer { inner: Erased::new(inner), mark })
    }
}
