//! The names of a file: where each is declared, and where it is used.
//!
//! What a name can mean is decided by where it stands, as the check does it: behind `policy =` it is a policy's,
//! in an edge an agent's, in an expression a param's. Names that other files declare are none of this file's.

use std::collections::BTreeSet;

use super::head::{Head, head};
use super::pieces;
use super::tokens::{Kind as TokenKind, Token, tokens};
use crate::scan::Piece;
use crate::settings::{self, Kind};
use crate::source::Span;
use crate::syntax::BlockKind;

/// Words of expressions that are never names.
const WORDS: &[&str] = &["and", "or", "not", "when", "true", "false", "if", "then", "else", "in"];

/// What a name is a name of: two mentions mean one thing if and only if these and the name are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    kind: BlockKind,
    /// Of a template's parameter, where the template begins.
    template: Option<usize>,
}

/// A name in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// Where it stands.
    pub span: Span,
    /// What it names: a block's kind, [`BlockKind::Param`] for a template's parameter too.
    pub kind: BlockKind,
    /// Whether it is declared here.
    pub declares: bool,
    template: Option<usize>,
}

/// All names of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names<'t> {
    text: &'t str,
    /// In order of place.
    list: Vec<Mention>,
}

impl<'t> Names<'t> {
    /// The name that a position stands in, or right behind.
    pub fn at(&self, at: usize) -> Option<&Mention> {
        let upto = self.list.partition_point(|mention| mention.span.start <= at);
        self.list.get(..upto)?.last().filter(|mention| at <= mention.span.end)
    }

    /// Every mention of what one mention names, its declaration included.
    pub fn all<'s>(&'s self, one: &'s Mention) -> impl Iterator<Item = &'s Mention> {
        self.list.iter().filter(move |other| {
            (other.kind, other.template) == (one.kind, one.template)
                && other.span.of(self.text) == one.span.of(self.text)
        })
    }

    /// Where what a mention names is declared; none where another file does that, or nobody.
    pub fn declaration<'s>(&'s self, one: &'s Mention) -> Option<&'s Mention> {
        self.all(one).find(|other| other.declares)
    }

    /// Whether the file declares such a name already.
    pub fn is_taken(&self, like: &Mention, name: &str) -> bool {
        self.list.iter().any(|other| {
            other.declares
                && (other.kind, other.template) == (like.kind, like.template)
                && other.span.of(self.text) == name
        })
    }
}

/// The names of a text, of a broken one too.
pub fn names(text: &str) -> Names<'_> {
    let pieces = pieces(text);
    let heads: Vec<Head> = pieces.iter().map(|piece| head(text, piece.head)).collect();
    let mut walk = Walk { text, declared: BTreeSet::new(), out: Vec::new() };
    for head in &heads {
        walk.declare(head);
    }
    for (piece, head) in pieces.iter().zip(&heads) {
        walk.block(piece, head);
    }
    walk.out.sort_by_key(|mention| mention.span);
    walk.out.dedup_by_key(|mention| mention.span);
    Names { text, list: walk.out }
}

struct Walk<'t> {
    text: &'t str,
    /// What the file declares, by name; a template's parameters too.
    declared: BTreeSet<(Owner, &'t str)>,
    out: Vec<Mention>,
}

/// Where a statement stands.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// Whose settings stand here.
    block: Option<BlockKind>,
    /// The template around.
    template: Option<usize>,
}

impl<'t> Walk<'t> {
    fn declare(&mut self, head: &Head) {
        let Some(keyword) = head.keyword else { return };
        let Some(kind) = BlockKind::from_keyword(keyword.text) else { return };
        if let Some(name) = head.name {
            self.declaration(kind, None, name);
        }
        for parameter in &head.parameters {
            self.declaration(BlockKind::Param, Some(keyword.span.start), *parameter);
        }
    }

    fn declaration(&mut self, kind: BlockKind, template: Option<usize>, span: Span) {
        self.declared.insert((Owner { kind, template }, span.of(self.text)));
        self.out.push(Mention { span, kind, declares: true, template });
    }

    fn mention(&mut self, kind: BlockKind, template: Option<usize>, span: Span) {
        self.out.push(Mention { span, kind, declares: false, template });
    }

