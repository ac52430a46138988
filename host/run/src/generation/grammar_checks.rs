//! Checks of completions that servers have constrained to a grammar: a server may know of none.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use pl_grammar::{GrammarError, TextCheck};
use pl_types::{Completion, Grammar};

/// Number of grammars that are kept. A workflow has one per agent.
const KEPT: usize = 64;

/// Number of characters of a wrong completion that a message shows.
const SHOWN: usize = 80;

/// Compiled grammars of earlier requests.
#[derive(Default)]
pub(super) struct GrammarChecks {
    known: Mutex<HashMap<Arc<Grammar>, TextCheck>>,
}

/// Failed check of a completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrammarCheckError {
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    #[error(
        "a server does not follow the grammar of an agent or a designer, it answered {text:?}; use vLLM 0.12 or newer with \
         `--structured-outputs-config.backend guidance`"
    )]
    NotFollowed {
        /// Beginning of the completion.
        text: String,
    },
}

impl GrammarChecks {
    /// Checks that completions are texts of a grammar, or beginnings of some.
    ///
    /// # Errors
    /// [`GrammarCheckError`] for the first one that is not.
    pub fn check(&self, grammar: &Arc<Grammar>, completions: &[Completion]) -> Result<(), GrammarCheckError> {
        let mut known = self.known.lock();
        if known.len() >= KEPT && !known.contains_key(grammar) {
            known.clear();
        }
        let check = match known.entry(Arc::clone(grammar)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(TextCheck::new(grammar)?),
        };
        // A completion that was cut off may end within a character.
        let texts = completions.iter().map(|one| one.text.trim_end_matches(char::REPLACEMENT_CHARACTER));
        match texts.into_iter().find(|text| !check.allows(text)) {
            None => Ok(()),
            Some(text) => Err(GrammarCheckError::NotFollowed { text: text.chars().take(SHOWN).collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use pl_types::Finish;

    use super::*;

    fn completion(text: &str) -> Completion {
        Completion {
            text: text.to_owned(),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            support: None,
            values: None,
            top: Vec::new(),
            finish: Finish::Stop,
            version: 0,
            version_changes: Vec::new(),
        }
    }

    #[test]
    fn a_server_that_knows_no_grammars_is_found_out() {
        let grammar = Arc::new(Grammar::Lark("start: \"so \" /[a-z]{2,}/".to_owned()));
        let checks = GrammarChecks::default();
        assert_eq!(checks.check(&grammar, &["so on", "so", "so o\u{fffd}"].map(completion)), Ok(()));
        let error = checks.check(&grammar, &["so on", "Sure, here it is"].map(completion)).unwrap_err();
        assert!(error.to_string().contains("Sure, here"), "{error}");
        let wrong = Arc::new(Grammar::Lark("start: missing".to_owned()));
        assert!(matches!(checks.check(&wrong, &[]), Err(GrammarCheckError::Grammar(_))));
    }
}
