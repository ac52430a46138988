//! The check of a design within its skeleton.

use super::mistakes::{DesignMistake, LARGEST};
use super::palette_checker::{beyond_palette, line};
use super::workflow_skeleton::WorkflowSkeleton;
use crate::catalog::Catalog;
use crate::check;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::{Diagnostic, DiagnosticCode, Severity};
use crate::source::Source;
use crate::syntax::parse::parse;
use crate::workflow::{Palette, Workflow};

/// Checks a design: `fragment`, in the place of the agents and turns that `skeleton` lacks. Returns the whole workflow.
///
/// # Errors
/// The mistakes, in order of lines. Those of the palette come alone: nothing else is checked then, and no file that the
/// fragment names is read.
pub fn check_design(
    skeleton: &WorkflowSkeleton,
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
    let workflow = match check_within(skeleton, fragment, catalog) {
        // None of its policies is trained, which is no mistake of a design: others are, or the designer's.
        Err(diagnostics) if diagnostics.iter().any(|one| one.code == DiagnosticCode::NothingToTrain) => {
            let skeleton = skeleton.without_training();
            check_within(&skeleton, fragment, catalog)
                .map_err(|found| errors(&found, fragment, skeleton.design_start()))?
        }
        checked => checked.map_err(|found| errors(&found, fragment, skeleton.design_start()))?,
    };
    let visits = workflow.scenarios.iter().map(|scenario| scenario.turns.max).max().unwrap_or(0);
    if visits > palette.max_visits {
        return Err(vec![DesignMistake::Visits { count: visits, max: palette.max_visits }]);
    }
    Ok(workflow)
}

/// Checks the whole text of a design.
fn check_within(
    skeleton: &WorkflowSkeleton,
    fragment: &str,
    catalog: &dyn Catalog,
) -> Result<Workflow, Vec<Diagnostic>> {
    let whole = Source { name: skeleton.source.name.clone(), text: skeleton.whole(fragment) };
    let checked = check(&whole, &skeleton.overrides, catalog);
    checked.workflow.ok_or(checked.diagnostics)
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
