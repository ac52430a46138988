//! Names: where one is declared, where it is used, and all of that under another name.
//!
//! The answers are about the texts as they are in the editor, and where a file is not open, on the disk.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use lsp_types::{
    DocumentHighlight, DocumentHighlightKind, GotoDefinitionResponse, Location, Position,
    PrepareRenameResponse, TextEdit, Uri, WorkspaceEdit,
};
use pl_dsl::names::{Definition, Names, names};
use pl_dsl::workflow::Plugin;
use pl_dsl::{Catalog, Item, Source, Span};

use crate::documents::{Document, path};
use crate::places::Places;
use crate::text;

/// A file that is longer is no part of a workflow.
const LONGEST: u64 = 4 << 20;

/// The names around one place.
pub struct Place<'a> {
    pub document: &'a Document,
    pub uri: &'a Uri,
    pub position: Position,
    /// All that are open, by address.
    pub documents: &'a BTreeMap<String, Document>,
}

impl Place<'_> {
    /// Calls `answer` with the definition of the name at the place.
    fn look<R>(&self, answer: impl FnOnce(&Names, &Definition, &Places) -> R) -> Option<R> {
        let path = path(self.uri);
        let name = path.as_deref().map_or_else(String::new, |path| path.display().to_string());
        let folder = path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
        let source = Source { name, text: self.document.text.clone() };
        let names = names(&source, &Texts { folder, documents: self.documents });
        let places = Places::of(&names.sources, self.uri);
        let at = self.document.lines.offset(&self.document.text, self.position);
        Some(answer(&names, names.at(at)?, &places))
    }

    /// Where the name is declared.
    pub fn definition(&self) -> Option<GotoDefinitionResponse> {
        self.look(|_, definition, places| Some(places.location(definition.span)?.into()))?
    }

    /// Everything that means what the name means; the declaration itself where it is wanted.
    pub fn references(&self, declaration: bool) -> Option<Vec<Location>> {
        self.look(|_, definition, places| {
            let declared = declaration.then_some(&definition.span);
            let mut spans: Vec<&Span> = declared.into_iter().chain(&definition.uses).collect();
            spans.sort();
            spans.into_iter().filter_map(|span| places.location(*span)).collect()
        })
    }

    /// The same within the document, for showing in place.
    pub fn highlights(&self) -> Option<Vec<DocumentHighlight>> {
        self.look(|_, definition, places| {
            let all = [(DocumentHighlightKind::WRITE, &definition.span)].into_iter();
            let all = all.chain(definition.uses.iter().map(|span| (DocumentHighlightKind::READ, span)));
            let here = all.filter(|(_, span)| !places.is_elsewhere(**span));
            let shown = here.filter_map(|(kind, span)| {
                let range = places.location(*span)?.range;
                Some(DocumentHighlight { range, kind: Some(kind) })
            });
            shown.collect()
        })
    }

    /// What a rename would rename.
    pub fn renamable(&self) -> Option<PrepareRenameResponse> {
        let at = self.document.lines.offset(&self.document.text, self.position);
        self.look(|_, definition, places| {
            let mut all = [&definition.span].into_iter().chain(&definition.uses);
            let here = all.find(|span| (span.start..=span.end).contains(&at))?;
            Some(PrepareRenameResponse::Range(places.location(*here)?.range))
        })?
    }

    /// The edits that give the name another one everywhere in the workflow, in the files that it includes too.
    ///
    /// # Errors
    /// Why it can't be called that.
    pub fn rename(&self, new: &str) -> Result<Option<WorkspaceEdit>, String> {
        let is_name = new.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && new.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
        if !is_name {
            return Err(format!(
                "`{new}` is no name: names are letters, digits and `_`, and begin with no digit"
            ));
        }
        let edit = self.look(|names, definition, places| {
            let full_name =
                definition.full_name.strip_suffix(&definition.name).unwrap_or_default().to_owned() + new;
            let is_taken =
                |other: &&Definition| other.kind == definition.kind && other.full_name == full_name;
            if new != definition.name && names.definitions.iter().any(|other| is_taken(&other)) {
                return Err(format!("there is a {} `{full_name}` already", definition.kind.keyword()));
            }
            #[allow(
                clippy::mutable_key_type,
                reason = "an address is a key by its text, which nothing changes"
            )]
            let mut changes: HashMap<Uri, Vec<TextEdit>> = HashMap::new();
            for span in [&definition.span].into_iter().chain(&definition.uses) {
                if let Some(Location { uri, range }) = places.location(*span) {
                    changes.entry(uri).or_default().push(TextEdit { range, new_text: new.to_owned() });
                }
            }
            Ok(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() })
        });
        edit.transpose()
    }

    /// The line that declares the name.
    pub fn declaring_line(&self) -> Option<String> {
        self.look(|names, definition, _| {
            let (file, head) = names.sources.find(definition.head)?;
            let line = text::line(text::of(names.sources.text_of(file), head));
            Some(format!("```mas\n{line}\n```"))
        })?
    }
}

/// The files beside a document, without plugins.
struct Texts<'a> {
    folder: &'a Path,
    documents: &'a BTreeMap<String, Document>,
}

impl Catalog for Texts<'_> {
    fn items(&self, _: &Plugin) -> Result<Vec<Item>, String> {
        Err("names need no plugins".to_owned())
    }

    fn text(&self, wanted: &Path) -> Result<String, String> {
        let wanted = self.folder.join(wanted);
        let open = self.documents.iter().find(|(address, _)| {
            address.parse().ok().and_then(|uri| path(&uri)).is_some_and(|path| path == wanted)
        });
        if let Some((_, document)) = open {
            return Ok(document.text.clone());
        }
        let about = std::fs::metadata(&wanted).map_err(|error| error.to_string())?;
        // A pipe could keep whoever asked waiting for ever.
        if !about.is_file() || about.len() > LONGEST {
            return Err("it is no text".to_owned());
        }
        std::fs::read_to_string(&wanted).map_err(|error| error.to_string())
    }
}
