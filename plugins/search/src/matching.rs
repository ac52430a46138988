//! Comparison of answers, as HotpotQA's official script does it (`hotpot_evaluate_v1.py`, Yang et al. 2018).

use std::collections::BTreeMap;

/// Answers that are right or wrong as a whole.
const WHOLE: [&str; 3] = ["yes", "no", "noanswer"];

/// Largest number of words that a lenient match allows an answer beyond those of the right one. Without it, an answer
/// that repeats every passage would be right.
const EXTRA_WORDS: usize = 5;

/// Returns a text in lower case, without ASCII punctuation, articles and repeated white space.
pub fn normalize(text: &str) -> String {
    let kept: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // Articles are whole words between any characters other than letters and digits, such as a dash.
    let mut words = String::with_capacity(kept.len());
    let mut word = String::new();
    for c in kept.chars().chain([' ']) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        words.push_str(if matches!(word.as_str(), "a" | "an" | "the") { " " } else { &word });
        words.push(c);
        word.clear();
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if an answer equals one of the right ones after normalisation.
pub fn exact(answers: &[String], answer: &str) -> bool {
    let answer = normalize(answer);
    answers.iter().any(|right| normalize(right) == answer)
}

/// Returns the F1 of an answer's words against the right answer that fits best, from 0 to 1.
pub fn f1(answers: &[String], answer: &str) -> f64 {
    let answer = normalize(answer);
    answers.iter().map(|right| f1_of(&normalize(right), &answer)).fold(0.0, f64::max)
}

/// F1 of normalised texts.
fn f1_of(right: &str, answer: &str) -> f64 {
    if right != answer && (WHOLE.contains(&right) || WHOLE.contains(&answer)) {
        return 0.0;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in right.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    let mut same = 0;
    for word in answer.split_whitespace() {
        if let Some(left) = counts.get_mut(word).filter(|left| **left > 0) {
            *left -= 1;
            same += 1;
        }
    }
    let words = right.split_whitespace().count() + answer.split_whitespace().count();
    // 2 P R / (P + R) with P = same / answer and R = same / right.
    if same == 0 { 0.0 } else { 2.0 * f64::from(same) / words as f64 }
}

/// Returns true if an answer is equal to a right one, or contains it with at most `EXTRA_WORDS` other words. `yes` and
/// `no` have to be equal.
pub fn lenient(answers: &[String], answer: &str) -> bool {
    let answer = normalize(answer);
    let length = answer.split_whitespace().count();
    answers.iter().map(|right| normalize(right)).any(|right| {
        answer == right
            || !right.is_empty()
                && !WHOLE.contains(&right.as_str())
                && length <= right.split_whitespace().count() + EXTRA_WORDS
                && contains_words(&answer, &right)
    })
}

/// Returns true if a text contains a right answer that is more than `yes` or `no`. Both are compared word by word.
pub fn mentions(text: &str, answers: &[String]) -> bool {
    let text = normalize(text);
    answers
        .iter()
        .map(|right| normalize(right))
        .any(|right| !right.is_empty() && !WHOLE.contains(&right.as_str()) && contains_words(&text, &right))
}

/// Returns true if normalised words stand next to each other in a normalised text.
fn contains_words(text: &str, words: &str) -> bool {
    format!(" {text} ").contains(&format!(" {words} "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(answers: &[&str]) -> Vec<String> {
        answers.iter().map(|answer| (*answer).to_owned()).collect()
    }

    #[test]
    fn normalisation_follows_the_official_script() {
        let table = [
            ("The  Cat's  hat.", "cats hat"),
            ("An apple a day", "apple day"),
            ("the", ""),
            ("Theatre anthem", "theatre anthem"),
            ("A.B.C.", "abc"),
            ("well-known", "wellknown"),
            ("1,234.5", "12345"),
            ("Côte d'Ivoire", "côte divoire"),
            // The dash is not ASCII punctuation, so it stays, and ends the article before it.
            ("the\u{2013}end", "\u{2013}end"),
            ("the_end", "theend"),
        ];
        for (text, expected) in table {
            assert_eq!(normalize(text), expected, "{text}");
        }
    }

    #[test]
    fn scores_worked_out_by_hand() {
        // Right answers, answer, exact match, F1, lenient match.
        let table: &[(&[&str], &str, bool, f64, bool)] = &[
            (&["Arrowhead Stadium"], "the arrowhead stadium.", true, 1.0, true),
            // One of two words and both of two: P = 1, R = 1/2.
            (&["Arrowhead Stadium"], "Arrowhead", false, 2.0 / 3.0, false),
            // P = 2/4, R = 1.
            (&["Arrowhead Stadium"], "It is Arrowhead Stadium", false, 2.0 / 3.0, true),
            // Words that occur twice count twice: same = 2 of 3 and 2.
            (&["New York New Jersey"], "new new", false, 4.0 / 6.0, false),
            (&["York"], "York York York", false, 0.5, true),
            (&["yes"], "yes", true, 1.0, true),
            (&["yes"], "yes it is", false, 0.0, false),
            (&["no"], "no idea", false, 0.0, false),
            (&["two cats"], "yes", false, 0.0, false),
            (&["1969", "July 1969"], "in July 1969", false, 0.8, true),
            (&["1969"], "19690", false, 0.0, false),
            // Seven words, of which one is right, and six more than it.
            (&["Paris"], "Paris London Rome Berlin Madrid Vienna Oslo", false, 0.25, false),
            (&["Paris"], "", false, 0.0, false),
            (&[], "Paris", false, 0.0, false),
        ];
        for (answers, answer, is_exact, score, is_lenient) in table {
            let answers = list(answers);
            assert_eq!(exact(&answers, answer), *is_exact, "{answers:?}, {answer}");
            assert!(
                (f1(&answers, answer) - score).abs() < 1e-12,
                "{answers:?}, {answer}: {}",
                f1(&answers, answer)
            );
            assert_eq!(lenient(&answers, answer), *is_lenient, "{answers:?}, {answer}");
        }
    }

    #[test]
    fn passages_mention_whole_words() {
        assert!(mentions("Rome, capital of Italy", &list(&["capital of the Italy"])));
        assert!(!mentions("Romeo", &list(&["Rome"])));
        assert!(!mentions("yes and no", &list(&["yes", "no", ""])));
    }

    proptest! {
        #[test]
        fn matches_imply_each_other(answer in "[abthe yno]{0,12}", right in "[abthe yno]{1,12}") {
            let answers = [right.clone()];
            let score = f1(&answers, &answer);
            prop_assert!((0.0..=1.0).contains(&score));
            if exact(&answers, &answer) {
                prop_assert!(lenient(&answers, &answer));
                prop_assert!(score == 1.0 || normalize(&right).is_empty());
            }
            if lenient(&answers, &answer) && !normalize(&right).is_empty() {
                prop_assert!(score > 0.0);
            }
            prop_assert_eq!(score, f1(std::slice::from_ref(&answer), &right));
            prop_assert_eq!(normalize(&normalize(&answer)), normalize(&answer));
        }
    }
}
