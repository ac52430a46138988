//! Extraction of the answer from a text.
//!
//! In this order: the content of a box, the line after `####`, an announced answer, a text that is an answer
//! as a whole, the last formula or number.

use super::parse::is_answer;

/// Number of bytes that are searched. Longer texts are cut at the front, because answers are at the end.
const MAX_TEXT: usize = 1 << 16;

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

/// Texts that end an announced answer.
const TERMINATORS: [&str; 5] = ["i hope it is correct", "<|", "</s>", "\nq:", "\nquestion:"];

/// Words between or after formulas that belong to the answer.
const JOINING: [&str; 6] = ["and", "or", "percent", "percentage", "pct", "is"];

/// Maximum number of words of an answer in words.
const MAX_WORDS: usize = 4;

/// Returns the answer of a text.
pub fn answer(text: &str) -> Option<String> {
    let text = tail(text);
    // Reasoning before `</think>` does not count, unless there is nothing else.
    let after_reasoning =
        text.rsplit_once("</think>").map(|(_, after)| after).filter(|after| !after.trim().is_empty());
    let text = after_reasoning.unwrap_or(text);
    boxed(text)
        .or_else(|| after_hashes(text))
        .or_else(|| announced(text))
        .or_else(|| stated(text))
        .or_else(|| last_formula(text))
        .or_else(|| short(text))
}

fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(MAX_TEXT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Returns the last `\boxed{...}`, together with those before it if only `and`, `or` or signs separate them.
fn boxed(text: &str) -> Option<String> {
    let mut found: Vec<(usize, &str, usize)> = Vec::new();
    let mut from = 0;
    while let Some((start, open)) = ["\\boxed", "\\fbox"]
        .iter()
        .filter_map(|mark| {
            text[from..].find(mark).map(|position| (from + position, from + position + mark.len()))
        })
        .min()
    {
        let (content, end) = braced(text, open);
        found.push((start, content, end));
        from = end;
    }
    let (mut start, content, _) = found.pop()?;
    let mut parts = vec![content.trim()];
    while let Some((earlier, content, end)) = found.pop() {
        if !joins_boxes(&text[end..start]) {
            break;
        }
        // A repetition of the box in a closing line is not a second answer.
        if !parts.contains(&content.trim()) {
            parts.insert(0, content.trim());
        }
        start = earlier;
    }
    Some(parts.join(", ")).filter(|answer| !answer.is_empty())
}

/// Returns the content of the braces at `from` (or, without braces, the next word), and the position of its
/// end.
fn braced(text: &str, from: usize) -> (&str, usize) {
    let spaces = text[from..].len() - text[from..].trim_start().len();
    let start = from + spaces;
    if !text[start..].starts_with('{') {
        let end = text[start..]
            .find(|c: char| c.is_whitespace() || c == '$')
            .map_or(text.len(), |position| start + position);
        return (&text[start..end], end);
    }
    let mut depth = 0_usize;
    let mut escaped = false;
    for (position, c) in text[start..].char_indices() {
        match c {
            '{' if !escaped => depth += 1,
            '}' if !escaped => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if depth == 0 {
            return (&text[start + 1..start + position], start + position + 1);
        }
    }
    // Not closed, because the completion was cut off.
    (text[start + 1..].lines().next().unwrap_or(""), text.len())
}

/// Returns true if the text between two boxes combines them into one answer.
fn joins_boxes(between: &str) -> bool {
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
    // ASCII lower case preserves positions.
    let lower = format!("\n{}", text.to_ascii_lowercase());
    let ends =
        ANNOUNCEMENTS.iter().filter_map(|mark| lower.rfind(mark).map(|position| position + mark.len()));
    let from = ends.max()? - 1;
    answer_after(&text[from..])
}

/// Returns the answer after an announcement.
fn answer_after(after: &str) -> Option<String> {
    let lower = after.to_ascii_lowercase();
    let end = TERMINATORS.iter().filter_map(|mark| lower.find(mark)).min().unwrap_or(after.len());
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

/// Returns a sentence that is an answer, or the answer after its last `is`.
fn stated(text: &str) -> Option<String> {
    let text = text.trim();
    let numeric = text.chars().any(|c| c.is_ascii_digit() || matches!(c, '\\' | '=' | '$'));
    let short = numeric || text.split_whitespace().count() <= 1;
    let prose =
        opens_with_words(text) || has_a_sentence(text) || has_words_around_formulas(text) || has_a_verb(text);
    if short && !prose && is_answer(text) {
        return Some(text.to_owned());
    }
    let (_, after) = text.rsplit_once(" is ")?;
    let after = after.trim_end_matches(|c: char| c.is_whitespace() || c == '.');
    // Another line is another sentence.
    let numeric = after.chars().any(|c| c.is_ascii_digit()) && !after.contains('\n');
    (numeric && is_answer(after)).then(|| after.to_owned())
}

/// Returns true if the text begins like a sentence, whose letters would otherwise be parsed as a product.
fn opens_with_words(text: &str) -> bool {
    let words = text.split_whitespace().take_while(|word| word.chars().all(char::is_alphabetic));
    text.contains(' ') && words.into_iter().any(|word| word.len() > 1)
}

/// Returns true for values that are joined by words and followed by more words than a unit has: `a and b are names of
/// these points`. Their letters would otherwise be parsed as a product.
fn has_a_sentence(text: &str) -> bool {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(char::is_alphabetic);
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = words.iter().any(|word| ["and", "or"].contains(word));
    joined && words.chunk_by(|a, b| is_word(a) && is_word(b)).any(|run| run.len() > MAX_WORDS)
}

/// Returns true for `5 is the answer`, whose letters would otherwise be parsed as a product. In braces the words are
/// part of a formula.
fn has_a_verb(text: &str) -> bool {
    let (mut opened, mut closed) = (0, 0);
    let Some((before, _)) = text.rsplit_once(" is ") else { return false };
    before.split(" is ").any(|part| {
        opened += part.matches('{').count();
        closed += part.matches('}').count();
        opened == closed
    })
}

/// Returns true for words beside formulas in dollars, except those that join answers: `$9.8$ m/s`.
fn has_words_around_formulas(text: &str) -> bool {
    let pieces: Vec<&str> = text.split('$').collect();
    // An even number of dollars encloses each second piece.
    pieces.len() > 2
        && pieces.len() % 2 == 1
        && !text.contains("\\$")
        && pieces.iter().step_by(2).any(|outside| {
            let words = outside.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
            words.into_iter().any(|word| !JOINING.contains(&word.to_ascii_lowercase().as_str()))
        })
}

/// Returns the last formula between dollars or brackets, or the last number, whichever comes later.
fn last_formula(text: &str) -> Option<String> {
    let formula = last_math(text);
    let number = last_number(text);
    match (formula, number) {
        (Some((position, formula)), Some((_, after))) if position >= after => Some(formula.to_owned()),
        // A formula that contains the number.
        (Some((end, formula)), Some((start, after))) if start < end && after <= end => {
            Some(formula.to_owned())
        }
        (_, Some((start, after))) => Some(text[start..after].to_owned()),
        (Some((_, formula)), None) => Some(formula.to_owned()),
        (None, None) => None,
    }
}

/// Returns the last formula that is an answer, and the position of its end.
fn last_math(text: &str) -> Option<(usize, &str)> {
    let mut last = None;
    for (open, close) in [("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$")] {
        let mut from = 0;
        while let Some(start) = find_unescaped(text, open, from).map(|position| position + open.len()) {
            let Some(end) = find_unescaped(text, close, start) else {
                break;
            };
            from = end + close.len();
            let inside = text[start..end].trim();
            if last.is_none_or(|(position, _)| end > position) && !inside.is_empty() && is_answer(inside) {
                last = Some((end, inside));
            }
        }
    }
    last
}

/// Returns the position of a mark without a backslash before it (except its own).
fn find_unescaped(text: &str, mark: &str, mut from: usize) -> Option<usize> {
    loop {
        let position = from + text[from..].find(mark)?;
        if mark.starts_with('\\') || !text[..position].ends_with('\\') {
            return Some(position);
        }
        from = position + mark.len();
    }
}

/// Returns the start and end of the last separate number, with its sign, fraction and percent sign.
fn last_number(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut last = None;
    let mut position = 0;
    while position < bytes.len() {
        // `.5` begins with its point.
        let from = position + usize::from(bytes[position] == b'.');
        if !bytes.get(from).is_some_and(u8::is_ascii_digit) {
            position += 1;
            continue;
        }
        let start = position;
        // A separator belongs to the number if a digit follows, a comma if three do.
        while position < bytes.len()
            && (bytes[position].is_ascii_digit()
                || (matches!(bytes[position], b'.' | b'/')
                    && bytes.get(position + 1).is_some_and(u8::is_ascii_digit))
                || (bytes[position] == b',' && digits_at(bytes, position + 1) == 3))
        {
            position += 1;
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
        let end = position + usize::from(bytes.get(position) == Some(&b'%'));
        last = Some((start - usize::from(signed), end));
    }
    last
}

/// Returns the number of digits at a position, at most 4.
fn digits_at(bytes: &[u8], position: usize) -> usize {
    bytes.iter().skip(position).take(4).take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the text if it has only a few words.
fn short(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches('.').trim();
    let words = text.split_whitespace().count();
    (1..=MAX_WORDS).contains(&words).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extracted(text: &str) -> String {
        answer(text).unwrap_or_default()
    }

    #[test]
    fn boxes_come_first_and_the_last_one_counts() {
        assert_eq!(extracted(r"So \boxed{1}. I think again. No: \boxed{\frac{1}{2}}."), r"\frac{1}{2}");
        assert_eq!(extracted(r"\boxed{1} and \boxed{2}"), "1, 2");
        assert_eq!(extracted(r"\boxed{3}. The answer is 5"), "3");
        assert_eq!(extracted(r"it is \boxed{42"), "42");
        assert_eq!(extracted(r"\boxed 7 apples"), "7");
    }

    #[test]
    fn announcements_are_followed() {
        assert_eq!(extracted("3 + 4 = 7\n#### 7"), "7");
        assert_eq!(extracted("He has 3.\nA: 12"), "12");
        assert_eq!(extracted("The answer is 5 apples. He had 3."), "5 apples");
        assert_eq!(extracted("**Answer:** $5$"), "$5$");
        assert_eq!(extracted("Final Answer: Jane started 3 hours ago. I hope it is correct."), "3");
        assert_eq!(extracted("The final answer is $\\frac{1}{2}$."), r"$\frac{1}{2}$");
    }

    #[test]
    fn the_last_number_or_formula_is_the_fallback() {
        assert_eq!(extracted("So Tom has 3 + 4 = 7 apples now."), "7");
        assert_eq!(extracted("It was not 10 but 1,000.99€ then"), "1,000.99");
        assert_eq!(extracted("It fell by -3 degrees in 1 night"), "1");
        assert_eq!(extracted("from 5-3"), "3");
        assert_eq!(extracted("-39 is the answer."), "-39");
        assert_eq!(extracted("The rest is 75 - 50 = $25.\nSo she has 25 in total."), "25");
        assert_eq!(extracted("Thus $x <= 2$ is our answer."), "x <= 2");
        assert_eq!(extracted("<think>maybe 9</think> 12"), "12");
        assert_eq!(answer("I do not know what to say about this at all"), None);
        assert_eq!(answer(""), None);
    }
}
