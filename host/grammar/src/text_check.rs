//! Checks of texts that were sampled elsewhere.

use llguidance::Matcher;
use pl_types::Grammar;

use crate::compiled::{bytes, matcher};
use crate::error::GrammarError;

/// A grammar over bytes, which knows the beginnings of its texts.
pub struct TextCheck {
    start: Matcher,
}

impl TextCheck {
    /// Compiles a grammar.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar is not valid.
    pub fn new(grammar: &Grammar) -> Result<TextCheck, GrammarError> {
        Ok(TextCheck { start: matcher(bytes()?, grammar)? })
    }

    /// Returns true if a text of the grammar begins with `text`.
    pub fn allows(&self, text: &str) -> bool {
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        self.start.clone().validate_tokens(&tokens).is_ok_and(|count| count == tokens.len())
    }
}

impl std::fmt::Debug for TextCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextCheck").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_texts_are_allowed() {
        let lark = Grammar::Lark("start: \"so \" /[0-9]{2}/ \".\"".to_owned());
        let check = TextCheck::new(&lark).unwrap();
        for text in ["", "so", "so 1", "so 12."] {
            assert!(check.allows(text), "{text:?}");
        }
        for text in ["no", "so 123", "so 12.."] {
            assert!(!check.allows(text), "{text:?}");
        }
        let schema = Grammar::JsonSchema(r#"{ "type": "object" }"#.to_owned());
        let check = TextCheck::new(&schema).unwrap();
        assert!(check.allows("{ \"a\": [1") && !check.allows("Sure: {"));
    }
}
