//! Completions at the cursor.

use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Documentation, MarkupContent, MarkupKind,
    TextEdit,
};
use pl_dsl::analysis::{Cursor, CursorContext, EnclosingBlock, OutlineBlock, outline};
use pl_dsl::names::NAMED_BY_ANY_ARGUMENT;
use pl_dsl::settings::{self, SettingKind};
use pl_dsl::{BlockKind, Span};
use pl_types::ItemKind;
use serde_json::Value;

use crate::documents::Document;
use crate::hover::choices;
use crate::lookup;
use crate::markdown::{describe_fact, describe_item, describe_setting};
use crate::navigation::DocumentPosition;
use crate::text::{first_line, span_text};

/// Types of params.
const PARAM_TYPES: &[&str] = &["int", "float", "bool", "string", "size", "duration", "list"];

/// Completions at a position.
pub fn complete(position: &DocumentPosition) -> Vec<CompletionItem> {
    let document = position.document;
    let offset = position.offset();
    let cursor = Cursor::new(&document.text, offset);
    let blocks = outline(&document.text);
    let mut collector = Collector { position, document, blocks: &blocks, items: Vec::new() };
    collector.collect(&cursor);
    // The typed part of the word is replaced.
    let typed = document.line_index.range(&document.text, Span { start: cursor.word.start, end: offset });
    let with_edit = |mut item: CompletionItem| {
        let new_text = item.insert_text.take().unwrap_or_else(|| item.label.clone());
        item.text_edit = Some(CompletionTextEdit::Edit(TextEdit { range: typed, new_text }));
        item
    };
    collector.items.into_iter().map(with_edit).collect()
}

struct Collector<'d> {
    position: &'d DocumentPosition<'d>,
    document: &'d Document,
    blocks: &'d [OutlineBlock],
    items: Vec<CompletionItem>,
}

impl<'d> Collector<'d> {
    fn collect(&mut self, cursor: &Cursor) {
        let before =
            span_text(&self.document.text, Span { start: cursor.path.start, end: cursor.word.start });
        let namespace = before.strip_suffix('.');
        match cursor.context {
            CursorContext::StatementStart if namespace.is_some() => {}
            CursorContext::StatementStart => match cursor.blocks.last() {
                None => self.keywords(),
                Some(block) => self.statements(block),
            },
            CursorContext::Head { keyword } if span_text(&self.document.text, keyword) == "param" => {
                for word in PARAM_TYPES {
                    self.add(word, CompletionItemKind::TYPE_PARAMETER, "type", None);
                }
            }
            CursorContext::HeadValue { kind } => self.items_of_kind(kind, namespace),
            CursorContext::Argument { template, name, position, ref given } if namespace.is_none() => {
                let text = |span| span_text(&self.document.text, span);
                let given: Vec<&str> = given.iter().map(|name| text(*name)).collect();
                self.argument(cursor, text(template), name.map(text), position, &given);
            }
            CursorContext::Value { key } if namespace.is_none() => {
                self.value(cursor, span_text(&self.document.text, key));
            }
            CursorContext::Value { key } if self.names_items(cursor, key) => {
                self.items_of_kind(Some(BlockKind::Agent), namespace);
            }
            CursorContext::Edge if namespace.is_none() => self.turn_nodes(),
            CursorContext::Condition => self.condition(cursor, namespace),
            CursorContext::Head { .. }
            | CursorContext::Argument { .. }
            | CursorContext::Value { .. }
            | CursorContext::Edge
            | CursorContext::Text
            | CursorContext::Comment => {}
        }
    }

    fn add(
        &mut self,
        label: &str,
        kind: CompletionItemKind,
        detail: &str,
        documentation: Option<String>,
    ) -> &mut CompletionItem {
        let index = self.items.len();
        self.items.push(CompletionItem {
            label: label.to_owned(),
            kind: Some(kind),
            detail: Some(detail.to_owned()),
            documentation: documentation.map(|value| {
                Documentation::MarkupContent(MarkupContent { kind: MarkupKind::Markdown, value })
            }),
            ..CompletionItem::default()
        });
        &mut self.items[index]
    }

    fn keywords(&mut self) {
        for kind in BlockKind::TOP {
            self.add(kind.keyword(), CompletionItemKind::KEYWORD, kind.form(), None);
        }
        self.add("layout", CompletionItemKind::KEYWORD, "layout = L2", None).insert_text =
            Some("layout = ".to_owned());
    }

