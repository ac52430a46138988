//! The parser that pest generates from `grammar.pest`.

#[derive(pest_derive::Parser)]
#[grammar = "syntax/grammar.pest"]
pub(super) struct Grammar;
