//! Text to token ids and back, through Hugging Face's `tokenizers`.

use crate::error::Error;

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    model: String,
    inner: tokenizers::Tokenizer,
    end_of_turn: Vec<u32>,
    /// Sorted ids of special tokens.
    special: Vec<u32>,
    len: usize,
}

impl Tokenizer {
    /// From the text of a `tokenizer.json`. `model` names the model in messages; `eos` are the ids that its
    /// files say end a completion; chat models' `<|im_end|>`, `<|eot_id|>`, `<|eom_id|>` and `<|end_of_turn|>` join them.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the text is not a tokenizer.
    pub fn from_json(model: impl Into<String>, json: &[u8], eos: &[u32]) -> Result<Self, Error> {
        let model = model.into();
        let mut inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|e| Error::Tokenizer { model: model.clone(), reason: e.to_string() })?;
        // A file may ask for padding and truncation; prompts want neither.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| Error::Tokenizer { model: model.clone(), reason: e.to_string() })?;
        let mut end_of_turn = eos.to_vec();
        let known = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_turn|>"];
        end_of_turn.extend(known.iter().filter_map(|token| inner.token_to_id(token)));
        end_of_turn.sort_unstable();
        end_of_turn.dedup();
        let mut special: Vec<u32> = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        special.sort_unstable();
        let len = inner.get_vocab_size(true);
        Ok(Self { model, inner, end_of_turn, special, len })
    }

    /// Token ids of a text. Special tokens written out in it are recognised; none are added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the tokenizer has no way to write the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|e| Error::Tokenizer { model: self.model.clone(), reason: e.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of token ids; bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.inner.decode(ids, skip_special).unwrap_or_else(|_| {
            // A decoder that refuses: the tokens as they stand in the vocabulary.
            ids.iter().filter_map(|id| self.inner.id_to_token(*id)).collect()
        })
    }

    /// Ids that end a completion, sorted.
    pub fn end_of_turn(&self) -> &[u32] {
        &self.end_of_turn
    }

    /// The id of a token as it stands in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id, as it stands in the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether an id is a special token, which text leaves out.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.binary_search(&id).is_ok()
    }

    /// Tokens in the vocabulary.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `tokenizer.json` of this tokenizer.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when it can't be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        self.inner
            .to_string(false)
            .map_err(|e| Error::Tokenizer { model: self.model.clone(), reason: e.to_string() })
    }
}
