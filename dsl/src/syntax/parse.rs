//! Parses the statements of a file into the syntax tree.

use std::ops::Range;

use pest::Parser;
use pest::iterators::Pair;

use super::block_kind::BlockKind;
use super::grammar::{Grammar, Rule};
use super::reader::Reader;
use super::scan::{Statement, StatementBody, scan, split_word};
use super::tree::{
    Block, Body, EdgeLine, Entry, File, HeadExtra, Name, NamespaceId, NodeRef, ParamRange, Parameter,
    Setting, TypeName, Value, ValueKind,
};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::{nearest, suggest};
use crate::source::Location;
use crate::source::Span;

/// Parses one file. A statement with a syntax error is reported and left out; a block with an error in its head is kept
/// without `sound`, so that its name is still known. `text` may hold other files besides.
pub(crate) fn parse(text: &str, file: Range<usize>, namespace: NamespaceId, reports: &mut Reports) -> File {
    let statements = scan(text, file, reports);
    let mut reader = Reader { text, reports, from: 0, fixed_location: None, namespace };
    let mut file = File::default();
    for statement in &statements {
        reader.top(statement, &mut file);
    }
    file
}

/// Parses a value given by an override. Returns `None` if the text is not a value.
pub(crate) fn lone_value(text: &str, location: Location) -> Option<Value> {
    let mut ignored = Reports::new(&[]);
    // The scanner bounds the nesting before the grammar recurses into it.
    let [Statement { sound: true, body: None, .. }] = scan(text, 0..text.len(), &mut ignored).as_slice()
    else {
        return None;
    };
    let pair = Grammar::parse(Rule::lone_value, text).ok()?.next()?;
    let value = pair.into_inner().find(|inner| inner.as_rule() == Rule::value)?;
    let mut reader =
        Reader { text, reports: &mut ignored, from: 0, fixed_location: Some(location), namespace: 0 };
    let value = reader.value(value)?;
    (!ignored.failed()).then_some(value)
}

impl<'t> Reader<'t, '_, '_> {
    fn top(&mut self, statement: &Statement, file: &mut File) {
        let head = statement.head.slice(self.text);
        let (word, rest) = split_word(head);
        let keyword = Span::new(statement.head.start, statement.head.start + word.len());
        if word == "layout" && rest.trim_start().starts_with('=') {
            return self.layout(statement, file);
        }
        let kind = BlockKind::from_keyword(word)
            .or_else(|| self.report_unknown_block(statement, word, rest, keyword));
        let Some(kind) = kind else { return };
        let mut block = self.head(statement, kind, keyword);
        if let Some(body) = &statement.body {
            if kind.has_body() {
                block.body = self.body(body, Some(kind));
                // A setting that seems to be missing may be in the part of the head that could not be parsed.
                block.body.complete &= block.sound;
            } else if body.closed {
                self.reports
                    .error(DiagnosticCode::Syntax, body.span, format!("`{word}` has no settings"), "")
                    .help(format!("write `{}`", kind.form()));
            }
        } else if block.sound && !kind.is_named() && kind.has_body() {
            self.reports
                .error(
                    DiagnosticCode::Syntax,
                    keyword,
                    format!("the block `{word}` is missing its `{{ … }}`"),
                    "",
                )
                .help(format!("write `{}`, with `{{` on the same line", kind.form()));
            block.sound = false;
            block.body.complete = false;
        }
        file.blocks.push(block);
    }

    fn layout(&mut self, statement: &Statement, file: &mut File) {
        if let Some(body) = &statement.body {
            self.reports.error(DiagnosticCode::Syntax, body.span, "`layout` is a setting, not a block", "");
        } else if statement.sound {
            file.layouts.extend(self.assignment(statement.head));
        }
    }

    /// Reports a statement that is not a block. Returns the block that was probably meant.
    fn report_unknown_block(
        &mut self,
        statement: &Statement,
        word: &str,
        rest: &str,
        keyword: Span,
    ) -> Option<BlockKind> {
        if word.is_empty() {
            // The scanner has already reported an empty head.
            if statement.head.start < statement.head.end {
                self.reports
                    .error(
                        DiagnosticCode::Syntax,
                        statement.head,
                        "a block begins with a word",
                        "expected a block",
                    )
                    .help(format!("write a block, such as `{}`", BlockKind::Agent.form()));
            }
            return None;
        }
        if rest.trim_start().starts_with('=') {
            let message = format!("the setting `{word}` is outside of any block");
            self.reports
                .error(DiagnosticCode::UnknownBlock, keyword, message, "")
                .help("settings belong between the braces of a block; only `layout` is outside of blocks");
            return None;
        }
        if let Some(outer) = BlockKind::TOP.iter().find(|kind| kind.inner_block(word).is_some()) {
            let outer = outer.keyword();
            self.reports
                .error(DiagnosticCode::UnknownBlock, keyword, format!("`{word}` is outside of a {outer}"), "")
                .help(format!("write it between the braces of a {outer}: `{word} {{ … }}`"));
            return None;
        }
        let words = || BlockKind::TOP.iter().map(|kind| kind.keyword());
        self.reports
            .error(DiagnosticCode::UnknownBlock, keyword, format!("there is no block `{word}`"), "")
            .maybe_help(suggest(word, "the blocks are", words()));
        nearest(word, words()).and_then(BlockKind::from_keyword)
    }

