//! Open documents, kept in sync with the editor.

use lsp_types::TextDocumentContentChangeEvent;

use crate::checker::CheckReport;
use crate::line_index::LineIndex;

/// A document that is open in the editor.
#[derive(Debug)]
pub struct Document {
    pub text: String,
    pub line_index: LineIndex,
    /// Version number of the text, given by the editor.
    pub version: i32,
    /// Result of the last check, which may be of an earlier text.
    pub report: Option<CheckReport>,
}

impl Document {
    pub fn new(text: String, version: i32) -> Document {
        let line_index = LineIndex::new(&text);
        Document { text, line_index, version, report: None }
    }

    /// Applies the editor's changes in order.
    pub fn apply_changes(&mut self, changes: Vec<TextDocumentContentChangeEvent>, version: i32) {
        for change in changes {
            match change.range {
                Some(range) => {
                    self.text.replace_range(self.line_index.byte_range(&self.text, range), &change.text);
                }
                None => self.text = change.text,
            }
            self.line_index = LineIndex::new(&self.text);
        }
        self.version = version;
    }

    /// Result of the last check. Returns `None` if it was of an earlier text.
    pub fn current_report(&self) -> Option<&CheckReport> {
        self.report.as_ref().filter(|report| report.version == self.version)
    }
}

#[cfg(test)]
mod tests {
    use lsp_types::{Position, Range};
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation of an edit: the text as lines of UTF-16 units with their line endings.
    fn edit(text: &str, range: Range, new: &str) -> String {
        let mut lines: Vec<(Vec<u16>, Vec<u16>)> = Vec::new();
        let units: Vec<u16> = text.encode_utf16().collect();
        let (mut line, mut at) = (Vec::new(), 0);
        while at < units.len() {
            let ending = match (units[at], units.get(at + 1)) {
                (13, Some(10)) => 2,
                (13 | 10, _) => 1,
                _ => 0,
            };
            if ending == 0 {
                line.push(units[at]);
                at += 1;
            } else {
                lines.push((std::mem::take(&mut line), units[at..at + ending].to_vec()));
                at += ending;
            }
        }
        lines.push((line, Vec::new()));
        let index = |position: Position| {
            let before = lines.iter().take(position.line as usize);
            let start: usize = before.map(|(line, ending)| line.len() + ending.len()).sum();
            let length = lines.get(position.line as usize).map_or(0, |(line, _)| line.len());
            start + length.min(position.character as usize)
        };
        let (start, end) = (index(range.start), index(range.end));
        let new: Vec<u16> = new.encode_utf16().collect();
        let all = [&units[..start.min(end)], &new, &units[start.max(end)..]].concat();
        String::from_utf16(&all).expect("no half characters in these tests")
    }

    fn texts() -> impl Strategy<Value = String> {
        let parts = vec!["a", "ü", "漢", "{", "\"", "\n", "\r\n", "\r", " ", "policy p"];
        prop::collection::vec(prop::sample::select(parts), 0..30).prop_map(|parts| parts.concat())
    }

    fn ranges() -> impl Strategy<Value = Range> {
        let positions = || (0..12_u32, 0..20_u32).prop_map(|(line, character)| Position { line, character });
        (positions(), positions()).prop_map(|(start, end)| Range { start, end })
    }

    proptest! {
        /// Any sequence of edits leaves the text that an editor would have.
        #[test]
        fn edits_stay_in_sync_with_the_editor(
            first in texts(),
            edits in prop::collection::vec((ranges(), texts()), 1..12),
        ) {
            let mut document = Document::new(first.clone(), 0);
            let mut plain = first;
            for (version, (range, text)) in (1..).zip(edits) {
                plain = edit(&plain, range, &text);
                let change = TextDocumentContentChangeEvent { range: Some(range), range_length: None, text };
                document.apply_changes(vec![change], version);
                prop_assert_eq!(&document.text, &plain);
            }
        }

        /// The position of every byte converts back to that byte.
        #[test]
        fn positions_round_trip(text in texts()) {
            let lines = LineIndex::new(&text);
            for (at, character) in text.char_indices().filter(|(_, one)| !matches!(one, '\r' | '\n')) {
                prop_assert_eq!(lines.offset(&text, lines.position(&text, at)), at, "{}", character);
            }
        }
    }
}
