//! Hovers: the description of the word under the pointer.

use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};
use pl_dsl::analysis::{Cursor, CursorContext, EnclosingBlock};
use pl_dsl::settings::{self, Choice, LAYOUTS, Setting, SettingKind};
use pl_dsl::{BlockKind, explain};

use crate::documents::Document;
use crate::lookup;
use crate::markdown::{describe_fact, describe_item, describe_setting};
use crate::navigation::DocumentPosition;
use crate::text::span_text;

/// Description of the word at a position.
pub fn hover(position: &DocumentPosition) -> Option<Hover> {
    let document = position.document;
    let cursor = Cursor::new(&document.text, position.offset());
    let word = span_text(&document.text, cursor.word);
    if word.is_empty() {
        return None;
    }
    let value = describe_word(document, &cursor, word).or_else(|| position.declaration_line())?;
    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
    Some(Hover { contents, range: Some(document.line_index.range(&document.text, cursor.word)) })
}

fn describe_word(document: &Document, cursor: &Cursor, word: &str) -> Option<String> {
    let path = span_text(&document.text, cursor.path);
    match cursor.context {
        CursorContext::StatementStart => match cursor.blocks.last() {
            None => describe_keyword(word),
            Some(block) => describe_key(document, block, word),
        },
        CursorContext::Value { key } => {
            let block = cursor.blocks.last();
            choices(block.and_then(|block| block.kind), span_text(&document.text, key))?
                .iter()
                .find(|choice| choice.word == word)
                .map(Choice::describe)
        }
        CursorContext::HeadValue { .. } => lookup::find_item(document, path).map(describe_item),
        CursorContext::Condition => {
            let fact = path.strip_prefix("env.")?;
            lookup::environment_facts(document).into_iter().find(|one| one.name == fact).map(describe_fact)
        }
        CursorContext::Head { .. }
        | CursorContext::Argument { .. }
        | CursorContext::Edge
        | CursorContext::Text
        | CursorContext::Comment => None,
    }
}

fn describe_keyword(word: &str) -> Option<String> {
    if word == "layout" {
        return Some(explain::layout());
    }
    BlockKind::TOP.iter().find(|kind| kind.keyword() == word).map(|kind| explain::head(*kind))
}

fn describe_key(document: &Document, block: &EnclosingBlock, word: &str) -> Option<String> {
    let builtin = block.kind.and_then(|kind| settings::find(kind, word)).map(Setting::describe);
    let nested = || block.kind?.inner_block(word).map(explain::head);
    let of_item = || {
        let schema = lookup::item_settings(document, block)?.get(word)?;
        Some(describe_setting(word, schema))
    };
    builtin.or_else(nested).or_else(of_item)
}

/// Words that a setting accepts. Returns `None` if it is not a choice of words.
pub fn choices(block: Option<BlockKind>, key: &str) -> Option<&'static [Choice]> {
    let Some(block) = block else { return (key == "layout").then_some(LAYOUTS) };
    match settings::find(block, key)?.kind {
        SettingKind::Choice(choices) | SettingKind::Choices(choices) => Some(choices),
        _ => None,
    }
}
