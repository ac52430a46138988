//! Diagnostics as text with source lines, as one line each, and as JSON.

use std::fmt;
use std::fmt::Write as _;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Lines, Sources, Span};

/// Columns of the human form.
const WIDTH: usize = 110;

/// Largest number of diagnostics in the human form. Each one takes a pass over the file.
const MAX_SHOWN: usize = 100;

/// Largest distance in lines at which the head of the enclosing block is shown too.
const MAX_CONTEXT_DISTANCE: usize = 6;

/// Renders the first hundred diagnostics with their source lines, and the number of further ones.
pub fn human(diagnostics: &[Diagnostic], sources: &Sources, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(WIDTH);
    let texts: Vec<NamedSource<String>> = sources
        .files()
        .iter()
        .map(|file| NamedSource::new(&file.name, without_lone_returns(sources.text_of(file))))
        .collect();
    let locations = LineIndexes::new(sources);
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MAX_SHOWN) {
        let shown = MietteDiagnostic::new(diagnostic, &locations, &texts);
        let before = out.len();
        if handler.render_report(&mut out, &shown).is_err() {
            // The frame can't be drawn; the text can.
            out.truncate(before);
            out.push_str(&short(std::slice::from_ref(diagnostic), sources));
        }
    }
    // Writing to a string never fails.
    if let Some(more) = diagnostics.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(out, "… and {more} more");
    }
    out
}

/// Replaces carriage returns that do not belong to a line end. miette would count a line for each; the language counts them as
/// blanks.
fn without_lone_returns(text: &str) -> String {
    let following = text.chars().skip(1).map(Some).chain([None]);
    let is_lone = |(this, next)| this == '\r' && next != Some('\n');
    text.chars().zip(following).map(|pair| if is_lone(pair) { ' ' } else { pair.0 }).collect()
}

/// Renders one line per diagnostic: `file:line:column: CODE error: message (help)`.
pub fn short(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let locations = LineIndexes::new(sources);
    let root = sources.files().first().map_or("", |file| file.name.as_str());
    let mut out = String::new();
    for diagnostic in diagnostics {
        let Diagnostic { code, severity, message, labels, .. } = diagnostic;
        let location = match labels.first().and_then(|label| locations.locate(label.span)) {
            Some(location) => format!("{}:{}:{}", location.name, location.line, location.column),
            None => root.to_owned(),
        };
        let help =
            help(diagnostic).map(|text| format!(" ({})", text.replace('\n', "; "))).unwrap_or_default();
        // Writing to a string never fails.
        let _ = writeln!(out, "{location}: {code} {severity}: {message}{help}");
    }
    out
}

/// Renders the diagnostics as a JSON array. Lines and columns count from 1; `start` and `end` are byte offsets.
pub fn json(diagnostics: &[Diagnostic], sources: &Sources) -> Value {
    let locations = LineIndexes::new(sources);
    let root = sources.files().first().map_or("", |file| file.name.as_str());
    let range = |span: Span| {
        let location = locations.locate(span)?;
        let (end_line, end_column) = location.end;
        Some(json!({
            "file": location.name, "start": location.span.start, "end": location.span.end,
            "line": location.line, "column": location.column, "end_line": end_line, "end_column": end_column,
        }))
    };
    let one = |diagnostic: &Diagnostic| {
        let Diagnostic { code, severity, message, labels, help, values, context } = diagnostic;
        let labels: Vec<Value> = labels
            .iter()
            .filter_map(|label| {
                let mut location = range(label.span)?;
                location["text"] = Value::from(label.text.as_str());
                Some(location)
            })
            .collect();
        let values: serde_json::Map<String, Value> =
            values.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        json!({
            "file": labels.first().map_or(Value::from(root), |label| label["file"].clone()),
            "code": code.as_str(), "severity": severity.to_string(),
            "message": message, "labels": labels, "help": help, "values": values,
            "context": context.and_then(range),
        })
    };
    Value::Array(diagnostics.iter().map(one).collect())
}

