//! Diagnostics as text: for people, one line each, and JSON.

use std::fmt;
use std::fmt::Write as _;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Lines, Source};

/// Columns of the human form. It is written to be read in a terminal next to the file.
const WIDTH: usize = 110;

/// The human form draws so many diagnostics. Nobody reads more, and each costs a walk over the file.
const MOST: usize = 100;

/// The diagnostics with the lines they are about, for people: the first hundred, and how many more there are.
/// `color` is for terminals; nothing is lost without it.
pub fn human(diagnostics: &[Diagnostic], source: &Source, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(WIDTH);
    let code = NamedSource::new(&source.name, source.text.clone());
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MOST) {
        let shown = Shown { diagnostic, code: &code };
        let before = out.len();
        if handler.render_report(&mut out, &shown).is_err() {
            // The frame could not be drawn; the words still can.
            out.truncate(before);
            out.push_str(&short(std::slice::from_ref(diagnostic), source));
        }
    }
    if let Some(more) = diagnostics.len().checked_sub(MOST).filter(|more| *more > 0) {
        // Writing to a string never fails.
        let _ = writeln!(out, "… and {more} more");
    }
    out
}

/// One line for each diagnostic: `file:line:column: CODE error: message (help)`.
pub fn short(diagnostics: &[Diagnostic], source: &Source) -> String {
    let lines = Lines::new(&source.text);
    let mut out = String::new();
    for Diagnostic { code, severity, message, labels, help } in diagnostics {
        let place = match labels.first() {
            Some(label) => {
                let (line, column) = lines.position(label.span.start);
                format!("{}:{line}:{column}", source.name)
            }
            None => source.name.clone(),
        };
        let help = help.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        // Writing to a string never fails.
        let _ = writeln!(out, "{place}: {code} {severity}: {message}{help}");
    }
    out
}

/// The diagnostics as a JSON array, for editors and other programs. Lines and columns count from 1, `start`
/// and `end` are bytes.
pub fn json(diagnostics: &[Diagnostic], source: &Source) -> Value {
    let lines = Lines::new(&source.text);
    let one = |Diagnostic { code, severity, message, labels, help }: &Diagnostic| {
        let labels: Vec<Value> = labels
            .iter()
            .map(|label| {
                let (line, column) = lines.position(label.span.start);
                let (end_line, end_column) = lines.position(label.span.end);
                json!({
                    "start": label.span.start, "end": label.span.end,
                    "line": line, "column": column, "end_line": end_line, "end_column": end_column,
                    "text": label.text,
                })
            })
            .collect();
        json!({
            "file": source.name, "code": code.as_str(), "severity": severity.to_string(),
            "message": message, "labels": labels, "help": help,
        })
    };
    Value::Array(diagnostics.iter().map(one).collect())
}

/// A diagnostic in the form that miette draws.
struct Shown<'a> {
    diagnostic: &'a Diagnostic,
    code: &'a NamedSource<String>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn code<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        self.diagnostic.help.as_ref().map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // Without a label miette would draw the whole file.
        (!self.diagnostic.labels.is_empty()).then_some(self.code as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let labels = self.diagnostic.labels.iter().enumerate().map(|(index, label)| {
            let text = (!label.text.is_empty()).then(|| label.text.clone());
            let span = (label.span.start, label.span.end - label.span.start);
            if index == 0 {
                LabeledSpan::new_primary_with_span(text, span)
            } else {
                LabeledSpan::new_with_span(text, span)
            }
        });
        Some(Box::new(labels))
    }
}
