//! Line breaks and cells.
//!
//! A line ends with its statement. Brackets that contain a newline keep one line per element; brackets that don't fit on the
//! line are broken too. Formatting is therefore idempotent.

use super::brackets::Group;
use super::lexer::{Token, TokenKind};
use super::output::{Output, RowKind, WIDTH, columns};
use super::spacing::{Gap, OneLine, gap};

/// Breaks the tokens of a text into lines.
pub(super) fn break_lines<'t>(text: &'t str, tokens: &'t [Token], groups: &'t [Group]) -> Output<'t> {
    // Without indentation and padding, the output is hardly longer than the text.
    let output = Output::with_capacity(text.len());
    let mut breaker =
        LineBreaker { text, tokens, groups, output, index: 0, level: 0, frames: Vec::new(), indent: 0 };
    breaker.run();
    breaker.output
}

struct LineBreaker<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// Groups that open at `index` or later.
    groups: &'t [Group],
    output: Output<'t>,
    index: usize,
    /// Number of blocks around the current statement.
    level: usize,
    /// Open `( )` and `[ ]` around the current token.
    frames: Vec<Frame>,
    /// Number of frames that are broken.
    indent: usize,
}

/// An open `(` or `[`.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// True if its content is on lines of its own.
    broken: bool,
    /// True if it holds elements, each with a line and a comma if it is broken.
    elements: bool,
    /// Last token of an element without a comma, which gets one.
    comma: Option<usize>,
}

/// State of the current statement.
struct Statement<'t> {
    row_kind: RowKind<'t>,
    /// Token before the current one, unless the current one begins a line.
    before: Option<Token>,
    /// True if the next token begins a line.
    pending: bool,
    /// True before the first token of a line of the source.
    fresh: bool,
    /// True after the `=` of a block's head.
    assigned: bool,
}

impl<'t> LineBreaker<'t> {
    fn run(&mut self) {
        let mut newlines = 0;
        // At the start and end of blocks, blank lines are removed.
        let mut edge = true;
        while let Some(&token) = self.tokens.get(self.index) {
            let fresh = newlines > 0 || self.output.lines.is_empty();
            let blank = newlines > 1 && !edge;
            match token.kind {
                TokenKind::Newline => {
                    newlines += 1;
                    self.index += 1;
                    continue;
                }
                TokenKind::Semicolon => {
                    self.index += 1;
                    continue;
                }
                TokenKind::Comment => {
                    self.index += 1;
                    // After a comment on the line of the `{`, the block still begins.
                    edge &= !fresh;
                    if fresh {
                        self.output.comment_line(self.text_of(token), self.level, blank);
                    } else {
                        self.output.set_comment(self.text_of(token));
                    }
                }
                TokenKind::CloseBrace => {
                    self.index += 1;
                    self.level = self.level.saturating_sub(1);
                    self.output.start(self.level, false);
                    self.output.push("}");
                    self.output.finish();
                    edge = false;
                }
                _ => {
                    let level = self.level;
                    self.statement(blank);
                    edge = self.level > level;
                }
            }
            newlines = 0;
        }
    }

