//! Tokens as bytes, which grammars are matched against.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{earley::SlicedBiasComputer, token_bytes_from_tokenizer_json};

use crate::error::{GrammarError, reason};

/// The token that ends a text over single bytes.
pub(crate) const BYTES_END: u32 = 256;

/// Work on new states of a lexer at one step of a search for an ending, ten times that for a mask: the search looks through a
/// whole lexeme, such as a text of a thousand characters. It takes up to a second.
const LEXER_FUEL: u64 = 2_000_000;

/// The tokens of a model by their bytes.
pub struct Vocabulary {
    pub(crate) factory: ParserFactory,
    env: TokEnv,
    end: Vec<u32>,
}

impl Vocabulary {
    /// Reads the tokens of a `tokenizer.json`. `size` is the number of logits of the model, `end` the ids that end a
    /// completion; the first of them ends texts that run out of tokens.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if the tokenizer is not byte-level, or has no token in `end`.
    pub fn from_tokenizer_json(json: &str, size: usize, end: &[u32]) -> Result<Self, GrammarError> {
        let tokenizer = serde_json::from_str(json).map_err(|e| GrammarError::Vocabulary(e.to_string()))?;
        let tokens =
            catch_unwind(std::panic::AssertUnwindSafe(|| token_bytes_from_tokenizer_json(&tokenizer)))
                .map_err(|e| GrammarError::Vocabulary(reason(&e)))?;
        Self::new(tokens, size, end)
    }

    /// The vocabulary of `tokens`. A token without bytes never comes up; the bytes of special tokens start with 0xFF.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if `end` is empty or an id is not below `size`.
    pub fn new(mut tokens: Vec<Vec<u8>>, size: usize, end: &[u32]) -> Result<Self, GrammarError> {
        let refuse = |problem: &str| GrammarError::Vocabulary(problem.to_owned());
        tokens.resize(size, Vec::new());
        let first = *end.first().ok_or_else(|| refuse("no token ends a turn"))?;
        if end.iter().any(|id| *id as usize >= size) {
            return Err(refuse("a token that ends a turn has no logit"));
        }
        let vocab_size = u32::try_from(size).map_err(|_| refuse("there are too many tokens"))?;
        let env = catch_unwind(std::panic::AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(vocab_size, first), &tokens).with_eos_tokens(end);
            Ok(Arc::new(ApproximateTokEnv::new(trie)) as TokEnv)
        }))
        .map_err(|e| GrammarError::Vocabulary(reason(&e)))?;
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &SlicedBiasComputer::general_slices())
                .map_err(|e| GrammarError::Vocabulary(reason(&e)))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, env, end: end.to_vec() })
    }

    /// The 256 bytes as tokens, and a last one that ends the text.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`], as for any other.
    pub(crate) fn of_bytes() -> Result<Self, GrammarError> {
        let bytes = (0..=255u8).map(|byte| vec![byte]).chain([b"\xFFend".to_vec()]).collect();
        let mut vocabulary = Self::new(bytes, 257, &[BYTES_END])?;
        vocabulary.factory.limits_mut().step_lexer_fuel = LEXER_FUEL;
        Ok(vocabulary)
    }

    /// Returns true if the token ends a completion.
    pub fn ends(&self, token: u32) -> bool {
        self.end.contains(&token)
    }

    /// Returns the bytes of a token.
    pub fn bytes(&self, token: u32) -> &[u8] {
        let trie = self.env.tok_trie();
        if (token as usize) < trie.vocab_size() { trie.token(token) } else { &[] }
    }

    /// Returns tokens of `text`, longest first, and one that ends it. `None` if a byte has no token.
    pub(crate) fn tokens_and_end(&self, text: &[u8]) -> Option<Vec<u32>> {
        let trie = self.env.tok_trie();
        let mut tokens = trie.greedy_tokenize(text);
        (trie.decode_raw(&tokens) == text).then(|| {
            tokens.push(self.end[0]);
            tokens
        })
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("size", &self.env.tok_trie().vocab_size()).finish_non_exhaustive()
    }
}
