//! Renders chat templates.
//!
//! Templates come with models, so they are untrusted. A Jinja engine counts instructions, not bytes: what a template adds to
//! itself, nests in itself or repeats within one instruction takes any memory, time and stack. So `pl-model` compiles this
//! crate to WebAssembly and runs it under limits. On the host's own target it serves tests and benches.
//!
//! Templates are Jinja, in the dialect of Hugging Face's `apply_chat_template`: trimmed blocks, Python string
//! methods, `raise_exception`, `strftime_now`, and values in Python's notation.

mod dialect;
#[cfg(target_arch = "wasm32")]
mod exports;
mod python_format;
mod template;

pub use dialect::TIME;
pub use template::{Failure, Template};
