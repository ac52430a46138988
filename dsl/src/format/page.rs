//! Lines as they will be written: cells, which may be padded, and a comment behind them.

use std::ops::Range;

/// Spaces per level.
pub(super) const INDENT: usize = 2;

/// One line of the output. What is in it stands in the page's text already.
#[derive(Debug)]
pub(super) struct Line<'t> {
    pub level: usize,
    /// A blank line stands before it.
    pub blank: bool,
    pub cells: Range<usize>,
    /// What stands behind the cells.
    pub comment: Option<&'t str>,
    pub row: Row<'t>,
    /// A text with newlines in it is among the cells.
    pub raw: bool,
}

/// Which neighbours a line is aligned with: those of the same row kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row<'t> {
    None,
    /// `key = value`.
    Setting,
    /// `a -> b when …`.
    Edge,
    /// A block or declaration on one line, with its keyword.
    Block(&'t str),
}

/// A part of a line. Cells are a space apart, and more where they are aligned.
#[derive(Debug)]
pub(super) struct Cell<'t> {
    /// Where in the page's text it stands.
    pub text: Range<usize>,
    /// What it begins with; only cells that begin alike are aligned.
    pub key: &'t str,
    /// Spaces behind it, beside the one before the next cell.
    pub pad: usize,
}

/// All lines, in order.
#[derive(Debug, Default)]
pub(super) struct Page<'t> {
    pub text: String,
    pub cells: Vec<Cell<'t>>,
    pub lines: Vec<Line<'t>>,
    /// Where the current cell begins.
    cell: usize,
    key: &'t str,
    /// Columns of the current line so far.
    pub column: usize,
}

impl<'t> Page<'t> {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Page { text: String::with_capacity(bytes), ..Page::default() }
    }

    /// Begins a line. The one before it must be finished.
    pub(super) fn start(&mut self, level: usize, blank: bool) {
        let cells = self.cells.len()..self.cells.len();
        self.lines.push(Line { level, blank, cells, comment: None, row: Row::None, raw: false });
        self.cell = self.text.len();
        self.key = "";
        self.column = level * INDENT;
    }

    /// Writes a piece of the current cell.
    pub(super) fn put(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.column += columns(piece);
    }

    /// Writes a text with newlines in it.
    pub(super) fn put_lines(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.column = columns(piece.rsplit('\n').next().unwrap_or_default());
        if let Some(line) = self.lines.last_mut() {
            line.raw = true;
        }
    }

    /// Ends the current cell; the next one begins with `key`.
    pub(super) fn cut(&mut self, key: &'t str) {
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
        self.cells.push(Cell { text: self.cell..self.text.len(), key: self.key, pad: 0 });
        self.cell = self.text.len();
    }

    /// Writes a comment behind the last line.
    pub(super) fn comment(&mut self, comment: &'t str) {
        if let Some(line) = self.lines.last_mut() {
            line.comment = Some(comment);
        }
    }

    /// Writes a comment on a line of its own.
    pub(super) fn comment_line(&mut self, comment: &'t str, level: usize, blank: bool) {
        self.start(level, blank);
        self.put(comment);
        self.finish();
    }

    /// The columns of a cell; of one with newlines in it, those of its first line.
    pub(super) fn width(&self, cell: &Cell) -> usize {
        columns(self.text.get(cell.text.clone()).and_then(|text| text.split('\n').next()).unwrap_or_default())
    }
}

/// How wide a text is, a character a column.
pub(super) fn columns(text: &str) -> usize {
    text.chars().count()
}
