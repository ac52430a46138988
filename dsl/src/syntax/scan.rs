//! Splits a file into blocks and statements, by brackets, newlines and `;` alone.
//!
//! Scanning keeps one mistake from hiding another, because the grammar only ever sees one statement. A bracket that is
//! never closed ends, at the latest, at the next line that looks like the head of a block. The scanner walks over the
//! text once and does not recurse.

use std::ops::Range;

use super::block_kind::BlockKind;
use super::text::{Unclosed, end_of_text, report_unclosed};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::Span;

/// Maximum depth of nested brackets. Code that walks the syntax tree may recurse this deep.
pub(crate) const MAX_DEPTH: usize = 64;

/// Mark that some editors write before the first character of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One statement: a setting, an edge, or a block. The head of a block is the text before its `{`.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Text without surrounding white space; may be empty before a `{`.
    pub head: Span,
    pub body: Option<StatementBody>,
    /// False if an error in the brackets or quotes of the head was already reported.
    pub sound: bool,
}

/// Statements between `{` and `}`.
#[derive(Debug)]
pub(crate) struct StatementBody {
    pub statements: Vec<Statement>,
    /// Includes the brackets.
    pub span: Span,
    /// False if it is never closed; the error was already reported.
    pub closed: bool,
}

/// Splits the text of one file into statements, and reports errors in its brackets and quotes. `text` may hold other
/// files besides.
pub(crate) fn scan(text: &str, file: Range<usize>, reports: &mut Reports) -> Vec<Statement> {
    let text = text.get(..file.end).unwrap_or_default();
    let marked = text.get(file.start..).is_some_and(|own| own.starts_with(BYTE_ORDER_MARK));
    let scanner = Scanner {
        text,
        at: file.start + if marked { BYTE_ORDER_MARK.len_utf8() } else { 0 },
        frames: Vec::new(),
        done: Vec::new(),
        head: None,
        sound: true,
        brackets: Vec::new(),
        reports,
    };
    scanner.run()
}

/// True if a byte ends a run of ordinary characters.
fn is_special(byte: &u8) -> bool {
    matches!(
        byte,
        b'\n' | b' ' | b'\t' | b'\r' | b'#' | b'"' | b';' | b'{' | b'}' | b'(' | b'[' | b')' | b']'
    )
}

struct Scanner<'t, 'r, 'o> {
    text: &'t str,
    at: usize,
    /// Open blocks around the current statement, the innermost last.
    frames: Vec<Frame>,
    done: Vec<Statement>,
    /// Extent of the current statement up to the position.
    head: Option<Span>,
    sound: bool,
    /// Open `(` and `[` of the current statement.
    brackets: Vec<(u8, usize)>,
    reports: &'r mut Reports<'o>,
}

struct Frame {
    head: Span,
    sound: bool,
    open: usize,
    statements: Vec<Statement>,
}

