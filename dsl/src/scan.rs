//! Splits a file into blocks and statements, by brackets, newlines and `;` alone.
//!
//! This is what keeps one mistake from hiding another: the grammar proper only ever sees one statement. A
//! bracket that is never closed ends, at the latest, at the next line that looks like the head of a block.
//! One walk over the text, no recursion.

use std::ops::Range;

use crate::diagnostic::{Code, Reports};
use crate::source::Span;
use crate::syntax::BlockKind;
use crate::text::{Unclosed, end_of_text};

/// Brackets within brackets, at most. Everything that walks the syntax tree may recurse this far.
pub(crate) const DEEPEST: usize = 64;

/// What some editors write before the first character of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One statement: a setting, an edge, or a block with what stands before its `{` as its head.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Without surrounding white space; may be empty before a `{`.
    pub head: Span,
    pub body: Option<PieceBody>,
    /// False: a bracket or a text of the head is amiss, which is reported already.
    pub sound: bool,
}

/// What stands between `{` and `}`.
#[derive(Debug)]
pub(crate) struct PieceBody {
    pub pieces: Vec<Piece>,
    /// The brackets included.
    pub span: Span,
    /// False: never closed, which is reported already.
    pub closed: bool,
}

/// Splits the text of one file among others; reports what is wrong with its brackets and quotes.
pub(crate) fn scan(text: &str, file: Range<usize>, reports: &mut Reports) -> Vec<Piece> {
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

/// Whether a byte ends a run of bytes that only belong to their statement.
fn means_something(byte: &u8) -> bool {
    matches!(
        byte,
        b'\n' | b' ' | b'\t' | b'\r' | b'#' | b'"' | b';' | b'{' | b'}' | b'(' | b'[' | b')' | b']'
    )
}

struct Scanner<'t, 'r, 'o> {
    text: &'t str,
    at: usize,
    /// The blocks around the current statement.
    frames: Vec<Frame>,
    done: Vec<Piece>,
    /// The current statement so far.
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
    pieces: Vec<Piece>,
}

