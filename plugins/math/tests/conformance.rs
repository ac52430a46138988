//! The grader compared with other graders: math-verify's verdicts on pairs made by
//! `tests/conformance/grader.py`, the tests of math-verify and of Hendrycks' MATH, and solutions of models to GSM8K's
//! problems. The snapshots have the cases in which it differs.

#![allow(clippy::expect_used, reason = "a test's helper")]

use std::fs;

use maths::grader::{extract, grade};
use serde::Deserialize;

/// Maximum number of characters of an answer in a snapshot.
const MAX_SHOWN: usize = 100;

#[derive(Deserialize)]
struct Case {
    gold: String,
    pred: String,
    expected: u8,
    #[serde(default)]
    line: u32,
}

/// Reads the cases of a file. Returns `None` if the data is missing.
fn cases(file: &str) -> Option<Vec<Case>> {
    let text = fs::read_to_string(pl_testing::data(&format!("graders/{file}"))?).expect("a readable file");
    let cases = text.lines().filter(|line| !line.trim().is_empty());
    Some(cases.map(|line| serde_json::from_str(line).expect("a case is a JSON object")).collect())
}

/// Grades a case. The answer that an agent would extract from `pred` must be graded like `pred` itself.
fn graded(case: &Case) -> bool {
    let direct = grade(&case.gold, &case.pred);
    let extracted = extract::answer(&case.pred).is_some_and(|answer| grade(&case.gold, &answer));
    assert_eq!(direct, extracted, "{} and {}", shorten(&case.gold), shorten(&case.pred));
    direct
}

fn shorten(text: &str) -> String {
    let length = text.chars().count();
    let end: String = text.chars().skip(length.saturating_sub(MAX_SHOWN)).collect();
    if length > MAX_SHOWN { format!("…{end:?}") } else { format!("{end:?}") }
}

/// Returns the share of cases that are graded as expected, and descriptions of the others.
fn grade_all(cases: &[Case]) -> (f64, Vec<String>) {
    let wrong = cases.iter().filter(|case| graded(case) != (case.expected == 1));
    let lines: Vec<_> = wrong
        .map(|case| {
            let verdict = if case.expected == 1 { "should be equal" } else { "should differ" };
            format!("{:>4} {verdict}: {} and {}", case.line, shorten(&case.gold), shorten(&case.pred))
        })
        .collect();
    (1.0 - lines.len() as f64 / cases.len() as f64, lines)
}

/// A pair of answers and math-verify's verdict.
#[derive(Deserialize)]
struct Pair {
    kind: String,
    gold: String,
    pred: String,
    equal: bool,
}

#[test]
fn agreement_with_math_verify() {
    let pairs: Vec<Pair> =
        serde_json::from_str(include_str!("../../../tests/conformance/grader/math_verify.json"))
            .expect("a list of pairs");
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|pair| grade(&pair.gold, &pair.pred) != pair.equal)
        .map(|Pair { kind, gold, pred, equal }| {
            let verdict = if *equal { "are equal" } else { "differ" };
            format!("{kind}: {} and {} {verdict}", shorten(gold), shorten(pred))
        })
        .collect();
    let share = 1.0 - wrong.len() as f64 / pairs.len() as f64;
    assert!(pairs.len() >= 1000 && share >= 0.99, "{share:.4} of {}\n{}", pairs.len(), wrong.join("\n"));
    insta::assert_snapshot!("agreement", wrong.join("\n"));
}

#[test]
fn math_verify() {
    let Some(cases) = cases("math_verify_cases.jsonl") else { return };
    let (share, wrong) = grade_all(&cases);
    println!("math-verify: {share:.4} of {}\n{}", cases.len(), wrong.join("\n"));
    // Three of the 137 need settings that are not math-verify's defaults.
    assert!(share >= 0.97, "{share:.4} of math-verify's cases");
    insta::assert_snapshot!("math_verify", wrong.join("\n"));
}

#[test]
fn gsm8k_solutions() {
    let Some(cases) = cases("gsm8k_model_solutions.jsonl") else { return };
    let (share, wrong) = grade_all(&cases);
    println!("gsm8k: {share:.4} of {}\n{}", cases.len(), wrong.join("\n"));
    assert!(share >= 0.995, "{share:.4} of GSM8K's model solutions");
    insta::assert_snapshot!("gsm8k_solutions", wrong.join("\n"));
}

#[test]
fn hendrycks() {
    let Some(cases) = cases("hendrycks_is_equiv_cases.jsonl") else { return };
    let (share, wrong) = grade_all(&cases);
    println!("hendrycks: {share:.4} of {}\n{}", cases.len(), wrong.join("\n"));
    // Two of the sixteen require one order of a list; math-verify and this grader accept any.
    assert!(share >= 0.87, "{share:.4} of Hendrycks' cases");
    insta::assert_snapshot!("hendrycks", wrong.join("\n"));
}
