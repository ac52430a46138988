//! The call in an assert statement, without the value that is expected of it.

/// Python's names that stand before a parenthesis in assert statements without being the function under test.
const NOT_TESTED: &str = "abs all and any assert bool complex dict enumerate filter float frozenset if in int is \
                          isinstance len list map max min not or range repr reversed round set sorted str sum tuple zip";

/// Returns the first call of one of `names`, or without names of any function that isn't Python's own.
pub fn call<'a>(assert: &'a str, names: &[String]) -> Option<&'a str> {
    let tested = |name: &str| match names {
        [] => !NOT_TESTED.split_whitespace().any(|other| other == name),
        names => names.iter().any(|known| known == name),
    };
    let mut start = None;
    let mut before = ' ';
    for (offset, letter) in code(assert) {
        if letter == '(' {
            let name = start.and_then(|start: usize| assert.get(start..offset));
            if let (Some(start), true) = (start, name.is_some_and(tested)) {
                return assert.get(start..end(assert, offset)?);
            }
        }
        start = match (is_word(letter), start) {
            (true, Some(start)) => Some(start),
            // Neither a method nor a number.
            (true, None) if before != '.' && !is_word(before) && !letter.is_ascii_digit() => Some(offset),
            _ => None,
        };
        before = letter;
    }
    None
}

/// Returns the end of the parentheses that open at `start`.
fn end(text: &str, start: usize) -> Option<usize> {
    let mut depth = 0_u32;
    for (offset, letter) in code(text).skip_while(|(offset, _)| *offset < start) {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(offset + letter.len_utf8());
        }
    }
    None
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Characters outside of string literals, with their offsets.
fn code(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    let mut escaped = false;
    text.char_indices().filter(move |(_, letter)| match quote {
        Some(open) => {
            if escaped {
                escaped = false;
            } else if *letter == '\\' {
                escaped = true;
            } else if *letter == open {
                quote = None;
            }
            false
        }
        None => {
            if matches!(letter, '"' | '\'') {
                quote = Some(*letter);
            }
            quote.is_none()
        }
    })
}

/// Returns the names that `source` defines at its top level and `text` uses.
pub fn names(source: &str, text: &str) -> Vec<String> {
    let defined = source.lines().filter_map(|line| {
        let rest = ["def ", "class ", "async def "].iter().find_map(|word| line.strip_prefix(word))?;
        rest.trim_start().split(|letter| !is_word(letter)).next().filter(|name| !name.is_empty())
    });
    let used: Vec<&str> = text.split(|letter| !is_word(letter)).collect();
    let mut names: Vec<String> = defined.filter(|name| used.contains(name)).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_no_expected_value() {
        for (assert, expected) in [
            ("assert inc(1) == 2", Some("inc(1)")),
            ("assert set(both((3, 4), [5])) == set((4, 5))", Some("both((3, 4), [5])")),
            ("assert 3 == inc ( 1 )", None),
            ("assert f(\"a) == ( \\\" b\", 'c') == 'd(2)'", Some("f(\"a) == ( \\\" b\", 'c')")),
            ("assert math.isclose(area(2), 12.5, rel_tol=0.1)", Some("area(2)")),
            ("assert not(odd(4))", Some("odd(4)")),
            ("assert é1(x)(y) == 3", Some("é1(x)")),
            ("assert f(1", None),
            ("assert True", None),
            ("", None),
        ] {
            assert_eq!(call(assert, &[]), expected, "{assert}");
        }
        assert_eq!(call("assert sum(10, 15) == 6", &["sum".to_owned()]), Some("sum(10, 15)"));
    }

    #[test]
    fn names_are_defined_and_used() {
        let source = "class Pair(object):\n    def get(self): pass\ndef longest(a): pass\ndef helper(): pass";
        assert_eq!(names(source, "assert longest([Pair(1, get)])"), ["Pair", "longest"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_call_or_none(text in "[f(x)'\"\\\\ =é.1\\[\\]]{0,24}") {
            if let Some(call) = call(&text, &[]) {
                proptest::prop_assert!(text.contains(call) && call.ends_with([')', ']']));
            }
        }
    }
}
