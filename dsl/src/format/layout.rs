//! Tokens to lines: where a line ends, and what is cut into cells.
//!
//! A line ends where the writer's statement ends. Brackets that the writer broke stay broken; those that do
//! not fit on the line are broken too. So what was laid out once is laid out alike the next time.

use super::brackets::Group;
use super::page::{Page, Row, columns};
use super::spacing::{Flat, Gap, gap};
use super::tokens::{Kind, Token};

/// Columns that a line may have, its comment not counted. The width of this project's other files.
pub(super) const WIDTH: usize = 110;

/// The lines of a whole text.
pub(super) fn lay_out<'t>(text: &'t str, tokens: &'t [Token], groups: &'t [Group]) -> Page<'t> {
    // Indentation and padding are not in it, so it is no longer than the text, or hardly.
    let page = Page::with_capacity(text.len());
    let mut layout = Layout { text, tokens, groups, page, at: 0, level: 0, frames: Vec::new(), indent: 0 };
    layout.run();
    layout.page
}

struct Layout<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// Those that open at `at` or later.
    groups: &'t [Group],
    page: Page<'t>,
    at: usize,
    /// Blocks around the current statement.
    level: usize,
    /// `( )` and `[ ]` around the current token.
    frames: Vec<Frame>,
    /// How many of them are broken.
    indent: usize,
}

/// An open `(` or `[`.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// What is in it stands on lines of its own.
    broken: bool,
    /// It holds elements, each of which has its line where it is broken, and a comma behind it.
    elements: bool,
    /// The token that gets a comma because the writer gave none to the last element.
    comma: Option<usize>,
}

/// A statement while it is laid out.
struct Statement<'t> {
    row: Row<'t>,
    /// The token before the current one, unless that begins a line.
    before: Option<Token>,
    /// The next token begins a line.
    pending: bool,
    /// No token stood on this line of the source yet.
    fresh: bool,
    /// The `=` of a block's head has passed.
    assigned: bool,
}

