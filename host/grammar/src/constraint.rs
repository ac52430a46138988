//! The state of one completion within its grammar.

use std::sync::Arc;

use llguidance::Matcher;

use crate::compiled::CompiledGrammar;
use crate::error::{GrammarError, reason};
use crate::mask::TokenMask;

/// Most tokens that are kept for what one token may open beyond the known ending.
const SLACK: usize = 32;

/// A completion within its grammar. Knows an ending that fits into the tokens that are left.
pub struct Constraint {
    grammar: Arc<CompiledGrammar>,
    matcher: Matcher,
    /// Bytes so far.
    text: Vec<u8>,
    /// Bytes that complete the text.
    ending: Vec<u8>,
    /// Tokens of `ending` and the end, last first.
    ending_tokens: Vec<u32>,
    /// Number of tokens that may still come.
    left: usize,
    /// Number of tokens beyond the ending at which it is forced.
    slack: usize,
}

impl Constraint {
    /// The constraint of a completion of at most `max_tokens`.
    pub fn new(grammar: &Arc<CompiledGrammar>, max_tokens: usize) -> Self {
        Self {
            matcher: grammar.start.clone(),
            text: Vec::new(),
            ending: grammar.text.clone(),
            ending_tokens: grammar.tokens.iter().rev().copied().collect(),
            left: max_tokens,
            slack: SLACK.min(max_tokens / 4),
            grammar: Arc::clone(grammar),
        }
    }

    /// Returns the tokens that may come next: all that the grammar allows, or near the limit the next one of the
    /// ending.
    ///
    /// # Errors
    /// [`GrammarError::Parser`] if the grammar is too complex.
    pub fn mask(&mut self) -> Result<TokenMask, GrammarError> {
        if self.left <= self.ending_tokens.len() + self.slack
            && let Some(next) = self.ending_tokens.last()
        {
            let trie = self.matcher.tok_env().map_err(|e| GrammarError::Parser(reason(&e)))?;
            return Ok(TokenMask::new(trie.tok_trie().singleton_token_set(*next)));
        }
        self.matcher.compute_mask_or_eos().map(TokenMask::new).map_err(|e| GrammarError::Parser(reason(&e)))
    }

    /// Takes the sampled token. Returns the token that the completion goes on with: another one, the next of the
    /// ending, if no ending is known that would fit after `token`. The slack makes that rare.
    ///
    /// # Errors
    /// [`GrammarError::Parser`] if the mask doesn't have the token.
    pub fn advance(&mut self, token: u32) -> Result<u32, GrammarError> {
        let left = self.left.saturating_sub(1);
        if self.grammar.vocabulary.ends(token) {
            self.left = left;
            return Ok(token);
        }
        let (token, ending) = match self.ending_after(token).filter(|(_, tokens)| tokens.len() <= left) {
            Some(ending) => (token, ending),
            None => {
                let next = self.ending_tokens.last().copied().unwrap_or(token);
                if self.grammar.vocabulary.ends(next) {
                    self.left = left;
                    return Ok(next);
                }
                let bytes = self.grammar.vocabulary.bytes(next).len().min(self.ending.len());
                let rest = self.ending_tokens.len().saturating_sub(1);
                (next, (self.ending[bytes..].to_vec(), self.ending_tokens[..rest].to_vec()))
            }
        };
        self.matcher.consume_token(token).map_err(|e| GrammarError::Parser(reason(&e)))?;
        self.text.extend_from_slice(self.grammar.vocabulary.bytes(token));
        (self.ending, self.ending_tokens) = ending;
        self.left = left;
        Ok(token)
    }

    /// Returns bytes and tokens of an ending after `token`: what is left of the known one, the known one, or another.
    fn ending_after(&mut self, token: u32) -> Option<(Vec<u8>, Vec<u32>)> {
        let vocabulary = Arc::clone(&self.grammar.vocabulary);
        let bytes = vocabulary.bytes(token);
        if self.ending_tokens.last() == Some(&token) {
            let rest = &self.ending_tokens[..self.ending_tokens.len() - 1];
            return Some((self.ending[bytes.len().min(self.ending.len())..].to_vec(), rest.to_vec()));
        }
        let whole = |ending: &[u8]| {
            let mut tokens = vocabulary.tokens_and_end(ending)?;
            tokens.reverse();
            Some((ending.to_vec(), tokens))
        };
        if let Some(rest) = self.ending.strip_prefix(bytes) {
            return whole(rest);
        }
        // Most tokens go on within a string, where the ending stays.
        let next: Vec<u32> = std::iter::once(token).chain(self.ending_tokens.iter().rev().copied()).collect();
        if self.matcher.validate_tokens(&next).is_ok_and(|count| count == next.len()) {
            return Some((self.ending.clone(), self.ending_tokens.clone()));
        }
        let text = [&self.text, bytes].concat();
        whole(&self.grammar.endings.ending(&text, &self.ending)?)
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (text, ending) = (String::from_utf8_lossy(&self.text), String::from_utf8_lossy(&self.ending));
        f.debug_struct("Constraint").field("text", &text).field("ending", &ending).finish_non_exhaustive()
    }
}