    /// Starts of a statement in a block: keys that are not set yet, inner blocks, agents in `turns`.
    fn statements(&mut self, block: &EnclosingBlock) {
        let document = self.document;
        let given: Vec<&str> = block.keys.iter().map(|key| span_text(&document.text, *key)).collect();
        let settings = block.kind.into_iter().flat_map(settings::in_block);
        for setting in settings.filter(|setting| !given.contains(&setting.key)) {
            let kind = setting.kind.to_string();
            let documentation = Some(setting.describe());
            self.add(setting.key, CompletionItemKind::PROPERTY, &kind, documentation).insert_text =
                Some(format!("{} = ", setting.key));
        }
        for (key, schema) in lookup::item_settings(document, block).into_iter().flatten() {
            if !given.contains(&key.as_str()) {
                let documentation = Some(describe_setting(key, schema));
                let detail = "setting of the plugin item";
                self.add(key, CompletionItemKind::PROPERTY, detail, documentation).insert_text =
                    Some(format!("{key} = "));
            }
        }
        let inner = block.kind.map(BlockKind::inner).unwrap_or_default();
        for inner in inner.iter().filter(|inner| !given.contains(&inner.keyword())) {
            let word = inner.keyword();
            self.add(word, CompletionItemKind::KEYWORD, inner.form(), None).insert_text =
                Some(format!("{word} {{ "));
        }
        if block.kind == Some(BlockKind::Turns) {
            self.add("start", CompletionItemKind::KEYWORD, "start of an episode", None);
            self.declarations("agent", CompletionItemKind::CLASS);
        }
        if block.kind == Some(BlockKind::Roles) {
            self.declarations("agent", CompletionItemKind::CLASS);
        }
        if block.kind == Some(BlockKind::Mix) {
            self.declarations("scenario", CompletionItemKind::CLASS);
        }
    }

    fn turn_nodes(&mut self) {
        self.declarations("agent", CompletionItemKind::CLASS);
        self.add("end", CompletionItemKind::KEYWORD, "end of an episode", None);
        self.add("when", CompletionItemKind::KEYWORD, "under a condition", None);
    }

    fn value(&mut self, cursor: &Cursor, key: &str) {
        let block = cursor.blocks.last();
        let kind = block.and_then(|block| block.kind);
        if kind == Some(BlockKind::Roles) {
            return self.declarations("policy", CompletionItemKind::VALUE);
        }
        for choice in choices(kind, key).unwrap_or_default() {
            self.add(choice.word, CompletionItemKind::ENUM_MEMBER, choice.doc, None);
        }
        let named = match kind.and_then(|kind| settings::find(kind, key)).map(|setting| setting.kind) {
            Some(SettingKind::Items) => return self.items_of_kind(Some(BlockKind::Agent), None),
            Some(SettingKind::Boolean) => {
                self.booleans();
                &[BlockKind::Param]
            }
            Some(kind) => kind.named_blocks(),
            None => &[BlockKind::Param],
        };
        let schema = block.and_then(|block| lookup::item_settings(self.document, block)?.get(key));
        self.schema_values(schema);
        self.names(cursor, named);
    }

    /// Values of an argument of a template, and names of parameters that it may be for: those without an argument. `given` are
    /// the names of arguments before it.
    fn argument(
        &mut self,
        cursor: &Cursor,
        template: &str,
        name: Option<&str>,
        position: usize,
        given: &[&str],
    ) {
        let mut names = self.position.names();
        let Some(parameters) = names.templates.remove(template) else {
            return self.names(cursor, NAMED_BY_ANY_ARGUMENT);
        };
        let own = match name {
            Some(name) => parameters.iter().find(|parameter| parameter.name == name),
            None => parameters.get(position),
        };
        self.names(cursor, own.map(|parameter| parameter.named_blocks).unwrap_or_default());
        let unnamed = position.saturating_sub(given.len());
        let further = if name.is_some() { &[] } else { parameters.get(unnamed..).unwrap_or_default() };
        for parameter in further.iter().filter(|parameter| !given.contains(&parameter.name.as_str())) {
            let detail = "parameter of the template";
            self.add(&parameter.name, CompletionItemKind::VARIABLE, detail, None).insert_text =
                Some(format!("{} = ", parameter.name));
        }
    }

    fn schema_values(&mut self, schema: Option<&Value>) {
        let Some(schema) = schema else { return };
        if schema.get("type").and_then(Value::as_str) == Some("boolean") {
            self.booleans();
        }
        let words = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for word in words.filter_map(Value::as_str) {
            self.add(word, CompletionItemKind::ENUM_MEMBER, "", None);
        }
    }

