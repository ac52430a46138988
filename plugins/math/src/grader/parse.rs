//! All possible parses of an answer.

use super::answer::{self, Answer};
use super::{lex, normalize};

/// Parses an answer in all possible ways: a comma may separate thousands, decimals or values.
pub fn parses(text: &str) -> Vec<Answer> {
    let mut parses: Vec<Answer> = Vec::new();
    for text in normalize::variants(text) {
        parses.extend(lex::tokens(&text).and_then(|tokens| answer::parse(&tokens)));
    }
    if parses.is_empty() && text.len() <= lex::MAX_ANSWER {
        parses.extend(normalize::words(text).map(Answer::Words));
    }
    parses
}

/// Returns true if the whole text is an answer.
pub fn is_answer(text: &str) -> bool {
    text.len() <= lex::MAX_ANSWER && !parses(text).is_empty()
}
