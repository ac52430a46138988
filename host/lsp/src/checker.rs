//! Checks of texts, on a thread of their own.
//!
//! A check starts once the editor has been quiet for a moment, or after a maximum delay. Of several pending texts of one
//! document only the last is checked. The items that plugins offered are kept for hovers and completions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use lsp_types::{DiagnosticRelatedInformation, DiagnosticSeverity, NumberOrString, Uri};
use parking_lot::Mutex;
use pl_dsl::workflow::{Plugin, Workflow};
use pl_dsl::{Catalog, CatalogError, Diagnostic, Places, Severity, Source};
use pl_types::Item;

use crate::locations::Locations;
use crate::uri::file_path;

/// Time without a change before a check: too short to be noticed, longer than the time between two keys of a fast typist.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// Longest delay of a check while the text keeps changing.
const MAX_DELAY: Duration = Duration::from_millis(800);

/// Largest number of diagnostics shown per document; more are never read, and each costs the editor time.
const MAX_DIAGNOSTICS: usize = 500;

/// Opens the catalog of the plugins that the workflows of a folder name. It runs on the checking thread, and the catalog
/// stays there.
pub type OpenCatalog = Box<dyn Fn(&Path) -> Result<Box<dyn Catalog>, CatalogError> + Send>;

/// Finds names in a workflow without other mistakes that stand for nothing on any machine.
pub type UnknownNames = fn(&Workflow, &Places) -> Vec<Diagnostic>;

/// Parts of a check that the program provides.
pub struct CheckHooks {
    pub open_catalog: OpenCatalog,
    pub unknown_names: UnknownNames,
}

/// A message to the checking thread.
pub enum CheckerMessage {
    Check(CheckJob),
    /// A document was closed: its file on the disk counts again.
    Close(Uri),
    /// Plugins may have changed on the disk.
    ReloadPlugins,
}

/// A text to check.
pub struct CheckJob {
    pub uri: Uri,
    pub version: i32,
    /// Folder that relative paths in the text start from.
    pub folder: PathBuf,
    /// Name of the text in messages: its path if it has one, otherwise its URI.
    pub name: String,
    pub text: String,
}

/// Result of a check.
#[derive(Debug)]
pub struct CheckReport {
    pub uri: Uri,
    pub version: i32,
    pub findings: Vec<EditorDiagnostic>,
    /// Items that the plugins offer, by the plugin's name in the file.
    pub plugin_items: BTreeMap<String, Vec<Item>>,
}

/// A diagnostic in the form that the editor shows.
#[derive(Debug)]
pub struct EditorDiagnostic {
    pub diagnostic: lsp_types::Diagnostic,
    /// Suggested replacement of the text in the diagnostic's range.
    pub replacement: Option<String>,
}

/// Connection to the checking thread.
pub struct Checker {
    pending: Arc<Mutex<Pending>>,
    /// Wakes the thread.
    wake: Sender<()>,
}

impl Checker {
    /// Hands a message to the thread without waiting for it.
    pub fn send(&self, message: CheckerMessage) {
        self.pending.lock().add(message);
        // A thread that is awake already, or has ended, needs no more.
        let _ = self.wake.try_send(());
    }
}

/// Messages that the thread has not read yet. An editor may send texts faster than they are checked: only the last text
/// of each open document is kept.
#[derive(Default)]
struct Pending {
    /// Texts to check, by URI.
    jobs: BTreeMap<String, CheckJob>,
    /// Paths of documents that were closed.
    closed: BTreeSet<PathBuf>,
    /// True if plugins may have changed.
    reload_plugins: bool,
}

impl Pending {
    fn add(&mut self, message: CheckerMessage) {
        match message {
            CheckerMessage::Check(job) => {
                self.closed.remove(Path::new(&job.name));
                self.jobs.insert(job.uri.as_str().to_owned(), job);
            }
            CheckerMessage::Close(uri) => {
                self.jobs.remove(uri.as_str());
                self.closed.extend(file_path(&uri));
            }
            CheckerMessage::ReloadPlugins => self.reload_plugins = true,
        }
    }
}

