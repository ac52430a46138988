//! Rendering of diagnostics.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use pl_dsl::render;
use pl_run::Diagnostics;

use crate::stderr;
use crate::visible::{self, visible};

/// Form of diagnostics.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiagnosticFormat {
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
pub fn show(diagnostics: &Diagnostics, format: DiagnosticFormat) -> std::io::Result<()> {
    let Diagnostics { list, sources, .. } = diagnostics;
    match format {
        DiagnosticFormat::Human => {
            if !list.is_empty() {
                stderr::text(&human(diagnostics));
            }
            if let Some(hint) = pl_dsl::explain::more(list) {
                stderr::line(&hint);
            }
            Ok(())
        }
        DiagnosticFormat::Short => visible::stdout().write_all(render::short(list, sources).as_bytes()),
        DiagnosticFormat::Json => writeln!(std::io::stdout().lock(), "{:#}", render::json(list, sources)),
    }
}

/// Renders diagnostics for people, in colour on a terminal. Control characters in a workflow are shown.
fn human(Diagnostics { list, sources, .. }: &Diagnostics) -> String {
    match visible(&render::human(list, sources, false)) {
        Cow::Borrowed(_) => render::human(list, sources, std::io::stderr().is_terminal()),
        Cow::Owned(shown) => shown,
    }
}

#[cfg(test)]
mod tests {
    use pl_dsl::{Diagnostic, DiagnosticCode, Severity, Source};

    use super::*;

    #[test]
    fn control_characters_of_a_workflow_are_shown() {
        let (code, severity) = (DiagnosticCode::Memory, Severity::Warning);
        let message = "no agent \u{1b}[2Kb".to_owned();
        let list = vec![Diagnostic::about_file(code, severity, message, "remove it")];
        let source = Source { name: "a\u{1b}]0;x\u{7}.mas".to_owned(), text: String::new() };
        let shown = human(&Diagnostics::new(list, source.into()));
        assert!(shown.contains("no agent ␛[2Kb"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown}");
    }
}
