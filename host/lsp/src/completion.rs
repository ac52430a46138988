//! Completion: what may stand where the cursor is.

use lsp_types::{
    CompletionItem, CompletionItemKind as Icon, CompletionTextEdit, Documentation, MarkupContent, MarkupKind,
    Position, TextEdit,
};
use pl_dsl::analysis::{Block, Cursor, Enclosing, Place, outline};
use pl_dsl::settings::{self, Kind};
use pl_dsl::{BlockKind, ItemKind, Span};
use serde_json::Value;

use crate::documents::Document;
use crate::hover::choices;
use crate::{around, text};

/// The types of params.
const TYPES: &[&str] = &["int", "float", "bool", "string", "size", "duration", "list"];

/// What may stand at a position.
pub fn complete(document: &Document, position: Position) -> Vec<CompletionItem> {
    let at = document.lines.offset(&document.text, position);
    let cursor = Cursor::at(&document.text, at);
    let blocks = outline(&document.text);
    let mut offers = Offers { document, blocks: &blocks, list: Vec::new() };
    offers.at(&cursor);
    // What is typed already of the word gives way.
    let typed = document.lines.range(&document.text, Span { start: cursor.word.start, end: at });
    let place = |mut item: CompletionItem| {
        let new_text = item.insert_text.take().unwrap_or_else(|| item.label.clone());
        item.text_edit = Some(CompletionTextEdit::Edit(TextEdit { range: typed, new_text }));
        item
    };
    offers.list.into_iter().map(place).collect()
}

struct Offers<'d> {
    document: &'d Document,
    blocks: &'d [Block],
    list: Vec<CompletionItem>,
}

impl<'d> Offers<'d> {
    fn at(&mut self, cursor: &Cursor) {
        let before = text::of(&self.document.text, Span { start: cursor.path.start, end: cursor.word.start });
        let space = before.strip_suffix('.');
        match cursor.place {
            Place::Start if space.is_some() => {}
            Place::Start => match cursor.blocks.last() {
                None => self.keywords(),
                Some(block) => self.statements(block),
            },
            Place::Head { keyword } if text::of(&self.document.text, keyword) == "param" => {
                for word in TYPES {
                    self.add(word, Icon::TYPE_PARAMETER, "type", None);
                }
            }
            Place::Made { kind } => self.made(kind, space),
            Place::Value { key } if space.is_none() => {
                self.value(cursor, text::of(&self.document.text, key));
            }
            Place::Edge if space.is_none() => self.stops(),
            Place::Condition => self.condition(cursor, space),
            Place::Head { .. } | Place::Value { .. } | Place::Edge | Place::Text | Place::Comment => {}
        }
    }

    fn add(&mut self, label: &str, icon: Icon, detail: &str, words: Option<String>) -> &mut CompletionItem {
        let at = self.list.len();
        self.list.push(CompletionItem {
            label: label.to_owned(),
            kind: Some(icon),
            detail: Some(detail.to_owned()),
            documentation: words.map(|value| {
                Documentation::MarkupContent(MarkupContent { kind: MarkupKind::Markdown, value })
            }),
            ..CompletionItem::default()
        });
        &mut self.list[at]
    }

    fn keywords(&mut self) {
        for kind in BlockKind::TOP {
            self.add(kind.keyword(), Icon::KEYWORD, kind.form(), None);
        }
        self.add("layout", Icon::KEYWORD, "layout = L2", None).insert_text = Some("layout = ".to_owned());
    }

    /// Keys that are not given yet, and what else a statement of the block may begin with.
    fn statements(&mut self, block: &Enclosing) {
        let document = self.document;
        let given: Vec<&str> = block.keys.iter().map(|key| text::of(&document.text, *key)).collect();
        let settings = block.kind.into_iter().flat_map(settings::of).filter(|setting| setting.supported);
        for setting in settings.filter(|setting| !given.contains(&setting.key)) {
            let kind = setting.kind.to_string();
            let words = setting.page();
            self.add(setting.key, Icon::PROPERTY, &kind, Some(words)).insert_text =
                Some(format!("{} = ", setting.key));
        }
        for (key, schema) in around::properties(document, block).into_iter().flatten() {
            if !given.contains(&key.as_str()) {
                let words = text::property(key, schema);
                self.add(key, Icon::PROPERTY, "of the item", Some(words)).insert_text =
                    Some(format!("{key} = "));
            }
        }
        let inner = block.kind.and_then(BlockKind::inner).filter(|inner| !given.contains(&inner.keyword()));
        if let Some(inner) = inner {
            let word = inner.keyword();
            self.add(word, Icon::KEYWORD, inner.form(), None).insert_text = Some(format!("{word} {{ "));
        }
        if block.kind == Some(BlockKind::Turns) {
            self.add("start", Icon::KEYWORD, "where an episode begins", None);
            self.declared("agent", Icon::CLASS);
        }
    }

