//! Normalizes different notations of an answer.

use super::lex::{MAX_ANSWER, TEXT_COMMANDS, argument};

/// Commands that have two backslashes in texts which were escaped once too often.
const ESCAPED_TWICE: [&str; 18] = [
    "frac", "dfrac", "tfrac", "sqrt", "left", "right", "text", "boxed", "pi", "le", "ge", "lt", "gt", "in",
    "cdot", "times", "infty", "pm",
];

/// Returns the form in which answers are compared as text: without marks, styles and spaces, in lower case. In a fraction
/// a space between two digits stays: `3 1/2` is not `31/2`.
pub fn plain(text: &str) -> String {
    let mut text = normalize_marks(text);
    for command in TEXT_COMMANDS.iter().chain(&["boxed"]) {
        let open = format!("\\{command}{{");
        while let Some((before, inside)) = text.split_once(&open) {
            let Some((inside, after)) = inside.split_once('}') else {
                break;
            };
            text = format!("{before}{inside}{after}");
        }
    }
    for mark in ["\\left", "\\right", "\\displaystyle", "\\(", "\\)", "\\[", "\\]", "\\,", "\\;", "\\ "] {
        text = text.replace(mark, "");
    }
    let has_fraction = text.contains('/');
    let mut plain = String::new();
    for word in text.replace('$', "").split_whitespace() {
        let is_digit = |c: char| c.is_ascii_digit();
        if has_fraction && plain.ends_with(is_digit) && word.starts_with(is_digit) {
            plain.push(' ');
        }
        plain.push_str(word);
    }
    let mut plain = plain.trim_end_matches(['.', ',', ';']).to_lowercase();
    // `(B)` is choice B.
    while let Some(word) = [('(', ')'), ('{', '}')]
        .into_iter()
        .find_map(|(open, close)| plain.strip_prefix(open)?.strip_suffix(close))
        .filter(|word| word.chars().all(|c| c.is_alphanumeric() || "(){}".contains(c)))
        .filter(|word| word.chars().any(char::is_alphabetic))
    {
        plain = word.to_owned();
    }
    plain
}

/// Returns an answer in words in the form in which it is compared. Returns `None` if the text does not begin with
/// words in LaTeX.
pub fn words(text: &str) -> Option<String> {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '$' | '{' | '('));
    let text = text.strip_prefix("\\displaystyle").unwrap_or(text).trim_start();
    let (command, inside) = text.strip_prefix('\\')?.split_once('{')?;
    let (inside, _) = inside.split_once('}')?;
    let words = TEXT_COMMANDS.contains(&command) && inside.chars().any(char::is_alphabetic);
    words.then(|| plain(text))
}

/// Returns the text once for each meaning of its commas.
pub fn variants(text: &str) -> Vec<String> {
    if text.len() > MAX_ANSWER {
        return Vec::new();
    }
    let text = subscripts_first(&normalize_marks(text));
    let mut variants = Vec::new();
    let thousands = without_thousands(&text);
    if thousands != text {
        variants.push(thousands);
    }
    if let Some(decimal) = decimal_comma(&text) {
        variants.push(decimal);
    }
    variants.push(text);
    variants
}

fn normalize_marks(text: &str) -> String {
    let text = text.trim();
    // A thin space at the end is no comma.
    let text = text.strip_suffix("\\,").unwrap_or(text).trim_end();
    let mut text = text.trim_end_matches(['.', ',', ';', ':']).replace(['\u{a0}', '\u{202f}'], " ");
    // A comma without space around it in LaTeX separates thousands.
    for mark in [",\\! ", ",\\!", "{,}", "\\!"] {
        text = text.replace(mark, "");
    }
    // In a matrix two backslashes end a row.
    if !text.contains("matrix") && !text.contains("array") {
        for command in ESCAPED_TWICE {
            text = text.replace(&format!("\\\\{command}"), &format!("\\{command}"));
        }
    }
    text
}

/// Returns the text with `v^2_0` as `v_0^2`.
fn subscripts_first(text: &str) -> String {
    let mut ordered = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('^') {
        ordered.push_str(&rest[..position]);
        let after = &rest[position + 1..];
        let power = argument(after);
        let subscript = power
            .and_then(|power| after[power..].strip_prefix('_'))
            .and_then(|subscript| Some((subscript, argument(subscript)?)));
        rest = match (power, subscript) {
            (Some(power), Some((subscript, length))) => {
                ordered.extend(["_", &subscript[..length], "^", &after[..power]]);
                &subscript[length..]
            }
            _ => {
                ordered.push('^');
                after
            }
        };
    }
    ordered + rest
}

/// Removes the commas between groups of three digits.
fn without_thousands(text: &str) -> String {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut plain = String::with_capacity(text.len());
    let mut position = 0;
    while position < bytes.len() {
        let first = digits(position);
        if first == 0 {
            let length = text[position..].chars().next().map_or(1, char::len_utf8);
            plain.push_str(&text[position..position + length]);
            position += length;
            continue;
        }
        plain.push_str(&text[position..position + first]);
        let leads = (1..=3).contains(&first)
            && bytes[position] != b'0'
            && !plain[..plain.len() - first].ends_with('.');
        position += first;
        while leads && bytes.get(position) == Some(&b',') && digits(position + 1) == 3 {
            plain.push_str(&text[position + 1..position + 4]);
            position += 4;
        }
    }
    plain
}

/// Returns `0,5` with a decimal point. Returns `None` if that is not the whole answer.
fn decimal_comma(text: &str) -> Option<String> {
    let bare = text.trim_matches('$').trim();
    let (whole, part) = bare.split_once(',')?;
    let number = whole == "0" && !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| format!("{whole}.{part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_between_thousands_are_removed() {
        assert_eq!(without_thousands("1,000.99 and 12,345,678"), "1000.99 and 12345678");
        assert_eq!(
            without_thousands("1,2, 3,45, 1234,567, 0,111, 1.5,200"),
            "1,2, 3,45, 1234,567, 0,111, 1.5,200"
        );
        assert_eq!(normalize_marks(r"32,\! 349 14{,}916"), "32349 14916");
    }

    #[test]
    fn subscripts_come_before_powers() {
        assert_eq!(
            subscripts_first(r"\frac{v^2_0}{g} + x^{a^2}_{\text{s}} - y^3"),
            r"\frac{v_0^2}{g} + x_{\text{s}}^{a^2} - y^3"
        );
        assert_eq!(subscripts_first("x^"), "x^");
    }

    #[test]
    fn plain_texts_have_no_marks() {
        assert_eq!(plain(r"$\text{Evelyn}$."), "evelyn");
        assert_eq!(plain("(B)"), "b");
        assert_eq!(plain(r"\left( 3, 4 \right)"), "(3,4)");
    }
}
