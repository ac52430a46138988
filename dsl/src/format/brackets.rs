//! Pairs of brackets, and the kinds of tokens that depend on their neighbours.
//!
//! One pass over the tokens, which fails if brackets don't match.

use super::lexer::{Token, TokenKind};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::Span;
use crate::syntax::scan::MAX_DEPTH;

/// A pair of brackets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Index of the closing token.
    pub close: usize,
    /// Index of the last token inside, except comments, newlines and `;`, or of the opening token.
    pub last: usize,
    /// True if it contains a newline or a comment outside of inner brackets.
    pub broken: bool,
    /// True if it contains a newline anywhere.
    pub spans: bool,
    /// True if it is empty.
    pub empty: bool,
}

/// Pairs of brackets in order of their opening tokens. Returns `None` and reports an error if they don't match. Updates the
/// kinds of tokens that depend on their neighbours.
pub(super) fn match_brackets(tokens: &mut [Token], text: &str, reports: &mut Reports) -> Option<Vec<Group>> {
    let mut matcher =
        Matcher { groups: Vec::new(), open: Vec::new(), last: None, before: None, commented: false };
    for index in 0..tokens.len() {
        if let Err(mismatch) = matcher.step(tokens, index) {
            mismatch.report(tokens, text, reports);
            return None;
        }
    }
    if let Some(open) = matcher.open.first() {
        Mismatch::Unclosed(open.token).report(tokens, text, reports);
        return None;
    }
    Some(matcher.groups)
}

struct Matcher {
    groups: Vec<Group>,
    /// Brackets around the current token.
    open: Vec<Open>,
    /// Last token of the statement, except comments.
    last: Option<usize>,
    /// Token before `last`.
    before: Option<usize>,
    /// True if comments follow `last`.
    commented: bool,
}

struct Open {
    token: usize,
    kind: TokenKind,
    group: usize,
}

/// A bracket without a partner, by its token.
enum Mismatch {
    Unclosed(usize),
    Unopened { close: usize, open: Option<usize> },
    MissingHead(usize),
    TooDeep(usize),
}

