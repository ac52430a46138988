//! Collects the diagnostics of one check.

use std::collections::BTreeSet;

use super::{Diagnostic, DiagnosticCode, Label, Severity};
use crate::source::overrides::Override;
use crate::source::{Location, Span};

/// Collector of the diagnostics of one check.
pub(crate) struct Reports<'a> {
    overrides: &'a [Override],
    list: Vec<Diagnostic>,
    /// Use of the template that is being expanded.
    pub via: Option<Location>,
    /// Head of the block that is being checked.
    pub context: Option<Span>,
    /// Indexes of the diagnostics that were found in templates.
    found_via: BTreeSet<usize>,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(overrides: &'a [Override]) -> Self {
        Reports { overrides, list: Vec::new(), via: None, context: None, found_via: BTreeSet::new() }
    }

    /// Number of diagnostics so far.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Adds the values of names to all diagnostics from index `from` on.
    pub(crate) fn add_values(&mut self, from: usize, values: Vec<(String, String)>) {
        for diagnostic in self.list.iter_mut().skip(from).filter(|one| one.values.is_empty()) {
            diagnostic.values.clone_from(&values);
        }
    }

    pub(crate) fn error(
        &mut self,
        code: DiagnosticCode,
        location: impl Into<Location>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(code, Severity::Error, Some(location.into()), message.into(), label.into())
    }

    pub(crate) fn warning(
        &mut self,
        code: DiagnosticCode,
        location: impl Into<Location>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(code, Severity::Warning, Some(location.into()), message.into(), label.into())
    }

    /// Adds an error about the file as a whole.
    pub(crate) fn about_file(&mut self, code: DiagnosticCode, message: impl Into<String>) -> &mut Diagnostic {
        self.add(code, Severity::Error, None, message.into(), String::new())
    }

    fn add(
        &mut self,
        code: DiagnosticCode,
        severity: Severity,
        location: Option<Location>,
        message: String,
        label: String,
    ) -> &mut Diagnostic {
        let (message, labels) = match location {
            Some(Location::Span(span)) => (message, vec![Label { span, text: label }]),
            Some(Location::Override(index)) => match self.overrides.get(index) {
                Some(given) => (format!("{given}: {message}"), Vec::new()),
                None => (message, Vec::new()),
            },
            None => (message, Vec::new()),
        };
        let index = self.list.len();
        let context = self.context.filter(|_| !labels.is_empty());
        self.list.push(Diagnostic {
            code,
            severity,
            message,
            labels,
            help: None,
            values: Vec::new(),
            context,
        });
        if let Some(via) = self.via {
            self.found_via.insert(index);
            self.list[index].also(via, "the template is used here");
        }
        &mut self.list[index]
    }

    /// Returns true if text was left out because of syntax errors. It may have what seems to be missing.
    pub(crate) fn left_out(&self) -> bool {
        let is_syntax = |code| {
            matches!(code, DiagnosticCode::Syntax | DiagnosticCode::Unclosed | DiagnosticCode::TooDeep)
        };
        self.list.iter().any(|one| is_syntax(one.code))
    }

    pub(crate) fn failed(&self) -> bool {
        self.list.iter().any(|one| one.severity == Severity::Error)
    }

    /// Diagnostics in order of position, those without a place in the file first.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut list: Vec<(bool, Diagnostic)> = self
            .list
            .into_iter()
            .enumerate()
            .map(|(index, diagnostic)| (self.found_via.contains(&index), diagnostic))
            .collect();
        let location = |one: &Diagnostic| one.labels.first().map(|label| label.span);
        list.sort_by_key(|(_, one)| location(one));
        // A mistake in a template recurs at each use, and is reported once.
        list.dedup_by(|(again_via, again), (via, one)| {
            *again_via && *via && again.code == one.code && location(again) == location(one)
        });
        list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }
}
