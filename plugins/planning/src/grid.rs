//! Cells, directions and symmetries of rectangular boards.

use pl_sdk::prelude::*;

use crate::literal::Literal;

/// A cell of a board, counted from 0 at the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Row, from the top.
    pub row: usize,
    /// Column, from the left.
    pub column: usize,
}

impl Cell {
    /// Returns the sum of the distances in rows and columns.
    pub fn manhattan(self, other: Self) -> usize {
        self.row.abs_diff(other.row) + self.column.abs_diff(other.column)
    }

    /// Returns the neighbour in a direction. Returns `None` beyond the first row and column.
    pub fn step(self, direction: Direction) -> Option<Self> {
        let Self { row, column } = self;
        Some(match direction {
            Direction::Up => Self { row: row.checked_sub(1)?, column },
            Direction::Down => Self { row: row + 1, column },
            Direction::Left => Self { row, column: column.checked_sub(1)? },
            Direction::Right => Self { row, column: column + 1 },
        })
    }
}

/// A step on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    Up,
    Down,
    Left,
    Right,
}

impl Direction {
    /// All directions.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Left, Self::Right];

    /// Returns its letter.
    pub fn letter(self) -> char {
        match self {
            Self::Up => 'U',
            Self::Down => 'D',
            Self::Left => 'L',
            Self::Right => 'R',
        }
    }

    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Reads the letter of a direction.
    fn from_letter(letter: char) -> Option<Self> {
        match letter {
            'U' => Some(Self::Up),
            'D' => Some(Self::Down),
            'L' => Some(Self::Left),
            'R' => Some(Self::Right),
            _ => None,
        }
    }

    /// Reads a plan: a list of letters or words, such as `["U", "left"]`. A word of several letters is as many moves.
    /// Returns `None` if an item is neither. A number is not a move: states name places by numbers.
    pub fn plan(literal: &Literal) -> Option<Vec<Self>> {
        let mut moves = Vec::new();
        for item in literal.list()? {
            let Literal::Word(word) = item else { return None };
            moves.extend(Self::from_word(word.trim())?);
        }
        Some(moves)
    }

    fn from_word(word: &str) -> Option<Vec<Self>> {
        let named = match word.to_lowercase().as_str() {
            "up" | "u" => Some(Self::Up),
            "down" | "d" => Some(Self::Down),
            "left" | "l" => Some(Self::Left),
            "right" | "r" => Some(Self::Right),
            _ => None,
        };
        match named {
            Some(direction) => Some(vec![direction]),
            None if word.is_empty() => None,
            None => word.chars().map(Self::from_letter).collect(),
        }
    }
}

/// Height and width of a board of equally long rows of characters.
///
/// # Errors
/// [`Error::task`] if it has no cell, more than `limit` rows or columns, or rows of different lengths.
pub fn dimensions(rows: &[Vec<char>], limit: usize) -> Result<(usize, usize)> {
    let width = rows.first().map_or(0, Vec::len);
    if width == 0 {
        return Err(Error::task("the board has no cells"));
    }
    if rows.len() > limit || width > limit {
        return Err(Error::task(format!("the board is larger than {limit} x {limit}")));
    }
    match rows.iter().position(|row| row.len() != width) {
        Some(row) => Err(Error::task(format!("row {row} of the board is not {width} cells long"))),
        None => Ok((rows.len(), width)),
    }
}

/// Returns the smallest of a board's eight images under rotation and reflection, with its height in front. Boards have
/// equal images if and only if they are symmetric to each other.
pub fn canonical_board(height: usize, width: usize, code: impl Fn(Cell) -> u8) -> Vec<u8> {
    let cells = (0..height).flat_map(|row| (0..width).map(move |column| Cell { row, column }));
    let codes: Vec<u8> = cells.map(code).collect();
    let image = |symmetry: usize| {
        let (transposed, flip_rows, flip_columns) = (symmetry & 4 != 0, symmetry & 2 != 0, symmetry & 1 != 0);
        let (rows, columns) = if transposed { (width, height) } else { (height, width) };
        let codes = &codes;
        let source = move |row: usize, column: usize| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            let row = if flip_rows { height - 1 - row } else { row };
            let column = if flip_columns { width - 1 - column } else { column };
            codes[row * width + column]
        };
        let cells = (0..rows).flat_map(move |row| (0..columns).map(move |column| source(row, column)));
        std::iter::once(u8::try_from(rows).unwrap_or(u8::MAX)).chain(cells)
    };
    // Most images differ in their first cells: comparing them is far cheaper than writing all of them.
    let smallest = (1..8).fold(0, |best, next| if image(next).lt(image(best)) { next } else { best });
    image(smallest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::literal::lists;

    fn plan(text: &str) -> Option<Vec<Direction>> {
        Direction::plan(&lists(text).pop()?.0)
    }

    #[test]
    fn directions_are_read_in_many_forms() {
        use Direction::{Down, Left, Right, Up};
        assert_eq!(plan("[\"U\", 'D', L, right]"), Some(vec![Up, Down, Left, Right]));
        assert_eq!(plan("[\"RRD\"]"), Some(vec![Right, Right, Down]));
        assert_eq!(plan("[]"), Some(Vec::new()));
        for wrong in ["[0, 1]", "[\"X\"]", "[\"\"]", "[[\"U\"]]", "[\"rrd\"]"] {
            assert_eq!(plan(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn images_of_a_board_are_equal() {
        let canonical = |rows: &[&str]| {
            canonical_board(rows.len(), rows[0].len(), |cell| rows[cell.row].as_bytes()[cell.column])
        };
        let one = canonical(&["ab", "cd", "ef"]);
        for image in [["ba", "dc", "fe"], ["ef", "cd", "ab"], ["fe", "dc", "ba"]] {
            assert_eq!(canonical(&image), one);
        }
        for image in [["ace", "bdf"], ["fdb", "eca"], ["eca", "fdb"], ["bdf", "ace"]] {
            assert_eq!(canonical(&image), one);
        }
        assert_ne!(canonical(&["ab", "dc", "ef"]), one);
    }
}
