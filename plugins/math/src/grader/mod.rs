//! The grader: decides if two answers are equivalent, as a teacher would.
//!
//! Both texts are processed alike: the answer is extracted ([`extract`]), normalized and split into tokens,
//! the tokens are parsed as an answer (values, lists, intervals, relations), and two answers are compared by
//! value: fractions exactly, irrational numbers to a millionth, expressions with unknowns at several points.
//! Answers that can't be parsed are compared as text. The work is bounded for any input.

mod answer;
mod compare;
mod equality;
mod eval;
mod expr;
pub mod extract;
mod lex;
mod normalize;
mod number;
mod parse;
mod region;
mod residue;
mod token;

use parse::parses;

/// Returns true if `pred` gives the same answer as `gold`. Both may be an answer or a text that ends with
/// one.
#[must_use]
pub fn grade(gold: &str, pred: &str) -> bool {
    // A shortcut for whole numbers, which most answers are.
    if let (Ok(gold), Ok(pred)) = (gold.trim().parse::<i64>(), pred.trim().parse::<i64>()) {
        return gold == pred;
    }
    let (Some(gold), Some(pred)) = (extract::answer(gold), extract::answer(pred)) else {
        return false;
    };
    equivalent(&gold, &pred)
}

/// Returns true if two answers, without text around them, are equivalent.
fn equivalent(gold: &str, pred: &str) -> bool {
    if normalize::plain(gold) == normalize::plain(pred) {
        return !gold.trim().is_empty();
    }
    let (gold, pred) = (parses(gold), parses(pred));
    gold.iter().any(|gold| pred.iter().any(|pred| compare::equivalent(gold, pred)))
}

#[cfg(test)]
mod tests;
