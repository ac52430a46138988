//! The texts of a workflow and places in them.
//!
//! A workflow is one file, or several where it includes others. Their texts stand behind each other in one long
//! text, so that a place is two numbers wherever it is, and what reads a text need not know of files.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A workflow file: its name as the user gave it, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What messages call the file, as a rule its path: what it includes is looked for beside it.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A range of bytes in [`Sources`], `start` included and `end` excluded; always on character boundaries. In the
/// workflow file itself it counts from the file's own beginning.
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

/// One file among [`Sources`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// What messages call it.
    pub name: String,
    /// Where its text stands in the whole.
    pub range: Range<usize>,
    /// Its folder, relative to that of the workflow file. Paths that it names start from here.
    pub(crate) folder: PathBuf,
}

/// The workflow file and what it includes, in order of reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    text: String,
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file; where its text stands. `folder` is relative to that of the workflow file.
    pub(crate) fn add(&mut self, source: Source, folder: PathBuf) -> Range<usize> {
        if self.files.is_empty() {
            self.text = source.text;
        } else {
            // No place belongs to two files.
            self.text.push('\n');
            self.text.push_str(&source.text);
        }
        let end = self.text.len();
        let start = self.files.last().map_or(0, |last| last.range.end + 1);
        self.files.push(SourceFile { name: source.name, range: start..end, folder });
        start..end
    }

    /// All texts, one behind the other.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The files, the workflow file first.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The text of a file.
    pub fn text_of(&self, file: &SourceFile) -> &str {
        self.text.get(file.range.clone()).unwrap_or_default()
    }

    /// The file that a place is in, and the place counted from that file's beginning.
    pub fn find(&self, span: Span) -> Option<(&SourceFile, Span)> {
        let at = self.files.partition_point(|file| file.range.start <= span.start).checked_sub(1)?;
        let file = self.files.get(at)?;
        let from = file.range.start;
        Some((
            file,
            Span { start: span.start - from, end: span.end.min(file.range.end).max(span.start) - from },
        ))
    }
}

impl From<Source> for Sources {
    fn from(source: Source) -> Self {
        let mut sources = Sources::default();
        sources.add(source, PathBuf::new());
        sources
    }
}

/// The path without `.` and without `..` behind a name, so that one file has one name.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
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
        let before = self.text.get(start..at).unwrap_or_default();
        // A byte order mark is no character of the first line.
        let before = if start == 0 { before.strip_prefix('\u{feff}').unwrap_or(before) } else { before };
        (line, before.chars().count() + 1)
    }
}
