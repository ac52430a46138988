//! Names: where one is declared, where it is used, and all of that under another name.

use std::collections::HashMap;

use lsp_types::{
    DocumentHighlight, DocumentHighlightKind, GotoDefinitionResponse, Location, Position,
    PrepareRenameResponse, TextEdit, Uri, WorkspaceEdit,
};
use mas_dsl::analysis::{Mention, Names, names};

use crate::documents::Document;
use crate::text;

/// Calls `answer` with the names of a document and the one at a position.
fn at<R>(document: &Document, position: Position, answer: impl FnOnce(&Names, &Mention) -> R) -> Option<R> {
    let names = names(&document.text);
    let mention = names.at(document.lines.offset(&document.text, position))?;
    Some(answer(&names, mention))
}

/// Where the name at a position is declared.
pub fn definition(document: &Document, uri: &Uri, position: Position) -> Option<GotoDefinitionResponse> {
    at(document, position, |names, mention| {
        let range = document.lines.range(&document.text, names.declaration(mention)?.span);
        Some(Location { uri: uri.clone(), range }.into())
    })?
}

/// Everything that means what the name at a position means; the declaration itself where it is wanted.
pub fn references(
    document: &Document,
    uri: &Uri,
    position: Position,
    declaration: bool,
) -> Option<Vec<Location>> {
    at(document, position, |names, mention| {
        let wanted = names.all(mention).filter(|other| declaration || !other.declares);
        let range = |other: &Mention| document.lines.range(&document.text, other.span);
        wanted.map(|other| Location { uri: uri.clone(), range: range(other) }).collect()
    })
}

/// The same for showing them in place.
pub fn highlights(document: &Document, position: Position) -> Option<Vec<DocumentHighlight>> {
    at(document, position, |names, mention| {
        let highlight = |other: &Mention| DocumentHighlight {
            range: document.lines.range(&document.text, other.span),
            kind: Some(if other.declares {
                DocumentHighlightKind::WRITE
            } else {
                DocumentHighlightKind::READ
            }),
        };
        names.all(mention).map(highlight).collect()
    })
}

/// What a rename would rename; none where this file does not declare it.
pub fn renamable(document: &Document, position: Position) -> Option<PrepareRenameResponse> {
    at(document, position, |names, mention| {
        names.declaration(mention)?;
        Some(PrepareRenameResponse::Range(document.lines.range(&document.text, mention.span)))
    })?
}

/// The edits that give the name at a position another name everywhere in its file.
///
/// # Errors
/// Why it can't be called that.
pub fn rename(
    document: &Document,
    uri: &Uri,
    position: Position,
    new: &str,
) -> Result<Option<WorkspaceEdit>, String> {
    let is_name = new.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && new.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    if !is_name {
        return Err(format!(
            "`{new}` is no name: names are letters, digits and `_`, and begin with no digit"
        ));
    }
    let edits = at(document, position, |names, mention| {
        if names.declaration(mention).is_none() {
            return Err("it is declared in another file".to_owned());
        }
        if names.is_taken(mention, new) {
            return Err(format!("there is a {} `{new}` already", mention.kind.keyword()));
        }
        let edit = |other: &Mention| TextEdit {
            range: document.lines.range(&document.text, other.span),
            new_text: new.to_owned(),
        };
        Ok(names.all(mention).map(edit).collect::<Vec<_>>())
    });
    // An address is a key by its text, which nothing changes.
    #[allow(clippy::mutable_key_type)]
    let changes = |edits| HashMap::from([(uri.clone(), edits)]);
    let edit = |edits| WorkspaceEdit { changes: Some(changes(edits)), ..WorkspaceEdit::default() };
    Ok(edits.transpose()?.map(edit))
}

/// The line that declares the name at a byte.
pub fn declaring_line(document: &Document, at: usize) -> Option<String> {
    let names = names(&document.text);
    let declared = names.declaration(names.at(at)?)?.span;
    let start = document.text.get(..declared.start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text::line(document.text.get(start..)?).trim();
    Some(format!("```mas\n{line}\n```"))
}
