//! Task records: the formats of programming data sets.

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

use crate::example;

/// A problem and its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The question, as agents see it.
    pub text: String,
    /// The tests, which agents don't see.
    pub tests: Tests,
}

/// Tests of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tests {
    /// Calls of functions.
    Asserts(Asserts),
    /// Inputs of a whole program.
    Cases(Vec<Case>),
}

/// Tests that call functions of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asserts {
    /// Python code before every answer: imports and helpers from the problem's text.
    pub prelude: String,
    /// Globals of the program, where the prelude or Python has the same names.
    pub names: Vec<String>,
    /// Python code with assert statements. Empty if there are no tests: then no answer passes.
    pub code: String,
    /// The leading asserts that the text shows.
    pub shown: Vec<String>,
}

/// A test of a whole program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Standard input.
    pub input: String,
    /// Standard output, compared word by word.
    pub output: String,
}

/// The fields that are read. Others are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    prompt: Option<String>,
    entry_point: Option<String>,
    test: Option<String>,
    text: Option<String>,
    test_list: Option<Vec<String>>,
    test_imports: Vec<String>,
    test_setup_code: String,
    code: String,
    question: Option<String>,
    problem: Option<String>,
    tests: Option<CaseList>,
}

/// Inputs and outputs, side by side or in pairs.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CaseList {
    Columns { inputs: Vec<String>, outputs: Vec<String> },
    Rows(Vec<Case>),
}

impl Problem {
    /// Reads HumanEval's records (`prompt`, `entry_point`, `test`; Chen et al. 2021, arXiv:2107.03374), MBPP's
    /// (`text` or `prompt`, `test_list`, with or without `code`, `test_setup_code` and `test_imports`; Austin et
    /// al. 2021, arXiv:2108.07732) and those of programming contests (`problem`, and `tests` as
    /// `{"inputs": […], "outputs": […]}` or `[{"input": …, "output": …}]`). MBPP's text does not name the function:
    /// a call without its value does, or the first `shown` tests. A record with only a `question` has no tests.
    ///
    /// # Errors
    /// [`Error::task`] that names the missing or invalid field.
    pub fn read(task: &Task, shown: u32) -> Result<Self> {
        let bad = |problem: &str| Error::task(format!("task {}: {problem}", task.id));
        match task.read::<Record>()? {
            Record { prompt: Some(prompt), entry_point: Some(entry), test: Some(test), .. } => {
                from_human_eval(&prompt, &entry, &test, bad)
            }
            Record {
                prompt,
                text,
                test_list: Some(tests),
                test_imports: imports,
                test_setup_code: setup,
                code,
                ..
            } => {
                let text =
                    text.or(prompt).ok_or_else(|| bad("it has tests, but neither `text` nor `prompt`"))?;
                let names = example::names(&code, &tests.join("\n"));
                let lines = imports.iter().chain([&setup]).chain(&tests);
                let code = lines.map(|line| format!("{line}\n")).collect();
                let (text, shown) = describe_mbpp(&text, &tests, &names, shown, bad)?;
                let asserts = Asserts { prelude: String::new(), names, code, shown };
                Ok(Self { text, tests: Tests::Asserts(asserts) })
            }
            Record { problem: Some(problem), tests: Some(tests), .. } => from_contest(&problem, tests, bad),
            Record { question: Some(question), .. } if task.read::<Map<String, Value>>()?.len() == 1 => {
                let text = question.trim().to_owned();
                Ok(Self { text, tests: Tests::Asserts(Asserts::default()) })
            }
            _ => {
                let fields = task.read::<Map<String, Value>>()?;
                let fields = fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(bad(&format!(
                    "a record has `prompt`, `entry_point` and `test` (HumanEval), `text` and `test_list` (MBPP), \
                     or `problem` and `tests` (contests); this one has: {fields}"
                )))
            }
        }
    }
}

/// Converts a HumanEval record, in which a function is given by its signature.
fn from_human_eval(prompt: &str, entry: &str, test: &str, bad: impl Fn(&str) -> Error) -> Result<Problem> {
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
        names: vec![entry.to_owned()],
        code: format!("{test}\n\ncheck({entry})\n"),
        shown: Vec::new(),
    };
    let text = format!("Complete this function:\n```python\n{}\n```", prompt.trim());
    Ok(Problem { text, tests: Tests::Asserts(asserts) })
}

/// Returns the text of an MBPP record, in which a function is described in words, and the tests that it shows.
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

