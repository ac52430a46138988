//! Formatting. Only the lines that change are replaced, so that the cursor stays in place.

use lsp_types::{Range, TextEdit};

use crate::documents::Document;

/// Edits that format a document. Returns `None` if the text is too broken to format.
pub fn format(document: &Document, format: fn(&str) -> Option<String>) -> Option<Vec<TextEdit>> {
    let new = format(&document.text)?;
    Some(difference(document, &new).into_iter().collect())
}

/// A single edit from the first line that differs to the last.
fn difference(document: &Document, new: &str) -> Option<TextEdit> {
    let old = document.text.as_str();
    if old == new {
        return None;
    }
    let before = common_length(old.split_inclusive('\n'), new.split_inclusive('\n'));
    let (old_rest, new_rest) = (old.get(before..)?, new.get(before..)?);
    let after = common_length(old_rest.split_inclusive('\n').rev(), new_rest.split_inclusive('\n').rev());
    let position = |offset| document.line_index.position(old, offset);
    let range = Range { start: position(before), end: position(old.len() - after) };
    Some(TextEdit { range, new_text: new_rest.get(..new_rest.len() - after)?.to_owned() })
}

/// Length in bytes of the equal lines before the first difference.
fn common_length<'t>(one: impl Iterator<Item = &'t str>, other: impl Iterator<Item = &'t str>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(line, _)| line.len()).sum()
}

#[cfg(test)]
mod tests {
    use lsp_types::TextDocumentContentChangeEvent;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_edit_produces_the_new_text(old in "[ab\n]{0,20}", new in "[ab\n]{0,20}") {
            let mut document = Document::new(old, 0);
            if let Some(edit) = difference(&document, &new) {
                let change = TextDocumentContentChangeEvent {
                    range: Some(edit.range), range_length: None, text: edit.new_text,
                };
                document.apply_changes(vec![change], 1);
            }
            prop_assert_eq!(document.text, new);
        }
    }
}
