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
