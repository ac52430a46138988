//! Code actions: quick fixes that apply the suggestion of a diagnostic.

use std::collections::HashMap;

use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, CodeActionParams, CodeActionResponse, Range, TextEdit,
    WorkspaceEdit,
};

use crate::checker::EditorDiagnostic;
use crate::documents::Document;

/// Quick fixes of the diagnostics in a range. Only the findings of the current text have valid ranges.
pub fn code_actions(document: &Document, params: &CodeActionParams) -> CodeActionResponse {
    let findings = document.current_report().map(|report| report.findings.as_slice()).unwrap_or_default();
    findings
        .iter()
        .filter(|finding| overlap(finding.diagnostic.range, params.range))
        .filter_map(|finding| quick_fix(finding, params))
        .collect()
}

#[allow(clippy::mutable_key_type, reason = "a URI is hashed by its text, which never changes")]
fn quick_fix(finding: &EditorDiagnostic, params: &CodeActionParams) -> Option<CodeActionOrCommand> {
    let replacement = finding.replacement.as_ref()?;
    let edit = TextEdit { range: finding.diagnostic.range, new_text: replacement.clone() };
    let changes = HashMap::from([(params.text_document.uri.clone(), vec![edit])]);
    Some(CodeActionOrCommand::CodeAction(CodeAction {
        title: format!("Replace with `{replacement}`"),
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: Some(vec![finding.diagnostic.clone()]),
        edit: Some(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }),
        is_preferred: Some(true),
        ..CodeAction::default()
    }))
}

fn overlap(one: Range, other: Range) -> bool {
    one.start <= other.end && other.start <= one.end
}
