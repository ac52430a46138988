//! Source text to syntax tree: [`scan`] splits the text into blocks and statements, [`parse`] reads each one with the
//! grammar.

pub(crate) mod block_kind;
pub(crate) mod declared_name;
mod expected;
mod expression;
mod grammar;
pub(crate) mod parse;
mod reader;
pub(crate) mod scan;
pub(crate) mod text;
pub(crate) mod tree;
