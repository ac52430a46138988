//! A grid of characters, in which lines that meet join each other.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Directions of the lines in a cell.
const UP: u8 = 1;
const DOWN: u8 = 2;
pub const LEFT: u8 = 4;
pub const RIGHT: u8 = 8;

/// Characters of lines, indexed by the bits of their directions.
const LINES: [char; 16] = [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

/// ANSI colours of the models, as in the SVG: blue, yellow, green, magenta, red, cyan.
pub const COLOURS: [u8; 6] = [34, 33, 32, 35, 31, 36];

/// A cell of the grid.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub lines: u8,
    /// Character instead of lines; a wide one is followed by an empty cell.
    pub letter: Option<char>,
    /// True for the second half of a wide character.
    continued: bool,
    /// Index of the model that determines the colour.
    pub model: Option<usize>,
    bold: bool,
}

/// The grid, by row.
#[derive(Default)]
pub struct Cells {
    rows: Vec<Vec<Cell>>,
}

impl Cells {
    /// Number of columns of the widest row.
    pub fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The cell at a position; the grid grows as needed.
    pub fn cell(&mut self, row: usize, column: usize) -> &mut Cell {
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Vec::new);
        }
        let cells = &mut self.rows[row];
        if cells.len() <= column {
            cells.resize(column + 1, Cell::default());
        }
        &mut cells[column]
    }

    /// Draws a horizontal line, both ends included.
    pub fn horizontal(&mut self, row: usize, left: usize, right: usize, model: Option<usize>) {
        for x in left..=right {
            let cell = self.cell(row, x);
            cell.lines |= if x > left { LEFT } else { 0 } | if x < right { RIGHT } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    /// Draws a vertical line, both ends included.
    pub fn vertical(&mut self, column: usize, top: usize, bottom: usize, model: Option<usize>) {
        for y in top..=bottom {
            let cell = self.cell(y, column);
            cell.lines |= if y > top { UP } else { 0 } | if y < bottom { DOWN } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    /// Writes text over the cells.
    pub fn write(&mut self, row: usize, column: usize, text: &str, model: Option<usize>, bold: bool) {
        let mut x = column;
        for letter in text.chars() {
            let wide = letter.width().unwrap_or(0);
            if wide == 0 {
                continue;
            }
            *self.cell(row, x) = Cell { letter: Some(letter), model, bold, ..Cell::default() };
            if wide == 2 {
                *self.cell(row, x + 1) = Cell { continued: true, ..Cell::default() };
            }
            x += wide;
        }
    }

    /// The grid as text.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let mut style = (None, false);
            let mut line = String::new();
            for cell in row.iter().filter(|cell| !cell.continued) {
                let wanted = (cell.model, cell.bold);
                if colour && wanted != style {
                    line.push_str("\u{1b}[0m");
                    if let Some(model) = cell.model {
                        line.push_str(&format!("\u{1b}[{}m", COLOURS[model % COLOURS.len()]));
                    }
                    if cell.bold {
                        line.push_str("\u{1b}[1m");
                    }
                    style = wanted;
                }
                line.push(cell.letter.unwrap_or(LINES[usize::from(cell.lines & 15)]));
            }
            if style != (None, false) {
                line.push_str("\u{1b}[0m");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Shortens a text to `width` columns.
pub fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(letter);
    }
    out.push('…');
    out
}

/// Replaces the characters of lines, arrows and dots by ASCII.
pub fn to_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '│' => out.push('|'),
            '─' => out.push('-'),
            '▼' => out.push('v'),
            '◀' => out.push('<'),
            '→' => out.push_str("->"),
            '·' => out.push('-'),
            '×' => out.push('x'),
            '…' => out.push('~'),
            letter if LINES.contains(&letter) && letter != ' ' => out.push('+'),
            letter => out.push(letter),
        }
    }
    out
}
