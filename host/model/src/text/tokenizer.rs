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
    /// Reads a `tokenizer.json`. `model` names the model in messages; `eos` has the ids that end a completion
    /// according to the model's files. `<|im_end|>`, `<|eot_id|>`, `<|eom_id|>` and `<|end_of_turn|>` of chat
    /// models are added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the text is not a valid tokenizer.
    pub fn from_json(model: impl Into<String>, json: &[u8], eos: &[u32]) -> Result<Self, Error> {
        let model = model.into();
        let mut inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|e| Error::Tokenizer { model: model.clone(), reason: e.to_string() })?;
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
        let len = inner.get_vocab_size(true);
        Ok(Self { model, inner, end_of_turn, special, len })
    }

    /// Returns the token ids of a text. Special tokens in the text are recognised; none are added.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the tokenizer can't encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|e| Error::Tokenizer { model: self.model.clone(), reason: e.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the text of token ids. Invalid UTF-8 becomes U+FFFD; ids outside of the vocabulary are
    /// skipped.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.inner.decode(ids, skip_special).unwrap_or_else(|_| {
            // If the decoder fails: the tokens as written in the vocabulary.
            ids.iter().filter_map(|id| self.inner.id_to_token(*id)).collect()
        })
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
