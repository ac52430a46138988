//! Patterns of paths as data cards write them: `*`, `?` and `[…]` within a name, `**` for any number of folders.

/// Part of a pattern for one name.
enum Token {
    Many,
    One,
    Char(char),
    Set { negated: bool, ranges: Vec<(char, char)> },
}

/// Returns true if a path, with `/` between its names, matches a pattern.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let parts: Vec<&str> = pattern.split('/').collect();
    let names: Vec<&str> = path.split('/').collect();
    matches_all(&parts, &names, |part| *part == "**", |part, name| matches_name(part, name))
}

fn matches_name(pattern: &str, name: &str) -> bool {
    let chars: Vec<char> = name.chars().collect();
    let fits = |token: &Token, own: &char| match token {
        Token::Many => false,
        Token::One => true,
        Token::Char(char) => char == own,
        Token::Set { negated, ranges } => {
            ranges.iter().any(|(first, last)| (first..=last).contains(&own)) != *negated
        }
    };
    matches_all(&tokens(pattern), &chars, |token| matches!(token, Token::Many), fits)
}

/// Matches items against tokens, some of which stand for any number of items. Takes as many steps as the product of both
/// lengths at most: only the last of those tokens has to be tried again.
fn matches_all<T, I>(
    tokens: &[T],
    items: &[I],
    is_many: impl Fn(&T) -> bool,
    fits: impl Fn(&T, &I) -> bool,
) -> bool {
    let (mut token, mut item) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while item < items.len() {
        if tokens.get(token).is_some_and(&is_many) {
            retry = Some((token + 1, item));
            token += 1;
        } else if tokens.get(token).is_some_and(|token| fits(token, &items[item])) {
            (token, item) = (token + 1, item + 1);
        } else if let Some((after, start)) = retry {
            retry = Some((after, start + 1));
            (token, item) = (after, start + 1);
        } else {
            return false;
        }
    }
    tokens[token..].iter().all(is_many)
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = pattern.chars();
    while let Some(first) = rest.next() {
        let set = if first == '[' { set(rest.as_str()) } else { None };
        tokens.push(match (first, set) {
            (_, Some((token, after))) => {
                rest = after.chars();
                token
            }
            ('*', None) => Token::Many,
            ('?', None) => Token::One,
            (char, None) => Token::Char(char),
        });
    }
    tokens
}

/// Parses a set such as `0-9]` after its bracket. Returns it with what follows. Returns `None` if it has no end.
fn set(text: &str) -> Option<(Token, &str)> {
    let (inside, after) = text.split_once(']').filter(|(inside, _)| !inside.is_empty())?;
    let members = inside.strip_prefix(['!', '^']);
    let negated = members.is_some();
    let mut chars = members.unwrap_or(inside).chars();
    let mut ranges = Vec::new();
    while let Some(first) = chars.next() {
        let last = chars.as_str().strip_prefix('-').and_then(|rest| rest.chars().next());
        ranges.push((first, last.unwrap_or(first)));
        if last.is_some() {
            chars.nth(1);
        }
    }
    Some((Token::Set { negated, ranges }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_on_the_hub() {
        for (pattern, path, expected) in [
            ("train.jsonl", "train.jsonl", true),
            ("train.jsonl", "data/train.jsonl", false),
            ("data/train-*", "data/train-00000-of-00002.parquet", true),
            ("data/train-*", "data/more/train-0.parquet", false),
            ("*/train-*.parquet", "main/train-0.parquet", true),
            ("*.jsonl", "a/b.jsonl", false),
            ("**/*.jsonl", "b.jsonl", true),
            ("**/*.jsonl", "a/b/c.jsonl", true),
            ("data/**", "data/a/b.json", true),
            ("data/**/train*", "data/train.json", true),
            ("train-0000[0-3]-of-*", "train-00002-of-00009.parquet", true),
            ("train-0000[0-3]-of-*", "train-00004-of-00009.parquet", false),
            ("train[!0-9]?", "train-1", true),
            ("train[!0-9]?", "train01", false),
            ("a[b", "a[b", true),
            ("*a*b*", "xaxbx", true),
            ("*a*b*", "xbxax", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_exponential_time() {
        let pattern = format!("{}b", "*a".repeat(200));
        assert!(!matches(&pattern, &"a".repeat(4000)));
    }
}
