//! Which bracket closes which, what stands between them, and what each sign is to its neighbours.
//!
//! One walk over the tokens. It refuses what does not match; after it, every bracket has its other half.

use super::tokens::{Kind, Token};
use crate::diagnostic::{Code, Reports};
use crate::scan::DEEPEST;
use crate::source::Span;

/// A pair of brackets of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// The token that closes it.
    pub close: usize,
    /// The last token inside that is neither comment, newline nor `;`; the opening one if there is none.
    pub last: usize,
    /// A line ends in it, or a comment stands in it, and not only within brackets of its own.
    pub broken: bool,
    /// A line ends anywhere in it.
    pub spans: bool,
    /// Nothing is in it.
    pub empty: bool,
}

/// The pairs of brackets, in order of the opening ones; none where they do not match, which is reported.
/// Kinds of tokens that depend on their neighbours are set.
pub(super) fn pair(tokens: &mut [Token], text: &str, reports: &mut Reports) -> Option<Vec<Group>> {
    let mut pairing =
        Pairing { groups: Vec::new(), open: Vec::new(), last: None, before: None, commented: false };
    for at in 0..tokens.len() {
        if let Err(mismatch) = pairing.step(tokens, at) {
            mismatch.report(tokens, text, reports);
            return None;
        }
    }
    if let Some(open) = pairing.open.first() {
        Mismatch::NeverClosed(open.token).report(tokens, text, reports);
        return None;
    }
    Some(pairing.groups)
}

struct Pairing {
    groups: Vec<Group>,
    /// The brackets around the current token.
    open: Vec<Open>,
    /// The last token of this statement that is no comment.
    last: Option<usize>,
    /// The one before that.
    before: Option<usize>,
    /// Comments stand behind the last one.
    commented: bool,
}

struct Open {
    token: usize,
    kind: Kind,
    group: usize,
}

/// The token that is amiss.
enum Mismatch {
    NeverClosed(usize),
    ClosesNothing { close: usize, open: Option<usize> },
    NoHead(usize),
    TooDeep(usize),
}

impl Pairing {
    fn step(&mut self, tokens: &mut [Token], at: usize) -> Result<(), Mismatch> {
        let Some(token) = tokens.get(at).copied() else { return Ok(()) };
        match token.kind {
            Kind::Newline => {
                self.breaks(false);
                if !self.in_brackets() {
                    self.end_statement();
                }
                return Ok(());
            }
            Kind::Comment => {
                self.breaks(true);
                self.commented = true;
                return Ok(());
            }
            Kind::Semicolon => {
                self.no_brackets_open()?;
                self.end_statement();
                return Ok(());
            }
            _ => {}
        }
        let before = self.last.and_then(|last| tokens.get(last)).map(|token| token.kind);
        let behind = tokens.get(at + 1..).unwrap_or_default();
        // Between brackets a newline ends nothing.
        let room = |kind: &Kind| self.in_brackets() && matches!(kind, Kind::Newline | Kind::Comment);
        let next = behind.iter().map(|token| token.kind).find(|kind| !room(kind));
        let kind = refined(before, token.kind, next);
        if let Some(token) = tokens.get_mut(at) {
            token.kind = kind;
        }
        match kind {
            Kind::Lines => self.spans(),
            Kind::Comma => self.comma(tokens, at),
            Kind::CloseRound | Kind::CloseSquare => self.close(tokens, at)?,
            Kind::CloseBrace => {
                self.no_brackets_open()?;
                self.close(tokens, at)?;
                self.end_statement();
                return Ok(());
            }
            _ => {}
        }
        if let Some(open) = self.open.last()
            && let Some(group) = self.groups.get_mut(open.group)
        {
            group.empty = false;
            group.last = at;
        }
        if kind == Kind::OpenBrace {
            self.no_brackets_open()?;
            if self.last.is_none() {
                return Err(Mismatch::NoHead(at));
            }
        }
        if kind.opens() || kind == Kind::OpenBrace {
            if self.open.len() >= DEEPEST {
                return Err(Mismatch::TooDeep(at));
            }
            self.open.push(Open { token: at, kind, group: self.groups.len() });
            self.groups.push(Group { close: at, last: at, broken: false, spans: false, empty: true });
        }
        (self.before, self.last, self.commented) = (self.last, Some(at), false);
        if kind == Kind::OpenBrace {
            self.end_statement();
        }
        Ok(())
    }

    fn end_statement(&mut self) {
        (self.before, self.last, self.commented) = (None, None, false);
    }

    /// Whether newlines are free here.
    fn in_brackets(&self) -> bool {
        self.open.last().is_some_and(|open| open.kind.opens())
    }

