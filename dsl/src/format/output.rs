//! Output lines, made of cells that may be padded, and a trailing comment.

use std::ops::Range;

/// Largest number of columns of a line without its comment, as in the other files of this project.
pub(super) const WIDTH: usize = 110;

/// Spaces per level.
pub(super) const INDENT: usize = 2;

/// One line. Its text is in [`Output::text`].
#[derive(Debug)]
pub(super) struct Line<'t> {
    pub level: usize,
    /// True if a blank line precedes it.
    pub blank: bool,
    pub cells: Range<usize>,
    /// Trailing comment.
    pub comment: Option<&'t str>,
    pub row_kind: RowKind<'t>,
    /// True if a cell contains a text with newlines.
    pub raw: bool,
}

/// Kind of a line for alignment: adjacent lines of the same kind are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind<'t> {
    None,
    /// `key = value`.
    Setting,
    /// `a -> b when …`.
    Edge,
    /// A block or declaration on one line, by its keyword.
    Block(&'t str),
}

/// A part of a line. Cells are separated by a space, or by more if they are aligned.
#[derive(Debug)]
pub(super) struct Cell<'t> {
    /// Range in [`Output::text`].
    pub text: Range<usize>,
    /// Start of the cell; only cells with the same start are aligned.
    pub key: &'t str,
    /// Number of spaces after it, in addition to the separator.
    pub pad: usize,
}

/// All lines in order.
#[derive(Debug, Default)]
pub(super) struct Output<'t> {
    pub text: String,
    pub cells: Vec<Cell<'t>>,
    pub lines: Vec<Line<'t>>,
    /// Start of the current cell.
    cell_start: usize,
    key: &'t str,
    /// Number of columns of the current line so far.
    pub column: usize,
}

impl<'t> Output<'t> {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Output { text: String::with_capacity(bytes), ..Output::default() }
    }

    /// Starts a line. The previous one must be finished.
    pub(super) fn start(&mut self, level: usize, blank: bool) {
        let cells = self.cells.len()..self.cells.len();
        self.lines.push(Line { level, blank, cells, comment: None, row_kind: RowKind::None, raw: false });
        self.cell_start = self.text.len();
        self.key = "";
        self.column = level * INDENT;
    }

    /// Appends to the current cell.
    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.column += columns(piece);
    }

    /// Appends a text with newlines to the current cell.
    pub(super) fn push_lines(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.column = columns(piece.rsplit('\n').next().unwrap_or_default());
        if let Some(line) = self.lines.last_mut() {
            line.raw = true;
        }
    }

    /// Ends the current cell and starts one that begins with `key`.
    pub(super) fn start_cell(&mut self, key: &'t str) {
        self.end_cell();
        self.key = key;
        self.column += 1;
    }

    /// Ends the current line.
    pub(super) fn finish(&mut self) {
        self.end_cell();
        if let Some(line) = self.lines.last_mut() {
            line.cells.end = self.cells.len();
        }
    }

    fn end_cell(&mut self) {
        self.cells.push(Cell { text: self.cell_start..self.text.len(), key: self.key, pad: 0 });
        self.cell_start = self.text.len();
    }

    /// Sets the trailing comment of the last line.
    pub(super) fn set_comment(&mut self, comment: &'t str) {
        if let Some(line) = self.lines.last_mut() {
            line.comment = Some(comment);
        }
    }

    /// Adds a comment on a line of its own.
    pub(super) fn comment_line(&mut self, comment: &'t str, level: usize, blank: bool) {
        self.start(level, blank);
        self.push(comment);
        self.finish();
    }

    /// Number of columns of a cell, or of its first line if it has several.
    pub(super) fn width(&self, cell: &Cell) -> usize {
        columns(self.text.get(cell.text.clone()).and_then(|text| text.split('\n').next()).unwrap_or_default())
    }
}

/// Width of a text, counted in characters.
pub(super) fn columns(text: &str) -> usize {
    text.chars().count()
}
