//! Diagnostics as text: for people, one line each, and JSON.

use std::fmt;
use std::fmt::Write as _;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{Lines, Sources, Span};

/// Columns of the human form. It is written to be read in a terminal next to the file.
const WIDTH: usize = 110;

/// The human form draws so many diagnostics. Nobody reads more, and each costs a walk over the file.
const MOST: usize = 100;

/// Lines between a mistake and the head of its block, at most, for both to be shown.
const NEAR: usize = 6;

/// The diagnostics with the lines they are about, for people: the first hundred, and how many more there are.
/// `color` is for terminals; nothing is lost without it.
pub fn human(diagnostics: &[Diagnostic], sources: &Sources, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(WIDTH);
    let texts: Vec<NamedSource<String>> = sources
        .files()
        .iter()
        .map(|file| NamedSource::new(&file.name, sources.text_of(file).to_owned()))
        .collect();
    let places = Places::new(sources);
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MOST) {
        let shown = Shown::new(diagnostic, &places, &texts);
        let before = out.len();
        if handler.render_report(&mut out, &shown).is_err() {
            // The frame could not be drawn; the words still can.
            out.truncate(before);
            out.push_str(&short(std::slice::from_ref(diagnostic), sources));
        }
    }
    // Writing to a string never fails.
    if let Some(more) = diagnostics.len().checked_sub(MOST).filter(|more| *more > 0) {
        let _ = writeln!(out, "… and {more} more");
    }
    out
}

/// One line for each diagnostic: `file:line:column: CODE error: message (help)`.
pub fn short(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let places = Places::new(sources);
    let root = sources.files().first().map_or("", |file| file.name.as_str());
    let mut out = String::new();
    for diagnostic in diagnostics {
        let Diagnostic { code, severity, message, labels, .. } = diagnostic;
        let place = match labels.first().and_then(|label| places.of(label.span)) {
            Some(place) => format!("{}:{}:{}", place.name, place.line, place.column),
            None => root.to_owned(),
        };
        let help =
            help(diagnostic).map(|text| format!(" ({})", text.replace('\n', "; "))).unwrap_or_default();
        // Writing to a string never fails.
        let _ = writeln!(out, "{place}: {code} {severity}: {message}{help}");
    }
    out
}

/// The diagnostics as a JSON array, for editors and other programs. Lines and columns count from 1, `start`
/// and `end` are bytes.
pub fn json(diagnostics: &[Diagnostic], sources: &Sources) -> Value {
    let places = Places::new(sources);
    let root = sources.files().first().map_or("", |file| file.name.as_str());
    let range = |span: Span| {
        let place = places.of(span)?;
        let (end_line, end_column) = place.end;
        Some(json!({
            "file": place.name, "start": place.span.start, "end": place.span.end,
            "line": place.line, "column": place.column, "end_line": end_line, "end_column": end_column,
        }))
    };
    let one = |diagnostic: &Diagnostic| {
        let Diagnostic { code, severity, message, labels, help, values, context } = diagnostic;
        let labels: Vec<Value> = labels
            .iter()
            .filter_map(|label| {
                let mut place = range(label.span)?;
                place["text"] = Value::from(label.text.as_str());
                Some(place)
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

/// What to do, and what the names at fault stand for.
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

/// Finds lines and columns, file by file.
struct Places<'s> {
    sources: &'s Sources,
    lines: Vec<Lines<'s>>,
}

/// A span as people count.
struct InFile<'s> {
    /// Position of the file.
    file: usize,
    name: &'s str,
    /// From the beginning of the file.
    span: Span,
    line: usize,
    column: usize,
    /// Line and column.
    end: (usize, usize),
}

impl<'s> Places<'s> {
    fn new(sources: &'s Sources) -> Self {
        let lines = sources.files().iter().map(|file| Lines::new(sources.text_of(file))).collect();
        Places { sources, lines }
    }

    fn of(&self, span: Span) -> Option<InFile<'s>> {
        let (file, span) = self.sources.find(span)?;
        let at = self.sources.files().iter().position(|one| std::ptr::eq(one, file))?;
        let lines = self.lines.get(at)?;
        let (line, column) = lines.position(span.start);
        Some(InFile { file: at, name: &file.name, span, line, column, end: lines.position(span.end) })
    }
}

/// A diagnostic in the form that miette draws: with one file's text, and the rest in words.
struct Shown<'a> {
    diagnostic: &'a Diagnostic,
    text: Option<&'a NamedSource<String>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(diagnostic: &'a Diagnostic, places: &Places, texts: &'a [NamedSource<String>]) -> Self {
        let mut help = help(diagnostic);
        let mut labels = Vec::new();
        let first = diagnostic.labels.first().and_then(|label| places.of(label.span));
        for (index, label) in diagnostic.labels.iter().enumerate() {
            let Some(place) = places.of(label.span) else { continue };
            if first.as_ref().is_some_and(|first| first.file != place.file) {
                let elsewhere = format!("{}:{}:{}: {}", place.name, place.line, place.column, label.text);
                help = Some(help.map_or(elsewhere.clone(), |help| format!("{help}\n{elsewhere}")));
                continue;
            }
            let text = (!label.text.is_empty()).then(|| label.text.clone());
            let span = (place.span.start, place.span.end - place.span.start);
            labels.push(match index {
                0 => LabeledSpan::new_primary_with_span(text, span),
                _ => LabeledSpan::new_with_span(text, span),
            });
        }
        if let (Some(first), Some(block)) = (&first, diagnostic.context.and_then(|span| places.of(span)))
            && block.file == first.file
            && (block.line + 1..=block.line + NEAR).contains(&first.line)
        {
            let span = (block.span.start, block.span.end - block.span.start);
            labels.push(LabeledSpan::new_with_span(Some("in this block".to_owned()), span));
        }
        let text = first.and_then(|first| texts.get(first.file));
        Shown { diagnostic, text, labels, help }
    }
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
        self.help.as_ref().map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // Without a label miette would draw the whole file.
        self.text.filter(|_| !self.labels.is_empty()).map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
