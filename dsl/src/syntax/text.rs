//! Text literals: their ends, the meaning of escapes, and the indentation that multi-line literals lose.

use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::Span;

/// Maximum depth of literals and their `${ … }` within each other, and of brackets within all of these. Code that walks
/// the syntax tree may recurse this deep.
const MAX_DEPTH: usize = 16;

const BLOCK_QUOTES: &[u8] = b"\"\"\"";

/// Reason why a literal has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclosed {
    /// The line ends first, at this byte.
    Line(usize),
    /// The file ends first.
    Block,
    /// Literals are nested too deeply, at this byte.
    Deep(usize),
}

/// A construct that a walk is inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// `"…"`
    Line,
    /// `"""…"""`
    Block,
    /// `${…}`, with the number of braces open in it.
    Inserted { braces: usize },
}

/// Effect of the bytes that a [`LiteralWalk`] passes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opening quotes.
    Open,
    /// Closing quotes.
    Close,
    /// `${`
    OpenInserted,
    /// The `}` that ends a `${`.
    CloseInserted,
    /// Characters of a literal. Only the last ones may be an escape.
    Text,
    /// A byte outside of literals or inside `${ … }`.
    Code,
    /// A newline inside a `"…"`, which ends all open literals. The walk does not pass over it.
    LineEnd,
}

/// Nesting of text literals and the `${ … }` inside them, for walks over text that may be broken anywhere.
#[derive(Debug, Default)]
pub(crate) struct LiteralWalk {
    /// Levels, the innermost last.
    levels: Vec<Level>,
    /// Number of [`Level::Line`]s among the levels.
    lines: usize,
}

impl LiteralWalk {
    /// True if the walk is inside the quotes of a literal, and not inside its `${ … }`.
    pub fn in_text(&self) -> bool {
        matches!(self.levels.last(), Some(Level::Line | Level::Block))
    }

    /// Number of constructs that the walk is inside of.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    fn open(&mut self, level: Level) {
        self.lines += usize::from(level == Level::Line);
        self.levels.push(level);
    }

    fn close(&mut self) {
        let closed = self.levels.pop();
        self.lines -= usize::from(closed == Some(Level::Line));
    }

    /// Passes over the next bytes of the text. Returns their effect and their number, which is 0 only at a
    /// [`Step::LineEnd`] and at the end of the text.
    pub fn step(&mut self, rest: &[u8]) -> (Step, usize) {
        let Some(&byte) = rest.first() else { return (Step::Code, 0) };
        if byte == b'\n' && self.lines > 0 {
            *self = Self::default();
            return (Step::LineEnd, 0);
        }
        match (self.levels.last_mut(), byte) {
            (None | Some(Level::Inserted { .. }), b'"') => {
                let block = rest.starts_with(BLOCK_QUOTES);
                self.open(if block { Level::Block } else { Level::Line });
                (Step::Open, if block { BLOCK_QUOTES.len() } else { 1 })
            }
            (Some(Level::Inserted { braces: 0 }), b'}') => {
                self.close();
                (Step::CloseInserted, 1)
            }
            (Some(Level::Inserted { braces }), b'{' | b'}') => {
                *braces = if byte == b'{' { *braces + 1 } else { *braces - 1 };
                (Step::Code, 1)
            }
            (None | Some(Level::Inserted { .. }), _) => (Step::Code, 1),
            (Some(Level::Line), b'"') => {
                self.close();
                (Step::Close, 1)
            }
            (Some(Level::Block), b'"') if rest.starts_with(BLOCK_QUOTES) => {
                self.close();
                (Step::Close, BLOCK_QUOTES.len())
            }
            (Some(Level::Line | Level::Block), b'$') if rest.get(1) == Some(&b'{') => {
                self.open(Level::Inserted { braces: 0 });
                (Step::OpenInserted, 2)
            }
            (Some(Level::Line | Level::Block), b'\\') => {
                // The end of a line can't be escaped.
                (Step::Text, if rest.get(1).is_some_and(|next| *next != b'\n') { 2 } else { 1 })
            }
            (Some(Level::Line | Level::Block), _) => {
                let special = |byte: &u8| matches!(byte, b'"' | b'$' | b'\\' | b'\n');
                let rest = rest.get(1..).unwrap_or_default();
                (Step::Text, 1 + rest.iter().position(special).unwrap_or(rest.len()))
            }
        }
    }
}

/// Returns the end of the literal that begins at `start`, with all literals inside it. Does not recurse.
pub(crate) fn end_of_text(text: &str, start: usize) -> Result<usize, Unclosed> {
    let bytes = text.as_bytes();
    let rest = |at: usize| bytes.get(at..).unwrap_or_default();
    let block = rest(start).starts_with(BLOCK_QUOTES);
    let unclosed = |at: usize| if block { Unclosed::Block } else { Unclosed::Line(at) };
    let mut walk = LiteralWalk::default();
    let mut brackets = 0_usize;
    let mut at = start;
    loop {
        let (step, length) = walk.step(rest(at));
        if length == 0 {
            return Err(unclosed(at));
        }
        if step == Step::Code {
            match bytes.get(at) {
                Some(b'(' | b'[') => brackets += 1,
                Some(b')' | b']') => brackets = brackets.saturating_sub(1),
                _ => {}
            }
        }
        at += length;
        if walk.depth() == 0 {
            return Ok(at);
        }
        if walk.depth().max(brackets) > MAX_DEPTH {
            return Err(Unclosed::Deep(at));
        }
    }
}

