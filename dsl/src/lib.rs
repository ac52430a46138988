//! The workflow language: source text to checked workflow.
//!
//! [`check`] runs all phases: it splits the text into statements, parses them (`syntax`), applies overrides, params and
//! templates (`eval`), and resolves the tree (`check`) against the items of plugins, which a [`Catalog`] provides. It reports
//! all errors of a file at once, except those that only follow from another.

pub mod analysis;
mod catalog;
mod check;
mod design;
mod diagnostic;
mod eval;
pub mod explain;
mod format;
pub mod graph;
mod places;
pub mod settings;
mod source;
mod syntax;
pub mod workflow;

pub use analysis::names;
pub use catalog::{Catalog, CatalogError, read_text, read_text_of};
pub use check::is_variable;
pub use design::{
    DesignMistake, SkeletonError, ValidParts, WorkflowSkeleton, check_design, design_grammar, design_graph,
    format_design, own_design, pattern, with_paths,
};
pub use diagnostic::spelling::suggest;
pub use diagnostic::{Diagnostic, DiagnosticCode, Label, Severity, render};
pub use eval::functions;
pub use format::format;
pub use places::{Place, Places};
pub use source::overrides::{Override, OverrideError, VARIABLE};
pub use source::{Source, SourceFile, Sources, Span};
pub use syntax::block_kind::BlockKind;
pub use syntax::declared_name::NameError;

use check::resolve::resolve;
use diagnostic::reports::Reports;
use eval::assemble::{Assembly, assemble};
use eval::overrides;
use syntax::parse::parse;

/// Result of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The workflow, unless a diagnostic is an error.
    pub workflow: Option<workflow::Workflow>,
    /// Diagnostics in order of position. Those about overrides or the file as a whole come first.
    pub diagnostics: Vec<Diagnostic>,
    /// The workflow file and the files that it names, which the spans of diagnostics refer to.
    pub sources: Sources,
    /// Places of the settings that name files, addresses and environment variables.
    pub places: Places,
}

/// Returns the syntax errors of a text. Takes a fraction of the time of [`check`].
pub fn syntax_errors(text: &str) -> Vec<Diagnostic> {
    let mut reports = Reports::new(&[]);
    parse(text, 0..text.len(), 0, &mut reports);
    reports.finish()
}

/// The syntax tree of a text in its debug form, without positions. Returns `None` if the text has syntax errors. For
/// tests of tools that rewrite text: its form may change with any version.
#[doc(hidden)]
pub fn syntax_tree(text: &str) -> Option<String> {
    let mut reports = Reports::new(&[]);
    let file = parse(text, 0..text.len(), 0, &mut reports);
    if reports.failed() {
        return None;
    }
    let shown = format!("{file:?}");
    let mut parts = shown.split("Span { ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    Some(out)
}

/// Checks a workflow file and the files that it names.
///
/// Takes time linear in the size of the text, and does not panic on any text.
pub fn check(source: &Source, overrides: &[Override], catalog: &dyn Catalog) -> Checked {
    let mut reports = Reports::new(overrides);
    let Assembly { mut file, sources, namespaces } = assemble(source, catalog, &mut reports);
    overrides::apply(&mut file, overrides, &mut reports);
    let (workflow, written) = resolve(file, &sources, namespaces, catalog, &mut reports);
    let workflow = workflow.filter(|_| !reports.failed());
    let places = written.resolve(&sources, overrides);
    Checked { workflow, diagnostics: reports.finish(), sources, places }
}
