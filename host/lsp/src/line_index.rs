//! Conversion between positions of the protocol (a line, and UTF-16 code units in it) and byte offsets of a text.

use lsp_types::{Position, Range};
use pl_dsl::Span;

/// Offsets of the lines of a text. A line ends with `\n`, `\r\n` or `\r`, as in the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineIndex {
    /// Start and end of each line, without its line ending.
    lines: Vec<(usize, usize)>,
}

impl LineIndex {
    pub fn new(text: &str) -> LineIndex {
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
        LineIndex { lines }
    }

    /// Byte offset of a position. A position beyond the end of a line or of the text moves to that end; one within a
    /// character moves to its start.
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

    /// Position of a byte offset. An offset within a line ending moves to the end of that line.
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let line = self.lines.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
        let (start, end) = self.lines.get(line).copied().unwrap_or_default();
        let before = text.get(start..text.floor_char_boundary(offset.min(end))).unwrap_or_default();
        let character = before.chars().map(char::len_utf16).sum::<usize>();
        Position { line: protocol_number(line), character: protocol_number(character) }
    }

    /// Byte range of a range of positions; its ends are put in order.
    pub fn byte_range(&self, text: &str, range: Range) -> std::ops::Range<usize> {
        let (start, end) = (self.offset(text, range.start), self.offset(text, range.end));
        start.min(end)..end.max(start)
    }

    /// Range of positions of a span.
    pub fn range(&self, text: &str, span: Span) -> Range {
        Range { start: self.position(text, span.start), end: self.position(text, span.end) }
    }
}

/// Number in the protocol, which counts in 32 bits.
fn protocol_number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(line: u32, character: u32) -> Position {
        Position { line, character }
    }

    #[test]
    fn units_are_those_of_utf_16() {
        let text = "a = \"ü\u{1F600}x\"\nb";
        let lines = LineIndex::new(text);
        // ü is one unit and two bytes, the emoji two units and four bytes.
        for (character, byte) in [(0, 0), (5, 5), (6, 7), (8, 11), (9, 12), (10, 13), (99, 13)] {
            assert_eq!(lines.offset(text, position(0, character)), byte, "{character}");
        }
        // Within the emoji.
        assert_eq!(lines.offset(text, position(0, 7)), 7);
        assert_eq!(lines.position(text, 11), position(0, 8));
        assert_eq!(lines.position(text, text.len()), position(1, 1));
    }

    #[test]
    fn lines_end_in_three_ways() {
        let text = "a\r\nb\rc\nd";
        let lines = LineIndex::new(text);
        let starts: Vec<usize> = (0..5).map(|line| lines.offset(text, position(line, 0))).collect();
        assert_eq!(starts, [0, 3, 5, 7, 8]);
        assert_eq!(lines.offset(text, position(0, 9)), 1);
        assert_eq!(lines.position(text, 2), position(0, 1));
    }
}
