//! The tokens and comments of a file, which a formatter must not change. Uses a lexer other than the formatter's.

/// The tokens without newlines, `;` and last commas, and the comments, each in order.
pub fn essence(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut tokens, mut comments) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest);
        let (token, behind) = rest.split_at(length);
        rest = behind;
        match first {
            '#' => comments.push(token.trim_end_matches([' ', '\t', '\r'])),
            ' ' | '\t' | '\r' | '\n' | ';' | '\u{feff}' => {}
            ')' | ']' => {
                let mut before = tokens.iter().rev();
                let element =
                    before.next() == Some(&",") && !matches!(before.next(), Some(&("," | "(" | "[")) | None);
                if element {
                    tokens.pop();
                }
                tokens.push(token);
            }
            _ => tokens.push(token),
        }
    }
    (tokens, comments)
}

fn token_length(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    match text.as_bytes() {
        [b'#', ..] => text.find('\n').unwrap_or(text.len()),
        [b'"', ..] => text_length(text),
        [b'0'..=b'9', ..] => number_length(text),
        [byte, ..] if byte.is_ascii_alphabetic() || *byte == b'_' => word_length(text),
        [b'-', b'>', ..] | [b'.', b'.', ..] | [b'=' | b'!' | b'<' | b'>', b'=', ..] => 2,
        _ => first,
    }
}

fn word_length(text: &str) -> usize {
    text.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').unwrap_or(text.len())
}

fn number_length(text: &str) -> usize {
    let digits = |text: &str| text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let mut length = digits(text);
    if let Some(fraction) = text[length..].strip_prefix('.')
        && digits(fraction) > 0
    {
        length += 1 + digits(fraction);
    }
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E'])
        && let Some(signed) = exponent.strip_prefix(['+', '-'])
        && digits(signed) > 0
    {
        length += 2;
    }
    length + word_length(&text[length..])
}

/// Returns the length of a text with its quotes. It recurses into nested texts, whose depth the language limits.
fn text_length(text: &str) -> usize {
    let quotes = if text.starts_with("\"\"\"") { "\"\"\"" } else { "\"" };
    let mut at = quotes.len();
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(quotes) {
            return at + quotes.len();
        }
        at += match rest.as_bytes() {
            [b'$', b'{', ..] => expression_length(rest),
            [b'\\', ..] => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => rest.chars().next().map_or(0, char::len_utf8),
        };
    }
    at
}

fn expression_length(text: &str) -> usize {
    let mut at = 2;
    let mut open = 1;
    while at < text.len() && open > 0 {
        let rest = &text[at..];
        at += match rest.as_bytes() {
            [b'"', ..] => text_length(rest),
            [sign @ (b'{' | b'}'), ..] => {
                open = if *sign == b'{' { open + 1 } else { open - 1 };
                1
            }
            _ => rest.chars().next().map_or(0, char::len_utf8),
        };
    }
    at
}
