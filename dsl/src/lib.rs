//! The workflow language: source text to checked workflow.
//!
//! [`check`] does it all: it splits the text into blocks, reads them, writes `--set` overrides into the tree,
//! and resolves it against a [`Catalog`] of what plugins offer. It reports every mistake of a file at once,
//! and none that only follows from another.

pub mod analysis;
mod arithmetic;
mod assemble;
mod block;
mod catalog;
mod condition;
mod diagnostic;
mod evaluate;
mod expand;
pub mod explain;
mod format;
pub mod functions;
#[cfg(test)]
#[path = "../tests/common/generate.rs"]
mod generate;
pub mod graph;
mod holds;
mod layout;
mod logic;
pub mod names;
mod numbers;
mod overrides;
mod params;
mod parse;
mod prune;
pub mod render;
mod resolve;
mod scan;
mod schema;
mod scope;
pub mod settings;
mod source;
mod syntax;
mod text;
mod turns;
mod values;
pub mod workflow;

pub use catalog::{Catalog, Fact, FactKind, Item, ItemKind};
pub use diagnostic::{Code, Diagnostic, Label, Severity};
pub use format::format;
pub use overrides::{Override, OverrideError, VARIABLE};
pub use source::{Source, SourceFile, Sources, Span};
pub use syntax::BlockKind;

use assemble::{Assembly, assemble};
use diagnostic::Reports;

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// There if and only if no diagnostic is an error.
    pub workflow: Option<workflow::Workflow>,
    /// In order of position; those about what was given from outside or the file as a whole come first.
    pub diagnostics: Vec<Diagnostic>,
    /// The file and what it includes: what the places in diagnostics are about.
    pub sources: Sources,
}

/// The mistakes of a text that can be seen without knowing what its names stand for. Takes a fraction of the time
/// of [`check`].
pub fn syntax_errors(text: &str) -> Vec<Diagnostic> {
    let mut reports = Reports::new(&[]);
    parse::parse(text, 0..text.len(), 0, &mut reports);
    reports.finish()
}

/// Checks a workflow file, with what it includes.
///
/// Takes time linear in the size of the text; never panics, whatever the text.
pub fn check(source: &Source, overrides: &[Override], catalog: &dyn Catalog) -> Checked {
    let mut reports = Reports::new(overrides);
    let Assembly { mut file, sources, spaces } = assemble(source, catalog, &mut reports);
    overrides::apply(&mut file, overrides, &mut reports);
    let workflow = resolve::resolve(file, &sources, spaces, catalog, &mut reports);
    let workflow = workflow.filter(|_| !reports.failed());
    Checked { workflow, diagnostics: reports.finish(), sources }
}
