//! One way to write a workflow file: [`format`].
//!
//! It moves tokens and comments, and changes none: a text goes through [`tokens`], its brackets are matched
//! ([`brackets`]), the tokens are laid out as lines ([`layout`]), and cells of neighbouring lines are aligned
//! ([`align`]). Every step is one walk without recursion, so time is linear in the size of the text.

mod align;
mod brackets;
mod layout;
mod page;
mod spacing;
mod tokens;

use crate::diagnostic::{Diagnostic, Reports};

/// Writes a file the one way:
///
/// - two spaces per level, one statement per line in a block of several lines; a block of one line stays so
///   where it fits in 110 columns, its settings parted by `; `
/// - `=`, arrows and `when` of neighbouring lines stand under each other, and so do the parts of neighbouring
///   one-line blocks of one kind
/// - lists and arguments that do not fit, or that the writer broke, have a line for each element, with a comma
///   behind each
/// - comments stay where they are, those behind lines in one column; at most one blank line in a row
///
/// What is formatted already stays as it is. Apart from `;`, newlines and last commas, the tokens are the same
/// as before, and so are the comments; what stands within texts is never touched.
///
/// # Errors
/// Where brackets or quotes do not match it says so, in the words of the check. Other mistakes are no matter.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let mut reports = Reports::new(&[]);
    let formatted = format_or_report(text, &mut reports);
    formatted.ok_or_else(|| reports.finish())
}

fn format_or_report(text: &str, reports: &mut Reports) -> Option<String> {
    let mut tokens = tokens::tokens(text, reports)?;
    let groups = brackets::pair(&mut tokens, text, reports)?;
    let mut page = layout::lay_out(text, &tokens, &groups);
    align::align(&mut page);
    Some(align::write(&page))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::format;
    use crate::diagnostic::Reports;
    use crate::generate;
    use crate::parse::parse;

    /// The syntax tree of a text without its places; none where the text can't be read.
    fn tree(text: &str) -> Option<String> {
        let mut reports = Reports::new(&[]);
        let file = parse(text, 0..text.len(), 0, &mut reports);
        if reports.failed() {
            return None;
        }
        let shown = format!("{file:?}");
        let mut parts = shown.split("Span { ");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
        }
        Some(out)
    }

    fn same_tree(text: &str) {
        if let (Some(before), Ok(formatted)) = (tree(text), format(text)) {
            assert_eq!(tree(&formatted), Some(before), "of:\n{text}\nformatted:\n{formatted}");
        }
    }

    #[test]
    fn examples_and_cases_keep_their_trees() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut read = 0;
        for folder in ["../examples", "tests/cases", "tests/mistakes", "tests/format"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "mas") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    read += usize::from(tree(&text).is_some());
                    same_tree(&text);
                }
            }
        }
        assert!(read > 100, "only {read} files could be read");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_file_keeps_its_tree(seed: u64, statements in 0_usize..24) {
            let text = generate::file(seed, statements);
            same_tree(&text);
        }
    }

    /// What the property above compares: the generator also writes what brackets allow and the grammar does not.
    #[test]
    fn many_generated_files_have_a_tree() {
        let read = (0..400).filter(|seed| tree(&generate::file(*seed, 2)).is_some()).count();
        assert!(read > 40, "only {read} of 400");
    }
}
