//! The workflow language: source text to checked workflow.
//!
//! [`check`] does it all: it splits the text into blocks, reads them, writes `--set` overrides into the tree,
//! and resolves it against a [`Catalog`] of what plugins offer. It reports every mistake of a file at once,
//! and none that only follows from another.

pub mod analysis;
mod block;
mod catalog;
mod condition;
mod diagnostic;
mod layout;
mod overrides;
mod parse;
pub mod render;
mod resolve;
mod scan;
mod schema;
pub mod settings;
mod source;
mod syntax;
mod turns;
mod values;
pub mod workflow;

pub use catalog::{Catalog, Fact, FactKind, Item, ItemKind};
pub use diagnostic::{Code, Diagnostic, Label, Severity};
pub use overrides::{Override, OverrideError};
pub use source::{Source, Span};
pub use syntax::BlockKind;

use diagnostic::Reports;

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// There if and only if no diagnostic is an error.
    pub workflow: Option<workflow::Workflow>,
    /// In order of position in the file; those about `--set` or the file as a whole come first.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a workflow file.
///
/// Takes time linear in the size of the text; never panics, whatever the text.
pub fn check(source: &Source, overrides: &[Override], catalog: &dyn Catalog) -> Checked {
    let mut reports = Reports::new(overrides);
    let mut file = parse::parse(&source.text, &mut reports);
    overrides::apply(&mut file, overrides, &mut reports);
    let workflow = resolve::resolve(&file, catalog, &mut reports);
    let workflow = workflow.filter(|_| !reports.failed());
    Checked { workflow, diagnostics: reports.finish() }
}
