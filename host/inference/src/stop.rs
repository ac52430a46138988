//! Stop strings, matched on text while tokens come in.

use std::sync::Arc;

use pl_model::Tokenizer;

/// Watches one completion.
pub(crate) struct StopWatch {
    strings: Arc<[String]>,
    /// Tokens whose text can reach into a stop string that the newest token completes.
    window: usize,
    /// The last tokens that have text.
    recent: Vec<u32>,
}

impl StopWatch {
    /// Empty strings are left out: they would end every completion at once.
    pub(crate) fn new(strings: &Arc<[String]>) -> Self {
        let strings: Arc<[String]> = if strings.iter().any(String::is_empty) {
            strings.iter().filter(|s| !s.is_empty()).cloned().collect()
        } else {
            Arc::clone(strings)
        };
        // A token with text has at least one byte of it.
        let window = strings.iter().map(String::len).max().unwrap_or(0);
        Self { strings, window, recent: Vec::new() }
    }

    /// Takes in the next token; whether it completes a stop string.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> bool {
        if self.window == 0 || tokenizer.is_special(token) {
            return false;
        }
        // Twice the window at most, so that the front is moved seldom.
        if self.recent.len() >= 2 * self.window {
            self.recent.drain(..self.recent.len() + 1 - self.window);
        }
        self.recent.push(token);
        let from = self.recent.len().saturating_sub(self.window);
        let text = tokenizer.decode(&self.recent[from..], true);
        self.strings.iter().any(|stop| text.contains(stop.as_str()))
    }

    /// The completion's text up to the first stop string.
    pub(crate) fn text(&self, tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let mut text = tokenizer.decode(tokens, true);
        if let Some(end) = self.strings.iter().filter_map(|stop| text.find(stop.as_str())).min() {
            text.truncate(end);
        }
        text
    }

    /// How much of a text that is still growing will stay: not what may be the beginning of a stop string, nor the
    /// beginning of a character.
    pub(crate) fn settled(&self, text: &str) -> usize {
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let begun = |stop: &String| {
            (1..stop.len())
                .rev()
                .filter(|n| stop.is_char_boundary(*n))
                .find(|n| whole.ends_with(&stop[..*n]))
                .unwrap_or(0)
        };
        whole.len() - self.strings.iter().map(begun).max().unwrap_or(0)
    }
}