impl Matcher {
    fn step(&mut self, tokens: &mut [Token], at: usize) -> Result<(), Mismatch> {
        let Some(token) = tokens.get(at).copied() else { return Ok(()) };
        match token.kind {
            TokenKind::Newline => {
                self.mark_broken(false);
                if !self.in_brackets() {
                    self.end_statement();
                }
                return Ok(());
            }
            TokenKind::Comment => {
                self.mark_broken(true);
                self.commented = true;
                return Ok(());
            }
            TokenKind::Semicolon => {
                self.no_brackets_open()?;
                self.end_statement();
                return Ok(());
            }
            _ => {}
        }
        let before = self.last.and_then(|last| tokens.get(last)).map(|token| token.kind);
        let behind = tokens.get(at + 1..).unwrap_or_default();
        // Within brackets, newlines don't end the statement.
        let is_blank =
            |kind: &TokenKind| self.in_brackets() && matches!(kind, TokenKind::Newline | TokenKind::Comment);
        let next = behind.iter().map(|token| token.kind).find(|kind| !is_blank(kind));
        let kind = refine(before, token.kind, next);
        if let Some(token) = tokens.get_mut(at) {
            token.kind = kind;
        }
        match kind {
            TokenKind::MultilineText => self.mark_spanning(),
            TokenKind::Comma => self.comma(tokens, at),
            TokenKind::CloseRound | TokenKind::CloseSquare => self.close(tokens, at)?,
            TokenKind::CloseBrace => {
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
        if kind == TokenKind::OpenBrace {
            self.no_brackets_open()?;
            if self.last.is_none() {
                return Err(Mismatch::MissingHead(at));
            }
        }
        if kind.opens() || kind == TokenKind::OpenBrace {
            if self.open.len() >= MAX_DEPTH {
                return Err(Mismatch::TooDeep(at));
            }
            self.open.push(Open { token: at, kind, group: self.groups.len() });
            self.groups.push(Group { close: at, last: at, broken: false, spans: false, empty: true });
        }
        (self.before, self.last, self.commented) = (self.last, Some(at), false);
        if kind == TokenKind::OpenBrace {
            self.end_statement();
        }
        Ok(())
    }

    fn end_statement(&mut self) {
        (self.before, self.last, self.commented) = (None, None, false);
    }

    /// True within `( )` and `[ ]`, where newlines have no meaning.
    fn in_brackets(&self) -> bool {
        self.open.last().is_some_and(|open| open.kind.opens())
    }

    fn no_brackets_open(&self) -> Result<(), Mismatch> {
        match self.open.last() {
            Some(open) if open.kind.opens() => Err(Mismatch::Unclosed(open.token)),
            _ => Ok(()),
        }
    }

    /// Records a newline or a comment.
    fn mark_broken(&mut self, comment: bool) {
        if let Some(group) = self.open.last().and_then(|open| self.groups.get_mut(open.group)) {
            group.broken = true;
            group.spans = true;
            group.empty &= !comment;
        }
    }

    fn mark_spanning(&mut self) {
        if let Some(group) = self.open.last().and_then(|open| self.groups.get_mut(open.group)) {
            group.spans = true;
        }
    }

    /// Moves a comma in front of the comments that precede it.
    fn comma(&self, tokens: &mut [Token], at: usize) {
        let Some(last) = self.last.filter(|_| self.commented) else { return };
        if let Some(ended) =
            tokens.get_mut(last).filter(|token| !token.kind.opens() && !token.kind.is_comma())
        {
            ended.comma = true;
            if let Some(token) = tokens.get_mut(at) {
                token.kind = TokenKind::MovedComma;
            }
        }
    }

    fn close(&mut self, tokens: &mut [Token], at: usize) -> Result<(), Mismatch> {
        let fits = |open: TokenKind| match tokens.get(at).map(|token| token.kind) {
            Some(TokenKind::CloseRound) => matches!(open, TokenKind::OpenCall | TokenKind::OpenGroup),
            Some(TokenKind::CloseSquare) => matches!(open, TokenKind::OpenIndex | TokenKind::OpenList),
            _ => open == TokenKind::OpenBrace,
        };
        let Some(open) = self.open.pop_if(|open| fits(open.kind)) else {
            return Err(Mismatch::Unopened { close: at, open: self.open.last().map(|open| open.token) });
        };
        if let (TokenKind::OpenCall | TokenKind::OpenList, Some(last)) = (open.kind, self.last)
            && let Some(before) = self.before.and_then(|before| tokens.get(before))
            && !before.kind.opens()
            && !before.kind.is_comma()
            && let Some(token) = tokens.get_mut(last).filter(|token| token.kind == TokenKind::Comma)
        {
            token.kind = TokenKind::TrailingComma;
        }
        if let Some(group) = self.groups.get_mut(open.group) {
            group.close = at;
            if group.spans && !group.empty {
                self.mark_spanning();
            }
        }
        Ok(())
    }
}

/// Kind of a token, given its neighbours in the statement.
fn refine(before: Option<TokenKind>, token: TokenKind, next: Option<TokenKind>) -> TokenKind {
    let after_value = before.is_some_and(TokenKind::ends_value);
    match token {
        TokenKind::OpenGroup if before == Some(TokenKind::Word) => TokenKind::OpenCall,
        TokenKind::OpenList if after_value && before != Some(TokenKind::Number) => TokenKind::OpenIndex,
        // `a.in` is a path.
        TokenKind::Keyword if before == Some(TokenKind::Dot) => TokenKind::Word,
        TokenKind::Dot => {
            let named = matches!(next, Some(TokenKind::Word | TokenKind::Keyword));
            if named && after_value && before != Some(TokenKind::Number) {
                TokenKind::Dot
            } else {
                TokenKind::Other
            }
        }
        TokenKind::Range if !after_value => TokenKind::Other,
        TokenKind::Minus if after_value => TokenKind::Operator,
        kind => kind,
    }
}

/// Closing counterpart of a bracket.
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
            Mismatch::Unclosed(at) => {
                let message = format!("this `{}` is never closed", span(at).slice(text));
                reports
                    .error(DiagnosticCode::Unclosed, span(at), message, "opened here")
                    .help(format!("add the missing `{}`", closing(span(at).slice(text))));
            }
            Mismatch::Unopened { close, open } => {
                let message = format!("this `{}` closes nothing", span(close).slice(text));
                let diagnostic = reports.error(DiagnosticCode::Unclosed, span(close), message, "");
                if let Some(open) = open {
                    diagnostic
                        .also(span(open).into(), format!("`{}` was opened here", span(open).slice(text)));
                }
            }
            Mismatch::MissingHead(at) => {
                reports
                    .error(
                        DiagnosticCode::Syntax,
                        span(at),
                        "this `{` belongs to nothing",
                        "expected a block's name before it",
                    )
                    .help("write the `{` on the line of the block's name");
            }
            Mismatch::TooDeep(at) => {
                let message = format!("brackets are nested more than {MAX_DEPTH} deep");
                reports.error(DiagnosticCode::TooDeep, span(at), message, "");
            }
        }
    }
}
