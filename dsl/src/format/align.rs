//! Columns: cells of neighbouring lines begin under each other, and so do comments.

use std::ops::Range;

use super::layout::WIDTH;
use super::page::{Cell, INDENT, Line, Page, Row, columns};

/// Cells whose widths differ by more are not aligned: the gap would part what belongs together.
const WIDEST_GAP: usize = 32;

/// Comments behind lines stand here or further right, so that those of a whole file are one column.
const COMMENT_COLUMN: usize = 48;

/// Lines that reach further right do not move the comments of their neighbours.
const COMMENT_REACH: usize = 80;

/// Spaces before a comment, at least.
const COMMENT_GAP: usize = 2;

/// Pads the cells of all rows of lines that belong together.
pub(super) fn align(page: &mut Page) {
    let mut start = 0;
    while start < page.lines.len() {
        let end = row_end(&page.lines, start);
        if end > start + 1 {
            align_rows(page, start..end);
        }
        start = end;
    }
}

/// Where the rows end that begin with a line.
fn row_end(lines: &[Line], start: usize) -> usize {
    let Some(rows) = lines.get(start..) else { return start + 1 };
    let together = |pair: &&[Line]| match pair {
        [one, next] => {
            one.row == next.row && one.row != Row::None && one.level == next.level && !one.raw && !next.blank
        }
        _ => false,
    };
    start + 1 + rows.windows(2).take_while(together).count()
}

/// Pads one column after another, as long as the cells to its right begin alike.
fn align_rows(page: &mut Page, rows: Range<usize>) {
    let mut columns = 0;
    while let Some(widest) = widest_cell(page, rows.clone(), columns) {
        for line in page.lines.get(rows.clone()).unwrap_or_default() {
            let Some(at) = with_next(line, columns) else { continue };
            let Some(width) = page.cells.get(at).map(|cell| page.width(cell)) else { continue };
            if let Some(cell) = page.cells.get_mut(at) {
                cell.pad = widest - width;
            }
        }
        columns += 1;
    }
    // Padding must not push a line over the edge; the columns to the right give way first.
    while columns > 0 && overflows(page, rows.clone()) {
        columns -= 1;
        for line in page.lines.get(rows.clone()).unwrap_or_default() {
            if let Some(cell) = with_next(line, columns).and_then(|at| page.cells.get_mut(at)) {
                cell.pad = 0;
            }
        }
    }
}

/// The cell of a line in a column, if another one follows it.
fn with_next(line: &Line, column: usize) -> Option<usize> {
    let at = line.cells.start + column;
    (at + 1 < line.cells.end).then_some(at)
}

/// The width of the widest cell in a column; none if it should not be aligned.
fn widest_cell(page: &Page, rows: Range<usize>, column: usize) -> Option<usize> {
    let mut key = None;
    let (mut least, mut most) = (usize::MAX, None);
    for line in page.lines.get(rows)? {
        let Some(at) = with_next(line, column) else { continue };
        let (cell, next) = (page.cells.get(at)?, page.cells.get(at + 1)?);
        if *key.get_or_insert(next.key) != next.key {
            return None;
        }
        let width = page.width(cell);
        least = least.min(width);
        most = most.max(Some(width));
    }
    most.filter(|most| most - least <= WIDEST_GAP)
}

fn overflows(page: &Page, rows: Range<usize>) -> bool {
    let lines = page.lines.get(rows).unwrap_or_default();
    lines.iter().any(|line| {
        let padded = cells(page, line).iter().any(|cell| cell.pad > 0);
        padded && line_width(page, line) > WIDTH
    })
}

fn cells<'p, 't>(page: &'p Page<'t>, line: &Line<'t>) -> &'p [Cell<'t>] {
    page.cells.get(line.cells.clone()).unwrap_or_default()
}

/// The columns of a line without its comment; of one with newlines in it, those of its first line.
fn line_width(page: &Page, line: &Line) -> usize {
    let cells = cells(page, line);
    let wide: usize = cells.iter().map(|cell| page.width(cell) + cell.pad).sum();
    line.level * INDENT + wide + cells.len().saturating_sub(1)
}

/// The text of the page, comments in their columns.
pub(super) fn write(page: &Page) -> String {
    let mut out = String::with_capacity(page.text.len() + page.text.len() / 2);
    let mut lines = page.lines.as_slice();
    while let Some(first) = lines.first() {
        let commented = lines.iter().take_while(|line| line.comment.is_some()).count();
        let (run, rest) = lines.split_at(commented.max(1));
        let column = if first.comment.is_some() { comment_column(page, run) } else { 0 };
        for line in run {
            write_line(&mut out, page, line, column);
        }
        lines = rest;
    }
    out
}

fn comment_column(page: &Page, lines: &[Line]) -> usize {
    let ends = lines.iter().filter(|line| !line.raw).map(|line| line_width(page, line) + COMMENT_GAP);
    ends.filter(|end| *end <= COMMENT_REACH).fold(COMMENT_COLUMN, usize::max)
}

fn write_line(out: &mut String, page: &Page, line: &Line, comment_column: usize) {
    if line.blank {
        out.push('\n');
    }
    let start = out.len();
    spaces(out, line.level * INDENT);
    let cells = cells(page, line);
    for (index, cell) in cells.iter().enumerate() {
        out.push_str(page.text.get(cell.text.clone()).unwrap_or_default());
        if index + 1 < cells.len() {
            spaces(out, cell.pad + 1);
        }
    }
    if let Some(comment) = line.comment {
        let last = out.get(start..).and_then(|line| line.rsplit('\n').next()).unwrap_or_default();
        let width = columns(last);
        let column = if line.raw { 0 } else { comment_column };
        spaces(out, column.saturating_sub(width).max(COMMENT_GAP));
        out.push_str(comment);
    }
    out.push('\n');
}

fn spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}
