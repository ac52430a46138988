//! Grammars over the tokens of a model.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::panic_utils::catch_unwind;
use llguidance::{Matcher, TokenParser};
use pl_types::Grammar;

use crate::ending::{EndingSearch, LIMIT};
use crate::error::{GrammarError, reason};
use crate::vocabulary::Vocabulary;

/// Longest time of the search for a text of a grammar. Grammars of requests are compiled one after another.
const PATIENCE: Duration = Duration::from_secs(10);

/// A grammar over the tokens of a model.
pub struct CompiledGrammar {
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The matcher of tokens, before any.
    pub(crate) start: Matcher,
    pub(crate) endings: EndingSearch,
    /// Bytes of a short text of the grammar.
    pub(crate) text: Vec<u8>,
    /// Tokens of `text` and the end.
    pub(crate) tokens: Vec<u32>,
}

impl CompiledGrammar {
    /// Compiles a grammar.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar is not valid or no text of it was found.
    pub fn new(vocabulary: &Arc<Vocabulary>, grammar: &Grammar) -> Result<Self, GrammarError> {
        let start = matcher(vocabulary, grammar)?;
        let (endings, text) = endings(grammar)?;
        let missing = || GrammarError::Vocabulary("a byte of the grammar has no token".to_owned());
        let tokens = vocabulary.tokens_and_end(&text).ok_or_else(missing)?;
        Ok(Self { vocabulary: Arc::clone(vocabulary), start, endings, text, tokens })
    }

    /// Returns the number of tokens, with the one that ends it, that a completion needs at least.
    pub fn needed_tokens(&self) -> usize {
        self.tokens.len()
    }
}

impl std::fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.text);
        f.debug_struct("CompiledGrammar").field("text", &text).finish_non_exhaustive()
    }
}

/// Checks a grammar without a model.
///
/// # Errors
/// [`GrammarError`] if it is not valid or no text of it was found.
pub fn check(grammar: &Grammar) -> Result<(), GrammarError> {
    endings(grammar).map(drop)
}

/// Returns the search for endings of a grammar's texts, and a short text that it found.
fn endings(grammar: &Grammar) -> Result<(EndingSearch, Vec<u8>), GrammarError> {
    endings_within(grammar, PATIENCE)
}

fn endings_within(grammar: &Grammar, time: Duration) -> Result<(EndingSearch, Vec<u8>), GrammarError> {
    let endings = EndingSearch::new(parser(bytes()?, grammar)?);
    let until = Instant::now() + time;
    let text = endings.shortest_text(until).ok_or_else(|| match Instant::now() < until {
        true => GrammarError::NoText { limit: LIMIT },
        false => GrammarError::TooLarge { seconds: time.as_secs() },
    })?;
    Ok((endings, text))
}

pub(crate) fn bytes() -> Result<&'static Vocabulary, GrammarError> {
    static BYTES: OnceLock<Result<Vocabulary, GrammarError>> = OnceLock::new();
    BYTES.get_or_init(Vocabulary::of_bytes).as_ref().map_err(Clone::clone)
}

pub(crate) fn matcher(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Matcher, GrammarError> {
    let matcher = Matcher::new(Ok(parser(vocabulary, grammar)?));
    match matcher.get_error() {
        None => Ok(matcher),
        Some(error) => Err(invalid(grammar, &error)),
    }
}

fn parser(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<TokenParser, GrammarError> {
    let top = match grammar {
        Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        Grammar::JsonSchema(text) => {
            let schema = serde_json::from_str(text).map_err(|e| GrammarError::Json(e.to_string()))?;
            TopLevelGrammar::from_json_schema(schema)
        }
    };
    let create = AssertUnwindSafe(|| vocabulary.factory.create_parser(top));
    catch_unwind(create).map_err(|error| invalid(grammar, &error))
}

fn invalid(grammar: &Grammar, error: &dyn std::fmt::Display) -> GrammarError {
    match grammar {
        Grammar::Lark(_) => GrammarError::Lark(reason(error)),
        Grammar::JsonSchema(_) => GrammarError::Schema(reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grammar_that_takes_too_long_is_refused() {
        let grammar = Grammar::Lark(r#"start: "a" | "b""#.to_owned());
        let refused = endings_within(&grammar, Duration::ZERO).map(|(_, text)| text);
        assert_eq!(refused, Err(GrammarError::TooLarge { seconds: 0 }));
    }

    /// Most tokens begin a word that the earlier ending had too, after a separator of its own.
    #[test]
    fn an_ending_goes_on_with_any_part_of_the_earlier_one() {
        let grammar = Grammar::Lark(r#"start: /[a-z]+/ "=" ("1" | "22222") ";""#.to_owned());
        let (endings, text) = endings(&grammar).unwrap();
        assert_eq!(text, b"a=1;");
        assert_eq!(endings.ending(b"ab", b"").unwrap(), b"=1;");
        assert_eq!(endings.ending(b"ab", b" ;\tc=22222;").unwrap(), b"c=22222;");
        assert_eq!(endings.ending(b"ab=2", b"").unwrap(), b"2222;");
        assert_eq!(endings.ending(b"ab?", b"c=1;"), None);
    }
}
