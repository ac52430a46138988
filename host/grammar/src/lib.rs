//! Grammars of completions: which tokens may come next, and how a text ends within its limit.
//!
//! [`CompiledGrammar`] is a grammar over the tokens of one model, [`Constraint`] the state of one completion. A
//! constraint gives the [`TokenMask`] of the next token, and knows an ending that still fits: near the limit it forces
//! that ending, so that a text that would be cut off is a whole text of the grammar too.

mod compiled;
mod constraint;
mod ending;
mod error;
mod mask;
mod text_check;
mod vocabulary;

pub use compiled::{CompiledGrammar, check};
pub use constraint::Constraint;
pub use error::GrammarError;
pub use mask::TokenMask;
pub use text_check::TextCheck;
pub use vocabulary::Vocabulary;