    fn has(&self, kind: BlockKind, template: Option<usize>, name: &'t str) -> bool {
        self.declared.contains(&(Owner { kind, template }, name))
    }

    fn block(&mut self, piece: &Piece, head: &Head) {
        let Some(keyword) = head.keyword else { return };
        let kind = BlockKind::from_keyword(keyword.text);
        let template = (kind == Some(BlockKind::Template)).then_some(keyword.span.start);
        let made = head.made.map_or(kind, |made| BlockKind::from_keyword(made.text));
        let around = Around { block: made, template };
        if let Some(value) = head.value {
            match made {
                Some(BlockKind::Environment | BlockKind::Agent | BlockKind::Reward | BlockKind::Policy) => {
                    self.made(value, around);
                }
                _ => self.expression(&tokens(self.text, value), around, BlockKind::Param),
            }
        }
        // A default of a template's parameter.
        if template.is_some() {
            let upto = head.made.map_or(piece.head.end, |made| made.span.start);
            self.defaults(&tokens(self.text, Span::new(piece.head.start, upto)));
        }
        self.body(piece, around);
    }

    fn body(&mut self, piece: &Piece, around: Around) {
        // No recursion: a row of blocks that wait, each with what is around its statements.
        let mut waiting = vec![(piece, around)];
        while let Some((piece, around)) = waiting.pop() {
            let statements = piece.body.as_ref().map(|body| body.pieces.as_slice()).unwrap_or_default();
            for statement in statements {
                self.statement(statement, around);
                let word = tokens(self.text, statement.head).first().map(|token| token.text);
                let lora = (word == Some(BlockKind::Lora.keyword())).then_some(BlockKind::Lora);
                waiting.push((statement, Around { block: lora, ..around }));
            }
        }
    }

    fn statement(&mut self, piece: &Piece, around: Around) {
        let tokens = tokens(self.text, piece.head);
        match tokens.as_slice() {
            [key, equals, value @ ..] if key.is_word() && equals.is("=") => self.setting(key, value, around),
            edge if around.block == Some(BlockKind::Turns) => self.edge(edge, around),
            _ => {}
        }
    }

