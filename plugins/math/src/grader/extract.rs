//! Which part of a text is its answer.
//!
//! In this order: what is boxed, what stands behind `####`, what is announced as the answer, a text that is
//! nothing but an answer, the last formula or number.

use super::reads_as_answer;

/// Text beyond this is cut off at the front: an answer stands at the end.
const LONGEST_TEXT: usize = 1 << 16;

/// Announcements, in lower case. The last one in the text counts.
const ANNOUNCEMENTS: [&str; 8] = [
    "final answer is",
    "final answer:",
    "answer is",
    "answer:",
    "answer =",
    "answers are",
    "\na:",
    "\nanswer ",
];

/// Where an announced answer ends at the latest.
const ENDS: [&str; 5] = ["i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"];

/// Words that a short answer in words may have.
const MOST_WORDS: usize = 4;

/// The answer that a text gives, if it gives one.
pub fn answer(text: &str) -> Option<String> {
    let text = tail(text);
    // Thoughts are no answers, unless there is nothing else.
    let spoken =
        text.rsplit_once("</think>").map(|(_, spoken)| spoken).filter(|spoken| !spoken.trim().is_empty());
    let text = spoken.unwrap_or(text);
    boxed(text)
        .or_else(|| after_hashes(text))
        .or_else(|| announced(text))
        .or_else(|| stated(text))
        .or_else(|| last_formula(text))
        .or_else(|| short(text))
}

fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LONGEST_TEXT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// The last `\boxed{...}`; several, where nothing but `and`, `or` or signs stands between them.
fn boxed(text: &str) -> Option<String> {
    let mut found: Vec<(usize, &str, usize)> = Vec::new();
    let mut from = 0;
    while let Some((start, open)) = ["\\boxed", "\\fbox"]
        .iter()
        .filter_map(|mark| text[from..].find(mark).map(|at| (from + at, from + at + mark.len())))
        .min()
    {
        let (content, end) = braced(text, open);
        found.push((start, content, end));
        from = end;
    }
    let (mut start, content, _) = found.pop()?;
    let mut parts = vec![content.trim()];
    while let Some((earlier, content, end)) = found.pop() {
        if !joins(&text[end..start]) {
            break;
        }
        // The same box again, in a closing line, is no second answer.
        if !parts.contains(&content.trim()) {
            parts.insert(0, content.trim());
        }
        start = earlier;
    }
    Some(parts.join(", ")).filter(|answer| !answer.is_empty())
}

/// What stands in the braces at `from` (or, without braces, in the next word), and where it ends.
fn braced(text: &str, from: usize) -> (&str, usize) {
    let spaces = text[from..].len() - text[from..].trim_start().len();
    let start = from + spaces;
    if !text[start..].starts_with('{') {
        let end =
            text[start..].find(|c: char| c.is_whitespace() || c == '$').map_or(text.len(), |at| start + at);
        return (&text[start..end], end);
    }
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, c) in text[start..].char_indices() {
        match c {
            '{' if !escaped => depth += 1,
            '}' if !escaped => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if depth == 0 {
            return (&text[start + 1..start + at], start + at + 1);
        }
    }
    // Never closed: what the model was about to say when it was cut off.
    (text[start + 1..].lines().next().unwrap_or(""), text.len())
}

/// Whether the text between two boxes makes one answer of them.
fn joins(between: &str) -> bool {
    if between.len() > 60 || between.contains("\n\n") {
        return false;
    }
    let mut words = between.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let plain = between.chars().all(|c| !c.is_alphabetic());
    plain || words.any(|word| matches!(word, "and" | "or"))
}

fn after_hashes(text: &str) -> Option<String> {
    let (_, after) = text.rsplit_once("####")?;
    let line = after.trim_start().lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn announced(text: &str) -> Option<String> {
    // ASCII lower case keeps every byte where it is.
    let lower = format!("\n{}", text.to_ascii_lowercase());
    let ends = ANNOUNCEMENTS.iter().filter_map(|mark| lower.rfind(mark).map(|at| at + mark.len()));
    let from = ends.max()? - 1;
    candidate(&text[from..])
}

/// The answer that an announcement leads to.
fn candidate(after: &str) -> Option<String> {
    let lower = after.to_ascii_lowercase();
    let end = ENDS.iter().filter_map(|mark| lower.find(mark)).min().unwrap_or(after.len());
    let after =
        after[..end].trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '*' | '"' | '='));
    let paragraph = after.split("\n\n").next()?;
    let line = if paragraph.contains("\\[") || paragraph.contains("$$") {
        paragraph
    } else {
        paragraph.lines().next()?
    };
    let sentence = line
        .split(". ")
        .next()?
        .trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '.' | '*' | '"'));
    stated(sentence).or_else(|| last_formula(line)).or_else(|| short(sentence))
}

/// A sentence that is an answer, or says that something is.
fn stated(text: &str) -> Option<String> {
    let text = text.trim();
    let numeric = text.chars().any(|c| c.is_ascii_digit() || matches!(c, '\\' | '=' | '$'));
    if (numeric || text.split_whitespace().count() <= 1) && !opens_with_words(text) && reads_as_answer(text) {
        return Some(text.to_owned());
    }
    let (_, after) = text.rsplit_once(" is ")?;
    let after = after.trim_end_matches(|c: char| c.is_whitespace() || c == '.');
    (after.chars().any(|c| c.is_ascii_digit()) && reads_as_answer(after)).then(|| after.to_owned())
}

