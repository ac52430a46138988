//! Checks texts on a thread of its own.
//!
//! A check is made once the editor has been quiet for a moment, or has gone on for long enough: of a row of
//! texts only the last is checked. What the plugins offered meanwhile is kept for hovers and completions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use lsp_types::{
    DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString, Position, Range, Uri,
};
use mas_dsl::workflow::Plugin;
use mas_dsl::{Catalog, Diagnostic, Item, Severity, Source, Span};

use crate::OpenCatalog;
use crate::position::Lines;

/// So long without a change before a check: shorter than one notices, longer than between two keys of a fast
/// typist.
const QUIET: Duration = Duration::from_millis(100);

/// A check is made after so long even of a text that never rests.
const LONGEST: Duration = Duration::from_millis(800);

/// What the checking thread is asked.
pub enum Order {
    Check(Job),
    /// Plugins may have changed on the disk: they are opened anew.
    Reopen,
}

/// A text to check.
pub struct Job {
    pub uri: Uri,
    pub version: i32,
    /// Where the paths of the text start from.
    pub folder: PathBuf,
    /// What messages call the text.
    pub name: String,
    pub text: String,
}

/// What a check found.
#[derive(Debug)]
pub struct Report {
    pub uri: Uri,
    pub version: i32,
    pub found: Vec<Found>,
    /// What the plugins offer, by the plugin's name in the file.
    pub items: BTreeMap<String, Vec<Item>>,
}

/// A diagnostic, ready for the editor.
#[derive(Debug)]
pub struct Found {
    pub diagnostic: lsp_types::Diagnostic,
    /// What was probably meant by the word in the diagnostic's range.
    pub meant: Option<String>,
}

/// Checks what is ordered until nobody orders or listens any more.
pub fn run(orders: &Receiver<Order>, open: &OpenCatalog, report: impl Fn(Report) -> bool) {
    let mut catalogs = BTreeMap::new();
    while let Ok(first) = orders.recv() {
        let mut jobs = BTreeMap::new();
        let mut take = |order| match order {
            Order::Check(job) => {
                jobs.insert(job.uri.as_str().to_owned(), job);
            }
            Order::Reopen => catalogs.clear(),
        };
        take(first);
        let latest = Instant::now() + LONGEST;
        loop {
            let wait = QUIET.min(latest.saturating_duration_since(Instant::now()));
            match orders.recv_timeout(wait) {
                Ok(order) => take(order),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        for job in jobs.into_values() {
            let catalog = catalogs.entry(job.folder.clone()).or_insert_with(|| Seen::open(open, &job.folder));
            // A mistake in the check must not take the editor's session along.
            let result = catch_unwind(AssertUnwindSafe(|| check(&job, catalog)));
            if result.is_err() {
                catalogs.remove(&job.folder);
            }
            if !report(result.unwrap_or_else(|_| broken(job))) {
                return;
            }
        }
    }
}

/// Starts the thread; whoever holds the sender gives the orders.
pub fn start(
    open: OpenCatalog,
    report: impl Fn(Report) -> bool + Send + 'static,
) -> std::io::Result<Sender<Order>> {
    let (orders, ordered) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("check".to_owned()).spawn(move || run(&ordered, &open, report))?;
    Ok(orders)
}

fn check(job: &Job, catalog: &Seen) -> Report {
    let Job { uri, version, name, text, .. } = job;
    let source = Source { name: name.clone(), text: text.clone() };
    catalog.items.borrow_mut().clear();
    let checked = mas_dsl::check(&source, &[], catalog);
    let lines = Lines::of(text);
    let found = checked.diagnostics.iter().map(|one| found(one, uri, text, &lines)).collect();
    Report { uri: uri.clone(), version: *version, found, items: catalog.items.take() }
}

fn found(diagnostic: &Diagnostic, uri: &Uri, text: &str, lines: &Lines) -> Found {
    let Diagnostic { code, severity, message, labels, help } = diagnostic;
    let (first, others) = labels.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
    let span = first.map_or(Span { start: 0, end: 0 }, |label| label.span);
    let label = first.map(|label| label.text.as_str()).filter(|label| !label.is_empty());
    let help_line = help.as_ref().map(|help| format!("help: {help}"));
    let parts = [Some(message.clone()), label.map(str::to_owned), help_line];
    let related = others.iter().map(|label| DiagnosticRelatedInformation {
        location: Location { uri: uri.clone(), range: lines.range(text, label.span) },
        message: label.text.clone(),
    });
    Found {
        diagnostic: lsp_types::Diagnostic {
            range: lines.range(text, span),
            severity: Some(match severity {
                Severity::Error => DiagnosticSeverity::ERROR,
                Severity::Warning => DiagnosticSeverity::WARNING,
            }),
            code: Some(NumberOrString::String(code.as_str().to_owned())),
            source: Some("pl-host".to_owned()),
            message: parts.into_iter().flatten().collect::<Vec<_>>().join("\n"),
            related_information: (!others.is_empty()).then(|| related.collect()),
            ..lsp_types::Diagnostic::default()
        },
        meant: meant(help.as_deref(), text.get(span.start..span.end).unwrap_or_default()),
    }
}

/// The name of a hint such as ``did you mean `rollout`?``, where it can stand for the text as it is.
fn meant(help: Option<&str>, written: &str) -> Option<String> {
    let name = help?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
    };
    (is_name(name) && is_name(written)).then(|| name.to_owned())
}

/// What the editor shows where the check itself failed.
fn broken(job: Job) -> Report {
    let diagnostic = lsp_types::Diagnostic {
        range: Range { start: Position::default(), end: Position::default() },
        severity: Some(DiagnosticSeverity::ERROR),
        source: Some("pl-host".to_owned()),
        message: "the check itself failed on this text, which is a mistake of pl-host".to_owned(),
        ..lsp_types::Diagnostic::default()
    };
    let found = vec![Found { diagnostic, meant: None }];
    Report { uri: job.uri, version: job.version, found, items: BTreeMap::new() }
}

/// A catalog that remembers what it was asked.
struct Seen {
    catalog: Result<Box<dyn Catalog>, String>,
    items: RefCell<BTreeMap<String, Vec<Item>>>,
}

impl Seen {
    fn open(open: &OpenCatalog, folder: &std::path::Path) -> Seen {
        Seen { catalog: open(folder), items: RefCell::default() }
    }
}

impl Catalog for Seen {
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, String> {
        let items = self.catalog.as_ref().map_err(Clone::clone)?.items(plugin)?;
        self.items.borrow_mut().insert(plugin.name.clone(), items.clone());
        Ok(items)
    }
}
