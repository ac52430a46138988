//! Collections of Sudokus in plain text, a puzzle on each line.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Error;

/// Numbers of cells of a puzzle: 4 x 4, 6 x 6 and 9 x 9.
const CELLS: [usize; 3] = [16, 36, 81];

/// Reads the puzzles: digits with `0` or `.` for an empty cell, up to the first comma, semicolon or white space of a line. The
/// rest of the line, such as a solution or a difficulty, is ignored, and so are blank lines and those that begin with `#`.
/// A record has the number of its line, so that the environment, which checks that there is one solution, can name it.
///
/// # Errors
/// [`Error::NoSudoku`] for the first line that has no puzzle.
pub(crate) fn records(path: &Path, text: &str) -> Result<Vec<Map<String, Value>>, Error> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            let number = index + 1;
            let puzzle =
                puzzle(line).ok_or_else(|| Error::NoSudoku { path: path.to_path_buf(), line: number })?;
            Ok(Map::from_iter([("puzzle".to_owned(), puzzle.into()), ("line".to_owned(), number.into())]))
        })
        .collect()
}

/// Returns the puzzle at the beginning of a line.
fn puzzle(line: &str) -> Option<&str> {
    let first = line.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';')).next()?;
    let is_cell = |byte: u8| byte == b'.' || byte.is_ascii_digit();
    (CELLS.contains(&first.len()) && first.bytes().all(is_cell)).then_some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn solutions_difficulties_and_comments_are_ignored() {
        let nine = "0".repeat(81);
        let text = format!(
            "# made by hand\n1.3434.221.3432.\n\n0030000000000000,1234341221434321,2.5\r\n\
             \x20 {nine};{nine}\n  # six\n{}\t5\n",
            ".".repeat(36)
        );
        let expected = json!([
            { "puzzle": "1.3434.221.3432.", "line": 2 },
            { "puzzle": "0030000000000000", "line": 4 },
            { "puzzle": nine, "line": 5 },
            { "puzzle": ".".repeat(36), "line": 7 },
        ]);
        assert_eq!(json!(records(Path::new("x.txt"), &text).unwrap()), expected);
    }

    #[test]
    fn a_line_without_a_puzzle_is_named() {
        let good = "1.3434.221.3432.";
        for bad in ["1.3434.221.343", "1.3434.221.3432.1", "1.3434.221.3432x,", ",1.3434.221.3432."] {
            let text = format!("# one\n{good}\n{bad}\n");
            let message = records(Path::new("x.txt"), &text).unwrap_err().to_string();
            assert!(message.starts_with("x.txt, line 3: "), "{bad}: {message}");
        }
    }
}