/// Starts the checking thread. It ends when the returned connection or the receiver of the reports is dropped.
///
/// # Errors
/// The system refused the thread.
pub fn spawn(hooks: CheckHooks, reports: Sender<CheckReport>) -> std::io::Result<Checker> {
    let pending = Arc::new(Mutex::new(Pending::default()));
    // One signal is enough: the thread takes all that is pending.
    let (wake, woken) = crossbeam_channel::bounded(1);
    let checker = Checker { pending: Arc::clone(&pending), wake };
    let thread = std::thread::Builder::new().name("check".to_owned());
    thread.spawn(move || run(&pending, &woken, &hooks, &reports))?;
    Ok(checker)
}

fn run(pending: &Mutex<Pending>, woken: &Receiver<()>, hooks: &CheckHooks, reports: &Sender<CheckReport>) {
    let mut catalogs = BTreeMap::new();
    // Texts of open documents by path; they may differ from the files on the disk.
    let mut open_texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    while woken.recv().is_ok() {
        let deadline = Instant::now() + MAX_DELAY;
        loop {
            let wait = QUIET_PERIOD.min(deadline.saturating_duration_since(Instant::now()));
            if woken.recv_timeout(wait).is_err() {
                break;
            }
        }
        let Pending { jobs, closed, reload_plugins } = std::mem::take(&mut *pending.lock());
        if reload_plugins {
            catalogs.clear();
        }
        open_texts.retain(|path, _| !closed.contains(path));
        // A document without a path can't be included.
        for job in jobs.values().filter(|job| Path::new(&job.name).is_absolute()) {
            open_texts.insert(PathBuf::from(&job.name), job.text.clone());
        }
        for job in jobs.into_values() {
            let catalog =
                catalogs.entry(job.folder.clone()).or_insert_with(|| (hooks.open_catalog)(&job.folder));
            // A panic in a check must not end the editor's session.
            let result =
                catch_unwind(AssertUnwindSafe(|| check(&job, catalog, &open_texts, hooks.unknown_names)));
            if result.is_err() {
                catalogs.remove(&job.folder);
            }
            if reports.send(result.unwrap_or_else(|_| failed_check(job))).is_err() {
                return;
            }
        }
    }
}

fn check(
    job: &CheckJob,
    catalog: &OpenedCatalog,
    open_texts: &BTreeMap<PathBuf, String>,
    unknown_names: UnknownNames,
) -> CheckReport {
    let source = Source { name: job.name.clone(), text: job.text.clone() };
    let catalog = EditorCatalog { catalog, folder: &job.folder, open_texts, items: RefCell::default() };
    let checked = pl_dsl::check(&source, &[], &catalog);
    let locations = Locations::new(&checked.sources, &job.uri);
    let unknown = checked
        .workflow
        .as_ref()
        .map(|workflow| unknown_names(workflow, &checked.places))
        .unwrap_or_default();
    let diagnostics = checked.diagnostics.iter().chain(&unknown).take(MAX_DIAGNOSTICS);
    CheckReport {
        uri: job.uri.clone(),
        version: job.version,
        findings: diagnostics.map(|diagnostic| finding(diagnostic, &locations)).collect(),
        plugin_items: catalog.items.take(),
    }
}

fn finding(diagnostic: &Diagnostic, locations: &Locations) -> EditorDiagnostic {
    let Diagnostic { code, severity, message, labels, help, values, .. } = diagnostic;
    let (primary, related) = match labels.split_first() {
        // A mistake in another file is shown at the statement that includes the file.
        Some((first, _)) if locations.is_in_other_file(first.span) => (None, labels.as_slice()),
        Some((first, rest)) => (Some(first), rest),
        None => (None, &[][..]),
    };
    let label = primary.map(|label| label.text.as_str()).filter(|label| !label.is_empty());
    let help_line = help.as_ref().map(|help| format!("help: {help}"));
    let values: Vec<String> = values.iter().map(|(name, value)| format!("`{name}` is {value}")).collect();
    let values_line = (!values.is_empty()).then(|| format!("here {}", values.join(", ")));
    let parts = [Some(message.clone()), label.map(str::to_owned), help_line, values_line];
    let related: Vec<DiagnosticRelatedInformation> = related
        .iter()
        .filter_map(|label| {
            let message = if label.text.is_empty() { message.clone() } else { label.text.clone() };
            Some(DiagnosticRelatedInformation { location: locations.location(label.span)?, message })
        })
        .collect();
    let range = match primary {
        Some(label) => locations.location(label.span).map(|location| location.range),
        None => labels.first().and_then(|label| locations.include_range(label.span)),
    };
    let source_text = primary.map(|label| locations.text(label.span)).unwrap_or_default();
    EditorDiagnostic {
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
        replacement: suggested_name(help.as_deref(), source_text),
    }
}