    fn stops(&mut self) {
        self.declared("agent", Icon::CLASS);
        self.add("end", Icon::KEYWORD, "where an episode ends", None);
        self.add("when", Icon::KEYWORD, "under a condition", None);
    }

    fn value(&mut self, cursor: &Cursor, key: &str) {
        let block = cursor.blocks.last();
        let kind = block.and_then(|block| block.kind);
        for choice in choices(kind, key).unwrap_or_default().iter().filter(|choice| choice.supported) {
            self.add(choice.word, Icon::ENUM_MEMBER, choice.doc, None);
        }
        match kind.and_then(|kind| settings::find(kind, key)).map(|setting| setting.kind) {
            Some(Kind::Model) => return self.declared("model", Icon::VALUE),
            Some(Kind::Policy) => return self.declared("policy", Icon::VALUE),
            Some(Kind::Boolean) => self.truths(),
            _ => {}
        }
        let schema = block.and_then(|block| around::properties(self.document, block)?.get(key));
        self.schema_words(schema);
        self.params(cursor);
    }

    fn schema_words(&mut self, schema: Option<&Value>) {
        let Some(schema) = schema else { return };
        if schema.get("type").and_then(Value::as_str) == Some("boolean") {
            self.truths();
        }
        let words = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for word in words.filter_map(Value::as_str) {
            self.add(word, Icon::ENUM_MEMBER, "", None);
        }
    }

    fn truths(&mut self) {
        self.add("true", Icon::VALUE, "", None);
        self.add("false", Icon::VALUE, "", None);
    }

    /// The params of the file, and those of the template around.
    fn params(&mut self, cursor: &Cursor) {
        let document = self.document;
        for name in cursor.blocks.iter().flat_map(|block| &block.parameters) {
            self.add(text::of(&document.text, *name), Icon::VARIABLE, "of the template", None);
        }
        self.declared("param", Icon::CONSTANT);
    }

    /// Behind the `=` of a block's head: plugins, templates, or the items of a plugin.
    fn made(&mut self, kind: Option<BlockKind>, space: Option<&str>) {
        let wanted = match kind {
            Some(BlockKind::Environment) => Some(ItemKind::Environment),
            Some(BlockKind::Agent) => Some(ItemKind::Agent),
            Some(BlockKind::Reward) => Some(ItemKind::Reward),
            _ => None,
        };
        match (wanted, space) {
            (Some(wanted), Some(plugin)) => {
                for item in around::items(self.document, plugin).iter().filter(|item| item.kind == wanted) {
                    let kind = item.kind.to_string();
                    self.add(&item.name, Icon::CLASS, &kind, Some(text::item(item)));
                }
            }
            (Some(_), None) => {
                self.declared("plugin", Icon::MODULE);
                self.add("std", Icon::MODULE, "the built-in plugin", None);
                self.declared("template", Icon::FUNCTION);
            }
            (None, None) if kind == Some(BlockKind::Policy) => self.declared("template", Icon::FUNCTION),
            _ => {}
        }
    }

    fn condition(&mut self, cursor: &Cursor, space: Option<&str>) {
        match space {
            None => {
                self.add("env", Icon::VARIABLE, "what the environment reports", None);
                self.add(
                    "turn",
                    Icon::VARIABLE,
                    "earlier visits of the agent that the edge leaves from",
                    None,
                );
                self.add("reward", Icon::VARIABLE, "of the last step", None);
                for word in ["and", "or", "not"] {
                    self.add(word, Icon::OPERATOR, "", None);
                }
                self.params(cursor);
            }
            Some("env") => {
                for fact in around::facts(self.document) {
                    self.add(&fact.name, Icon::FIELD, "fact", Some(text::fact(fact)));
                }
            }
            Some("reward") => {
                self.add("team", Icon::FIELD, "the part that all agents share", None);
                self.add("success", Icon::FIELD, "whether the task is solved", None);
                self.declared("agent", Icon::FIELD);
            }
            Some(_) => {}
        }
    }

    /// The names that blocks with a keyword declare.
    fn declared(&mut self, keyword: &str, icon: Icon) {
        for (name, block) in around::declared(self.document, self.blocks, keyword) {
            let value = block.value.map(|value| text::line(text::of(&self.document.text, value)));
            let detail = value.map_or_else(|| keyword.to_owned(), |value| format!("{keyword} = {value}"));
            self.add(name, icon, &detail, None);
        }
    }
}
