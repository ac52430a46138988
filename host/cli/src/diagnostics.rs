//! Rendering of diagnostics.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use pl_dsl::render;
use pl_run::Diagnostics;

/// Form of diagnostics.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Messages with the lines that they are about, on stderr, and a summary of the workflow
    Human,
    /// file:line:column: code: message, on stdout
    Short,
    /// A list of objects, on stdout
    Json,
}

/// Shows diagnostics: for people on stderr, for programs on stdout.
///
/// # Errors
/// If stdout can't be written.
pub fn show(diagnostics: &Diagnostics, format: Format) -> std::io::Result<()> {
    let Diagnostics { list, sources } = diagnostics;
    match format {
        Format::Human => {
            if !list.is_empty() {
                eprint!("{}", render::human(list, sources, std::io::stderr().is_terminal()));
            }
            if let Some(hint) = pl_dsl::explain::more(list) {
                eprintln!("{hint}");
            }
            Ok(())
        }
        Format::Short => std::io::stdout().lock().write_all(render::short(list, sources).as_bytes()),
        Format::Json => writeln!(std::io::stdout().lock(), "{:#}", render::json(list, sources)),
    }
}
