//! Names that blocks may have.

use pest::Parser;

use super::block_kind::BlockKind;
use super::grammar::{Grammar, Rule};
use super::scan::split_word;

/// Name of the built-in plugin.
pub(crate) const BUILT_IN: &str = "std";

/// Reason why the language refuses a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is not one word.
    #[error(
        "`{0}` is not a valid name: a name consists of the letters A to Z and a to z, digits and `_`, and doesn't begin with a digit"
    )]
    Invalid(String),
    /// The word is part of the syntax of expressions.
    #[error("`{0}` is not a valid name: it is a keyword of the language")]
    Keyword(String),
    /// The name has a meaning in the language, and a block of this name would be ambiguous.
    #[error("no {} may be named `{name}`: that is {meaning}", kind.keyword())]
    Reserved {
        /// Kind of the block.
        kind: BlockKind,
        /// The name.
        name: String,
        /// Its meaning in the language.
        meaning: &'static str,
    },
}

/// Checks if a text is a name.
///
/// # Errors
/// [`NameError::Invalid`], [`NameError::Keyword`].
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    let (word, rest) = split_word(name);
    if word.is_empty() || !rest.is_empty() || word.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(NameError::Invalid(name.to_owned()));
    }
    match Grammar::parse(Rule::named_head, name) {
        Ok(_) => Ok(()),
        Err(_) => Err(NameError::Keyword(name.to_owned())),
    }
}

/// Checks if a name is reserved in a kind of block.
///
/// # Errors
/// [`NameError::Reserved`].
pub(crate) fn check_not_reserved(kind: BlockKind, name: &str) -> Result<(), NameError> {
    let meaning = match (kind, name) {
        (BlockKind::Agent, "start" | "end") => "the beginning or end of the turns",
        (BlockKind::Agent, "team" | "success") => "a part of `reward` in conditions",
        (BlockKind::Plugin | BlockKind::Use, BUILT_IN) => "the built-in plugin's name",
        (BlockKind::Plugin | BlockKind::Use, "env" | "reward") => "a prefix in conditions",
        (BlockKind::Param, "turn") => "the number of an agent's visits in conditions",
        _ => return Ok(()),
    };
    Err(NameError::Reserved { kind, name: name.to_owned(), meaning })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_grammar_are_no_names() {
        for name in ["and", "or", "not", "when", "true", "false", "if", "then", "else", "in"] {
            assert_eq!(check_name(name), Err(NameError::Keyword(name.to_owned())));
        }
        for name in ["a", "_", "end", "team", "as", "trueish", "not_", "policy", "a1"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "1a", "a-b", "a.b", " a", "a ", "a # b", "ä"] {
            assert_eq!(check_name(name), Err(NameError::Invalid(name.to_owned())));
        }
    }

    #[test]
    fn names_are_reserved_by_kind() {
        let reserved = |kind, name| check_not_reserved(kind, name).is_err();
        for name in ["start", "end", "team", "success"] {
            assert!(reserved(BlockKind::Agent, name) && !reserved(BlockKind::Policy, name), "{name}");
        }
        for name in ["std", "env", "reward"] {
            assert!(reserved(BlockKind::Plugin, name) && reserved(BlockKind::Use, name), "{name}");
            assert!(!reserved(BlockKind::Agent, name), "{name}");
        }
        assert!(reserved(BlockKind::Param, "turn") && !reserved(BlockKind::Agent, "turn"));
    }
}
