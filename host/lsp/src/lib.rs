//! The language server of workflow files: hovers, completions, navigation, formatting and diagnostics over the Language
//! Server Protocol 3.17.
//!
//! The thread of the caller answers requests. An answer reads the open files once and waits for nothing, so typing stays
//! fast. A second thread checks texts; a check may compile plugins and take as long as that needs. Two more threads of
//! `lsp-server` read and write messages. `pl-dsl` knows the language; this crate translates between it and the protocol.

mod checker;
mod code_actions;
mod completion;
mod documents;
mod error;
mod formatting;
mod hover;
mod line_index;
mod locations;
mod lookup;
mod markdown;
mod navigation;
mod server;
mod symbols;
mod text;
mod uri;

pub use checker::OpenCatalog;
pub use error::Error;
pub use lsp_server::{Connection, Message, Notification, Request};
pub use server::{ServerHooks, serve, serve_stdio};
