//! The language server of workflow files: what an editor asks over the Language Server Protocol 3.17, answered.
//!
//! One thread reads messages, one checks texts, and the caller's answers. Whatever the answering thread does is a
//! walk over one file, so that typing never waits; a check may compile plugins and take as long as that takes.
//! What the server knows of the language it asks `pl-dsl`; this crate is the protocol, and the words.

mod actions;
mod around;
mod checker;
mod completion;
mod documents;
mod formatting;
mod hover;
mod names;
mod places;
mod position;
mod server;
mod symbols;
mod text;
mod wire;

use std::path::Path;

use pl_dsl::Catalog;

pub use server::{Ended, serve};

/// Opens the catalog of the plugins that workflows of a folder name. It is called on the thread that checks, and
/// the catalog stays there.
pub type OpenCatalog = Box<dyn Fn(&Path) -> Result<Box<dyn Catalog>, String> + Send>;

/// What the server needs from the program that it is part of.
pub struct Host {
    /// Tells what plugins offer.
    pub catalog: OpenCatalog,
    /// Formats a text; none where it is too broken for that.
    pub format: fn(&str) -> Option<String>,
}

/// Why the server can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The editor went away in the middle of a message, or its pipe broke.
    #[error("reading from the editor: {0}")]
    Read(#[source] std::io::Error),
    /// The editor no longer listens.
    #[error("writing to the editor: {0}")]
    Write(#[source] std::io::Error),
    /// A message's header that can't be read: where the next message begins is unknown.
    #[error("reading from the editor: {0}")]
    Header(String),
    /// A thread could not be started.
    #[error("starting a thread: {0}")]
    Thread(#[source] std::io::Error),
}
