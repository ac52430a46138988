//! Records whose tests are assert statements: HumanEval and MBPP.

use pl_sdk::prelude::*;

use super::{Asserts, Problem, Record, Tests};
use crate::example;

/// Converts a HumanEval record, in which a function is given by its signature.
pub fn from_human_eval(record: Record, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let prompt = record.prompt.unwrap_or_default();
    let entry = record.entry_point.unwrap_or_default();
    let test = record.test.unwrap_or_default();
    let head = format!("def {entry}(");
    let mut offset = 0;
    let prelude = prompt.split_inclusive('\n').find_map(|line| {
        let before = prompt.get(..offset);
        offset += line.len();
        before.filter(|_| line.starts_with(&head))
    });
    let prelude = prelude.ok_or_else(|| bad(&format!("its `prompt` does not define `{entry}`")))?;
    let has_asserts = test.contains("assert");
    if !(has_asserts && test.contains("def check(")) {
        return Err(bad("its `test` defines no `check` with assert statements"));
    }
    let asserts = Asserts {
        prelude: prelude.to_owned(),
        names: vec![entry.clone()],
        code: format!("{test}\n\ncheck({entry})\n"),
        shown: Vec::new(),
    };
    let text = format!("Complete this function:\n```python\n{}\n```", prompt.trim());
    let solution = record.canonical_solution.map(|body| format!("{prompt}{body}"));
    Ok(Problem { text, tests: Tests::Asserts(asserts), solution, functions: vec![entry] })
}

/// Converts an MBPP record, in which a function is described in words.
pub fn from_mbpp(record: Record, shown: u32, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let Record { prompt, text, test_list, test_imports: imports, test_setup_code: setup, code, .. } = record;
    let tests = test_list.unwrap_or_default();
    let text = text.or(prompt).ok_or_else(|| bad("it has tests, but neither `text` nor `prompt`"))?;
    let names = example::names(&code, &tests.join("\n"));
    let lines = imports.iter().chain([&setup]).chain(&tests);
    let asserts = lines.map(|line| format!("{line}\n")).collect();
    let (text, shown) = describe_mbpp(&text, &tests, &names, shown, bad)?;
    let mut functions: Vec<String> = Vec::new();
    for name in tests.iter().filter_map(|test| example::call(test, &names)?.split('(').next()) {
        if !functions.iter().any(|known| known == name) {
            functions.push(name.to_owned());
        }
    }
    let asserts = Asserts { prelude: String::new(), names, code: asserts, shown };
    let solution = (!code.trim().is_empty()).then_some(code);
    Ok(Problem { text, tests: Tests::Asserts(asserts), solution, functions })
}

/// Returns the text of an MBPP record and the tests that it shows.
fn describe_mbpp(
    text: &str,
    tests: &[String],
    names: &[String],
    shown: u32,
    bad: impl Fn(&str) -> Error,
) -> Result<(String, Vec<String>)> {
    if tests.is_empty() || !tests.iter().all(|test| test.trim_start().starts_with("assert")) {
        return Err(bad("its `test_list` is not a list of assert statements"));
    }
    let shown: Vec<String> = tests.iter().take(shown as usize).map(|test| test.trim().to_owned()).collect();
    let example = match shown.is_empty() {
        false => format!("For example:\n```python\n{}\n```", shown.join("\n")),
        true => {
            let call = tests.iter().find_map(|test| example::call(test, names));
            let call = call.ok_or_else(|| bad("its `test_list` calls no function"))?;
            format!("A call of the function:\n```python\n{call}\n```")
        }
    };
    Ok((format!("{}\n{example}", text.trim()), shown))
}
