//! Applies the grammar in `grammar.pest` to one statement at a time, and reports its errors in plain words.

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use super::expected;
use super::grammar::{Grammar, Rule};
use super::scan::split_word;
use super::tree::{Name, NamespaceId};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::{Location, Span};

/// Parser state while one file is parsed.
pub(super) struct Reader<'t, 'r, 'o> {
    pub text: &'t str,
    pub reports: &'r mut Reports<'o>,
    /// Offset of the current statement: positions of the grammar count from there.
    pub from: usize,
    /// The one place of all that is read, where it is in no file.
    pub fixed_location: Option<Location>,
    pub namespace: NamespaceId,
}

impl<'t> Reader<'t, '_, '_> {
    /// Applies a rule to a statement. Reports an error and returns `None` if the statement doesn't match.
    pub fn read(&mut self, statement: Span, rule: Rule) -> Option<Pair<'t, Rule>> {
        self.read_with_help(statement, rule, None)
    }

    /// Reads as [`Self::read`] does, with a help text for the error.
    pub fn read_with_help(
        &mut self,
        statement: Span,
        rule: Rule,
        help: Option<&dyn Fn() -> String>,
    ) -> Option<Pair<'t, Rule>> {
        self.from = statement.start;
        let error = match Grammar::parse(rule, statement.slice(self.text)) {
            Ok(mut pairs) => return pairs.next(),
            Err(error) => error,
        };
        let at = match error.location {
            InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
        };
        let location = self.token_at(statement, statement.start + at);
        let found = location.slice(self.text);
        let expected = match &error.variant {
            ErrorVariant::ParsingError { positives, .. } => expected::expected(positives, rule == Rule::edge),
            ErrorVariant::CustomError { message } => message.clone(),
        };
        let message = if found.is_empty() {
            format!("expected {expected}, but the statement ends here")
        } else {
            format!("expected {expected}, found `{found}`")
        };
        let is_foreign_letter = found.starts_with(|c: char| !c.is_ascii() && c.is_alphanumeric());
        let help = match help {
            _ if is_foreign_letter => {
                Some("names consist of the letters A to Z and a to z, digits and `_`".to_owned())
            }
            Some(help) => Some(help()),
            None => (rule == Rule::edge && found == "=").then(|| "compare with `==`".to_owned()),
        };
        self.reports
            .error(DiagnosticCode::Syntax, location, message, format!("expected {expected}"))
            .maybe_help(help);
        None
    }

    /// Returns the span of the word or sign at an offset; empty at the end of the statement.
    fn token_at(&self, statement: Span, at: usize) -> Span {
        let rest = Span::new(at, statement.end).slice(self.text);
        let trimmed = rest.trim_start();
        let start = statement.end - trimmed.len();
        let (word, _) = split_word(trimmed);
        let length = match word.len() {
            0 if trimmed.starts_with("->") => 2,
            0 => trimmed.chars().next().map_or(0, char::len_utf8),
            length => length,
        };
        if length == 0 { Span::new(statement.end, statement.end) } else { Span::new(start, start + length) }
    }

    pub fn span(&self, pair: &Pair<Rule>) -> Span {
        let span = pair.as_span();
        Span::new(span.start(), span.end()).shifted(self.from)
    }

    pub fn location(&self, pair: &Pair<Rule>) -> Location {
        self.fixed_location.unwrap_or_else(|| self.span(pair).into())
    }

    pub fn name(&self, pair: &Pair<Rule>) -> Name {
        Name { text: pair.as_str().to_owned(), location: self.location(pair) }
    }
}
