//! Formatting: the lines that change, and no others, so that the cursor stays where it was.

use lsp_types::{Range, TextEdit};

use crate::documents::Document;

/// The edits that format a document; none where its text is too broken for that.
pub fn format(document: &Document, format: fn(&str) -> Option<String>) -> Option<Vec<TextEdit>> {
    let new = format(&document.text)?;
    Some(difference(document, &new).into_iter().collect())
}

/// One edit from the first line that differs to the last.
fn difference(document: &Document, new: &str) -> Option<TextEdit> {
    let old = document.text.as_str();
    if old == new {
        return None;
    }
    let before = pairs(old.split_inclusive('\n'), new.split_inclusive('\n'));
    let (old_rest, new_rest) = (old.get(before..)?, new.get(before..)?);
    let behind = pairs(old_rest.split_inclusive('\n').rev(), new_rest.split_inclusive('\n').rev());
    let position = |at| document.lines.position(old, at);
    let range = Range { start: position(before), end: position(old.len() - behind) };
    Some(TextEdit { range, new_text: new_rest.get(..new_rest.len() - behind)?.to_owned() })
}

/// The length of the lines that two texts have in common, counted until the first that differs.
fn pairs<'t>(one: impl Iterator<Item = &'t str>, other: impl Iterator<Item = &'t str>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(line, _)| line.len()).sum()
}

#[cfg(test)]
mod tests {
    use lsp_types::TextDocumentContentChangeEvent;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_edit_leaves_the_new_text(old in "[ab\n]{0,20}", new in "[ab\n]{0,20}") {
            let mut document = Document::new(old, 0);
            if let Some(edit) = difference(&document, &new) {
                let change = TextDocumentContentChangeEvent {
                    range: Some(edit.range), range_length: None, text: edit.new_text,
                };
                document.change(vec![change], 1);
            }
            prop_assert_eq!(document.text, new);
        }
    }
}
