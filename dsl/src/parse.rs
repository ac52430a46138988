//! Pieces of text to the syntax tree, through the pest grammar in `grammar.pest`.

use std::ops::Range;

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use crate::diagnostic::{Code, Place, Reports, nearest, suggest};
use crate::scan::{Piece, PieceBody, scan, split_word};
use crate::source::Span;
use crate::syntax::{
    Block, BlockKind, Body, EdgeLine, Entry, File, More, Name, Parameter, Setting, SpaceId, Stop, Type, Value,
};

mod expression;
mod plain;
mod words;

mod grammar {
    #[derive(pest_derive::Parser)]
    #[grammar = "grammar.pest"]
    pub struct Grammar;
}
use grammar::{Grammar, Rule};

/// Reads one file among others. What can't be read is reported and left out, or kept as a block that is not `sound`,
/// so that its name is still known.
pub(crate) fn parse(text: &str, file: Range<usize>, space: SpaceId, reports: &mut Reports) -> File {
    let pieces = scan(text, file, reports);
    let mut reader = Reader { text, reports, from: 0, outside: None, space };
    let mut file = File::default();
    for piece in &pieces {
        reader.top(piece, &mut file);
    }
    file
}

/// Reads one value out of a text of its own, as `--set` brings it. None where it is none.
pub(crate) fn lone_value(text: &str, place: Place) -> Option<Value> {
    let mut nothing = Reports::new(&[]);
    // The scanner bounds the nesting before the grammar goes into it.
    let [Piece { sound: true, body: None, .. }] = scan(text, 0..text.len(), &mut nothing).as_slice() else {
        return None;
    };
    let pair = Grammar::parse(Rule::lone_value, text).ok()?.next()?;
    let value = pair.into_inner().find(|inner| inner.as_rule() == Rule::value)?;
    let mut reader = Reader { text, reports: &mut nothing, from: 0, outside: Some(place), space: 0 };
    let value = reader.value(value)?;
    (!nothing.failed()).then_some(value)
}

struct Reader<'t, 'r, 'o> {
    text: &'t str,
    reports: &'r mut Reports<'o>,
    /// Where the piece begins that is being read: the grammar counts from there.
    from: usize,
    /// The one place of all that is read, where it is in no file.
    outside: Option<Place>,
    space: SpaceId,
}

impl<'t> Reader<'t, '_, '_> {
    fn top(&mut self, piece: &Piece, file: &mut File) {
        let head = piece.head.of(self.text);
        let (word, rest) = split_word(head);
        let keyword = Span::new(piece.head.start, piece.head.start + word.len());
        if word == "layout" && rest.trim_start().starts_with('=') {
            return self.layout(piece, file);
        }
        let kind = BlockKind::from_keyword(word).or_else(|| self.not_a_block(piece, word, rest, keyword));
        let Some(kind) = kind else { return };
        let mut block = self.head(piece, kind, keyword);
        if let Some(body) = &piece.body {
            if kind.has_body() {
                block.body = self.body(body, kind == BlockKind::Turns);
                // What seems to be missing may well be what could not be read in the head.
                block.body.complete &= block.sound;
            } else {
                self.reports
                    .error(Code::Syntax, body.span, format!("`{word}` takes no settings"), "")
                    .help(format!("write `{}`", kind.form()));
            }
        } else if block.sound && !kind.is_named() && kind.has_body() {
            self.reports
                .error(Code::Syntax, keyword, format!("`{word}` is a block and has no `{{ … }}`"), "")
                .help(format!("write `{}`, its `{{` on the same line", kind.form()));
            block.sound = false;
            block.body.complete = false;
        }
        file.blocks.push(block);
    }

    fn layout(&mut self, piece: &Piece, file: &mut File) {
        if let Some(body) = &piece.body {
            self.reports.error(Code::Syntax, body.span, "`layout` is a setting and has no `{ … }`", "");
        } else if piece.sound {
            file.layouts.extend(self.assignment(piece.head));
        }
    }