/// Help text, with the values of the names in the text of the mistake.
fn help(diagnostic: &Diagnostic) -> Option<String> {
    let values: Vec<String> =
        diagnostic.values.iter().map(|(name, value)| format!("`{name}` is {value}")).collect();
    let values = (!values.is_empty()).then(|| format!("here {}", values.join(", ")));
    match (&diagnostic.help, values) {
        (Some(help), Some(values)) => Some(format!("{help}\n{values}")),
        (Some(help), None) => Some(help.clone()),
        (None, values) => values,
    }
}

/// Line indexes of the files.
struct LineIndexes<'s> {
    sources: &'s Sources,
    lines: Vec<Lines<'s>>,
}

/// A span as line and column of a file.
struct FileSpan<'s> {
    /// Index of the file.
    file: usize,
    name: &'s str,
    /// Span relative to the file.
    span: Span,
    line: usize,
    column: usize,
    /// Line and column of the end.
    end: (usize, usize),
}

impl<'s> LineIndexes<'s> {
    fn new(sources: &'s Sources) -> Self {
        let lines = sources.files().iter().map(|file| Lines::new(sources.text_of(file))).collect();
        LineIndexes { sources, lines }
    }

    fn locate(&self, span: Span) -> Option<FileSpan<'s>> {
        let (file, span) = self.sources.find(span)?;
        let index = self.sources.files().iter().position(|one| std::ptr::eq(one, file))?;
        let lines = self.lines.get(index)?;
        let (line, column) = lines.position(span.start);
        Some(FileSpan { file: index, name: &file.name, span, line, column, end: lines.position(span.end) })
    }
}

/// A diagnostic in the form that miette draws. Labels in other files become part of the help text.
struct MietteDiagnostic<'a> {
    diagnostic: &'a Diagnostic,
    /// Name of the workflow file, for a diagnostic without a place. miette shows only that of a place.
    file: Option<&'a str>,
    text: Option<&'a NamedSource<String>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl<'a> MietteDiagnostic<'a> {
    fn new(
        diagnostic: &'a Diagnostic,
        locations: &LineIndexes<'a>,
        texts: &'a [NamedSource<String>],
    ) -> Self {
        let mut help = help(diagnostic);
        let mut labels = Vec::new();
        let first = diagnostic.labels.first().and_then(|label| locations.locate(label.span));
        for (index, label) in diagnostic.labels.iter().enumerate() {
            let Some(location) = locations.locate(label.span) else { continue };
            if first.as_ref().is_some_and(|first| first.file != location.file) {
                let other_file =
                    format!("{}:{}:{}: {}", location.name, location.line, location.column, label.text);
                help = Some(help.map_or(other_file.clone(), |help| format!("{help}\n{other_file}")));
                continue;
            }
            let text = (!label.text.is_empty()).then(|| label.text.clone());
            let span = (location.span.start, location.span.end - location.span.start);
            labels.push(match index {
                0 => LabeledSpan::new_primary_with_span(text, span),
                _ => LabeledSpan::new_with_span(text, span),
            });
        }
        if let (Some(first), Some(block)) =
            (&first, diagnostic.context.and_then(|span| locations.locate(span)))
            && block.file == first.file
            && (block.line + 1..=block.line + MAX_CONTEXT_DISTANCE).contains(&first.line)
        {
            let span = (block.span.start, block.span.end - block.span.start);
            labels.push(LabeledSpan::new_with_span(Some("in this block".to_owned()), span));
        }
        let root = locations.sources.files().first().map(|file| file.name.as_str());
        let file = root.filter(|_| first.is_none());
        let text = first.and_then(|first| texts.get(first.file));
        MietteDiagnostic { diagnostic, file, text, labels, help }
    }
}

impl fmt::Debug for MietteDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for MietteDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for MietteDiagnostic<'_> {}

impl miette::Diagnostic for MietteDiagnostic<'_> {
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
        self.help.as_ref().map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // Without labels, miette would draw the whole file.
        self.text.filter(|_| !self.labels.is_empty()).map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
