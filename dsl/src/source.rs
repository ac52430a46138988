//! The text of a workflow file and places in it.

use serde::{Deserialize, Serialize};

/// A workflow file: its name as the user gave it, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What messages call the file, as a rule its path.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A range of bytes in a [`Source`], `start` included and `end` excluded; always on character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Span { start, end: end.max(start) }
    }

    /// The same range, `by` bytes further on.
    pub(crate) fn shifted(self, by: usize) -> Self {
        Span { start: self.start + by, end: self.end + by }
    }

    /// The text in this range; empty where the range does not fit the text.
    pub(crate) fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Where each line starts, so that many places cost no more than one walk over the text.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after_newline = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { text, starts: std::iter::once(0).chain(after_newline).collect() }
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let column = self.text.get(start..at).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}