    fn booleans(&mut self) {
        self.add("true", CompletionItemKind::VALUE, "", None);
        self.add("false", CompletionItemKind::VALUE, "", None);
    }

    /// Names of blocks of some kinds, and parameters of the enclosing template.
    fn names(&mut self, cursor: &Cursor, kinds: &[BlockKind]) {
        let document = self.document;
        for name in cursor.blocks.iter().flat_map(|block| &block.parameters) {
            self.add(
                span_text(&document.text, *name),
                CompletionItemKind::VARIABLE,
                "parameter of the template",
                None,
            );
        }
        for kind in kinds {
            let item_kind = match kind {
                BlockKind::Param => CompletionItemKind::CONSTANT,
                _ => CompletionItemKind::VALUE,
            };
            self.declarations(kind.keyword(), item_kind);
        }
    }

    /// True for a setting whose value is a list of items.
    fn names_items(&self, cursor: &Cursor, key: Span) -> bool {
        let kind = cursor.blocks.last().and_then(|block| block.kind);
        let setting = kind.and_then(|kind| settings::find(kind, span_text(&self.document.text, key)));
        setting.is_some_and(|setting| setting.kind == SettingKind::Items)
    }

    /// Values after the `=` of a block's head: plugins, templates, or the items of a plugin.
    fn items_of_kind(&mut self, kind: Option<BlockKind>, namespace: Option<&str>) {
        let wanted = match kind {
            Some(BlockKind::Environment) => Some(ItemKind::Environment),
            Some(BlockKind::Agent) => Some(ItemKind::Agent),
            Some(BlockKind::Reward) => Some(ItemKind::Reward),
            _ => None,
        };
        match (wanted, namespace) {
            (Some(wanted), Some(plugin)) => {
                for item in
                    lookup::plugin_items(self.document, plugin).iter().filter(|item| item.kind == wanted)
                {
                    let kind = item.kind.to_string();
                    self.add(&item.name, CompletionItemKind::CLASS, &kind, Some(describe_item(item)));
                }
            }
            (Some(_), None) => {
                self.declarations("plugin", CompletionItemKind::MODULE);
                self.add("std", CompletionItemKind::MODULE, "the built-in plugin", None);
                self.declarations("template", CompletionItemKind::FUNCTION);
            }
            (None, None) if kind == Some(BlockKind::Designer) => {
                self.add("std.designer", CompletionItemKind::CLASS, "a model that writes teams", None);
            }
            (None, Some("std")) if kind == Some(BlockKind::Designer) => {
                self.add("designer", CompletionItemKind::CLASS, "a model that writes teams", None);
            }
            (None, None) if kind == Some(BlockKind::Policy) => {
                self.declarations("template", CompletionItemKind::FUNCTION)
            }
            _ => {}
        }
    }

    fn condition(&mut self, cursor: &Cursor, namespace: Option<&str>) {
        match namespace {
            None => {
                self.add("env", CompletionItemKind::VARIABLE, "facts that the environment reports", None);
                self.add(
                    "turn",
                    CompletionItemKind::VARIABLE,
                    "number of visits of the agent that the edge starts from, with the one that has just ended",
                    None,
                );
                self.add("reward", CompletionItemKind::VARIABLE, "reward of the last step", None);
                for word in ["and", "or", "not"] {
                    self.add(word, CompletionItemKind::OPERATOR, "", None);
                }
                self.names(cursor, &[BlockKind::Param]);
            }
            Some("env") => {
                for fact in lookup::environment_facts(self.document) {
                    self.add(&fact.name, CompletionItemKind::FIELD, "fact", Some(describe_fact(fact)));
                }
            }
            Some("reward") => {
                self.add(
                    "team",
                    CompletionItemKind::FIELD,
                    "the part of the reward that all agents share",
                    None,
                );
                self.add("success", CompletionItemKind::FIELD, "true if the task is solved", None);
                self.declarations("agent", CompletionItemKind::FIELD);
            }
            Some(_) => {}
        }
    }

    /// Names that blocks with a keyword declare.
    fn declarations(&mut self, keyword: &str, kind: CompletionItemKind) {
        for (name, block) in lookup::declarations(self.document, self.blocks, keyword) {
            let value = block.value.map(|value| first_line(span_text(&self.document.text, value)));
            let detail = value.map_or_else(|| keyword.to_owned(), |value| format!("{keyword} = {value}"));
            self.add(name, kind, &detail, None);
        }
    }
}
