//! Text on its way to and from a model: tokenizers and chat templates.

pub(crate) mod chat;
mod python_format;
pub(crate) mod template;
pub(crate) mod tokenizer;
