//! Text on its way to and from a model: tokenizers, chat templates and stop strings.

pub(crate) mod chat;
mod control_tokens;
pub(crate) mod stop_strings;
pub(crate) mod template;
pub(crate) mod template_instances;
pub(crate) mod tokenizer;
mod tokenizer_limits;
pub(crate) mod tool_calls;