    fn text_of(&self, token: Token) -> &'t str {
        token.span.slice(self.text)
    }

    /// Breaks a statement, including a body on one line, or up to the `{` of a body of several lines.
    fn statement(&mut self, blank: bool) {
        let first = self.output.lines.len();
        let mut statement = Statement {
            row_kind: self.row_kind(),
            before: None,
            pending: false,
            fresh: false,
            assigned: false,
        };
        self.output.start(self.level, blank);
        self.frames.clear();
        self.indent = 0;
        let mut opened = false;
        while let Some(&token) = self.tokens.get(self.index) {
            let frame = self.frames.last().copied();
            match (token.kind, frame) {
                (TokenKind::Newline | TokenKind::Comment | TokenKind::Semicolon, None)
                | (TokenKind::CloseBrace, _) => break,
                (TokenKind::Newline, Some(frame)) => {
                    statement.fresh = true;
                    statement.pending |= frame.broken && !frame.elements;
                }
                (TokenKind::Comment, Some(_)) => self.inner_comment(&mut statement, token),
                (TokenKind::MovedComma, _) => {}
                (TokenKind::TrailingComma, Some(frame)) if !frame.broken => {}
                (TokenKind::OpenBrace, _) => {
                    opened = self.body(&statement, token);
                    break;
                }
                _ => self.token(&mut statement, token),
            }
            self.index += 1;
        }
        if !opened {
            self.output.finish();
        }
        let lines = self.output.lines.len();
        if let Some(line) = self.output.lines.get_mut(first) {
            // A setting is aligned even if it continues on further lines; other statements are not.
            let is_single_line = lines == first + 1 && !line.raw && !opened;
            let aligned = is_single_line || statement.row_kind == RowKind::Setting;
            line.row_kind = if aligned { statement.row_kind } else { RowKind::None };
        }
    }

    /// Kind of a statement by its first words; its `=` or `->` may refine it.
    fn row_kind(&self) -> RowKind<'t> {
        let kind = |index: usize| self.tokens.get(index).map(|token| token.kind);
        match (self.tokens.get(self.index), kind(self.index + 1)) {
            (Some(&first), Some(TokenKind::Word | TokenKind::Text | TokenKind::OpenBrace))
                if first.kind == TokenKind::Word =>
            {
                RowKind::Block(self.text_of(first))
            }
            _ => RowKind::None,
        }
    }

    /// Writes a comment within brackets, which are then broken.
    fn inner_comment(&mut self, statement: &mut Statement<'t>, token: Token) {
        if statement.fresh {
            self.output.finish();
            self.output.start(self.level + self.indent, false);
            self.output.push(self.text_of(token));
        } else {
            self.output.set_comment(self.text_of(token));
        }
        statement.pending = true;
    }

    /// Writes a token of a statement's head.
    fn token(&mut self, statement: &mut Statement<'t>, token: Token) {
        if token.kind.closes() && self.frames.pop().is_some_and(|frame| frame.broken) {
            self.indent = self.indent.saturating_sub(1);
            statement.pending = true;
        }
        if statement.pending {
            self.output.finish();
            self.output.start(self.level + self.indent, false);
            statement.pending = false;
            statement.before = None;
        }
        if let Some(before) = statement.before
            && gap(before, token) == Gap::Space
        {
            match self.cell_key(statement, before, token) {
                Some(key) => self.output.start_cell(key),
                None => self.output.push(" "),
            }
        }
        self.write(token);
        if token.kind.opens() {
            statement.pending = self.open(token);
        }
        let frame = self.frames.last();
        if token.comma || frame.is_some_and(|frame| frame.comma == Some(self.index)) {
            self.output.push(",");
        }
        let ends_element = token.kind.is_comma() || token.comma;
        statement.pending |= ends_element && frame.is_some_and(|frame| frame.broken && frame.elements);
        statement.before = Some(token);
        statement.fresh = false;
    }

    fn write(&mut self, token: Token) {
        if token.kind == TokenKind::MultilineText {
            self.output.push_lines(self.text_of(token));
        } else {
            self.output.push(self.text_of(token));
        }
    }

    /// Key of a cell that begins with this token. Returns `None` if no cell begins here.
    fn cell_key(&self, statement: &mut Statement<'t>, before: Token, token: Token) -> Option<&'t str> {
        let word = self.text_of(token);
        let begins = match (statement.row_kind, token.kind) {
            _ if !self.frames.is_empty() => false,
            (RowKind::None, TokenKind::Equals) => {
                statement.row_kind = RowKind::Setting;
                true
            }
            (RowKind::None, TokenKind::Arrow) => {
                statement.row_kind = RowKind::Edge;
                true
            }
            (RowKind::Edge, TokenKind::Keyword) => word == "when",
            // All types are aligned with each other.
            (RowKind::Block("param"), _) if before.kind == TokenKind::Colon => return Some(":"),
            (RowKind::Block(_), TokenKind::Equals) => !std::mem::replace(&mut statement.assigned, true),
            (RowKind::Block("param"), TokenKind::Keyword) => word == "in",
            (RowKind::Block("use"), TokenKind::Word) => word == "as",
            _ => false,
        };
        begins.then_some(word)
    }

    /// Enters the `(` or `[` that was just written. Returns true if its content begins on the next line.
    fn open(&mut self, token: Token) -> bool {
        let Some((group, rest)) = self.groups.split_first() else { return false };
        self.groups = rest;
        let elements = matches!(token.kind, TokenKind::OpenCall | TokenKind::OpenList);
        let broken = !group.empty && (group.broken || (elements && !group.spans && !self.fits(token, group)));
        let ended = self.tokens.get(group.last).is_some_and(|last| last.kind.is_comma());
        let comma = (broken && elements && !ended && group.last > self.index).then_some(group.last);
        self.frames.push(Frame { broken, elements, comma });
        self.indent += usize::from(broken);
        broken
    }

    /// Returns true if a group fits on the current line, with the tokens that must follow on the same line.
    fn fits(&self, open: Token, group: &Group) -> bool {
        let inside = OneLine::new(self.tokens, open, self.index + 1, group.close);
        let Some(mut column) = self.end_column(inside, self.output.column) else { return false };
        let mut frames = self.frames.as_slice();
        let Some(mut before) = self.tokens.get(group.close).copied() else { return true };
        for (index, &token) in self.tokens.iter().enumerate().skip(group.close + 1) {
            let frame = frames.last();
            let broken = frame.is_some_and(|frame| frame.broken);
            if before.comma || frame.is_some_and(|frame| frame.comma == Some(index - 1)) {
                column += 1;
            }
            match token.kind {
                TokenKind::Comment | TokenKind::Semicolon | TokenKind::CloseBrace => break,
                TokenKind::Newline if frame.is_none_or(|frame| frame.broken && !frame.elements) => break,
                TokenKind::Newline | TokenKind::MovedComma => continue,
                TokenKind::TrailingComma if !broken => continue,
                TokenKind::CloseRound | TokenKind::CloseSquare if broken => break,
                TokenKind::CloseRound | TokenKind::CloseSquare => {
                    frames = frames.split_last().map_or(frames, |(_, outer)| outer);
                }
                _ => {}
            }
            let gap = if token.kind == TokenKind::OpenBrace { Gap::Space } else { gap(before, token) };
            column += gap.width() + columns(self.text_of(token).split('\n').next().unwrap_or_default());
            let comma = token.kind.is_comma() && broken;
            let opens = token.kind.opens() || token.kind == TokenKind::OpenBrace;
            if comma || opens || token.kind == TokenKind::MultilineText || column > WIDTH {
                break;
            }
            before = token;
        }
        column <= WIDTH
    }

    /// Column after tokens on one line. Returns `None` if they don't fit.
    fn end_column(&self, tokens: OneLine, column: usize) -> Option<usize> {
        let mut column = column;
        for (gap, _, token) in tokens {
            column += gap.width() + columns(self.text_of(token));
            if column > WIDTH {
                return None;
            }
        }
        Some(column)
    }

    /// Writes a body that fits on the line, or else only its `{`. Returns true if its statements follow.
    fn body(&mut self, statement: &Statement<'t>, open: Token) -> bool {
        let Some((&group, rest)) = self.groups.split_first() else { return false };
        self.groups = rest;
        let before = statement.before.unwrap_or(open);
        let flat = OneLine::new(self.tokens, before, self.index, group.close);
        let row_kind = statement.row_kind;
        if group.empty {
            self.begin_body(row_kind);
            self.output.push("{}");
            self.index = group.close + 1;
            return false;
        }
        if group.spans || self.end_column(flat, self.output.column).is_none() {
            self.output.push(" {");
            self.output.finish();
            self.level += 1;
            self.index += 1;
            return true;
        }
        self.begin_body(row_kind);
        self.body_on_line(OneLine::new(self.tokens, before, self.index, group.close), row_kind);
        self.index = group.close + 1;
        false
    }

    fn begin_body(&mut self, row_kind: RowKind<'t>) {
        if matches!(row_kind, RowKind::Block(_)) {
            self.output.start_cell("{");
        } else {
            self.output.push(" ");
        }
    }

    /// Writes a body on the line of its head. Each setting of a block is a cell.
    fn body_on_line(&mut self, flat: OneLine, row_kind: RowKind<'t>) {
        let cells = matches!(row_kind, RowKind::Block(_));
        let mut depth = 0;
        let mut first = false;
        for (gap, _, token) in flat {
            match gap {
                // The space before the body is already written.
                _ if depth == 0 => {}
                Gap::None => {}
                Gap::Space if first && cells => self.output.start_cell(self.text_of(token)),
                Gap::Space => self.output.push(" "),
                Gap::Statement => {
                    self.output.push(";");
                    if depth == 1 && cells {
                        self.output.start_cell(self.text_of(token));
                    } else {
                        self.output.push(" ");
                    }
                }
            }
            first = false;
            match token.kind {
                TokenKind::OpenBrace => {
                    depth += 1;
                    first = depth == 1;
                }
                TokenKind::CloseBrace => depth -= 1,
                kind if kind.opens() => self.groups = self.groups.get(1..).unwrap_or_default(),
                _ => {}
            }
            if token.kind == TokenKind::OpenBrace && depth > 1 {
                self.groups = self.groups.get(1..).unwrap_or_default();
            }
            self.output.push(self.text_of(token));
        }
    }
}
