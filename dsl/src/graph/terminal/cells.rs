//! A page of letters and of lines that know where they meet.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Screen;

/// Directions in which a cell's line goes.
const UP: u8 = 1;
const DOWN: u8 = 2;
pub const LEFT: u8 = 4;
pub const RIGHT: u8 = 8;

/// By the directions that meet, as bits in the order above.
const LINES: [char; 16] = [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

/// By model, as in the SVG: blue, yellow, green, magenta, red, cyan.
pub const COLOURS: [u8; 6] = [34, 33, 32, 35, 31, 36];

/// A place for one letter.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub lines: u8,
    /// Instead of lines; a wide letter has an empty one behind it.
    pub letter: Option<char>,
    /// The second half of a wide letter.
    taken: bool,
    /// Position of the model whose colour it has.
    pub model: Option<usize>,
    bold: bool,
}

/// All places, by row; where a row ends there is nothing.
#[derive(Default)]
pub struct Cells {
    rows: Vec<Vec<Cell>>,
}

impl Cells {
    /// Columns of the widest row.
    pub fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The cell at a place, which there is from now on.
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

    /// A line from left to right, both ends included.
    pub fn across(&mut self, row: usize, left: usize, right: usize, model: Option<usize>) {
        for x in left..=right {
            let cell = self.cell(row, x);
            cell.lines |= if x > left { LEFT } else { 0 } | if x < right { RIGHT } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    /// A line from the top down, both ends included.
    pub fn upright(&mut self, column: usize, top: usize, low: usize, model: Option<usize>) {
        for y in top..=low {
            let cell = self.cell(y, column);
            cell.lines |= if y > top { UP } else { 0 } | if y < low { DOWN } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    /// Text over whatever is there; a line that reaches it goes on at its other side.
    pub fn write(&mut self, row: usize, column: usize, text: &str, model: Option<usize>, bold: bool) {
        let mut x = column;
        for letter in text.chars() {
            let wide = letter.width().unwrap_or(0);
            if wide == 0 {
                continue;
            }
            *self.cell(row, x) = Cell { letter: Some(letter), model, bold, ..Cell::default() };
            if wide == 2 {
                *self.cell(row, x + 1) = Cell { taken: true, ..Cell::default() };
            }
            x += wide;
        }
    }

    /// The cells as text.
    pub fn show(&self, screen: &Screen) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let mut style = (None, false);
            let mut line = String::new();
            for cell in row.iter().filter(|cell| !cell.taken) {
                let wanted = (cell.model, cell.bold);
                if screen.colour && wanted != style {
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

/// The text without its end where it is wider than `width`.
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

/// Lines, arrows and dots that every machine can show.
pub fn plain(text: &str) -> String {
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