impl Scanner<'_, '_, '_> {
    fn run(mut self) -> Vec<Statement> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\n' => self.newline(),
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'#' => self.at = self.line_end(),
                b'"' => self.quoted(),
                b';' => {
                    self.end_statement();
                    self.at += 1;
                }
                b'{' => self.open_block(),
                b'}' => self.close_block(),
                b'(' | b'[' => self.open_bracket(byte),
                b')' | b']' => self.close_bracket(byte),
                _ => {
                    // A run of ordinary characters.
                    let rest = bytes.get(self.at..).unwrap_or_default();
                    let end = self.at + rest.iter().position(is_special).unwrap_or(rest.len());
                    self.extend(self.at, end);
                    self.at = end;
                }
            }
        }
        self.close_all(self.text.len());
        self.done
    }

    /// Returns the end of the current line, without its newline.
    fn line_end(&self) -> usize {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
    }

    fn extend(&mut self, start: usize, end: usize) {
        let start = self.head.map_or(start, |head| head.start);
        self.head = Some(Span::new(start, end));
    }

    fn newline(&mut self) {
        if self.brackets.is_empty() {
            self.end_statement();
        }
        self.at += 1;
        let open = !self.frames.is_empty() || !self.brackets.is_empty();
        if open && self.text.get(self.at..).is_some_and(is_block_head) {
            self.close_all(self.at);
        }
    }

    fn quoted(&mut self) {
        let start = self.at;
        let unclosed = match end_of_text(self.text, start) {
            Ok(end) => {
                self.at = end;
                return self.extend(start, end);
            }
            Err(unclosed) => unclosed,
        };
        self.at = match unclosed {
            Unclosed::Line(at) | Unclosed::Deep(at) => at,
            Unclosed::Block => start + 3,
        };
        report_unclosed(start, unclosed, self.reports);
        self.sound = false;
        self.at = self.end_of_unclosed(start);
        let end = self.at;
        self.extend(start, end);
        if unclosed == Unclosed::Block {
            // The unclosed text has swallowed the braces that close the blocks around it.
            self.brackets.clear();
            self.end_statement();
            self.skip_to_block();
            while !self.frames.is_empty() {
                self.pop(false);
            }
        }
    }

    /// Skips to the next line that looks like the head of a block.
    fn skip_to_block(&mut self) {
        loop {
            self.at = self.line_end();
            if self.at >= self.text.len() || self.text.get(self.at + 1..).is_some_and(is_block_head) {
                return;
            }
            self.at += 1;
        }
    }

    /// Returns the assumed end of a text without its second quote: the end of the line, but before closing braces of the
    /// blocks around it, which would otherwise seem unclosed.
    fn end_of_unclosed(&self, start: usize) -> usize {
        let line = Span::new(start, self.at).slice(self.text);
        let count = |wanted: u8| line.bytes().filter(|byte| *byte == wanted).count();
        let mut others = count(b'}').saturating_sub(count(b'{')).min(self.frames.len());
        let mut end = line;
        while others > 0 {
            let Some(before) = end.trim_end().strip_suffix('}') else { break };
            end = before;
            others -= 1;
        }
        start + end.trim_end_matches([' ', '\t', '\r', ';']).len()
    }

    fn open_bracket(&mut self, byte: u8) {
        if self.too_deep() {
            return;
        }
        self.extend(self.at, self.at + 1);
        self.brackets.push((byte, self.at));
        self.at += 1;
    }

    fn close_bracket(&mut self, byte: u8) {
        let opened = if byte == b')' { b'(' } else { b'[' };
        if self.brackets.last().is_some_and(|(open, _)| *open == opened) {
            self.brackets.pop();
        } else if self.sound {
            let this = char::from(byte);
            let message = format!("unmatched `{this}`");
            let diagnostic =
                self.reports.error(DiagnosticCode::Unclosed, Span::new(self.at, self.at + 1), message, "");
            if let Some((open, at)) = self.brackets.last() {
                diagnostic
                    .also(Span::new(*at, at + 1).into(), format!("`{}` was opened here", char::from(*open)));
            }
            self.sound = false;
            self.brackets.clear();
        }
        self.extend(self.at, self.at + 1);
        self.at += 1;
    }

    fn open_block(&mut self) {
        if self.too_deep() {
            return;
        }
        self.close_brackets();
        let brace = Span::new(self.at, self.at + 1);
        let head = self.head.take().unwrap_or_else(|| self.head_before(brace));
        self.frames.push(Frame { head, sound: self.sound, open: self.at, statements: Vec::new() });
        self.sound = true;
        self.at += 1;
    }

    /// Returns the head for a `{` on a line of its own: the statement before it, as if they shared a line.
    fn head_before(&mut self, brace: Span) -> Span {
        let statements = self.frames.last_mut().map_or(&mut self.done, |frame| &mut frame.statements);
        let above = statements.pop_if(|statement| {
            let between = Span::new(statement.head.end, brace.start).slice(self.text);
            statement.body.is_none() && statement.sound && between.trim().is_empty()
        });
        let label = "expected a block's name before it";
        self.reports
            .error(DiagnosticCode::Syntax, brace, "this `{` has no block name", label)
            .help("write the `{` on the same line as the block's name");
        self.sound = above.is_some();
        above.map_or(Span::new(brace.start, brace.start), |statement| statement.head)
    }

    fn close_block(&mut self) {
        self.end_statement();
        self.at += 1;
        if self.frames.is_empty() && self.add_missing_brace() {
            return;
        }
        if self.frames.is_empty() {
            let brace = Span::new(self.at - 1, self.at);
            self.reports
                .error(DiagnosticCode::Unclosed, brace, "unmatched `}`", "no block is open here")
                .help("remove it, or look for an extra `}` above");
        }
        self.pop(true);
    }

    /// Makes the statements before an unmatched `}` the body of the head that seems to lack its `{`, and reports that.
    /// Returns false if there is none.
    fn add_missing_brace(&mut self) -> bool {
        let (text, end) = (self.text, self.at);
        let starts_block = |one: &Statement| block_kind(one, None, text).is_some();
        let Some(last) = self.done.iter().rposition(starts_block) else { return false };
        let mut inside = self.done.split_off(last + 1);
        let Some(block) = self.done.last_mut() else { return false };
        let Some(kind) = block_kind(block, None, text) else { return false };
        let mut found = None;
        if block.body.is_none() {
            let head = block.head.slice(text);
            let same_line = !Span::new(block.head.end, end).slice(text).contains('\n');
            let holds_setting = !kind.is_named() || head.matches('=').count() > 1;
            if kind.has_body() && (!inside.is_empty() || same_line && holds_setting) {
                found = Some((kind, block));
            }
        } else if let Some(StatementBody { statements, .. }) = &mut block.body {
            // The `}` of an inner block without its `{` has closed the block around it.
            let lacks = |one: &Statement| one.body.is_none() && block_kind(one, Some(kind), text).is_some();
            if let Some(at) = statements.iter().rposition(lacks) {
                let own = statements.split_off(at + 1);
                // What follows belongs to the block around it.
                let (head, after) = (statements.pop(), std::mem::replace(&mut inside, own));
                statements.extend(after.into_iter().chain(head));
                let head = statements.last_mut();
                found = head.and_then(|head| Some((block_kind(head, Some(kind), text)?, head)));
            }
        }
        let Some((kind, head)) = found else {
            self.done.append(&mut inside);
            return false;
        };
        head.sound = false;
        head.body =
            Some(StatementBody { statements: inside, span: Span::new(head.head.end, end), closed: false });
        let (span, message) = (head.head, format!("the `{{` of `{}` is missing", kind.keyword()));
        let form = kind.form();
        let body = if form.contains('{') { "" } else { " { … }" };
        self.reports.error(DiagnosticCode::Unclosed, span, message, "").help(format!("write `{form}{body}`"));
        true
    }

    /// Ends the innermost block.
    fn pop(&mut self, closed: bool) {
        if let Some(Frame { head, sound, open, statements }) = self.frames.pop() {
            // An unclosed block ends with the last statement in it.
            let inside = Span::new(open, self.at).slice(self.text);
            let length = if closed { inside.len() } else { inside.trim_end().len() };
            let body = StatementBody { statements, span: Span::new(open, open + length), closed };
            self.push(Statement { head, body: Some(body), sound });
        }
    }

    fn push(&mut self, statement: Statement) {
        match self.frames.last_mut() {
            Some(frame) => frame.statements.push(statement),
            None => self.done.push(statement),
        }
    }

    fn close_brackets(&mut self) {
        if let Some((open, at)) = self.brackets.first() {
            let message = format!("this `{}` is never closed", char::from(*open));
            self.reports.error(DiagnosticCode::Unclosed, Span::new(*at, at + 1), message, "");
            self.sound = false;
        }
        self.brackets.clear();
    }

    fn end_statement(&mut self) {
        self.close_brackets();
        if let Some(head) = self.head.take() {
            self.push(Statement { head, body: None, sound: self.sound });
        }
        self.sound = true;
    }

    /// Ends all open blocks and brackets, as at the end of the file.
    fn close_all(&mut self, at: usize) {
        self.end_statement();
        self.at = at;
        if let Some(outer) = self.frames.first() {
            let mut message = "this `{` is never closed".to_owned();
            if let Some(word) = outer.head.slice(self.text).split_whitespace().next() {
                message = format!("the `{{` of `{word}` is never closed");
            }
            self.reports
                .error(
                    DiagnosticCode::Unclosed,
                    Span::new(outer.open, outer.open + 1),
                    message,
                    "opened here",
                )
                .help("add the missing `}`");
        }
        while !self.frames.is_empty() {
            self.pop(false);
        }
    }

    /// Returns true if one more bracket would be too deep; the scanner then skips to the next block.
    fn too_deep(&mut self) -> bool {
        if self.frames.len() + self.brackets.len() < MAX_DEPTH {
            return false;
        }
        let message = format!("brackets are nested more than {MAX_DEPTH} deep");
        self.reports.error(DiagnosticCode::TooDeep, Span::new(self.at, self.at + 1), message, "");
        self.brackets.clear();
        self.head = None;
        self.sound = true;
        self.skip_to_block();
        while !self.frames.is_empty() {
            self.pop(false);
        }
        true
    }
}

