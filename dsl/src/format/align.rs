//! Alignment of the cells of adjacent lines, and of trailing comments.

use std::ops::Range;

use super::output::{Cell, INDENT, Line, Output, RowKind, WIDTH, columns};

/// Largest difference of widths of aligned cells; a wider gap would separate related parts.
const MAX_GAP: usize = 32;

/// Smallest column of trailing comments, so that most comments of a file are in one column.
const COMMENT_COLUMN: usize = 48;

/// Lines that are longer than this don't move the comments of adjacent lines.
const COMMENT_REACH: usize = 80;

/// Smallest number of spaces before a comment.
const COMMENT_GAP: usize = 2;

/// Pads the cells of all groups of adjacent lines of the same kind.
pub(super) fn align(output: &mut Output) {
    let mut start = 0;
    while start < output.lines.len() {
        let end = group_end(&output.lines, start);
        if end > start + 1 {
            align_rows(output, start..end);
        }
        start = end;
    }
}

/// End of the group of lines that begins at `start`.
fn group_end(lines: &[Line], start: usize) -> usize {
    let Some(rows) = lines.get(start..) else { return start + 1 };
    let together = |pair: &&[Line]| match pair {
        [one, next] => {
            one.row_kind == next.row_kind
                && one.row_kind != RowKind::None
                && one.level == next.level
                && !one.raw
                && !next.blank
        }
        _ => false,
    };
    start + 1 + rows.windows(2).take_while(together).count()
}

/// Pads one column after another, as long as the cells to its right have the same start.
fn align_rows(output: &mut Output, rows: Range<usize>) {
    let mut columns = 0;
    while let Some(widest) = widest_cell(output, rows.clone(), columns) {
        for line in output.lines.get(rows.clone()).unwrap_or_default() {
            let Some(index) = cell_before_another(line, columns) else { continue };
            let Some(width) = output.cells.get(index).map(|cell| output.width(cell)) else { continue };
            if let Some(cell) = output.cells.get_mut(index) {
                cell.pad = widest - width;
            }
        }
        columns += 1;
    }
    // Padding must not make a line too long; the rightmost columns lose theirs first.
    while columns > 0 && overflows(output, rows.clone()) {
        columns -= 1;
        for line in output.lines.get(rows.clone()).unwrap_or_default() {
            if let Some(cell) =
                cell_before_another(line, columns).and_then(|index| output.cells.get_mut(index))
            {
                cell.pad = 0;
            }
        }
    }
}

/// Index of the cell in a column. Returns `None` unless another cell follows it.
fn cell_before_another(line: &Line, column: usize) -> Option<usize> {
    let index = line.cells.start + column;
    (index + 1 < line.cells.end).then_some(index)
}

/// Width of the widest cell in a column. Returns `None` if the column should not be aligned.
fn widest_cell(output: &Output, rows: Range<usize>, column: usize) -> Option<usize> {
    let mut key = None;
    let (mut least, mut most) = (usize::MAX, None);
    for line in output.lines.get(rows)? {
        let Some(index) = cell_before_another(line, column) else { continue };
        let (cell, next) = (output.cells.get(index)?, output.cells.get(index + 1)?);
        if *key.get_or_insert(next.key) != next.key {
            return None;
        }
        let width = output.width(cell);
        least = least.min(width);
        most = most.max(Some(width));
    }
    most.filter(|most| most - least <= MAX_GAP)
}

fn overflows(output: &Output, rows: Range<usize>) -> bool {
    let lines = output.lines.get(rows).unwrap_or_default();
    lines.iter().any(|line| {
        let padded = cells(output, line).iter().any(|cell| cell.pad > 0);
        padded && line_width(output, line) > WIDTH
    })
}

fn cells<'p, 't>(output: &'p Output<'t>, line: &Line<'t>) -> &'p [Cell<'t>] {
    output.cells.get(line.cells.clone()).unwrap_or_default()
}

/// Number of columns of a line without its comment, or of its first line if a cell has several.
fn line_width(output: &Output, line: &Line) -> usize {
    let cells = cells(output, line);
    let width: usize = cells.iter().map(|cell| output.width(cell) + cell.pad).sum();
    line.level * INDENT + width + cells.len().saturating_sub(1)
}

/// Text of the output, with aligned comments.
pub(super) fn write(output: &Output) -> String {
    let mut out = String::with_capacity(output.text.len() + output.text.len() / 2);
    let mut lines = output.lines.as_slice();
    while let Some(first) = lines.first() {
        let commented = lines.iter().take_while(|line| line.comment.is_some()).count();
        let (run, rest) = lines.split_at(commented.max(1));
        let column = if first.comment.is_some() { comment_column(output, run) } else { 0 };
        for line in run {
            write_line(&mut out, output, line, column);
        }
        lines = rest;
    }
    out
}

fn comment_column(output: &Output, lines: &[Line]) -> usize {
    let ends = lines.iter().filter(|line| !line.raw).map(|line| line_width(output, line) + COMMENT_GAP);
    ends.filter(|end| *end <= COMMENT_REACH).fold(COMMENT_COLUMN, usize::max)
}

fn write_line(out: &mut String, output: &Output, line: &Line, comment_column: usize) {
    if line.blank {
        out.push('\n');
    }
    let start = out.len();
    spaces(out, line.level * INDENT);
    let cells = cells(output, line);
    for (index, cell) in cells.iter().enumerate() {
        out.push_str(output.text.get(cell.text.clone()).unwrap_or_default());
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