impl Scanner<'_, '_, '_> {
    fn run(mut self) -> Vec<Piece> {
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
                    // With all that follows it and means nothing here.
                    let rest = bytes.get(self.at..).unwrap_or_default();
                    let end = self.at + rest.iter().position(means_something).unwrap_or(rest.len());
                    self.extend(self.at, end);
                    self.at = end;
                }
            }
        }
        self.close_all(self.text.len());
        self.done
    }

    /// The end of the current line, its newline excluded.
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
        let (quote, label, help) = match end_of_text(self.text, start) {
            Ok(end) => {
                self.at = end;
                return self.extend(start, end);
            }
            Err(Unclosed::Line(at)) => {
                self.at = at;
                (
                    1,
                    "no `\"` follows on this line",
                    "close it with `\"`; text over several lines stands between `\"\"\"`",
                )
            }
            Err(Unclosed::Block) => {
                self.at = start + 3;
                (3, "no `\"\"\"` follows", "close it with `\"\"\"`")
            }
            Err(Unclosed::Deep(at)) => {
                self.at = at;
                (
                    1,
                    "texts are nested too deeply in it",
                    "give the inner ones a name: `param NAME: string = …`",
                )
            }
        };
        let opening = Span::new(start, start + quote);
        self.reports.error(Code::Unclosed, opening, "this text is never closed", label).help(help);
        self.sound = false;
        self.at = self.end_of_unclosed(start);
        let end = self.at;
        self.extend(start, end);
        if quote == 3 {
            // Whatever closes the blocks around it went with the text.
            self.brackets.clear();
            self.end_statement();
            self.skip_to_block();
            while !self.frames.is_empty() {
                self.pop(false);
            }
        }
    }

    /// Passes over everything up to the next line that looks like a block's head.
    fn skip_to_block(&mut self) {
        loop {
            self.at = self.line_end();
            if self.at >= self.text.len() || self.text.get(self.at + 1..).is_some_and(is_block_head) {
                return;
            }
            self.at += 1;
        }
    }

    /// Where a text without its second quote ends: with the line, but before closing braces that are not
    /// its own, lest their blocks seem never closed.
    fn end_of_unclosed(&self, start: usize) -> usize {
        let line = Span::new(start, self.at).of(self.text);
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
            let message = format!("this `{this}` closes nothing");
            let diagnostic = self.reports.error(Code::Unclosed, Span::new(self.at, self.at + 1), message, "");
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
        self.frames.push(Frame { head, sound: self.sound, open: self.at, pieces: Vec::new() });
        self.sound = true;
        self.at += 1;
    }

    /// The head of a `{` that stands alone: the statement before it, as if they stood on one line.
    fn head_before(&mut self, brace: Span) -> Span {
        let pieces = self.frames.last_mut().map_or(&mut self.done, |frame| &mut frame.pieces);
        let above = pieces.pop_if(|piece| {
            let between = Span::new(piece.head.end, brace.start).of(self.text);
            piece.body.is_none() && piece.sound && between.trim().is_empty()
        });
        let label = "expected a block's name before it";
        self.reports
            .error(Code::Syntax, brace, "this `{` belongs to nothing", label)
            .help("write the `{` on the line of the block's name");
        self.sound = above.is_some();
        above.map_or(Span::new(brace.start, brace.start), |piece| piece.head)
    }

    fn close_block(&mut self) {
        self.end_statement();
        self.at += 1;
        if self.frames.is_empty() {
            let brace = Span::new(self.at - 1, self.at);
            self.reports
                .error(Code::Unclosed, brace, "this `}` closes nothing", "no block is open here")
                .help("remove it, or look for a `}` too many above");
        }
        self.pop(true);
    }

    /// Ends the innermost block.
    fn pop(&mut self, closed: bool) {
        if let Some(Frame { head, sound, open, pieces }) = self.frames.pop() {
            // What was never closed ends with the last thing in it.
            let inside = Span::new(open, self.at).of(self.text);
            let length = if closed { inside.len() } else { inside.trim_end().len() };
            let body = PieceBody { pieces, span: Span::new(open, open + length), closed };
            self.push(Piece { head, body: Some(body), sound });
        }
    }

    fn push(&mut self, piece: Piece) {
        match self.frames.last_mut() {
            Some(frame) => frame.pieces.push(piece),
            None => self.done.push(piece),
        }
    }

    fn close_brackets(&mut self) {
        if let Some((open, at)) = self.brackets.first() {
            let message = format!("this `{}` is never closed", char::from(*open));
            self.reports.error(Code::Unclosed, Span::new(*at, at + 1), message, "");
            self.sound = false;
        }
        self.brackets.clear();
    }

    fn end_statement(&mut self) {
        self.close_brackets();
        if let Some(head) = self.head.take() {
            self.push(Piece { head, body: None, sound: self.sound });
        }
        self.sound = true;
    }

    /// Ends everything that is open, as at the end of the file.
    fn close_all(&mut self, at: usize) {
        self.end_statement();
        self.at = at;
        if let Some(outer) = self.frames.first() {
            let mut message = "this `{` is never closed".to_owned();
            if let Some(word) = outer.head.of(self.text).split_whitespace().next() {
                message = format!("the `{{` of `{word}` is never closed");
            }
            self.reports
                .error(Code::Unclosed, Span::new(outer.open, outer.open + 1), message, "opened here")
                .help("add the missing `}`");
        }
        while !self.frames.is_empty() {
            self.pop(false);
        }
    }

    /// Whether one more bracket is one too many; if so, everything up to the next block is passed over.
    fn too_deep(&mut self) -> bool {
        if self.frames.len() + self.brackets.len() < DEEPEST {
            return false;
        }
        let message = format!("brackets are nested more than {DEEPEST} deep");
        self.reports.error(Code::TooDeep, Span::new(self.at, self.at + 1), message, "");
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

/// Whether a line begins a block: a keyword and a name, or, without indentation, a keyword and `{`. Nothing
/// inside a block looks like that.
fn is_block_head(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or_default();
    let trimmed = line.trim_start_matches([' ', '\t']);
    let (word, after) = split_word(trimmed);
    let Some(kind) = BlockKind::from_keyword(word) else { return false };
    let after = after.trim_start_matches([' ', '\t']);
    if kind.is_of_file() {
        return after.starts_with('"');
    }
    if !kind.is_named() {
        return after.starts_with('{') && trimmed.len() == line.len();
    }
    let (name, after) = split_word(after);
    let after = after.trim_start_matches([' ', '\t']);
    !name.is_empty() && (after.is_empty() || after.starts_with(['=', '{', ':', '#', '(', '\r']))
}

/// The name that the text begins with, and the rest.
pub(crate) fn split_word(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    text.split_at(end.unwrap_or(text.len()))
}
