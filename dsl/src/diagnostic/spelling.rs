//! Suggestions for misspelt names, and lists of names in messages.

/// Name that is most similar to `wrong`. Returns `None` if none is similar.
pub(crate) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    near(wrong, names).into_iter().next()
}

/// Names that are similar to `wrong`, the most similar first.
pub(crate) fn near<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    // The distance takes time proportional to the product of the lengths.
    const MAX_LENGTH: usize = 64;
    // Bounds the time for a file with thousands of names and mistakes.
    const MAX_NAMES: usize = 256;
    if wrong.len() > MAX_LENGTH {
        return Vec::new();
    }
    let lower = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter(|name| name.len() <= MAX_LENGTH)
        .take(MAX_NAMES)
        .map(|name| (distance(&lower, &name.to_lowercase()), name))
        // All names of one letter are similar, and so are `L0` to `L3`.
        .filter(|(distance, name)| {
            let shorter = name.len().min(wrong.len());
            *distance <= (shorter / 3).max(1) && 2 * *distance < shorter
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().map(|(_, name)| name).collect()
}

/// Distance of two names in lower case. It is 0 if `wrong` has the initials of `name`: `lr` is `learning_rate`.
fn distance(wrong: &str, name: &str) -> usize {
    let initials = name.split('_').filter_map(|word| word.chars().next());
    if name.contains('_') && initials.eq(wrong.chars()) {
        return 0;
    }
    strsim::damerau_levenshtein(wrong, name)
}

/// Suggestion `did you mean …?`, or a list of the names after `title` if none is similar. Returns `None` if there are no names,
/// or too many to list.
pub fn suggest<'n>(wrong: &str, title: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    const MAX_LISTED: usize = 24;
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(name) = nearest(wrong, names.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    match names.as_slice() {
        [] => None,
        _ if names.len() > MAX_LISTED => None,
        _ => Some(format!("{title}: {}", list(&names))),
    }
}

/// List of names such as ``a`, `b` and `c``.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    join(names, "and")
}

/// List of names such as ``a`, `b` or `c``.
pub(crate) fn either<S: AsRef<str>>(names: &[S]) -> String {
    join(names, "or")
}

fn join<S: AsRef<str>>(names: &[S], last: &str) -> String {
    match names {
        [] => String::new(),
        [only] => format!("`{}`", only.as_ref()),
        [first @ .., end] => {
            let first: Vec<String> = first.iter().map(|name| format!("`{}`", name.as_ref())).collect();
            format!("{} {last} `{}`", first.join(", "), end.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_and_abbreviated_names_are_found() {
        assert_eq!(nearest("temprature", ["temperature", "top_p"]), Some("temperature"));
        assert_eq!(nearest("lr", ["kl", "lr_schedule", "learning_rate"]), Some("learning_rate"));
        assert_eq!(nearest("L9", ["L0", "L1", "L2", "L3", "mixed"]), None);
    }
}