    fn setting(&mut self, key: &Token<'t>, value: &[Token<'t>], around: Around) {
        let known = around.block.and_then(|block| settings::find(block, key.text));
        match known.map(|setting| setting.kind) {
            Some(Kind::Model) => self.expression(value, around, BlockKind::Model),
            Some(Kind::Policy) => self.expression(value, around, BlockKind::Policy),
            Some(Kind::Choice(choices) | Kind::Choices(choices)) => {
                let is_choice = |token: &Token| choices.iter().any(|choice| choice.word == token.text);
                let value: Vec<Token> = value.iter().filter(|token| !is_choice(token)).copied().collect();
                self.expression(&value, around, BlockKind::Param);
            }
            _ => self.expression(value, around, BlockKind::Param),
        }
    }

    /// `maths.tool`, `team.maths.tool`, `expert("algebra")`.
    fn made(&mut self, value: Span, around: Around) {
        let tokens = tokens(self.text, value);
        let (path, rest) = path(&tokens);
        match path.as_slice() {
            [only] => self.mention(BlockKind::Template, None, only.span),
            [first, ..] if self.has(BlockKind::Use, None, first.text) => {
                self.mention(BlockKind::Use, None, first.span);
            }
            [first, ..] => self.mention(BlockKind::Plugin, None, first.span),
            [] => {}
        }
        let called = path.last().map(|last| last.text);
        self.called(rest, around, BlockKind::Param, called);
    }

    fn defaults(&mut self, tokens: &[Token<'t>]) {
        for (at, token) in tokens.iter().enumerate() {
            let end = |token: &&Token| token.is(",") || token.is(")");
            if token.is("=") {
                let rest = tokens.get(at + 1..).unwrap_or_default();
                let length = rest.iter().position(|token| end(&token)).unwrap_or(rest.len());
                let around = Around { block: None, template: None };
                self.expression(rest.get(..length).unwrap_or_default(), around, BlockKind::Param);
            }
        }
    }

    /// `a -> [b, team.c] -> end when turn < 2`
    fn edge(&mut self, tokens: &[Token<'t>], around: Around) {
        let when = tokens.iter().position(|token| token.is("when")).unwrap_or(tokens.len());
        let (mut stops, condition) = tokens.split_at(when);
        while !stops.is_empty() {
            let (path, rest) = path(stops);
            match path.as_slice() {
                [only] if !matches!(only.text, "start" | "end") => {
                    self.mention(BlockKind::Agent, None, only.span);
                }
                [first, _, ..] => self.mention(BlockKind::Use, None, first.span),
                _ => {}
            }
            stops = if path.is_empty() { stops.get(1..).unwrap_or_default() } else { rest };
        }
        self.expression(condition, around, BlockKind::Param);
    }

    fn expression(&mut self, tokens: &[Token<'t>], around: Around, wanted: BlockKind) {
        self.called(tokens, around, wanted, None);
    }

    /// An expression; or, behind the name of a template, what it is given.
    fn called(&mut self, all: &[Token<'t>], around: Around, wanted: BlockKind, called: Option<&'t str>) {
        // The template that is called in each open bracket.
        let mut calls: Vec<Option<&'t str>> = Vec::new();
        let mut before = called;
        let mut rest = all;
        while let [first, behind @ ..] = rest {
            if [")", "]", "}"].iter().any(|sign| first.is(sign)) {
                calls.pop();
            } else if ["(", "[", "${"].iter().any(|sign| first.is(sign)) {
                calls.push(if first.is("(") { before } else { None });
            }
            before = None;
            let (path, after) = path(rest);
            if path.is_empty() {
                rest = behind;
                continue;
            }
            rest = after;
            let is_call = after.first().is_some_and(|next| next.is("("));
            let is_argument = after.first().is_some_and(|next| next.is("="));
            match path.as_slice() {
                [only] if is_argument => {
                    if let Some(template) =
                        calls.last().copied().flatten().and_then(|name| self.template(name))
                    {
                        self.mention(BlockKind::Param, Some(template), only.span);
                    }
                }
                [only] if is_call => {
                    before = Some(only.text);
                    if self.has(BlockKind::Template, None, only.text) {
                        self.mention(BlockKind::Template, None, only.span);
                    }
                }
                [only] => self.single(only, around, wanted),
                [first, second, ..] if first.text == "reward" => {
                    if self.has(BlockKind::Agent, None, second.text) {
                        self.mention(BlockKind::Agent, None, second.span);
                    }
                }
                [first, ..] if self.has(BlockKind::Use, None, first.text) => {
                    self.mention(BlockKind::Use, None, first.span);
                }
                _ => {}
            }
        }
    }

    fn single(&mut self, word: &Token<'t>, around: Around, wanted: BlockKind) {
        if WORDS.contains(&word.text) {
            return;
        }
        let local = around.template.filter(|_| self.has(BlockKind::Param, around.template, word.text));
        if local.is_some() {
            self.mention(BlockKind::Param, local, word.span);
        } else if wanted != BlockKind::Param || self.has(BlockKind::Param, None, word.text) {
            self.mention(wanted, None, word.span);
        }
    }

    /// Where the template of a name begins.
    fn template(&self, name: &str) -> Option<usize> {
        let declared = self.out.iter().find(|mention| {
            mention.declares && mention.kind == BlockKind::Template && mention.span.of(self.text) == name
        })?;
        // Its keyword stands before its name.
        let before = self.text.get(..declared.span.start)?;
        before.rfind(BlockKind::Template.keyword())
    }
}

/// The names at the beginning, with dots between, and what follows.
fn path<'a, 't>(tokens: &'a [Token<'t>]) -> (Vec<Token<'t>>, &'a [Token<'t>]) {
    let mut path = Vec::new();
    let mut rest = tokens;
    while let [name, behind @ ..] = rest {
        if name.kind != TokenKind::Word {
            break;
        }
        path.push(*name);
        rest = behind;
        match behind {
            [dot, next, ..] if dot.is(".") && next.is_word() => rest = behind.get(1..).unwrap_or_default(),
            [dot, ..] if dot.is(".") => {
                rest = behind.get(1..).unwrap_or_default();
                break;
            }
            _ => break,
        }
    }
    (path, rest)
}