    fn no_brackets_open(&self) -> Result<(), Mismatch> {
        match self.open.last() {
            Some(open) if open.kind.opens() => Err(Mismatch::NeverClosed(open.token)),
            _ => Ok(()),
        }
    }

    /// A line ends here, with a comment or without.
    fn breaks(&mut self, comment: bool) {
        if let Some(group) = self.open.last().and_then(|open| self.groups.get_mut(open.group)) {
            group.broken = true;
            group.spans = true;
            group.empty &= !comment;
        }
    }

    fn spans(&mut self) {
        if let Some(group) = self.open.last().and_then(|open| self.groups.get_mut(open.group)) {
            group.spans = true;
        }
    }

    /// A comma is written right behind what it ends, before the comments between the two.
    fn comma(&self, tokens: &mut [Token], at: usize) {
        let Some(last) = self.last.filter(|_| self.commented) else { return };
        if let Some(ended) =
            tokens.get_mut(last).filter(|token| !token.kind.opens() && !token.kind.is_comma())
        {
            ended.comma = true;
            if let Some(token) = tokens.get_mut(at) {
                token.kind = Kind::MovedComma;
            }
        }
    }

    fn close(&mut self, tokens: &mut [Token], at: usize) -> Result<(), Mismatch> {
        let fits = |open: Kind| match tokens.get(at).map(|token| token.kind) {
            Some(Kind::CloseRound) => matches!(open, Kind::OpenCall | Kind::OpenGroup),
            Some(Kind::CloseSquare) => matches!(open, Kind::OpenIndex | Kind::OpenList),
            _ => open == Kind::OpenBrace,
        };
        let Some(open) = self.open.pop_if(|open| fits(open.kind)) else {
            return Err(Mismatch::ClosesNothing { close: at, open: self.open.last().map(|open| open.token) });
        };
        if let (Kind::OpenCall | Kind::OpenList, Some(last)) = (open.kind, self.last)
            && let Some(before) = self.before.and_then(|before| tokens.get(before))
            && !before.kind.opens()
            && !before.kind.is_comma()
            && let Some(token) = tokens.get_mut(last).filter(|token| token.kind == Kind::Comma)
        {
            token.kind = Kind::LastComma;
        }
        if let Some(group) = self.groups.get_mut(open.group) {
            group.close = at;
            if group.spans && !group.empty {
                self.spans();
            }
        }
        Ok(())
    }
}

/// What a token is, seen beside its neighbours in the statement.
fn refined(before: Option<Kind>, token: Kind, next: Option<Kind>) -> Kind {
    let after_value = before.is_some_and(Kind::ends_value);
    match token {
        Kind::OpenGroup if before == Some(Kind::Word) => Kind::OpenCall,
        Kind::OpenList if after_value && before != Some(Kind::Number) => Kind::OpenIndex,
        // `a.in` is a path as any other.
        Kind::Keyword if before == Some(Kind::Dot) => Kind::Word,
        Kind::Dot => {
            let named = matches!(next, Some(Kind::Word | Kind::Keyword));
            if named && after_value && before != Some(Kind::Number) { Kind::Dot } else { Kind::Other }
        }
        Kind::Range if !after_value => Kind::Other,
        Kind::Minus if after_value => Kind::Operator,
        kind => kind,
    }
}

/// What closes a bracket.
fn closing(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

impl Mismatch {
    fn report(&self, tokens: &[Token], text: &str, reports: &mut Reports) {
        let span = |at: usize| tokens.get(at).map_or(Span::new(0, 0), |token| token.span);
        match *self {
            Mismatch::NeverClosed(at) => {
                let message = format!("this `{}` is never closed", span(at).of(text));
                reports
                    .error(Code::Unclosed, span(at), message, "opened here")
                    .help(format!("add the missing `{}`", closing(span(at).of(text))));
            }
            Mismatch::ClosesNothing { close, open } => {
                let message = format!("this `{}` closes nothing", span(close).of(text));
                let diagnostic = reports.error(Code::Unclosed, span(close), message, "");
                if let Some(open) = open {
                    diagnostic.also(span(open).into(), format!("`{}` was opened here", span(open).of(text)));
                }
            }
            Mismatch::NoHead(at) => {
                reports
                    .error(
                        Code::Syntax,
                        span(at),
                        "this `{` belongs to nothing",
                        "expected a block's name before it",
                    )
                    .help("write the `{` on the line of the block's name");
            }
            Mismatch::TooDeep(at) => {
                let message = format!("brackets are nested more than {DEEPEST} deep");
                reports.error(Code::TooDeep, span(at), message, "");
            }
        }
    }
}
