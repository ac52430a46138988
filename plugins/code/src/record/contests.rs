//! Records of programming contests, whose programs read standard input.

use pl_sdk::prelude::*;
use serde_json::Value;

use super::{Cases, Problem, Record, Tests};
use crate::cases::Case;

/// Limit of CodeContests' cases of a problem, which has hundreds of generated ones: each is a job of a turn.
pub const MAX_CASES: usize = 200;

/// Number of Python 3 in CodeContests' list of languages.
const PYTHON_3: i64 = 3;

/// Inputs and outputs, side by side or in pairs.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum CaseList {
    Columns(CaseColumns),
    Rows(Vec<CaseRow>),
}

/// Inputs and outputs side by side.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseColumns {
    #[serde(alias = "input")]
    inputs: Vec<String>,
    #[serde(alias = "output")]
    outputs: Vec<String>,
}

/// An input and its output.
#[derive(Debug, Deserialize)]
pub struct CaseRow {
    input: String,
    output: String,
}

impl CaseColumns {
    fn cases(self) -> Option<Vec<Case>> {
        let pairs =
            (self.inputs.len() == self.outputs.len()).then(|| self.inputs.into_iter().zip(self.outputs));
        pairs.map(|pairs| pairs.map(|(input, output)| Case::Input { input, output }).collect())
    }
}

/// Converts a record with `problem` and `tests`.
pub fn from_contest(record: Record, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let cases = match record.tests {
        Some(CaseList::Rows(rows)) => {
            let case = |CaseRow { input, output }| Case::Input { input, output };
            rows.into_iter().map(case).collect()
        }
        Some(CaseList::Columns(columns)) => columns
            .cases()
            .ok_or_else(|| bad("its `tests` have different numbers of `inputs` and `outputs`"))?,
        None => Vec::new(),
    };
    let solution = reference_solution(record.solution.as_ref(), record.solutions.as_ref());
    whole_programs(&record.problem.unwrap_or_default(), cases, solution, bad)
}

/// Converts a CodeContests record: given cases, then generated ones up to [`MAX_CASES`].
pub fn from_code_contests(record: Record, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let mut cases = Vec::new();
    for list in [record.public_tests, record.private_tests, record.generated_tests].into_iter().flatten() {
        let list = list.cases();
        cases.extend(list.ok_or_else(|| bad("its tests have different numbers of `input` and `output`"))?);
    }
    cases.truncate(MAX_CASES);
    let solution = record.solutions.as_ref().and_then(|solutions| {
        let languages = solutions.get("language")?.as_array()?;
        let place = languages.iter().position(|language| language.as_i64() == Some(PYTHON_3))?;
        solutions.get("solution")?.get(place)?.as_str().map(str::to_owned)
    });
    whole_programs(&record.description.unwrap_or_default(), cases, solution, bad)
}

/// Returns a problem for whole programs.
pub fn whole_programs(
    text: &str,
    cases: Vec<Case>,
    solution: Option<String>,
    bad: impl Fn(&str) -> Error,
) -> Result<Problem> {
    if cases.is_empty() {
        return Err(bad("its `tests` are empty"));
    }
    let text = format!(
        "{}\n\nAnswer with a whole program that reads standard input and prints to standard output.",
        text.trim()
    );
    let tests = Tests::Cases(Cases { prelude: String::new(), cases });
    Ok(Problem { text, tests, solution, functions: Vec::new() })
}

/// Returns the reference solution: the one solution, or the first of several, which are a list or its JSON text.
pub fn reference_solution(solution: Option<&Value>, solutions: Option<&Value>) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let first = |list: &Value| list.get(0).and_then(text);
    let listed = || match solutions? {
        Value::String(list) => first(&serde_json::from_str(list).ok()?),
        list => first(list),
    };
    solution.and_then(text).or_else(listed).filter(|program| !program.trim().is_empty())
}
