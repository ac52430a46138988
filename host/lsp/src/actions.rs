//! Code actions: what a hint says, done.

use std::collections::HashMap;

use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, CodeActionParams, CodeActionResponse, Range, TextEdit,
    WorkspaceEdit,
};

use crate::checker::Found;
use crate::documents::Document;

/// What can be done about the diagnostics in a range. Only a check of this very text knows where its words are.
pub fn actions(document: &Document, params: &CodeActionParams) -> CodeActionResponse {
    let found = document.checked().map(|report| report.found.as_slice()).unwrap_or_default();
    found
        .iter()
        .filter(|found| touch(found.diagnostic.range, params.range))
        .filter_map(|found| replacement(found, params))
        .collect()
}

#[allow(clippy::mutable_key_type, reason = "an address is a key by its text, which nothing changes")]
fn replacement(found: &Found, params: &CodeActionParams) -> Option<CodeActionOrCommand> {
    let meant = found.meant.as_ref()?;
    let edit = TextEdit { range: found.diagnostic.range, new_text: meant.clone() };
    let changes = HashMap::from([(params.text_document.uri.clone(), vec![edit])]);
    Some(CodeActionOrCommand::CodeAction(CodeAction {
        title: format!("Replace with `{meant}`"),
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: Some(vec![found.diagnostic.clone()]),
        edit: Some(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }),
        is_preferred: Some(true),
        ..CodeAction::default()
    }))
}

fn touch(one: Range, other: Range) -> bool {
    one.start <= other.end && other.start <= one.end
}
