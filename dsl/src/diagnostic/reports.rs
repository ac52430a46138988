//! Collects the diagnostics of one check.

use std::collections::{BTreeSet, HashSet};

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
    /// Prefixes of the names of used files, and whether all that declares such names could be read. That of the workflow file
    /// is empty.
    namespaces: Vec<(String, bool)>,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(overrides: &'a [Override]) -> Self {
        Reports {
            overrides,
            list: Vec::new(),
            via: None,
            context: None,
            found_via: BTreeSet::new(),
            namespaces: vec![(String::new(), true)],
        }
    }

    /// Adds the prefix of the names of a used file, or of one that includes others. A file that was not read may declare any
    /// name with the prefix.
    pub(crate) fn add_namespace(&mut self, prefix: &str, is_read: bool) {
        self.namespaces.push((prefix.to_owned(), is_read));
    }

    /// True if a mistake may be a consequence of a file that could not be read: the file may declare or use a name.
    /// Messages about a name have it first in backticks.
    fn may_follow(&self, diagnostic: &Diagnostic) -> bool {
        let is_unread = |prefix: &str| self.namespaces.iter().any(|(own, is_read)| own == prefix && !is_read);
        match diagnostic.code {
            DiagnosticCode::UnknownName | DiagnosticCode::BadOverride => {
                let name = format!("{}.", diagnostic.message.split('`').nth(1).unwrap_or_default());
                let prefixes = self.namespaces.iter().map(|(prefix, _)| prefix.as_str());
                let own =
                    prefixes.filter(|prefix| name.starts_with(prefix)).max_by_key(|prefix| prefix.len());
                own.is_some_and(is_unread)
            }
            DiagnosticCode::MissingBlock
            | DiagnosticCode::Unused
            | DiagnosticCode::AgentNotReached
            | DiagnosticCode::ScenarioForm
            | DiagnosticCode::LayoutDiffers => is_unread(""),
            _ => false,
        }
    }

    /// Runs a check of a value that has no effect, and keeps what it reports about names, and, if `is_written_out`, about words
    /// and types.
    pub(crate) fn names_and_types(&mut self, is_written_out: bool, check: impl FnOnce(&mut Reports)) {
        let mut aside = Reports { via: self.via, context: self.context, ..Reports::new(self.overrides) };
        check(&mut aside);
        let Reports { list, found_via, .. } = aside;
        for (index, diagnostic) in list.into_iter().enumerate() {
            let is_kept = match diagnostic.code {
                DiagnosticCode::UnknownName => true,
                DiagnosticCode::UnknownChoice | DiagnosticCode::WrongType => is_written_out,
                _ => false,
            };
            if is_kept {
                self.found_via.extend(found_via.contains(&index).then_some(self.list.len()));
                self.list.push(diagnostic);
            }
        }
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

    /// Diagnostics in order of position, those without a place in the file first. Consequences of a file that could not be
    /// read, and repetitions, are left out.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let follows: Vec<bool> = self.list.iter().map(|one| self.may_follow(one)).collect();
        let own = self.list.into_iter().enumerate().filter(|(index, _)| !follows[*index]);
        let mut list: Vec<(bool, Diagnostic)> =
            own.map(|(index, diagnostic)| (self.found_via.contains(&index), diagnostic)).collect();
        let location = |one: &Diagnostic| one.labels.first().map(|label| label.span);
        list.sort_by_key(|(_, one)| location(one));
        // A mistake in a template recurs at each use, and is reported once.
        let (mut seen, mut seen_via) = (HashSet::new(), HashSet::new());
        list.retain(|(via, one)| {
            let is_new = seen.insert((one.code, location(one), one.message.clone()));
            is_new && (!via || seen_via.insert((one.code, location(one))))
        });
        list.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }
}
