//! The grader: whether two answers are one, as a teacher would see it.
//!
//! Both sides go the same way: the answer is found in the text ([`extract`]), its writing is evened out and cut
//! into tokens, the tokens are read as an answer (values, lists, intervals, relations), and two answers are
//! compared by what they are worth: fractions exactly, roots and the like to a millionth, expressions with
//! unknowns at several points. What cannot be read is compared as text. Work is bounded on any input.

mod answer;
mod compare;
mod eval;
mod expr;
pub mod extract;
mod lex;
mod number;
mod writing;

use answer::Answer;

/// Whether `pred` gives the answer that `gold` does. Either may be an answer or a text that ends with one.
#[must_use]
pub fn grade(gold: &str, pred: &str) -> bool {
    // Most answers are whole numbers, which need none of what follows.
    if let (Ok(gold), Ok(pred)) = (gold.trim().parse::<i64>(), pred.trim().parse::<i64>()) {
        return gold == pred;
    }
    let (Some(gold), Some(pred)) = (extract::answer(gold), extract::answer(pred)) else {
        return false;
    };
    same(&gold, &pred)
}

/// Whether two answers, with no text around them, are one.
fn same(gold: &str, pred: &str) -> bool {
    if writing::plain(gold) == writing::plain(pred) {
        return !gold.trim().is_empty();
    }
    let (gold, pred) = (readings(gold), readings(pred));
    gold.iter().any(|gold| pred.iter().any(|pred| compare::same(gold, pred)))
}

/// All ways to read an answer: a comma may separate thousands, decimals or values.
fn readings(text: &str) -> Vec<Answer> {
    let mut readings: Vec<Answer> = Vec::new();
    for text in writing::variants(text) {
        readings.extend(lex::tokens(&text).and_then(|tokens| answer::parse(&tokens)));
    }
    readings
}

/// Whether the text is nothing but an answer.
fn reads_as_answer(text: &str) -> bool {
    text.len() <= lex::LONGEST_ANSWER && !readings(text).is_empty()
}

#[cfg(test)]
mod tests;
