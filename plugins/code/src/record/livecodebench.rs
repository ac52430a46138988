//! Records of LiveCodeBench: public tests in JSON, private ones in JSON or packed.

use pl_sdk::prelude::*;
use serde_json::Value;

use super::apps::Function;
use super::contests::{reference_solution, whole_programs};
use super::packed::{self, PackedError};
use super::{Problem, Record};
use crate::cases::Case;

/// A test.
#[derive(Debug, Deserialize)]
struct Row {
    input: String,
    output: String,
    testtype: String,
}

/// The field `metadata`.
#[derive(Debug, Default, Deserialize)]
struct Metadata {
    func_name: Option<String>,
}

/// Converts a record.
pub fn read(record: Record, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let mut rows = Vec::new();
    for (name, list) in
        [("public_test_cases", record.public_test_cases), ("private_test_cases", record.private_test_cases)]
    {
        let list = read_rows(list.unwrap_or_default());
        rows.extend(list.map_err(|reason| bad(&format!("its `{name}` can't be read: {reason}")))?);
    }
    let solution = reference_solution(record.solution.as_ref(), record.solutions.as_ref());
    let question = record.question_content.unwrap_or_default();
    let other = rows.iter().find(|row| !["stdin", "functional"].contains(&row.testtype.as_str()));
    if let Some(row) = other {
        return Err(bad(&format!("a `testtype` is `stdin` or `functional`, not `{}`", row.testtype)));
    }
    if rows.iter().all(|row| row.testtype == "stdin") {
        let case = |Row { input, output, .. }| Case::Input { input, output };
        return whole_programs(&question, rows.into_iter().map(case).collect(), solution, bad);
    }
    let metadata = match record.metadata.unwrap_or_default() {
        Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        value => serde_json::from_value::<Metadata>(value).unwrap_or_default(),
    };
    let name =
        metadata.func_name.ok_or_else(|| bad("its `metadata` has no `func_name` for tests of a function"))?;
    let function = Function::new(name, record.starter_code.as_deref());
    let case = |row: &Row| -> Result<Case> {
        let json = |text: &str| serde_json::from_str::<Value>(text);
        // An argument a line.
        let args = row
            .input
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(json)
            .collect::<std::result::Result<Vec<_>, _>>();
        let read = args.and_then(|args| Ok((args, json(&row.output)?)));
        let (args, output) =
            read.map_err(|error| bad(&format!("a test of its function is no JSON: {error}")))?;
        Ok(function.case(&args, [&output]))
    };
    let cases = rows.iter().map(case).collect::<Result<Vec<_>>>()?;
    function.problem(&question, cases, solution, bad)
}

/// Reason why a list of tests can't be read.
#[derive(Debug, thiserror::Error)]
enum RowsError {
    #[error(transparent)]
    Packed(#[from] PackedError),
    #[error("no tests in JSON ({0})")]
    Json(#[from] serde_json::Error),
}

/// Returns the tests of a list, or of its text, which may be packed.
fn read_rows(list: Value) -> std::result::Result<Vec<Row>, RowsError> {
    Ok(match list {
        Value::Null => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) if text.trim_start().starts_with('[') => serde_json::from_str(&text)?,
        Value::String(text) => serde_json::from_str(&packed::unpack(&text)?)?,
        list => serde_json::from_value(list)?,
    })
}
