//! Hovers: what the word under the pointer means.

use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};
use pl_dsl::analysis::{Cursor, Enclosing, Place};
use pl_dsl::settings::{self, Choice, Kind, LAYOUTS, Setting};
use pl_dsl::{BlockKind, explain};

use crate::documents::Document;
use crate::{around, names, text};

/// What is known of the word at a position.
pub fn hover(place: &names::Place) -> Option<Hover> {
    let document = place.document;
    let at = document.lines.offset(&document.text, place.position);
    let cursor = Cursor::at(&document.text, at);
    let word = text::of(&document.text, cursor.word);
    if word.is_empty() {
        return None;
    }
    let value = words(document, &cursor, word).or_else(|| place.declaring_line())?;
    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
    Some(Hover { contents, range: Some(document.lines.range(&document.text, cursor.word)) })
}

fn words(document: &Document, cursor: &Cursor, word: &str) -> Option<String> {
    let path = text::of(&document.text, cursor.path);
    match cursor.place {
        Place::Start => match cursor.blocks.last() {
            None => keyword(word),
            Some(block) => key(document, block, word),
        },
        Place::Value { key } => {
            let block = cursor.blocks.last();
            choices(block.and_then(|block| block.kind), text::of(&document.text, key))?
                .iter()
                .find(|choice| choice.word == word)
                .map(Choice::line)
        }
        Place::Made { .. } => around::item(document, path).map(text::item),
        Place::Condition => {
            let fact = path.strip_prefix("env.")?;
            around::facts(document).into_iter().find(|one| one.name == fact).map(text::fact)
        }
        Place::Head { .. } | Place::Edge | Place::Text | Place::Comment => None,
    }
}

fn keyword(word: &str) -> Option<String> {
    if word == "layout" {
        return Some(explain::layout());
    }
    BlockKind::TOP.iter().find(|kind| kind.keyword() == word).map(|kind| explain::head(*kind))
}

fn key(document: &Document, block: &Enclosing, word: &str) -> Option<String> {
    let known = block.kind.and_then(|kind| settings::find(kind, word)).map(Setting::page);
    let nested =
        || BlockKind::INNER.iter().find(|kind| kind.keyword() == word).map(|kind| explain::head(*kind));
    let declared = || {
        let schema = around::properties(document, block)?.get(word)?;
        Some(text::property(word, schema))
    };
    known.or_else(nested).or_else(declared)
}

/// The words that a setting knows.
pub fn choices(block: Option<BlockKind>, key: &str) -> Option<&'static [Choice]> {
    let Some(block) = block else { return (key == "layout").then_some(LAYOUTS) };
    match settings::find(block, key)?.kind {
        Kind::Choice(choices) | Kind::Choices(choices) => Some(choices),
        _ => None,
    }
}