    /// Parses the head of a block after its keyword.
    fn head(&mut self, statement: &Statement, kind: BlockKind, keyword: Span) -> Block {
        let rest = Span::new(keyword.end, statement.head.end);
        let mut block = Block {
            kind,
            keyword,
            head: statement.head,
            name: None,
            value: None,
            extra: None,
            body: Body::empty(),
            sound: true,
            namespace: self.namespace,
            imported: false,
        };
        let rule = match kind {
            BlockKind::Turns
            | BlockKind::Mix
            | BlockKind::Sandbox
            | BlockKind::Inference
            | BlockKind::Devices
            | BlockKind::Cluster
            | BlockKind::Train
            | BlockKind::Lora
            | BlockKind::PolicyTrain
            | BlockKind::Critic
            | BlockKind::PolicyDevices
            | BlockKind::Grant
            | BlockKind::Curriculum
            | BlockKind::Palette
            | BlockKind::Roles => Rule::bare_head,
            BlockKind::Workflow | BlockKind::Scenario | BlockKind::Evaluate => Rule::named_head,
            BlockKind::Policy => Rule::either_head,
            BlockKind::Param => Rule::param_head,
            BlockKind::Include => Rule::include_head,
            BlockKind::Use => Rule::use_head,
            BlockKind::Template => Rule::template_head,
            BlockKind::Plugin
            | BlockKind::Model
            | BlockKind::Server
            | BlockKind::Corpus
            | BlockKind::Environment
            | BlockKind::Agent
            | BlockKind::Designer
            | BlockKind::Reward => Rule::assignment,
        };
        let help = || format!("write `{}`", kind.form());
        let read = if statement.sound { self.read_with_help(rest, rule, Some(&help)) } else { None };
        let Some(pair) = read else {
            block.sound = false;
            block.body.complete = false;
            // Keep the name, so that references to the block are not reported.
            let after = rest.slice(self.text);
            let unquoted = after.trim_start().trim_start_matches('"');
            let skipped = after.len() - unquoted.len();
            let (name, _) = split_word(unquoted);
            if kind.is_named() && !kind.names_file() && !name.is_empty() {
                let start = rest.start + skipped;
                let span = Span::new(start, start + name.len());
                block.name = Some(Name { text: name.to_owned(), location: span.into() });
            }
            return block;
        };
        self.head_parts(pair, &mut block);
        block
    }