    /// Reports what is no block; says which block was probably meant, to go on as if it stood there.
    fn not_a_block(&mut self, piece: &Piece, word: &str, rest: &str, keyword: Span) -> Option<BlockKind> {
        if word.is_empty() {
            // An empty head has been reported with its brace.
            if piece.head.start < piece.head.end {
                self.reports
                    .error(Code::Syntax, piece.head, "no block begins like this", "expected a block")
                    .help(format!("a block begins with a word, such as `{}`", BlockKind::Agent.form()));
            }
            return None;
        }
        if rest.trim_start().starts_with('=') {
            let message = format!("the setting `{word}` stands outside of any block");
            self.reports
                .error(Code::UnknownBlock, keyword, message, "")
                .help("settings stand inside the braces of a block; only `layout` stands alone");
            return None;
        }
        if let Some(outer) =
            BlockKind::TOP.iter().find(|kind| kind.inner().is_some_and(|i| i.keyword() == word))
        {
            let outer = outer.keyword();
            self.reports
                .error(Code::UnknownBlock, keyword, format!("`{word}` stands outside of a {outer}"), "")
                .help(format!("write it between the braces of a {outer}: `{word} {{ … }}`"));
            return None;
        }
        let words = || BlockKind::TOP.iter().map(|kind| kind.keyword());
        self.reports
            .error(Code::UnknownBlock, keyword, format!("there is no block `{word}`"), "")
            .maybe_help(suggest(word, "the blocks are", words()));
        nearest(word, words()).and_then(BlockKind::from_keyword)
    }

    /// The head of a block behind its keyword.
    fn head(&mut self, piece: &Piece, kind: BlockKind, keyword: Span) -> Block {
        let rest = Span::new(keyword.end, piece.head.end);
        let mut block = Block {
            kind,
            keyword,
            head: piece.head,
            name: None,
            value: None,
            more: None,
            body: Body::empty(),
            sound: true,
            space: self.space,
            imported: false,
        };
        let rule = match kind {
            BlockKind::Turns
            | BlockKind::Sandbox
            | BlockKind::Inference
            | BlockKind::Train
            | BlockKind::Lora
            | BlockKind::Grant => Rule::bare_head,
            BlockKind::Workflow | BlockKind::Evaluate => Rule::named_head,
            BlockKind::Policy => Rule::either_head,
            BlockKind::Param => Rule::param_head,
            BlockKind::Include => Rule::include_head,
            BlockKind::Use => Rule::use_head,
            BlockKind::Template => Rule::template_head,
            BlockKind::Plugin
            | BlockKind::Model
            | BlockKind::Environment
            | BlockKind::Agent
            | BlockKind::Reward => Rule::assignment,
        };
        if piece.sound && self.plain_head(rest, rule, &mut block).is_some() {
            return block;
        }
        let help = || format!("write `{}`", kind.form());
        let read = if piece.sound { self.read_or(rest, rule, Some(&help)) } else { None };
        let Some(pair) = read else {
            block.sound = false;
            block.body.complete = false;
            // The name is still worth knowing: whoever uses it makes no mistake.
            let behind = rest.of(self.text);
            let skipped = behind.len() - behind.trim_start().len();
            let (name, _) = split_word(behind.trim_start());
            if kind.is_named() && !name.is_empty() {
                let start = rest.start + skipped;
                let span = Span::new(start, start + name.len());
                block.name = Some(Name { text: name.to_owned(), place: span.into() });
            }
            return block;
        };
        self.parts_of_head(pair, &mut block);
        block
    }

    /// A head that can be read without the grammar. None: the grammar has to look.
    fn plain_head(&self, rest: Span, rule: Rule, block: &mut Block) -> Option<()> {
        match rule {
            Rule::bare_head if rest.of(self.text).is_empty() => {}
            Rule::named_head | Rule::either_head => block.name = Some(plain::name(self.text, rest)?),
            Rule::assignment => {
                let (name, value) = plain::assignment(self.text, rest)?;
                (block.name, block.value) = (Some(name), Some(value));
            }
            Rule::param_head => {
                let (name, of_type, value) = plain::param(self.text, rest)?;
                (block.name, block.value) = (Some(name), value);
                block.more = Some(Box::new(More::Param { of_type, range: None }));
            }
            _ => return None,
        }
        Some(())
    }

