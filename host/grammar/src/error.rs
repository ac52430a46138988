//! Errors of grammars.

/// Errors of grammars and of completions that are constrained to them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The grammar can't be compiled.
    #[error("the grammar is not valid: {0}")]
    Lark(String),
    /// The schema is not JSON.
    #[error("the schema is not JSON: {0}")]
    Json(String),
    /// The schema can't be compiled.
    #[error("the schema is not valid: {0}")]
    Schema(String),
    /// No text of the grammar was found.
    #[error(
        "no text that fits the grammar or schema was found within {limit} bytes: check that there is one, and that lengths and \
         numbers of items that it asks for are not too large"
    )]
    NoText {
        /// Longest text that is searched for, in bytes.
        limit: usize,
    },
    /// The search for a text of the grammar took too long.
    #[error(
        "no text that fits the grammar or schema was found within {seconds} s: use fewer alternatives, or put many words into \
         one terminal"
    )]
    TooLarge {
        /// Seconds of the search.
        seconds: u64,
    },
    /// The tokens of the model are not known byte by byte.
    #[error("its tokenizer has no bytes for its tokens, which grammars need: {0}")]
    Vocabulary(String),
    /// The grammar's state couldn't be computed, for example because the grammar is too ambiguous.
    #[error("the grammar can't be followed: {0}; simplify it")]
    Parser(String),
}

/// Returns the first lines of a message of llguidance, without its dumps of states.
pub(crate) fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let end =
        ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim_end().to_owned()
}
