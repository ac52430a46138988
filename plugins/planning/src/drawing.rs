//! Drawings of boards as SVG documents: one unit to a cell, on a background of their own, so that they are readable on light
//! and dark pages. They have no scripts, styles, links or fonts of their own.

use std::fmt::Write;

use crate::grid::Cell;

/// Pixels of a cell of a small board.
const CELL_PIXELS: usize = 32;

/// Maximum height and width of a drawing in pixels. Cells of larger boards are smaller.
const MAX_PIXELS: usize = 480;

/// Maximum number of characters of a label.
const MAX_LABEL: usize = 4;

/// Colours, each with enough contrast to the others for black-and-white prints.
pub mod colour {
    pub const BOARD: &str = "#f4f1e8";
    pub const LINE: &str = "#b9b3a2";
    pub const DARK: &str = "#3d3d3d";
    pub const SHADE: &str = "#dcd5c2";
    pub const PLAYER: &str = "#1f6fb5";
    pub const GOAL: &str = "#2c8a4b";
    pub const BLOCK: &str = "#b0702c";
    pub const WRONG: &str = "#c0392b";
    pub const LIGHT: &str = "#ffffff";
}

/// A drawing of a board.
pub struct Svg {
    columns: usize,
    rows: usize,
    shapes: String,
}

impl Svg {
    /// Creates an empty board with lines between its cells.
    pub fn board(rows: usize, columns: usize) -> Self {
        let mut svg = Self::blank(rows, columns);
        svg.lines(1, 1, 0.03, colour::LINE);
        svg
    }

    /// Creates a drawing without lines.
    pub fn blank(rows: usize, columns: usize) -> Self {
        let shapes = format!("<rect width=\"{columns}\" height=\"{rows}\" fill=\"{}\"/>", colour::BOARD);
        Self { columns, rows, shapes }
    }

    fn add(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.shapes.write_fmt(arguments);
    }

    /// Draws lines below every `height`th row and beside every `width`th column.
    pub fn lines(&mut self, height: usize, width: usize, stroke: f64, colour: &str) {
        let (columns, rows) = (self.columns, self.rows);
        let mut path = String::new();
        for row in (0..=rows).step_by(height.max(1)) {
            let _ = write!(path, "M0 {row}h{columns}");
        }
        for column in (0..=columns).step_by(width.max(1)) {
            let _ = write!(path, "M{column} 0v{rows}");
        }
        self.add(format_args!(
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"{stroke}\" fill=\"none\"/>"
        ));
    }

    /// Fills whole cells.
    pub fn fill(&mut self, cells: impl IntoIterator<Item = Cell>, colour: &str) {
        let mut path = String::new();
        for Cell { row, column } in cells {
            let _ = write!(path, "M{column} {row}h1v1h-1z");
        }
        if !path.is_empty() {
            self.add(format_args!("<path d=\"{path}\" fill=\"{colour}\"/>"));
        }
    }

    /// Draws a square within a cell.
    pub fn square(&mut self, Cell { row, column }: Cell, colour: &str) {
        let (x, y) = (column as f64 + 0.12, row as f64 + 0.12);
        self.add(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\".76\" height=\".76\" rx=\".1\" fill=\"{colour}\"/>"
        ));
    }

    /// Draws a disc in a cell.
    pub fn disc(&mut self, Cell { row, column }: Cell, radius: f64, colour: &str) {
        self.add(format_args!("<circle cx=\"{column}.5\" cy=\"{row}.5\" r=\"{radius}\" fill=\"{colour}\"/>"));
    }

    /// Draws a ring in a cell.
    pub fn ring(&mut self, Cell { row, column }: Cell, radius: f64, colour: &str) {
        self.add(format_args!(
            "<circle cx=\"{column}.5\" cy=\"{row}.5\" r=\"{radius}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\".1\"/>"
        ));
    }

    /// Writes a text in the middle of a cell. Long texts are cut.
    pub fn label(&mut self, Cell { row, column }: Cell, text: &str, colour: &str) {
        let size = if text.chars().count() > 2 { 0.34 } else { 0.56 };
        let text: String = text.chars().take(MAX_LABEL).map(escape).collect();
        self.add(format_args!(
            "<text x=\"{column}.5\" y=\"{row}.52\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"middle\" \
             dominant-baseline=\"central\" font-family=\"sans-serif\">{text}</text>"
        ));
    }

    /// Returns the document.
    pub fn finish(self) -> String {
        let Self { columns, rows, shapes } = self;
        let pixels = CELL_PIXELS.min(MAX_PIXELS / columns.max(rows).max(1)).max(1);
        let (width, height) = (columns * pixels, rows * pixels);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {columns} {rows}\">{shapes}</svg>"
        )
    }
}

/// Escapes a character of a label: names come from task files.
fn escape(symbol: char) -> String {
    match symbol {
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '&' => "&amp;".to_owned(),
        '"' | '\'' => "&quot;".to_owned(),
        // XML has no control characters.
        control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => "?".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_cut() {
        let mut svg = Svg::blank(1, 1);
        svg.label(Cell { row: 0, column: 0 }, "<\u{1}&'script>", colour::DARK);
        let text = svg.finish();
        assert!(text.contains(">&lt;?&amp;&quot;</text>"), "{text}");
    }

    #[test]
    fn large_boards_have_small_cells() {
        let small = Svg::board(2, 3).finish();
        assert!(small.contains("width=\"96\" height=\"64\" viewBox=\"0 0 3 2\""), "{small}");
        let mut large = Svg::board(100, 100);
        large.fill((0..100).flat_map(|row| (0..100).map(move |column| Cell { row, column })), colour::DARK);
        let large = large.finish();
        assert!(large.contains("width=\"400\"") && large.len() < 256 << 10, "{} bytes", large.len());
    }
}