impl<'t> Layout<'t> {
    fn run(&mut self) {
        let mut newlines = 0;
        // Where a blank line would only be a gap at an edge.
        let mut edge = true;
        while let Some(&token) = self.tokens.get(self.at) {
            let fresh = newlines > 0 || self.page.lines.is_empty();
            let blank = newlines > 1 && !edge;
            match token.kind {
                Kind::Newline => {
                    newlines += 1;
                    self.at += 1;
                    continue;
                }
                Kind::Semicolon => {
                    self.at += 1;
                    continue;
                }
                Kind::Comment => {
                    self.at += 1;
                    // Behind a `{` the block still begins.
                    edge &= !fresh;
                    if fresh {
                        self.page.comment_line(self.of(token), self.level, blank);
                    } else {
                        self.page.comment(self.of(token));
                    }
                }
                Kind::CloseBrace => {
                    self.at += 1;
                    self.level = self.level.saturating_sub(1);
                    self.page.start(self.level, false);
                    self.page.put("}");
                    self.page.finish();
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

    fn of(&self, token: Token) -> &'t str {
        token.span.of(self.text)
    }

    /// Lays out a statement, up to and including its body, or the `{` of one that goes over several lines.
    fn statement(&mut self, blank: bool) {
        let first = self.page.lines.len();
        let mut statement =
            Statement { row: self.row(), before: None, pending: false, fresh: false, assigned: false };
        self.page.start(self.level, blank);
        self.frames.clear();
        self.indent = 0;
        let mut opened = false;
        while let Some(&token) = self.tokens.get(self.at) {
            let frame = self.frames.last().copied();
            match (token.kind, frame) {
                (Kind::Newline | Kind::Comment | Kind::Semicolon, None) | (Kind::CloseBrace, _) => break,
                (Kind::Newline, Some(frame)) => {
                    statement.fresh = true;
                    statement.pending |= frame.broken && !frame.elements;
                }
                (Kind::Comment, Some(_)) => self.comment_within(&mut statement, token),
                (Kind::MovedComma, _) => {}
                (Kind::LastComma, Some(frame)) if !frame.broken => {}
                (Kind::OpenBrace, _) => {
                    opened = self.body(&statement, token);
                    break;
                }
                _ => self.token(&mut statement, token),
            }
            self.at += 1;
        }
        if !opened {
            self.page.finish();
        }
        let lines = self.page.lines.len();
        if let Some(line) = self.page.lines.get_mut(first) {
            // A setting may begin on an aligned line and go on below; what else does not fit in a row is none.
            let whole = lines == first + 1 && !line.raw && !opened;
            line.row = if whole || statement.row == Row::Setting { statement.row } else { Row::None };
        }
    }

    /// What a statement is by its first words; more shows when its `=` or `->` comes.
    fn row(&self) -> Row<'t> {
        let kind = |at: usize| self.tokens.get(at).map(|token| token.kind);
        match (self.tokens.get(self.at), kind(self.at + 1)) {
            (Some(&first), Some(Kind::Word | Kind::Text | Kind::OpenBrace)) if first.kind == Kind::Word => {
                Row::Block(self.of(first))
            }
            _ => Row::None,
        }
    }

    /// A comment between brackets, which are broken for its sake.
    fn comment_within(&mut self, statement: &mut Statement<'t>, token: Token) {
        if statement.fresh {
            self.page.finish();
            self.page.start(self.level + self.indent, false);
            self.page.put(self.of(token));
        } else {
            self.page.comment(self.of(token));
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
            self.page.finish();
            self.page.start(self.level + self.indent, false);
            statement.pending = false;
            statement.before = None;
        }
        if let Some(before) = statement.before
            && gap(before, token) == Gap::Space
        {
            match self.cell_key(statement, before, token) {
                Some(key) => self.page.cut(key),
                None => self.page.put(" "),
            }
        }
        self.write(token);
        if token.kind.opens() {
            statement.pending = self.open(token);
        }
        let frame = self.frames.last();
        if token.comma || frame.is_some_and(|frame| frame.comma == Some(self.at)) {
            self.page.put(",");
        }
        let ends_element = token.kind.is_comma() || token.comma;
        statement.pending |= ends_element && frame.is_some_and(|frame| frame.broken && frame.elements);
        statement.before = Some(token);
        statement.fresh = false;
    }

    fn write(&mut self, token: Token) {
        if token.kind == Kind::Lines {
            self.page.put_lines(self.of(token));
        } else {
            self.page.put(self.of(token));
        }
    }

    /// What a cell is known by that begins with this token, if one does: something that is aligned with its
    /// like in the lines around.
    fn cell_key(&self, statement: &mut Statement<'t>, before: Token, token: Token) -> Option<&'t str> {
        let word = self.of(token);
        let begins = match (statement.row, token.kind) {
            _ if !self.frames.is_empty() => false,
            (Row::None, Kind::Equals) => {
                statement.row = Row::Setting;
                true
            }
            (Row::None, Kind::Arrow) => {
                statement.row = Row::Edge;
                true
            }
            (Row::Edge, Kind::Keyword) => word == "when",
            // Types are aligned whatever they are.
            (Row::Block("param"), _) if before.kind == Kind::Colon => return Some(":"),
            (Row::Block(_), Kind::Equals) => !std::mem::replace(&mut statement.assigned, true),
            (Row::Block("param"), Kind::Keyword) => word == "in",
            (Row::Block("use"), Kind::Word) => word == "as",
            _ => false,
        };
        begins.then_some(word)
    }

    /// Enters the `(` or `[` that has just been written; true if what is in it begins on the next line.
    fn open(&mut self, token: Token) -> bool {
        let Some((group, rest)) = self.groups.split_first() else { return false };
        self.groups = rest;
        let elements = matches!(token.kind, Kind::OpenCall | Kind::OpenList);
        let broken = !group.empty && (group.broken || (elements && !group.spans && !self.fits(token, group)));
        let ended = self.tokens.get(group.last).is_some_and(|last| last.kind.is_comma());
        let comma = (broken && elements && !ended && group.last > self.at).then_some(group.last);
        self.frames.push(Frame { broken, elements, comma });
        self.indent += usize::from(broken);
        broken
    }

    /// Whether a group fits on the current line, with what can't be parted from it behind.
    fn fits(&self, open: Token, group: &Group) -> bool {
        let inside = Flat::new(self.tokens, open, self.at + 1, group.close);
        let Some(mut column) = self.flat_end(inside, self.page.column) else { return false };
        let mut frames = self.frames.as_slice();
        let Some(mut before) = self.tokens.get(group.close).copied() else { return true };
        for (at, &token) in self.tokens.iter().enumerate().skip(group.close + 1) {
            let frame = frames.last();
            let broken = frame.is_some_and(|frame| frame.broken);
            if before.comma || frame.is_some_and(|frame| frame.comma == Some(at - 1)) {
                column += 1;
            }
            match token.kind {
                Kind::Comment | Kind::Semicolon | Kind::CloseBrace => break,
                Kind::Newline if frame.is_none_or(|frame| frame.broken && !frame.elements) => break,
                Kind::Newline | Kind::MovedComma => continue,
                Kind::LastComma if !broken => continue,
                Kind::CloseRound | Kind::CloseSquare if broken => break,
                Kind::CloseRound | Kind::CloseSquare => {
                    frames = frames.split_last().map_or(frames, |(_, outer)| outer);
                }
                _ => {}
            }
            let gap = if token.kind == Kind::OpenBrace { Gap::Space } else { gap(before, token) };
            column += gap.width() + columns(self.of(token).split('\n').next().unwrap_or_default());
            let comma = token.kind.is_comma() && broken;
            let opens = token.kind.opens() || token.kind == Kind::OpenBrace;
            if comma || opens || token.kind == Kind::Lines || column > WIDTH {
                break;
            }
            before = token;
        }
        column <= WIDTH
    }

    /// The column behind some tokens on one line; none if that is too far right.
    fn flat_end(&self, tokens: Flat, column: usize) -> Option<usize> {
        let mut column = column;
        for (gap, _, token) in tokens {
            column += gap.width() + columns(self.of(token));
            if column > WIDTH {
                return None;
            }
        }
        Some(column)
    }

    /// Writes a body that fits on the line, or else only its `{`; true if its settings are still to come.
    fn body(&mut self, statement: &Statement<'t>, open: Token) -> bool {
        let Some((&group, rest)) = self.groups.split_first() else { return false };
        self.groups = rest;
        let before = statement.before.unwrap_or(open);
        let flat = Flat::new(self.tokens, before, self.at, group.close);
        let row = statement.row;
        if group.empty {
            self.begin_body(row);
            self.page.put("{}");
            self.at = group.close + 1;
            return false;
        }
        if group.spans || self.flat_end(flat, self.page.column).is_none() {
            self.page.put(" {");
            self.page.finish();
            self.level += 1;
            self.at += 1;
            return true;
        }
        self.begin_body(row);
        self.body_on_line(Flat::new(self.tokens, before, self.at, group.close), row);
        self.at = group.close + 1;
        false
    }

    fn begin_body(&mut self, row: Row<'t>) {
        if matches!(row, Row::Block(_)) {
            self.page.cut("{");
        } else {
            self.page.put(" ");
        }
    }

    /// Writes a body on the line of its head. The settings of a block are cells.
    fn body_on_line(&mut self, flat: Flat, row: Row<'t>) {
        let cells = matches!(row, Row::Block(_));
        let mut depth = 0;
        let mut first = false;
        for (gap, _, token) in flat {
            match gap {
                // The space before the body is written already.
                _ if depth == 0 => {}
                Gap::None => {}
                Gap::Space if first && cells => self.page.cut(self.of(token)),
                Gap::Space => self.page.put(" "),
                Gap::Statement => {
                    self.page.put(";");
                    if depth == 1 && cells {
                        self.page.cut(self.of(token));
                    } else {
                        self.page.put(" ");
                    }
                }
            }
            first = false;
            match token.kind {
                Kind::OpenBrace => {
                    depth += 1;
                    first = depth == 1;
                }
                Kind::CloseBrace => depth -= 1,
                kind if kind.opens() => self.groups = self.groups.get(1..).unwrap_or_default(),
                _ => {}
            }
            if token.kind == Kind::OpenBrace && depth > 1 {
                self.groups = self.groups.get(1..).unwrap_or_default();
            }
            self.page.put(self.of(token));
        }
    }
}
