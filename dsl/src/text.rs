//! Texts: where one ends, what its escapes mean, and how one over several lines loses its indentation.

/// Texts within `${ … }` within texts, at most, and brackets within all of these. Everything that walks the syntax tree
/// may recurse this far.
const DEEPEST: usize = 16;

/// Why a text has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclosed {
    /// The line ends first, here.
    Line(usize),
    /// The file ends first.
    Block,
    /// Too many texts within texts, here.
    Deep(usize),
}

/// What one is within.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// `"…"`
    Line,
    /// `"""…"""`
    Block,
    /// `${…}`
    Inserted,
}

/// The byte behind the text that begins at `start`, with all texts within it. One walk, no recursion.
pub(crate) fn end_of_text(text: &str, start: usize) -> Result<usize, Unclosed> {
    const BLOCK: &[u8] = b"\"\"\"";
    let bytes = text.as_bytes();
    let opens = |at: usize| match bytes.get(at..) {
        Some(rest) if rest.starts_with(BLOCK) => (Level::Block, 3),
        _ => (Level::Line, 1),
    };
    let (outermost, width) = opens(start);
    let unclosed = |at: usize| match outermost {
        Level::Block => Unclosed::Block,
        _ => Unclosed::Line(at),
    };
    let mut levels = vec![outermost];
    let mut brackets = 0_usize;
    let mut at = start + width;
    while let Some(level) = levels.last().copied() {
        let Some(byte) = bytes.get(at) else { return Err(unclosed(at)) };
        match (level, byte) {
            (Level::Line | Level::Block, b'\\') if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                at += 2
            }
            (Level::Line | Level::Block, b'$') if bytes.get(at + 1) == Some(&b'{') => {
                levels.push(Level::Inserted);
                at += 2;
            }
            (Level::Line, b'"') | (Level::Inserted, b'}') => {
                levels.pop();
                at += 1;
            }
            (Level::Block, b'"') if bytes.get(at..).is_some_and(|rest| rest.starts_with(BLOCK)) => {
                levels.pop();
                at += BLOCK.len();
            }
            (Level::Inserted, b'"') => {
                let (level, width) = opens(at);
                levels.push(level);
                at += width;
            }
            (Level::Inserted, b'(' | b'[') => {
                brackets += 1;
                at += 1;
            }
            (Level::Inserted, b')' | b']') => {
                brackets = brackets.saturating_sub(1);
                at += 1;
            }
            (Level::Line, b'\n') => return Err(unclosed(at)),
            (Level::Inserted, b'\n') if levels.contains(&Level::Line) => return Err(unclosed(at)),
            _ => at += 1,
        }
        if levels.len().max(brackets) > DEEPEST {
            return Err(Unclosed::Deep(at));
        }
    }
    Ok(at)
}

/// Replaces the escapes of a piece of text. What means nothing is handed to `wrong` with its range in the piece.
pub(crate) fn unescape(piece: &str, mut wrong: impl FnMut(usize, usize)) -> String {
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
            other => wrong(index, index + 1 + other.map_or(0, |(_, char)| char.len_utf8())),
        }
    }
    out
}

/// Pieces of a text over several lines as the writer meant them: without the newline behind the opening quotes, without
/// the indentation that all lines share, and without the line that the closing quotes stand on, if nothing else does.
/// Pieces are what stands between inserted values; lines end with `\n` alone.
pub(crate) fn dedent(pieces: &[&str]) -> Vec<String> {
    let Some((first, rest)) = pieces.split_first() else { return Vec::new() };
    let opened = first.trim_start_matches([' ', '\t', '\r']);
    let body = opened.strip_prefix('\n');
    let last = pieces.len() - 1;
    // The indentation of every line that holds something, and of the closing quotes.
    let mut margin: Option<&str> = None;
    for (at, piece) in pieces.iter().enumerate() {
        // What stands before the first newline is on the line of the quotes, or of an inserted value.
        let (text, skipped) = match (at, body) {
            (0, Some(body)) => (body, 0),
            _ => (*piece, 1),
        };
        let mut lines = text.split('\n').skip(skipped).peekable();
        while let Some(line) = lines.next() {
            let blank = line.trim_matches([' ', '\t', '\r']).is_empty();
            // The last line of a piece goes on with an inserted value or the closing quotes.
            if !blank || lines.peek().is_none() {
                let own = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
                margin = Some(margin.map_or(own, |so_far| common(so_far, own)));
            }
        }
    }
    let margin = margin.unwrap_or_default();
    let mut out = vec![cut(body.unwrap_or(first), margin, body.is_some())];
    out.extend(rest.iter().map(|piece| cut(piece, margin, false)));
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

fn common<'t>(one: &'t str, other: &str) -> &'t str {
    let length = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    &one[..length]
}

/// The lines of a piece without their margin; the first line only where it is a whole one.
fn cut(piece: &str, margin: &str, whole: bool) -> String {
    let mut out = String::with_capacity(piece.len());
    let mut lines = piece.split('\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if at > 0 {
            out.push('\n');
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        let begins = at > 0 || whole;
        // What stands alone on a line is invisible; before an inserted value it is not.
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
    fn texts_end_where_they_end() {
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
    fn lines_lose_what_they_share() {
        assert_eq!(dedent(&["\n    one\n      two\n\n    three\n    "]), ["one\n  two\n\nthree"]);
        assert_eq!(dedent(&["\n  one\n    "]), ["one"]);
        assert_eq!(dedent(&["one\n  two"]), ["one\ntwo"]);
        assert_eq!(dedent(&["\n    You know ", ".\n    Answer ", "\n    "]), ["You know ", ".\nAnswer ", ""]);
        assert_eq!(dedent(&["\n  \r\n"]), [""]);
        assert_eq!(dedent(&[""]), [""]);
        assert_eq!(dedent(&["\n    a\n  "]), ["  a"]);
    }
}
