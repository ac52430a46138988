//! Positions of the protocol, a line and UTF-16 units in it, against bytes of a text.

use lsp_types::{Position, Range};
use pl_dsl::Span;

/// Where the lines of a text are. A line ends with `\n`, `\r\n` or `\r`, as the protocol has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// Where each line begins, and where it ends without the signs that end it.
    lines: Vec<(usize, usize)>,
}

impl Lines {
    /// One walk over the text.
    pub fn of(text: &str) -> Lines {
        let bytes = text.as_bytes();
        let (mut lines, mut start) = (Vec::new(), 0);
        for (at, byte) in bytes.iter().enumerate() {
            let is_pair = *byte == b'\r' && bytes.get(at + 1) == Some(&b'\n');
            if matches!(byte, b'\n' | b'\r') && !is_pair {
                let before_pair = *byte == b'\n' && at > start && bytes.get(at - 1) == Some(&b'\r');
                lines.push((start, if before_pair { at - 1 } else { at }));
                start = at + 1;
            }
        }
        lines.push((start, bytes.len()));
        Lines { lines }
    }

    /// The byte of a position. What lies behind the end of a line or of the text is moved to that end, what lies
    /// within a character to its beginning.
    pub fn offset(&self, text: &str, position: Position) -> usize {
        let Some((start, end)) = self.lines.get(position.line as usize).copied() else { return text.len() };
        let mut units = position.character as usize;
        let line = text.get(start..end).unwrap_or_default();
        for (at, character) in line.char_indices() {
            if units < character.len_utf16() {
                return start + at;
            }
            units -= character.len_utf16();
        }
        end
    }

    /// The position of a byte; within the signs that end a line, the end of that line.
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let line = self.lines.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let (start, end) = self.lines.get(line).copied().unwrap_or_default();
        let before = text.get(start..text.floor_char_boundary(offset.min(end))).unwrap_or_default();
        let character = before.chars().map(char::len_utf16).sum::<usize>();
        Position { line: number(line), character: number(character) }
    }

    /// The bytes of a range, in order even where its ends are not.
    pub fn bytes(&self, text: &str, range: Range) -> std::ops::Range<usize> {
        let (start, end) = (self.offset(text, range.start), self.offset(text, range.end));
        start.min(end)..end.max(start)
    }

    /// The range of a span.
    pub fn range(&self, text: &str, span: Span) -> Range {
        Range { start: self.position(text, span.start), end: self.position(text, span.end) }
    }
}

/// The protocol counts in 32 bits.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, character: u32) -> Position {
        Position { line, character }
    }

    #[test]
    fn units_are_those_of_utf_16() {
        let text = "a = \"ü\u{1F600}x\"\nb";
        let lines = Lines::of(text);
        // ü is one unit and two bytes, the face two units and four bytes.
        for (character, byte) in [(0, 0), (5, 5), (6, 7), (8, 11), (9, 12), (10, 13), (99, 13)] {
            assert_eq!(lines.offset(text, at(0, character)), byte, "{character}");
        }
        // Within the face.
        assert_eq!(lines.offset(text, at(0, 7)), 7);
        assert_eq!(lines.position(text, 11), at(0, 8));
        assert_eq!(lines.position(text, text.len()), at(1, 1));
    }

    #[test]
    fn lines_end_in_three_ways() {
        let text = "a\r\nb\rc\nd";
        let lines = Lines::of(text);
        let starts: Vec<usize> = (0..5).map(|line| lines.offset(text, at(line, 0))).collect();
        assert_eq!(starts, [0, 3, 5, 7, 8]);
        assert_eq!(lines.offset(text, at(0, 9)), 1);
        assert_eq!(lines.position(text, 2), at(0, 1));
    }
}
