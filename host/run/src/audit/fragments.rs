//! Fragments of a prompt that may be answers: worked examples, quoted text, and variations of lists in them.

/// Largest number of fragments of a prompt.
const MOST: usize = 48;

/// Returns the fragments of a prompt's messages (pairs of role and text) without repetitions, likely answers first.
pub(super) fn fragments(messages: &[(String, String)]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |text: &str| {
        let text = text.trim();
        if !text.is_empty() && found.len() < MOST && !found.iter().any(|one| one == text) {
            found.push(text.to_owned());
        }
    };
    let examples: Vec<&str> =
        messages.iter().filter(|(role, _)| role == "assistant").map(|(_, text)| text.as_str()).collect();
    examples.iter().for_each(|text| add(text));
    for text in &examples {
        variations(text).iter().for_each(|text| add(text));
    }
    for (_, text) in messages.iter().filter(|(role, _)| role != "assistant") {
        quoted(text).into_iter().for_each(&mut add);
        // Lists that a rule names, in the form of an example.
        for list in lists(text) {
            let items = items(list);
            if let (Some(example), 2..=12) = (examples.first(), items.len())
                && let Some(own) = lists(example).first()
            {
                items.iter().for_each(|item| add(&example.replace(own, &format!("[{item}]"))));
            }
        }
    }
    found
}

/// Returns an example with lists of one or two of its own list's items instead.
fn variations(example: &str) -> Vec<String> {
    let mut varied = Vec::new();
    for list in lists(example) {
        let mut distinct: Vec<&str> = Vec::new();
        for item in items(list) {
            if !distinct.contains(&item) {
                distinct.push(item);
            }
        }
        distinct.iter().for_each(|item| varied.push(example.replace(list, &format!("[{item}]"))));
        for first in &distinct {
            for second in distinct.iter().filter(|second| *second != first) {
                varied.push(example.replace(list, &format!("[{first}, {second}]")));
            }
        }
    }
    varied
}

/// Returns the innermost lists in brackets within a text, brackets included.
fn lists(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = None;
    for (index, character) in text.char_indices() {
        match (character, open) {
            ('[', _) => open = Some(index),
            (']', Some(start)) => {
                found.push(&text[start..=index]);
                open = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns the items of a list in brackets.
fn items(list: &str) -> Vec<&str> {
    let inner = list.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Returns the texts in backticks within a text: code blocks, then spans.
fn quoted(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut blocks = text.split("```");
    blocks.next();
    while let (Some(block), Some(_)) = (blocks.next(), blocks.next()) {
        found.push(block.split_once('\n').map_or(block, |(_, code)| code));
    }
    let mut spans = text.split('`');
    spans.next();
    while let (Some(span), Some(_)) = (spans.next(), spans.next()) {
        if !span.is_empty() && !span.contains('\n') {
            found.push(span);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments_of(messages: &[(&str, &str)]) -> Vec<String> {
        let owned = |(role, text): &(&str, &str)| ((*role).to_owned(), (*text).to_owned());
        fragments(&messages.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn examples_come_first_and_their_lists_are_varied() {
        let found = fragments_of(&[
            ("system", "Moves are [U, D, L]. Answer like `#### [U]`."),
            ("user", "a maze"),
            ("assistant", "So: #### [U, D]"),
            ("user", "another maze"),
        ]);
        let expected = [
            "So: #### [U, D]",
            "So: #### [U]",
            "So: #### [D]",
            "So: #### [D, U]",
            "#### [U]",
            "So: #### [L]",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn code_is_found_and_strange_text_is_harmless() {
        let found = fragments_of(&[("user", "Write\n```python\nprint(1)\n```\nor `x` or ``")]);
        assert!(found.contains(&"print(1)".to_owned()) && found.contains(&"x".to_owned()), "{found:?}");
        for text in ["[", "]][[", "[é, ü", "```", "`", "[a, [b]"] {
            fragments_of(&[("assistant", text), ("user", text)]);
        }
        assert!(fragments_of(&[]).is_empty());
    }
}
