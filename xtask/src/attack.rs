//! `cargo xtask attack`: attacks and faults, each with the tests that hold against it and the controls that show that it
//! would work without the defence.
//!
//! The tests are ordinary ones, so that `cargo xtask test` runs them all; this command runs them by part and says what each
//! case came to. [`cases::CASES`] has the table.

mod case;
mod cases;
mod fuzz;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;
use crate::setup;

use self::case::{Case, PARTS, Test};
use self::cases::CASES;

/// Runs the cases of some parts, or of all, and prints a line for each. Returns the exit code.
///
/// # Errors
/// If a part does not exist, or the tests can't be started.
pub fn run(root: &Path, arguments: &[String]) -> Result<u8> {
    if let Some(("fuzz", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return fuzz::run(root, rest);
    }
    if let Some(unknown) = arguments.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("unknown part {unknown:?}: the parts are {} and fuzz", PARTS.join(", "));
    }
    let is_wanted = |case: &&Case| arguments.is_empty() || arguments.iter().any(|part| part == case.part);
    let wanted: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    setup::all(root)?;
    let skips = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let results = results_of(root, &wanted, skips.path())?;
    let skipped = std::fs::read_to_string(skips.path()).unwrap_or_default();
    let (report, failed) = report(&wanted, &results, &skipped);
    print!("{report}");
    Ok(u8::from(failed))
}

/// Results of tests by package and name: true for those that passed.
type Results = BTreeMap<(String, String), bool>;

/// Runs the tests of cases. Their own output goes to stderr.
fn results_of(root: &Path, cases: &[&Case], skips: &Path) -> Result<Results> {
    let tests: BTreeSet<&Test> =
        cases.iter().flat_map(|case| case.tests.iter().chain(case.controls)).collect();
    let filters: Vec<String> = tests.iter().map(|test| test.filter()).collect();
    let output = cargo(root)
        .args(["nextest", "run", "--release", "--workspace", "--no-fail-fast", "-E", &filters.join(" | ")])
        .args(["--message-format", "libtest-json"])
        .env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1")
        .env("PL_HOST_SKIP_LOG", skips)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo nextest")?;
    Ok(parse_results(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads nextest's lines: `{"type":"test","event":"ok","name":"pl-run::it$foreign::a_check_opens_no_grant"}`.
fn parse_results(lines: &str) -> Results {
    let mut results = Results::new();
    for line in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let passed = match (line["type"].as_str(), line["event"].as_str()) {
            (Some("test"), Some("ok")) => true,
            (Some("test"), Some("failed")) => false,
            _ => continue,
        };
        let Some((binary, name)) = line["name"].as_str().and_then(|name| name.split_once('$')) else {
            continue;
        };
        let package = binary.split("::").next().unwrap_or(binary);
        results.insert((package.to_owned(), name.to_owned()), passed);
    }
    results
}

/// Returns the lines of the cases, and true if one did not hold. `skipped` has a line for each test that lacked something.
fn report(cases: &[&Case], results: &Results, skipped: &str) -> (String, bool) {
    let (mut text, mut failed) = (String::new(), false);
    for case in cases {
        let all = || case.tests.iter().chain(case.controls);
        let found = |test: &Test| {
            results
                .iter()
                .find(|((package, name), _)| package == test.package && test.is(name))
                .map(|(_, passed)| *passed)
        };
        let is_of =
            |line: &&str| line.split_once(": ").is_some_and(|(name, _)| all().any(|test| test.is(name)));
        let reason = skipped.lines().find(is_of);
        let verdict = if all().any(|test| found(test) == Some(false)) {
            failed = true;
            "FAILED".to_owned()
        } else if let Some(missing) = all().find(|test| found(test).is_none()) {
            failed = true;
            format!("NOT RUN: {} {}", missing.package, missing.name)
        } else if let Some(reason) = reason {
            format!("skipped: {}", reason.split_once(": ").map_or(reason, |(_, reason)| reason))
        } else {
            "holds".to_owned()
        };
        let findings = case.findings.join(" ");
        let _ = writeln!(
            text,
            "{:>4}  {:<8} {:<66} {findings:<14} {verdict}",
            case.number, case.part, case.attack
        );
    }
    (text, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDS: Test = Test { package: "pl-run", name: "foreign::one" };

    fn case(tests: &'static [Test]) -> Case {
        Case { number: 1, part: "files", attack: "an attack", findings: &["F1"], tests, controls: &[] }
    }

    #[test]
    fn a_case_holds_if_all_of_its_tests_pass_and_none_was_skipped() {
        const TESTS: [Test; 1] = [HOLDS];
        let case = case(&TESTS);
        let line = |event: &str| {
            format!("{{\"type\":\"test\",\"event\":\"{event}\",\"name\":\"pl-run::it$foreign::one\"}}\n")
        };
        let told = |lines: &str, skipped: &str| report(&[&case], &parse_results(lines), skipped);
        let (text, failed) = told(&line("ok"), "");
        assert!(text.trim_end().ends_with("holds") && !failed, "{text}");
        let (text, failed) = told(&line("failed"), "");
        assert!(text.contains("FAILED") && failed, "{text}");
        let (text, failed) = told("", "");
        assert!(text.contains("NOT RUN: pl-run foreign::one") && failed, "{text}");
        let (text, failed) = told(&line("ok"), "foreign::one: there is no engine\n");
        assert!(text.contains("skipped: there is no engine") && !failed, "{text}");
    }
}