/// Name in a hint such as ``did you mean `rollout`?``. Returns `None` if it can't simply replace the source text.
fn suggested_name(help: Option<&str>, source_text: &str) -> Option<String> {
    let name = help?.strip_prefix("did you mean `")?.strip_suffix("`?")?;
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    (is_name(name) && is_name(source_text)).then(|| name.to_owned())
}

/// Report of a check that panicked.
fn failed_check(job: CheckJob) -> CheckReport {
    let diagnostic = lsp_types::Diagnostic {
        severity: Some(DiagnosticSeverity::ERROR),
        source: Some("pl-host".to_owned()),
        message: "the check itself failed on this text, which is a bug in pl-host".to_owned(),
        ..lsp_types::Diagnostic::default()
    };
    let findings = vec![EditorDiagnostic { diagnostic, replacement: None }];
    CheckReport { uri: job.uri, version: job.version, findings, plugin_items: BTreeMap::new() }
}

/// Catalog of a folder, or the reason why it can't be opened.
type OpenedCatalog = Result<Box<dyn Catalog>, CatalogError>;

/// Catalog that returns the texts of open documents as they are in the editor, and remembers the items of each plugin.
struct EditorCatalog<'a> {
    catalog: &'a OpenedCatalog,
    folder: &'a Path,
    open_texts: &'a BTreeMap<PathBuf, String>,
    items: RefCell<BTreeMap<String, Vec<Item>>>,
}

impl EditorCatalog<'_> {
    fn catalog(&self) -> Result<&dyn Catalog, CatalogError> {
        self.catalog.as_ref().map(Box::as_ref).map_err(Clone::clone)
    }
}

impl Catalog for EditorCatalog<'_> {
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, CatalogError> {
        let items = self.catalog()?.items(plugin)?;
        self.items.borrow_mut().insert(plugin.name.clone(), items.clone());
        Ok(items)
    }

    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        match self.open_texts.get(&self.folder.join(path)) {
            Some(text) => Ok(text.clone()),
            None => self.catalog()?.text(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_message(uri: &str, version: i32) -> CheckerMessage {
        let uri: Uri = uri.parse().unwrap();
        let path = file_path(&uri).map(|path| path.display().to_string());
        let name = path.unwrap_or_else(|| uri.as_str().to_owned());
        CheckerMessage::Check(CheckJob { uri, version, folder: "/".into(), name, text: String::new() })
    }

    #[test]
    fn only_the_last_text_of_each_open_document_waits() {
        let mut pending = Pending::default();
        for version in 0..1000 {
            for uri in ["file:///a.mas", "file:///b.mas", "untitled:one"] {
                pending.add(check_message(uri, version));
            }
            pending.add(CheckerMessage::ReloadPlugins);
        }
        let versions: Vec<i32> = pending.jobs.values().map(|job| job.version).collect();
        assert_eq!((versions, pending.reload_plugins), (vec![999; 3], true));
        for uri in ["file:///a.mas", "untitled:one"] {
            pending.add(CheckerMessage::Close(uri.parse().unwrap()));
        }
        assert_eq!(pending.jobs.keys().collect::<Vec<_>>(), ["file:///b.mas"]);
        assert_eq!(pending.closed, BTreeSet::from([PathBuf::from("/a.mas")]));
        // Opened again before the thread has read anything.
        pending.add(check_message("file:///a.mas", 1));
        assert_eq!((pending.jobs.len(), pending.closed.len()), (2, 0));
    }
}
