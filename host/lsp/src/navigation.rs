//! Definition, references, highlights and renames of a name.
//!
//! Open documents are read as they are in the editor, other files from the disk.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use lsp_types::{
    DocumentHighlight, DocumentHighlightKind, GotoDefinitionResponse, Location, Position,
    PrepareRenameResponse, TextEdit, Uri, WorkspaceEdit,
};
use pl_dsl::names::{Definition, Names, names};
use pl_dsl::workflow::Plugin;
use pl_dsl::{BlockKind, Catalog, CatalogError, Source, Span};
use pl_types::Item;

use crate::documents::Document;
use crate::error::RenameError;
use crate::locations::Locations;
use crate::text::{first_line, span_text};
use crate::uri::file_path;

/// A position in an open document.
pub struct DocumentPosition<'a> {
    pub document: &'a Document,
    pub uri: &'a Uri,
    pub position: Position,
    /// All open documents by URI.
    pub documents: &'a BTreeMap<String, Document>,
}

impl DocumentPosition<'_> {
    /// Byte offset of the position.
    pub fn offset(&self) -> usize {
        self.document.line_index.offset(&self.document.text, self.position)
    }

    /// Names of the workflow and of the files that it includes.
    pub fn names(&self) -> Names {
        let path = file_path(self.uri);
        let name = path.as_deref().map_or_else(String::new, |path| path.display().to_string());
        let folder = path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
        let source = Source { name, text: self.document.text.clone() };
        names(&source, &FileCatalog { folder, documents: self.documents })
    }

    /// Calls `callback` with the definition of the name at the position. Returns `None` if there is no name.
    fn with_definition<R>(&self, callback: impl FnOnce(&Names, &Definition, &Locations) -> R) -> Option<R> {
        let names = self.names();
        let locations = Locations::new(&names.sources, self.uri);
        Some(callback(&names, names.definition_at(self.offset())?, &locations))
    }

    /// Declaration of the name.
    pub fn definition(&self) -> Option<GotoDefinitionResponse> {
        self.with_definition(|_, definition, locations| Some(locations.location(definition.span)?.into()))?
    }

    /// Uses of the name, and its declaration if that is included.
    pub fn references(&self, include_declaration: bool) -> Option<Vec<Location>> {
        self.with_definition(|_, definition, locations| {
            let declared = include_declaration.then_some(&definition.span);
            let mut spans: Vec<&Span> = declared.into_iter().chain(&definition.uses).collect();
            spans.sort();
            spans.into_iter().filter_map(|span| locations.location(*span)).collect()
        })
    }

    /// Declaration and uses of the name within the document.
    pub fn highlights(&self) -> Option<Vec<DocumentHighlight>> {
        self.with_definition(|_, definition, locations| {
            let all = [(DocumentHighlightKind::WRITE, &definition.span)].into_iter();
            let all = all.chain(definition.uses.iter().map(|span| (DocumentHighlightKind::READ, span)));
            let here = all.filter(|(_, span)| !locations.is_in_other_file(**span));
            let shown = here.filter_map(|(kind, span)| {
                let range = locations.location(*span)?.range;
                Some(DocumentHighlight { range, kind: Some(kind) })
            });
            shown.collect()
        })
    }

    /// Range of the name that a rename would change.
    pub fn prepare_rename(&self) -> Option<PrepareRenameResponse> {
        let offset = self.offset();
        self.with_definition(|_, definition, locations| {
            let mut all = [&definition.span].into_iter().chain(&definition.uses);
            let here = all.find(|span| (span.start..=span.end).contains(&offset))?;
            Some(PrepareRenameResponse::Range(locations.location(*here)?.range))
        })?
    }

    /// Edits that rename the name in the workflow and in the files that it includes. Returns `None` if there is no name at
    /// the position.
    ///
    /// # Errors
    /// The language refuses the new name, or it is taken.
    pub fn rename(&self, new: &str) -> Result<Option<WorkspaceEdit>, RenameError> {
        let edit = self.with_definition(|names, definition, locations| {
            definition.check_name(new)?;
            let full_name =
                definition.full_name.strip_suffix(&definition.name).unwrap_or_default().to_owned() + new;
            let is_taken = |other: &&Definition| match (definition.is_parameter, other.is_parameter) {
                // Parameters of other templates have names of their own.
                (true, true) => other.name == new && other.head == definition.head,
                // In its template, a parameter hides the block of its name.
                (true, false) => other.name == new && is_hidden(other.kind),
                (false, true) => other.name == new && is_hidden(definition.kind),
                (false, false) => other.kind == definition.kind && other.full_name == full_name,
            };
            if let (true, Some(other)) = (new != definition.name, names.definitions.iter().find(is_taken)) {
                let (kind, name) = (other.kind.keyword(), other.full_name.clone());
                return Err(RenameError::Taken { kind, name });
            }
            #[allow(clippy::mutable_key_type, reason = "a URI is hashed by its text, which never changes")]
            let mut changes: HashMap<Uri, Vec<TextEdit>> = HashMap::new();
            for span in [&definition.span].into_iter().chain(&definition.uses) {
                if let Some(Location { uri, range }) = locations.location(*span) {
                    changes.entry(uri).or_default().push(TextEdit { range, new_text: new.to_owned() });
                }
            }
            Ok(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() })
        });
        edit.transpose()
    }

    /// Line that declares the name, in Markdown.
    pub fn declaration_line(&self) -> Option<String> {
        self.with_definition(|names, definition, _| {
            let (file, head) = names.sources.find(definition.head)?;
            let line = first_line(span_text(names.sources.text_of(file), head));
            Some(format!("```mas\n{line}\n```"))
        })?
    }
}

/// Returns true for blocks that settings name, so that a parameter of the same name hides them.
fn is_hidden(kind: BlockKind) -> bool {
    matches!(
        kind,
        BlockKind::Param | BlockKind::Policy | BlockKind::Model | BlockKind::Server | BlockKind::Corpus
    )
}

/// Catalog of the files around a document, without plugins.
struct FileCatalog<'a> {
    folder: &'a Path,
    documents: &'a BTreeMap<String, Document>,
}

impl Catalog for FileCatalog<'_> {
    fn items(&self, _: &Plugin) -> Result<Vec<Item>, CatalogError> {
        Err(CatalogError::Unavailable("plugins are not loaded for navigation"))
    }

    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        let path = self.folder.join(path);
        let open = self
            .documents
            .iter()
            .find(|(uri, _)| uri.parse().ok().and_then(|uri| file_path(&uri)).as_ref() == Some(&path));
        if let Some((_, document)) = open {
            return Ok(document.text.clone());
        }
        pl_dsl::read_text(&path)
    }
}