/// Returns the kind of block that a statement begins, on top or within a block of kind `outer`. Returns `None` for settings and
/// edges.
fn block_kind(statement: &Statement, outer: Option<BlockKind>, text: &str) -> Option<BlockKind> {
    let (word, rest) = split_word(statement.head.slice(text));
    let (_, after_name) = split_word(rest.trim_start());
    // An edge, or the path of a setting in a file of overrides.
    let is_path = rest.starts_with('.') || after_name.starts_with('.');
    if is_path || rest.trim_start().starts_with(['=', '-']) {
        return None;
    }
    match outer {
        None => BlockKind::from_keyword(word),
        Some(outer) => outer.inner_block(word),
    }
}

/// True if a line begins a block: a keyword and a name, or, without indentation, a keyword and `{`. No statement inside
/// a block looks like that.
fn is_block_head(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or_default();
    let trimmed = line.trim_start_matches([' ', '\t']);
    let (word, after) = split_word(trimmed);
    let Some(kind) = BlockKind::from_keyword(word) else { return false };
    let after = after.trim_start_matches([' ', '\t']);
    if kind.names_file() {
        return after.starts_with('"');
    }
    if !kind.is_named() {
        return after.starts_with('{') && trimmed.len() == line.len();
    }
    let (name, after) = split_word(after);
    let after = after.trim_start_matches([' ', '\t']);
    !name.is_empty() && (after.is_empty() || after.starts_with(['=', '{', ':', '#', '(', '\r']))
}

/// Splits off the name at the beginning of the text.
pub(crate) fn split_word(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    text.split_at(end.unwrap_or(text.len()))
}