/// Converts a record of a contest, whose programs read standard input.
fn from_contest(problem: &str, tests: CaseList, bad: impl Fn(&str) -> Error) -> Result<Problem> {
    let cases = match tests {
        CaseList::Rows(cases) => cases,
        CaseList::Columns { inputs, outputs } if inputs.len() == outputs.len() => {
            inputs.into_iter().zip(outputs).map(|(input, output)| Case { input, output }).collect()
        }
        CaseList::Columns { .. } => {
            return Err(bad("its `tests` have different numbers of `inputs` and `outputs`"));
        }
    };
    if cases.is_empty() {
        return Err(bad("its `tests` are empty"));
    }
    let text = format!(
        "{}\n\nAnswer with a whole program that reads standard input and prints to standard output.",
        problem.trim()
    );
    Ok(Problem { text, tests: Tests::Cases(cases) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> Result<Problem> {
        Problem::read(&Task::new("7", data).unwrap(), 0)
    }

    fn asserts(problem: &Problem) -> &Asserts {
        match &problem.tests {
            Tests::Asserts(asserts) => asserts,
            Tests::Cases(_) => panic!("cases"),
        }
    }

    fn human_eval() -> Value {
        json!({
            "task_id": "HumanEval/0",
            "prompt": "import math\n\ndef helper(x):\n    return x\n\ndef add(a, b):\n    \"\"\" Adds. \"\"\"\n",
            "entry_point": "add",
            "canonical_solution": "    return a + b\n",
            "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
        })
    }

    #[test]
    fn what_stands_before_the_function_belongs_to_the_task() {
        let problem = read(&human_eval()).unwrap();
        let asserts = asserts(&problem);
        assert_eq!(asserts.prelude, "import math\n\ndef helper(x):\n    return x\n\n");
        assert!(problem.text.contains("\"\"\" Adds. \"\"\"\n```"), "{}", problem.text);
        assert!(asserts.code.ends_with("== 3\n\n\ncheck(add)\n"), "{}", asserts.code);
        assert_eq!(asserts.names, ["add"]);
    }

    #[test]
    fn descriptions_show_no_expected_value_unless_told_to() {
        let record = json!({
            "text": "Write a function to add.", "code": "def sum(a, b): ...", "task_id": 1,
            "test_setup_code": "one = 1", "test_list": ["assert sum(one, 2) == 3", "assert sum(2, 2) == 4"],
            "challenge_test_list": [],
        });
        let problem = read(&record).unwrap();
        let example = "A call of the function:\n```python\nsum(one, 2)\n```";
        assert_eq!(problem.text, format!("Write a function to add.\n{example}"));
        let code = "one = 1\nassert sum(one, 2) == 3\nassert sum(2, 2) == 4\n";
        let names = vec!["sum".to_owned()];
        let expected = Asserts { names, code: code.to_owned(), ..Asserts::default() };
        assert_eq!(asserts(&problem), &expected);
        let shown = Problem::read(&Task::new("7", &record).unwrap(), 1).unwrap();
        assert!(
            shown.text.ends_with("For example:\n```python\nassert sum(one, 2) == 3\n```"),
            "{}",
            shown.text
        );
        assert_eq!(asserts(&shown).shown, ["assert sum(one, 2) == 3"]);
        let cleaned =
            json!({"prompt": "Add.", "test_imports": ["import math"], "test_list": ["assert add(1)"]});
        assert_eq!(asserts(&read(&cleaned).unwrap()).code, "import math\n\nassert add(1)\n");
    }

    #[test]
    fn contests_have_inputs_and_outputs() {
        let case = |input: &str, output: &str| Case { input: input.to_owned(), output: output.to_owned() };
        let columns = json!({"problem": "Double.", "tests": {"inputs": ["1", "2"], "outputs": ["2", "4"]}});
        let problem = read(&columns).unwrap();
        assert_eq!(problem.tests, Tests::Cases(vec![case("1", "2"), case("2", "4")]));
        assert!(problem.text.starts_with("Double.\n\nAnswer with a whole program"), "{}", problem.text);
        let rows = json!({"problem": "Double.", "tests": [{"input": "1", "output": "2"}]});
        assert_eq!(read(&rows).unwrap().tests, Tests::Cases(vec![case("1", "2")]));
        let uneven = json!({"problem": "Double.", "tests": {"inputs": ["1"], "outputs": []}});
        assert!(read(&uneven).unwrap_err().message.contains("different numbers"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |data: &Value| read(data).unwrap_err().message;
        let with = |field: &str, value: &str| {
            let mut record = human_eval();
            record[field] = value.into();
            record
        };
        assert!(message(&with("entry_point", "sub")).ends_with("does not define `sub`"));
        assert!(message(&with("test", "def check(f): pass")).contains("no `check` with assert"));
        assert!(
            message(&json!({"question": "q", "answer": "5"})).ends_with("this one has: question, answer")
        );
        assert!(message(&json!({"text": "t", "test_list": ["print(1)"]})).contains("not a list of assert"));
        assert!(message(&json!({"text": "t", "test_list": ["assert True"]})).contains("calls no function"));
        assert!(message(&json!({"test_list": ["assert 1"]})).contains("neither `text` nor `prompt`"));
        assert!(message(&json!({"text": "t", "test_list": "assert 1"})).starts_with("task 7: "));
        assert_eq!(read(&json!({"question": "By hand?"})).unwrap().text, "By hand?");
    }
}
