//! The check of a design within its frame.

use super::fence::{beyond_palette, line};
use super::frame::Frame;
use super::mistakes::{DesignMistake, LARGEST};
use crate::catalog::Catalog;
use crate::check;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::Source;
use crate::syntax::parse::parse;
use crate::workflow::{Palette, Workflow};

/// Checks a design: `fragment`, in the place of the agents and turns that `frame` lacks. Returns the whole workflow.
///
/// # Errors
/// The mistakes, in order of lines. Those of the palette come alone: nothing else is checked then, and no file that the
/// fragment names is read.
pub fn check_design(
    frame: &Frame,
    palette: &Palette,
    fragment: &str,
    catalog: &dyn Catalog,
) -> Result<Workflow, Vec<DesignMistake>> {
    if fragment.len() > LARGEST {
        return Err(vec![DesignMistake::Size(fragment.len())]);
    }
    let mut reports = Reports::new(&[]);
    let file = parse(fragment, 0..fragment.len(), 0, &mut reports);
    if reports.failed() {
        return Err(errors(&reports.finish(), fragment, 0));
    }
    let mistakes = beyond_palette(&file, palette, fragment);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let start = frame.source.text.len() + 1;
    let whole = Source { name: frame.source.name.clone(), text: frame.whole(fragment) };
    let checked = check(&whole, &frame.overrides, catalog);
    let Some(workflow) = checked.workflow else {
        return Err(errors(&checked.diagnostics, fragment, start));
    };
    let visits = workflow.scenarios.iter().map(|scenario| scenario.turns.max).max().unwrap_or(0);
    if visits > palette.max_visits {
        return Err(vec![DesignMistake::Visits { count: visits, max: palette.max_visits }]);
    }
    Ok(workflow)
}

/// Returns a design as the formatter writes it. One with a syntax error, and one that is too large, stays as it is.
pub fn format_design(fragment: &str) -> String {
    let formatted = (fragment.len() <= LARGEST).then(|| crate::format(fragment).ok()).flatten();
    formatted.unwrap_or_else(|| fragment.to_owned())
}

/// The errors among diagnostics of a text in which the fragment begins at `start`.
fn errors(diagnostics: &[Diagnostic], fragment: &str, start: usize) -> Vec<DesignMistake> {
    let errors = diagnostics.iter().filter(|one| one.severity == Severity::Error);
    errors
        .map(|one| {
            let at = one.labels.first().and_then(|label| label.span.start.checked_sub(start));
            DesignMistake::Checked {
                line: at.map(|at| line(fragment, at)),
                code: one.code,
                message: one.message.clone(),
            }
        })
        .collect()
}