    fn head_parts(&mut self, pair: Pair<'t, Rule>, block: &mut Block) {
        let (mut ty, mut range, mut target) = (None, None, None);
        let mut parameters = Vec::new();
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name if block.name.is_none() => block.name = Some(self.name(&inner)),
                Rule::name => target = Some(self.name(&inner)),
                Rule::type_ => ty = self.type_name(inner),
                Rule::range => {
                    range = self.range(inner);
                    block.sound &= range.is_some();
                }
                Rule::parameters => {
                    for parameter in inner.into_inner().filter(|part| part.as_rule() == Rule::parameter) {
                        let parameter = self.parameter(parameter);
                        block.sound &= parameter.is_some();
                        parameters.extend(parameter);
                    }
                }
                Rule::value => {
                    block.value = self.value(inner);
                    block.sound &= block.value.is_some();
                }
                Rule::path => block.value = self.path_value(&inner),
                Rule::string => {
                    let location = self.location(&inner);
                    block.value = self.text(inner, false).map(|kind| Value { kind, location });
                    block.sound &= block.value.is_some();
                }
                _ => {}
            }
        }
        block.extra = match (block.kind, ty, target) {
            (BlockKind::Param, Some(ty), _) => Some(Box::new(HeadExtra::Param { ty, range })),
            (BlockKind::Template, _, Some(target)) => {
                Some(Box::new(HeadExtra::Template { target, parameters }))
            }
            _ => None,
        };
    }

    fn type_name(&mut self, pair: Pair<'t, Rule>) -> Option<TypeName> {
        let mut names = pair.into_inner().filter(|part| part.as_rule() == Rule::name);
        Some(TypeName {
            name: self.name(&names.next()?),
            element: names.next().map(|element| self.name(&element)),
        })
    }

    fn range(&mut self, pair: Pair<'t, Rule>) -> Option<ParamRange> {
        let values = pair.into_inner().filter(|part| part.as_rule() == Rule::value);
        let values: Vec<Option<Value>> = values.map(|part| self.value(part)).collect();
        let mut values = values.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
        Some(match (values.next()?, values.next()) {
            (least, Some(most)) => ParamRange::Between(least, most),
            (list, None) => ParamRange::OneOf(list),
        })
    }

    fn parameter(&mut self, pair: Pair<'t, Rule>) -> Option<Parameter> {
        let (mut name, mut ty, mut default) = (None, None, None);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => name = Some(self.name(&inner)),
                Rule::type_ => ty = self.type_name(inner),
                Rule::value => default = Some(self.value(inner)?),
                _ => {}
            }
        }
        Some(Parameter { name: name?, ty: ty?, default })
    }

    /// Parses a path that is not part of an expression.
    fn path_value(&self, pair: &Pair<'t, Rule>) -> Option<Value> {
        let names = pair.as_str().split('.').map(str::to_owned).collect();
        Some(Value { kind: ValueKind::Path(names), location: self.location(pair) })
    }

    /// Parses the statements of a block. `kind` is `None` within the settings of an item.
    fn body(&mut self, body: &StatementBody, kind: Option<BlockKind>) -> Body {
        let mut out = Body { entries: Vec::new(), complete: body.closed };
        for statement in &body.statements {
            match self.entry(statement, kind) {
                Some(entry) => out.entries.push(entry),
                None => out.complete = false,
            }
        }
        out
    }

    fn entry(&mut self, statement: &Statement, kind: Option<BlockKind>) -> Option<Entry> {
        let head = statement.head.slice(self.text);
        let (word, rest) = split_word(head);
        let rest = rest.trim_start();
        let is_setting = rest.starts_with('=') && !rest.starts_with("==");
        if let Some(body) = &statement.body {
            // The body is parsed even if the head has errors, to report the errors in it too.
            let inner = kind.and_then(|kind| kind.inner_block(word));
            let inside = (!is_setting).then(|| self.body(body, inner));
            if !statement.sound {
                return None;
            }
            if is_setting {
                let (key, value) = self.assignment(statement.head)?;
                return Some(Entry::Setting(Setting {
                    key,
                    value,
                    body: Some(body.span),
                    namespace: self.namespace,
                }));
            }
            let pair = self.read(statement.head, Rule::named_head)?;
            let name = self.name(&pair.into_inner().find(|inner| inner.as_rule() == Rule::name)?);
            return Some(Entry::Nested { name, body: inside? });
        }
        if !statement.sound {
            return None;
        }
        if kind == Some(BlockKind::Turns) && !is_setting {
            return Some(Entry::Edge(self.edge(statement.head)?));
        }
        if !word.is_empty() && rest.starts_with("->") {
            self.reports
                .error(DiagnosticCode::Syntax, statement.head, "an edge is outside of `turns`", "")
                .help("edges belong inside `turns { … }`");
            return None;
        }
        let (key, value) = self.assignment(statement.head)?;
        Some(Entry::Setting(Setting { key, value, body: None, namespace: self.namespace }))
    }

    fn assignment(&mut self, statement: Span) -> Option<(Name, Value)> {
        let pair = self.read(statement, Rule::assignment)?;
        let (mut key, mut value) = (None, None);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => key = Some(self.name(&inner)),
                Rule::value => value = self.value(inner),
                _ => {}
            }
        }
        Some((key?, value?))
    }

    fn edge(&mut self, statement: Span) -> Option<EdgeLine> {
        let pair = self.read(statement, Rule::edge)?;
        let mut line = EdgeLine { nodes: Vec::new(), when: None };
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::node_ref => {
                    let span = self.span(&inner);
                    let names = inner
                        .into_inner()
                        .filter(|part| part.as_rule() == Rule::path)
                        .map(|part| self.name(&part))
                        .collect();
                    line.nodes.push(NodeRef { names, span });
                }
                Rule::value => line.when = Some(self.value(inner)?),
                _ => {}
            }
        }
        Some(line)
    }
}