/// Reports the literal at `start`, which has no end.
pub(crate) fn report_unclosed(start: usize, unclosed: Unclosed, reports: &mut Reports) {
    let (quotes, label, help) = match unclosed {
        Unclosed::Line(_) => (
            1,
            "no `\"` follows on this line",
            "close it with `\"`; multi-line text stands between `\"\"\"`, and `${` in a text is written `\\${`",
        ),
        Unclosed::Block => (3, "no `\"\"\"` follows", "close it with `\"\"\"`"),
        Unclosed::Deep(_) => {
            (1, "text inside it is nested too deeply", "give the inner text a name: `param NAME: string = …`")
        }
    };
    let opening = Span::new(start, start + quotes);
    reports.error(DiagnosticCode::Unclosed, opening, "this text is never closed", label).help(help);
}

/// Replaces the escapes in a piece of text. Calls `invalid` with the range of each invalid escape.
pub(crate) fn unescape(piece: &str, mut invalid: impl FnMut(usize, usize)) -> String {
    let mut out = String::with_capacity(piece.len());
    let mut chars = piece.char_indices();
    while let Some((index, char)) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some((_, 'n')) => out.push('\n'),
            Some((_, 't')) => out.push('\t'),
            Some((_, 'r')) => out.push('\r'),
            Some((_, same @ ('"' | '\\' | '$'))) => out.push(same),
            other => invalid(index, index + 1 + other.map_or(0, |(_, char)| char.len_utf8())),
        }
    }
    out
}

/// Removes the indentation of a multi-line text: the newline after the opening quotes, the indentation that all lines
/// share, and the last line if only the closing quotes are on it. `pieces` are the parts between inserted values. Lines
/// of the result end with `\n` alone.
pub(crate) fn dedent(pieces: &[&str]) -> Vec<String> {
    let Some((first, rest)) = pieces.split_first() else { return Vec::new() };
    let opened = first.trim_start_matches([' ', '\t', '\r']);
    let body = opened.strip_prefix('\n');
    let last = pieces.len() - 1;
    // The shared indentation of all non-blank lines and of the closing quotes.
    let mut margin: Option<&str> = None;
    for (at, piece) in pieces.iter().enumerate() {
        // Text before the first newline is on the line of the quotes or of an inserted value.
        let (text, skipped) = match (at, body) {
            (0, Some(body)) => (body, 0),
            _ => (*piece, 1),
        };
        let mut lines = text.split('\n').skip(skipped).peekable();
        while let Some(line) = lines.next() {
            let blank = line.trim_matches([' ', '\t', '\r']).is_empty();
            // The last line of a piece continues with an inserted value or the closing quotes.
            if !blank || lines.peek().is_none() {
                let own = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
                margin = Some(margin.map_or(own, |so_far| common_prefix(so_far, own)));
            }
        }
    }
    let margin = margin.unwrap_or_default();
    let mut out = vec![remove_margin(body.unwrap_or(first), margin, body.is_some())];
    out.extend(rest.iter().map(|piece| remove_margin(piece, margin, false)));
    if let Some(end) = out.get_mut(last)
        && let Some((before, line)) = end.rsplit_once('\n')
        && line.trim_matches([' ', '\t']).is_empty()
    {
        end.truncate(before.len());
    } else if let (Some(end), true) = (out.get_mut(last), last == 0 && body.is_some())
        && end.trim_matches([' ', '\t']).is_empty()
    {
        end.clear();
    }
    out
}

fn common_prefix<'t>(one: &'t str, other: &str) -> &'t str {
    let length = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    &one[..length]
}

/// Removes the margin from the lines of a piece. The first line keeps it unless `whole`.
fn remove_margin(piece: &str, margin: &str, whole: bool) -> String {
    let mut out = String::with_capacity(piece.len());
    let mut lines = piece.split('\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if at > 0 {
            out.push('\n');
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        let begins = at > 0 || whole;
        // White space alone on a line is dropped, except before an inserted value.
        let blank = line.trim_matches([' ', '\t']).is_empty() && lines.peek().is_some();
        if !(begins && blank) {
            out.push_str(line.strip_prefix(margin).filter(|_| begins).unwrap_or(line));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_end_at_their_quotes() {
        for (text, end) in [
            (r#""a" b"#, 3),
            (r#""a\"b" c"#, 6),
            (r#""${x}" "#, 6),
            (r#""${f("}")}" "#, 11),
            ("\"\"\"a\n\"b\"\n\"\"\" c", 12),
            (r#""" b"#, 2),
        ] {
            assert_eq!(end_of_text(text, 0), Ok(end), "{text}");
        }
        assert_eq!(end_of_text("\"a\nb", 0), Err(Unclosed::Line(2)));
        assert_eq!(end_of_text("\"${a\n}\"", 0), Err(Unclosed::Line(4)));
        assert_eq!(end_of_text("\"\"\"a\n", 0), Err(Unclosed::Block));
        assert!(matches!(end_of_text(&"\"${".repeat(100), 0), Err(Unclosed::Deep(_))));
    }

    #[test]
    fn shared_indentation_is_removed() {
        assert_eq!(dedent(&["\n    one\n      two\n\n    three\n    "]), ["one\n  two\n\nthree"]);
        assert_eq!(dedent(&["\n  one\n    "]), ["one"]);
        assert_eq!(dedent(&["one\n  two"]), ["one\ntwo"]);
        assert_eq!(dedent(&["\n    You know ", ".\n    Answer ", "\n    "]), ["You know ", ".\nAnswer ", ""]);
        assert_eq!(dedent(&["\n  \r\n"]), [""]);
        assert_eq!(dedent(&[""]), [""]);
        assert_eq!(dedent(&["\n    a\n  "]), ["  a"]);
    }
}
