//! Evens out the ways to write one answer.

use super::lex::LONGEST_ANSWER;

/// Commands that are written with two backslashes where a text went through one escaping too many.
const ESCAPED_TWICE: [&str; 18] = [
    "frac", "dfrac", "tfrac", "sqrt", "left", "right", "text", "boxed", "pi", "le", "ge", "lt", "gt", "in",
    "cdot", "times", "infty", "pm",
];

/// The text as it is compared where it is not read: without marks and spaces, in lower case.
pub fn plain(text: &str) -> String {
    let mut text = even(text);
    for wrapper in ["\\text", "\\textbf", "\\mbox", "\\mathrm", "\\boxed"] {
        while let Some((before, inside)) = text.split_once(&format!("{wrapper}{{")) {
            let Some((inside, after)) = inside.split_once('}') else {
                break;
            };
            text = format!("{before}{inside}{after}");
        }
    }
    for mark in ["\\left", "\\right", "\\(", "\\)", "\\[", "\\]", "\\,", "\\;", "\\ "] {
        text = text.replace(mark, "");
    }
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '$').collect();
    let plain = plain.trim_end_matches(['.', ',', ';']).to_lowercase();
    // `(B)` is choice B.
    match plain.strip_prefix('(').and_then(|inside| inside.strip_suffix(')')) {
        Some(choice) if choice.chars().count() == 1 && choice.chars().all(char::is_alphabetic) => {
            choice.to_owned()
        }
        _ => plain,
    }
}

/// The text in each way that its commas can be read.
pub fn variants(text: &str) -> Vec<String> {
    if text.len() > LONGEST_ANSWER {
        return Vec::new();
    }
    let text = even(text);
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

fn even(text: &str) -> String {
    let mut text = text.trim().trim_end_matches(['.', ',', ';', ':']).replace(['\u{a0}', '\u{202f}'], " ");
    // The comma that LaTeX sets without space is the one of thousands.
    for mark in [",\\! ", ",\\!", "{,}", "\\!"] {
        text = text.replace(mark, "");
    }
    for command in ESCAPED_TWICE {
        text = text.replace(&format!("\\\\{command}"), &format!("\\{command}"));
    }
    text
}

/// Without the commas between groups of three digits.
fn without_thousands(text: &str) -> String {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut plain = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let first = digits(at);
        if first == 0 {
            let length = text[at..].chars().next().map_or(1, char::len_utf8);
            plain.push_str(&text[at..at + length]);
            at += length;
            continue;
        }
        plain.push_str(&text[at..at + first]);
        let leads =
            (1..=3).contains(&first) && bytes[at] != b'0' && !plain[..plain.len() - first].ends_with('.');
        at += first;
        while leads && bytes.get(at) == Some(&b',') && digits(at + 1) == 3 {
            plain.push_str(&text[at + 1..at + 4]);
            at += 4;
        }
    }
    plain
}

/// `0,5` with a point, where that is the whole answer.
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
    fn commas_of_thousands_go_where_they_can_be_thousands() {
        assert_eq!(without_thousands("1,000.99 and 12,345,678"), "1000.99 and 12345678");
        assert_eq!(
            without_thousands("1,2, 3,45, 1234,567, 0,111, 1.5,200"),
            "1,2, 3,45, 1234,567, 0,111, 1.5,200"
        );
        assert_eq!(even(r"32,\! 349 14{,}916"), "32349 14916");
    }

    #[test]
    fn plain_texts_lose_their_marks() {
        assert_eq!(plain(r"$\text{Evelyn}$."), "evelyn");
        assert_eq!(plain("(B)"), "b");
        assert_eq!(plain(r"\left( 3, 4 \right)"), "(3,4)");
    }
}