    fn parts_of_head(&mut self, pair: Pair<'t, Rule>, block: &mut Block) {
        let (mut of_type, mut range, mut made) = (None, None, None);
        let mut parameters = Vec::new();
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name if block.name.is_none() => block.name = Some(self.name(&inner)),
                Rule::name => made = Some(self.name(&inner)),
                Rule::type_ => of_type = self.of_type(inner),
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
                Rule::path => block.value = self.plain(&inner),
                Rule::string => {
                    let place = self.place(&inner);
                    block.value = self.text(inner, false).map(|kind| Value { kind, place });
                    block.sound &= block.value.is_some();
                }
                _ => {}
            }
        }
        block.more = match (block.kind, of_type, made) {
            (BlockKind::Param, Some(of_type), _) => Some(Box::new(More::Param { of_type, range })),
            (BlockKind::Template, _, Some(made)) => Some(Box::new(More::Template { made, parameters })),
            _ => None,
        };
    }

    fn of_type(&mut self, pair: Pair<'t, Rule>) -> Option<Type> {
        let mut names = pair.into_inner().filter(|part| part.as_rule() == Rule::name);
        Some(Type { name: self.name(&names.next()?), of: names.next().map(|of| self.name(&of)) })
    }

    fn range(&mut self, pair: Pair<'t, Rule>) -> Option<crate::syntax::Range> {
        let values = pair.into_inner().filter(|part| part.as_rule() == Rule::value);
        let values: Vec<Option<Value>> = values.map(|part| self.value(part)).collect();
        let mut values = values.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
        Some(match (values.next()?, values.next()) {
            (least, Some(most)) => crate::syntax::Range::Between(least, most),
            (among, None) => crate::syntax::Range::Among(among),
        })
    }

    fn parameter(&mut self, pair: Pair<'t, Rule>) -> Option<Parameter> {
        let (mut name, mut of_type, mut default) = (None, None, None);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => name = Some(self.name(&inner)),
                Rule::type_ => of_type = self.of_type(inner),
                Rule::value => default = Some(self.value(inner)?),
                _ => {}
            }
        }
        Some(Parameter { name: name?, of_type: of_type?, default })
    }

    /// A path that stands alone.
    fn plain(&self, pair: &Pair<'t, Rule>) -> Option<Value> {
        let names = pair.as_str().split('.').map(str::to_owned).collect();
        Some(Value { kind: crate::syntax::ValueKind::Path(names), place: self.place(pair) })
    }

    fn body(&mut self, body: &PieceBody, edges: bool) -> Body {
        let mut out = Body { entries: Vec::new(), complete: body.closed };
        for piece in &body.pieces {
            match self.entry(piece, edges) {
                Some(entry) => out.entries.push(entry),
                None => out.complete = false,
            }
        }
        out
    }

    fn entry(&mut self, piece: &Piece, edges: bool) -> Option<Entry> {
        let head = piece.head.of(self.text);
        let (word, rest) = split_word(head);
        let rest = rest.trim_start();
        let is_setting = rest.starts_with('=') && !rest.starts_with("==");
        if let Some(body) = &piece.body {
            // The inside is read even where the head is not: its mistakes are worth knowing.
            let inside = (!is_setting).then(|| self.body(body, false));
            if !piece.sound {
                return None;
            }
            if is_setting {
                let (key, value) = self.assignment(piece.head)?;
                return Some(Entry::Setting(Setting {
                    key,
                    value,
                    body: Some(body.span),
                    space: self.space,
                }));
            }
            let name = match plain::name(self.text, piece.head) {
                Some(name) => name,
                None => {
                    let pair = self.read(piece.head, Rule::named_head)?;
                    self.name(&pair.into_inner().find(|inner| inner.as_rule() == Rule::name)?)
                }
            };
            return Some(Entry::Nested { name, body: inside? });
        }
        if !piece.sound {
            return None;
        }
        if edges && !is_setting {
            return Some(Entry::Edge(self.edge(piece.head)?));
        }
        if !word.is_empty() && rest.starts_with("->") {
            self.reports
                .error(Code::Syntax, piece.head, "an edge stands outside of `turns`", "")
                .help("edges stand inside `turns { … }`");
            return None;
        }
        let (key, value) = self.assignment(piece.head)?;
        Some(Entry::Setting(Setting { key, value, body: None, space: self.space }))
    }

    fn assignment(&mut self, piece: Span) -> Option<(Name, Value)> {
        if let Some(plain) = plain::assignment(self.text, piece) {
            return Some(plain);
        }
        let pair = self.read(piece, Rule::assignment)?;
        self.parts_of_assignment(pair)
    }

    fn parts_of_assignment(&mut self, pair: Pair<'t, Rule>) -> Option<(Name, Value)> {
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

    fn edge(&mut self, piece: Span) -> Option<EdgeLine> {
        if let Some(plain) = plain::edge(self.text, piece) {
            return Some(plain);
        }
        let pair = self.read(piece, Rule::edge)?;
        self.parts_of_edge(pair)
    }

    fn parts_of_edge(&mut self, pair: Pair<'t, Rule>) -> Option<EdgeLine> {
        let mut line = EdgeLine { stops: Vec::new(), when: None };
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::stop => {
                    let span = self.span(&inner);
                    let names = inner
                        .into_inner()
                        .filter(|part| part.as_rule() == Rule::path)
                        .map(|part| self.name(&part))
                        .collect();
                    line.stops.push(Stop { names, span });
                }
                Rule::value => line.when = Some(self.value(inner)?),
                _ => {}
            }
        }
        Some(line)
    }

    /// Applies a rule to a piece of the text. What does not fit is reported in words.
    fn read(&mut self, piece: Span, rule: Rule) -> Option<Pair<'t, Rule>> {
        self.read_or(piece, rule, None)
    }

    fn read_or(
        &mut self,
        piece: Span,
        rule: Rule,
        help: Option<&dyn Fn() -> String>,
    ) -> Option<Pair<'t, Rule>> {
        self.from = piece.start;
        let error = match Grammar::parse(rule, piece.of(self.text)) {
            Ok(mut pairs) => return pairs.next(),
            Err(error) => error,
        };
        let at = match error.location {
            InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
        };
        let place = self.token_at(piece, piece.start + at);
        let found = place.of(self.text);
        let expected = match &error.variant {
            ErrorVariant::ParsingError { positives, .. } => words::expected(positives, rule == Rule::edge),
            ErrorVariant::CustomError { message } => message.clone(),
        };
        let message = if found.is_empty() {
            format!("expected {expected}, but nothing follows")
        } else {
            format!("expected {expected}, found `{found}`")
        };
        let help = match help {
            Some(help) => Some(help()),
            None => (rule == Rule::edge && found == "=").then(|| "compare with `==`".to_owned()),
        };
        self.reports.error(Code::Syntax, place, message, format!("expected {expected}")).maybe_help(help);
        None
    }

    /// The word or sign at a place; empty at the end of the piece.
    fn token_at(&self, piece: Span, at: usize) -> Span {
        let rest = Span::new(at, piece.end).of(self.text);
        let trimmed = rest.trim_start();
        let start = piece.end - trimmed.len();
        let (word, _) = split_word(trimmed);
        let length = match word.len() {
            0 if trimmed.starts_with("->") => 2,
            0 => trimmed.chars().next().map_or(0, char::len_utf8),
            length => length,
        };
        if length == 0 { Span::new(piece.end, piece.end) } else { Span::new(start, start + length) }
    }

    fn span(&self, pair: &Pair<Rule>) -> Span {
        let span = pair.as_span();
        Span::new(span.start(), span.end()).shifted(self.from)
    }

    fn place(&self, pair: &Pair<Rule>) -> Place {
        self.outside.unwrap_or_else(|| self.span(pair).into())
    }

    fn name(&self, pair: &Pair<Rule>) -> Name {
        Name { text: pair.as_str().to_owned(), place: self.place(pair) }
    }
}