/// Whether the text begins as a sentence does: letters side by side would read as a product.
fn opens_with_words(text: &str) -> bool {
    let words = text.split_whitespace().take_while(|word| word.chars().all(char::is_alphabetic));
    text.contains(' ') && words.into_iter().any(|word| word.len() > 1)
}

/// The last formula between dollars or brackets, or the last number, whichever stands further back.
fn last_formula(text: &str) -> Option<String> {
    let formula = last_math(text);
    let number = last_number(text);
    match (formula, number) {
        (Some((at, formula)), Some((_, after))) if at >= after => Some(formula.to_owned()),
        // A formula that the number stands in.
        (Some((end, formula)), Some((start, after))) if start < end && after <= end => {
            Some(formula.to_owned())
        }
        (_, Some((start, after))) => Some(text[start..after].to_owned()),
        (Some((_, formula)), None) => Some(formula.to_owned()),
        (None, None) => None,
    }
}

/// The last stretch of mathematics and the position of its end.
fn last_math(text: &str) -> Option<(usize, &str)> {
    let mut last = None;
    for (open, close) in [("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")] {
        let mut from = 0;
        while let Some(start) = find_unescaped(text, open, from).map(|at| at + open.len()) {
            let Some(end) = find_unescaped(text, close, start) else {
                break;
            };
            from = end + close.len();
            let inside = text[start..end].trim();
            if last.is_none_or(|(at, _)| end > at) && !inside.is_empty() && reads_as_answer(inside) {
                last = Some((end, inside));
            }
        }
    }
    last
}

/// A mark that no backslash stands in front of (but for its own).
fn find_unescaped(text: &str, mark: &str, mut from: usize) -> Option<usize> {
    loop {
        let at = from + text[from..].find(mark)?;
        if mark.starts_with('\\') || !text[..at].ends_with('\\') {
            return Some(at);
        }
        from = at + mark.len();
    }
}

/// Where the last number that stands by itself begins and ends, with its sign, fraction and percent sign.
fn last_number(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut last = None;
    let mut at = 0;
    while at < bytes.len() {
        // `.5` begins with its point.
        let from = at + usize::from(bytes[at] == b'.');
        if !bytes.get(from).is_some_and(u8::is_ascii_digit) {
            at += 1;
            continue;
        }
        let start = at;
        // A separator counts where a digit follows it.
        while at < bytes.len()
            && (bytes[at].is_ascii_digit()
                || (matches!(bytes[at], b',' | b'.' | b'/')
                    && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)))
        {
            at += 1;
        }
        let before = text[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let signed = before == Some('-')
            && text[..start - 1]
                .chars()
                .next_back()
                .is_none_or(|c| !c.is_alphanumeric() && !matches!(c, ')' | '}'));
        let end = at + usize::from(bytes.get(at) == Some(&b'%'));
        last = Some((start - usize::from(signed), end));
    }
    last
}

/// A few words, or one.
fn short(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches('.').trim();
    let words = text.split_whitespace().count();
    (1..=MOST_WORDS).contains(&words).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> String {
        answer(text).unwrap_or_default()
    }

    #[test]
    fn boxes_come_first_and_the_last_one_counts() {
        assert_eq!(given(r"So \boxed{1}. I think again. No: \boxed{\frac{1}{2}}."), r"\frac{1}{2}");
        assert_eq!(given(r"\boxed{1} and \boxed{2}"), "1, 2");
        assert_eq!(given(r"\boxed{3}. The answer is 5"), "3");
        assert_eq!(given(r"it is \boxed{42"), "42");
        assert_eq!(given(r"\boxed 7 apples"), "7");
    }

    #[test]
    fn announcements_are_followed() {
        assert_eq!(given("3 + 4 = 7\n#### 7"), "7");
        assert_eq!(given("He has 3.\nA: 12"), "12");
        assert_eq!(given("The answer is 5 apples. He had 3."), "5 apples");
        assert_eq!(given("**Answer:** $5$"), "$5$");
        assert_eq!(given("Final Answer: Jane started 3 hours ago. I hope it is correct."), "3");
        assert_eq!(given("The final answer is $\\frac{1}{2}$."), r"$\frac{1}{2}$");
    }

    #[test]
    fn else_the_last_number_or_formula_is_it() {
        assert_eq!(given("So Tom has 3 + 4 = 7 apples now."), "7");
        assert_eq!(given("It was not 10 but 1,000.99€ then"), "1,000.99");
        assert_eq!(given("It fell by -3 degrees in 1 night"), "1");
        assert_eq!(given("from 5-3"), "3");
        assert_eq!(given("Thus $x <= 2$ is our answer."), "x <= 2");
        assert_eq!(given("<think>maybe 9</think> 12"), "12");
        assert_eq!(answer("I do not know what to say about this at all"), None);
        assert_eq!(answer(""), None);
    }
}
