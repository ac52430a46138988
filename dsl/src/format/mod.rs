//! The formatter of workflow files: [`format`].
//!
//! It moves tokens and comments but changes none: the [`lexer`] splits the text into tokens, [`brackets`] matches brackets,
//! [`lines`] breaks the tokens into lines, and [`align`] aligns cells of adjacent lines. Each step is one pass without
//! recursion, so time is linear in the size of the text.

mod align;
mod brackets;
mod lexer;
mod lines;
mod output;
mod spacing;

use crate::diagnostic::Diagnostic;
use crate::diagnostic::reports::Reports;

/// Formats a workflow file:
///
/// - Levels are indented by two spaces. A block of several lines has one statement per line; a block of one line stays on
///   one line if it fits in 110 columns, with settings separated by `; `.
/// - `=`, arrows and `when` of adjacent lines are aligned, and so are the parts of adjacent one-line blocks of a kind.
/// - Lists and arguments that don't fit, or that contain a newline, have one line per element, each with a comma.
/// - Comments stay in place; comments at the ends of lines are aligned. Consecutive blank lines become one.
///
/// Formatting is idempotent. Apart from `;`, newlines and trailing commas, tokens and comments don't change, and neither do
/// the contents of texts.
///
/// # Errors
/// Brackets or quotes don't match; the diagnostics are those of the check. Other mistakes don't matter.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let mut reports = Reports::new(&[]);
    let formatted = format_or_report(text, &mut reports);
    formatted.ok_or_else(|| reports.finish())
}

fn format_or_report(text: &str, reports: &mut Reports) -> Option<String> {
    let mut tokens = lexer::tokenize(text, reports)?;
    let groups = brackets::match_brackets(&mut tokens, text, reports)?;
    let mut output = lines::break_lines(text, &tokens, &groups);
    align::align(&mut output);
    Some(align::write(&output))
}
