//! The source texts of a workflow and positions in them.
//!
//! A workflow is one file, or several if it includes others. Their texts are concatenated, so that a position is two
//! numbers in any file, and the parser doesn't need to know about files.

pub(crate) mod overrides;

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A workflow file: its name as the user gave it, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name in messages, usually the path. Included files are looked up relative to its folder.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A range of bytes in [`Sources`], including `start` and excluding `end`, on character boundaries. In the workflow file
/// it is relative to the beginning of the file.
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

    /// Returns the range moved forward by a number of bytes.
    pub(crate) fn shifted(self, by: usize) -> Self {
        Span { start: self.start + by, end: self.end + by }
    }

    /// Returns the text in this range, or an empty text if the range is outside of the text.
    pub(crate) fn slice(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// Location of a part of a workflow: a span of the text, or the override at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    Span(Span),
    Override(usize),
}

impl From<Span> for Location {
    fn from(span: Span) -> Self {
        Location::Span(span)
    }
}

/// One file among [`Sources`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Name in messages.
    pub name: String,
    /// Range of its text in the concatenated text.
    pub range: Range<usize>,
    /// Its folder, relative to that of the workflow file. Its paths are relative to this folder.
    pub(crate) folder: PathBuf,
}

/// The workflow file and the files that it names, in reading order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    text: String,
    files: Vec<SourceFile>,
}

impl Sources {
    /// Adds a file and returns the range of its text. `folder` is relative to that of the workflow file.
    pub(crate) fn add(&mut self, source: Source, folder: PathBuf) -> Range<usize> {
        if self.files.is_empty() {
            self.text = source.text;
        } else {
            // Separates the files, so that no position belongs to two of them.
            self.text.push('\n');
            self.text.push_str(&source.text);
        }
        let end = self.text.len();
        let start = self.files.last().map_or(0, |last| last.range.end + 1);
        self.files.push(SourceFile { name: source.name, range: start..end, folder });
        start..end
    }

    /// The concatenated texts.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The files, the workflow file first.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns the text of a file.
    pub fn text_of(&self, file: &SourceFile) -> &str {
        self.text.get(file.range.clone()).unwrap_or_default()
    }

    /// Returns the file that contains a span, and the span relative to that file.
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

/// Removes `.` and resolves `..` after a name, so that a file has one path.
pub(crate) fn normalize_path(path: &Path) -> PathBuf {
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

/// Start of each line, to look up many positions with one pass over the text.
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

    /// Returns the line and column of a byte, both from 1. Columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..at).unwrap_or_default();
        // A byte order mark doesn't count as a character of the first line.
        let before = if start == 0 { before.strip_prefix('\u{feff}').unwrap_or(before) } else { before };
        (line, before.chars().count() + 1)
    }
}
