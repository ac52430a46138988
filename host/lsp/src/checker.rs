//! Checks texts on a thread of its own.
//!
//! A check is made once the editor has been quiet for a moment, or has gone on for long enough: of a row of
//! texts only the last is checked. What the plugins offered meanwhile is kept for hovers and completions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use lsp_types::{DiagnosticRelatedInformation, DiagnosticSeverity, NumberOrString, Uri};
use pl_dsl::workflow::Plugin;
use pl_dsl::{Catalog, Diagnostic, Item, Severity, Source};

use crate::OpenCatalog;
use crate::places::Places;

/// So long without a change before a check: shorter than one notices, longer than between two keys of a fast
/// typist.
const QUIET: Duration = Duration::from_millis(100);

/// A check is made after so long even of a text that never rests.
const LONGEST: Duration = Duration::from_millis(800);

/// So many diagnostics are shown: nobody reads more, and each costs the editor.
const MOST: usize = 500;

/// What the checking thread is asked.
pub enum Order {
    Check(Job),
    /// A text is no longer open: what is on the disk counts again.
    Close(PathBuf),
    /// Plugins may have changed on the disk: they are opened anew.
    Reopen,
}

/// A text to check.
pub struct Job {
    pub uri: Uri,
    pub version: i32,
    /// Where the paths of the text start from.
    pub folder: PathBuf,
    /// What messages call the text: its path, where it has one.
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
    // The texts in the editor, which may not be those on the disk, by path.
    let mut texts = BTreeMap::new();
    while let Ok(first) = orders.recv() {
        let mut jobs = BTreeMap::new();
        let mut take = |order| match order {
            Order::Check(job) => {
                // What has no path can't be included.
                if Path::new(&job.name).is_absolute() {
                    texts.insert(PathBuf::from(&job.name), job.text.clone());
                }
                jobs.insert(job.uri.as_str().to_owned(), job);
            }
            Order::Close(path) => {
                texts.remove(&path);
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
            let catalog = catalogs.entry(job.folder.clone()).or_insert_with(|| open(&job.folder));
            // A mistake in the check must not take the editor's session along.
            let result = catch_unwind(AssertUnwindSafe(|| check(&job, catalog, &texts)));
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

fn check(job: &Job, catalog: &Opened, texts: &BTreeMap<PathBuf, String>) -> Report {
    let source = Source { name: job.name.clone(), text: job.text.clone() };
    let seen = Seen { catalog, folder: &job.folder, texts, items: RefCell::default() };
    let checked = pl_dsl::check(&source, &[], &seen);
    let places = Places::of(&checked.sources, &job.uri);
    let found = checked.diagnostics.iter().take(MOST).map(|one| found(one, &places)).collect();
    Report { uri: job.uri.clone(), version: job.version, found, items: seen.items.take() }
}

fn found(diagnostic: &Diagnostic, places: &Places) -> Found {
    let Diagnostic { code, severity, message, labels, help, values, .. } = diagnostic;
    let (first, others) = match labels.split_first() {
        // What another file says wrong is shown where this one names it.
        Some((first, _)) if places.is_elsewhere(first.span) => (None, labels.as_slice()),
        Some((first, rest)) => (Some(first), rest),
        None => (None, &[][..]),
    };
    let label = first.map(|label| label.text.as_str()).filter(|label| !label.is_empty());
    let help_line = help.as_ref().map(|help| format!("help: {help}"));
    let values: Vec<String> = values.iter().map(|(name, value)| format!("`{name}` is {value}")).collect();
    let values_line = (!values.is_empty()).then(|| format!("here {}", values.join(", ")));
    let parts = [Some(message.clone()), label.map(str::to_owned), help_line, values_line];
    let related: Vec<DiagnosticRelatedInformation> = others
        .iter()
        .filter_map(|label| {
            let message = if label.text.is_empty() { message.clone() } else { label.text.clone() };
            Some(DiagnosticRelatedInformation { location: places.location(label.span)?, message })
        })
        .collect();
    let range = match first {
        Some(label) => places.location(label.span).map(|location| location.range),
        None => labels.first().and_then(|label| places.naming(label.span)),
    };
    let written = first.map(|label| places.text(label.span)).unwrap_or_default();
    Found {
        diagnostic: lsp_types::Diagnostic {
            range: range.unwrap_or_default(),
            severity: Some(match severity {
                Severity::Error => DiagnosticSeverity::ERROR,
                Severity::Warning => DiagnosticSeverity::WARNING,
            }),
            code: Some(NumberOrString::String(code.as_str().to_owned())),
            source: Some("pl-host".to_owned()),
            message: parts.into_iter().flatten().collect::<Vec<_>>().join("\n"),
            related_information: (!related.is_empty()).then_some(related),
            ..lsp_types::Diagnostic::default()
        },
        meant: meant(help.as_deref(), written),
    }
}

/// The name of a hint such as ``did you mean `rollout`?``, where it can stand for the text as it is.
fn meant(help: Option<&str>, written: &str) -> Option<String> {
    let name = help?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    (is_name(name) && is_name(written)).then(|| name.to_owned())
}

/// What the editor shows where the check itself failed.
fn broken(job: Job) -> Report {
    let diagnostic = lsp_types::Diagnostic {
        severity: Some(DiagnosticSeverity::ERROR),
        source: Some("pl-host".to_owned()),
        message: "the check itself failed on this text, which is a mistake of pl-host".to_owned(),
        ..lsp_types::Diagnostic::default()
    };
    let found = vec![Found { diagnostic, meant: None }];
    Report { uri: job.uri, version: job.version, found, items: BTreeMap::new() }
}

/// A folder's catalog, or why there is none.
type Opened = Result<Box<dyn Catalog>, String>;

/// A catalog that remembers what it was asked, and gives the texts that are open as they are in the editor.
struct Seen<'a> {
    catalog: &'a Opened,
    folder: &'a Path,
    texts: &'a BTreeMap<PathBuf, String>,
    items: RefCell<BTreeMap<String, Vec<Item>>>,
}

impl Seen<'_> {
    fn catalog(&self) -> Result<&dyn Catalog, String> {
        self.catalog.as_ref().map(Box::as_ref).map_err(Clone::clone)
    }
}

impl Catalog for Seen<'_> {
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, String> {
        let items = self.catalog()?.items(plugin)?;
        self.items.borrow_mut().insert(plugin.name.clone(), items.clone());
        Ok(items)
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        match self.texts.get(&self.folder.join(path)) {
            Some(text) => Ok(text.clone()),
            None => self.catalog()?.text(path),
        }
    }
}
