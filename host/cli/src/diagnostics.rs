//! Rendering of diagnostics.

use std::borrow::Cow;
use std::io::Write;

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

/// Renders diagnostics for people, in colour on a terminal that has colours and without `NO_COLOR`. Control characters in a
/// workflow are shown.
fn human(Diagnostics { list, sources, .. }: &Diagnostics) -> String {
    match visible(&render::human(list, sources, false)) {
        Cow::Borrowed(_) => render::human(list, sources, console::colors_enabled_stderr()),
        Cow::Owned(shown) => shown,
    }
}

#[cfg(test)]
mod tests {
    use pl_dsl::{Diagnostic, DiagnosticCode, Severity, Source};

    use super::*;

    /// The rule of log messages, which heeds `NO_COLOR` and the kind of terminal.
    #[test]
    fn diagnostics_are_coloured_where_log_messages_are() {
        let message = "no agent b".to_owned();
        let list =
            vec![Diagnostic::about_file(DiagnosticCode::Memory, Severity::Warning, message, "remove it")];
        let diagnostics =
            Diagnostics::new(list, Source { name: "a.mas".to_owned(), text: String::new() }.into());
        for colours in [true, false] {
            console::set_colors_enabled_stderr(colours);
            assert_eq!(human(&diagnostics).contains('\u{1b}'), colours);
        }
    }

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
