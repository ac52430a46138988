//! Stop strings, matched on the decoded text as tokens arrive.

use std::sync::Arc;

use super::tokenizer::Tokenizer;

/// Matcher of the stop strings of one completion.
#[derive(Debug)]
pub struct StopStringMatcher {
    strings: Arc<[String]>,
    /// Number of trailing tokens whose text can be part of a stop string that the newest token completes.
    window: usize,
    /// The last tokens that have text.
    recent: Vec<u32>,
}

impl StopStringMatcher {
    /// Creates a matcher of `strings`. Ignores empty strings, which would end every completion at once.
    pub fn new(strings: &Arc<[String]>) -> Self {
        let strings: Arc<[String]> = if strings.iter().any(String::is_empty) {
            strings.iter().filter(|s| !s.is_empty()).cloned().collect()
        } else {
            Arc::clone(strings)
        };
        // A token with text has at least one byte.
        let window = strings.iter().map(String::len).max().unwrap_or(0);
        Self { strings, window, recent: Vec::new() }
    }

    /// Adds the next token. Returns true if it completes a stop string.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> bool {
        if self.window == 0 || tokenizer.is_special(token) {
            return false;
        }
        // Keeps up to twice the window, so that the front is rarely moved.
        if self.recent.len() >= 2 * self.window {
            self.recent.drain(..self.recent.len() + 1 - self.window);
        }
        self.recent.push(token);
        let start = self.recent.len().saturating_sub(self.window);
        let text = tokenizer.decode(&self.recent[start..], true);
        self.strings.iter().any(|stop| text.contains(stop.as_str()))
    }

    /// Returns the text of `tokens` up to the first stop string.
    pub fn text(&self, tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let mut text = tokenizer.decode(tokens, true);
        if let Some(end) = self.strings.iter().filter_map(|stop| text.find(stop.as_str())).min() {
            text.truncate(end);
        }
        text
    }

    /// Returns the length in bytes of the part of an unfinished text that cannot change any more: without a trailing
    /// incomplete character, and without the longest tail that may begin a stop string.
    pub fn stable_length(&self, text: &str) -> usize {
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let partial_match = |stop: &String| {
            (1..stop.len())
                .rev()
                .filter(|n| stop.is_char_boundary(*n))
                .find(|n| complete.ends_with(&stop[..*n]))
                .unwrap_or(0)
        };
        complete.len() - self.strings.iter().map(partial_match).max().unwrap_or(0)
    }
}
