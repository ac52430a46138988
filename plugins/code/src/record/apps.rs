//! Records of APPS: inputs of programs, or arguments of a function.

use pl_sdk::prelude::*;
use serde_json::Value;

use super::contests::{reference_solution, whole_programs};
use super::{Cases, Problem, Record, Tests};
use crate::candidate::Call;
use crate::cases::{CallCase, Case};
use crate::data;

/// Names that LeetCode's signatures and solutions use without importing them.
const PRELUDE: &str = "from typing import *\nfrom collections import *\nfrom itertools import *\nfrom functools import *\n\
                       from heapq import *\nfrom bisect import *\nfrom math import ceil, comb, floor, gcd, inf, isqrt, log, \
                       sqrt\nimport bisect, collections, functools, heapq, itertools, math, random, re, string\n";

/// The field `input_output`.
#[derive(Debug, Deserialize)]
struct InputOutput {
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    fn_name: Option<String>,
}

/// Converts a record.
pub fn read(record: Record, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let parsed = match record.input_output.unwrap_or_default() {
        Value::String(text) => serde_json::from_str(&text),
        value => serde_json::from_value(value),
    };
    let InputOutput { inputs, outputs, fn_name } =
        parsed.map_err(|error| bad(&format!("its `input_output` can't be read: {error}")))?;
    if inputs.len() != outputs.len() {
        return Err(bad("its `input_output` has different numbers of `inputs` and `outputs`"));
    }
    let solution = reference_solution(record.solution.as_ref(), record.solutions.as_ref());
    let question = record.question.unwrap_or_default();
    let pairs = inputs.iter().zip(&outputs);
    let Some(name) = fn_name else {
        let text = |value: &Value| {
            lines(value).ok_or_else(|| bad("its `input_output` has inputs or outputs that are not texts"))
        };
        let case = |(input, output): (&Value, &Value)| -> Result<Case> {
            Ok(Case::Input { input: text(input)?, output: text(output)? })
        };
        return whole_programs(&question, pairs.map(case).collect::<Result<Vec<_>>>()?, solution, &bad);
    };
    let function = Function::new(name, record.starter_code.as_deref());
    let case = |(input, output): (&Value, &Value)| -> Result<Case> {
        let args = input
            .as_array()
            .ok_or_else(|| bad("its `input_output` has an input that is not a list of arguments"))?;
        // As in the set's own test program, an output may be wrapped in a list.
        let inner = output.as_array().filter(|list| list.len() == 1).and_then(|list| list.first());
        Ok(function.case(args, [Some(output), inner].into_iter().flatten()))
    };
    let cases = pairs.map(case).collect::<Result<Vec<_>>>()?;
    function.problem(&question, cases, solution, &bad)
}

/// Returns a text, or the lines of a list as one.
fn lines(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => Some(lines.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join("\n")),
        _ => None,
    }
}

/// A function to write, as `starter` declares it: alone, or a method of `class Solution`.
pub struct Function {
    name: String,
    starter: String,
    method: bool,
}

impl Function {
    pub fn new(name: String, starter: Option<&str>) -> Self {
        let starter = starter.unwrap_or_default().trim_end().to_owned();
        Self { name, method: starter.contains("class Solution"), starter }
    }

    /// Returns a test: arguments, and the results that are right.
    pub fn case<'v>(&self, args: &[Value], accepted: impl IntoIterator<Item = &'v Value>) -> Case {
        let args = args.iter().map(data::from_json).collect();
        let calls = match self.method {
            true => Call::method("Solution", &self.name, args),
            false => vec![Call::function(&self.name, args)],
        };
        let accepted = accepted.into_iter().map(data::from_json).collect();
        Case::Call(CallCase { calls, accepted, json: true })
    }

    pub fn problem(
        self,
        question: &str,
        cases: Vec<Case>,
        solution: Option<String>,
        bad: impl Fn(&str) -> Error,
    ) -> Result<Problem> {
        if cases.is_empty() {
            return Err(bad("it has no tests"));
        }
        let Self { name, starter, method } = self;
        let task = match starter.is_empty() {
            true => format!("Write a Python function `{name}`."),
            false => format!("Complete this:\n```python\n{starter}\n```"),
        };
        let tests = Tests::Cases(Cases { prelude: PRELUDE.to_owned(), cases });
        let function = if method { format!("Solution().{name}") } else { name };
        Ok(Problem {
            text: format!("{}\n\n{task}", question.trim()),
            tests,
            solution,
            functions: vec![function],
        })
    }
}
