//! Task records: the formats of programming data sets.

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

/// A problem and its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The question, as agents see it.
    pub text: String,
    /// Python code before every answer: imports and helpers from the problem's text.
    pub prelude: String,
    /// Python code that runs after an answer, in its namespace. Empty if there are no tests: then no answer
    /// passes.
    pub tests: String,
    /// Number of leading asserts that the text shows.
    pub shown: u32,
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
    question: Option<String>,
}

impl Problem {
    /// Reads HumanEval's records (`prompt`, `entry_point`, `test`; Chen et al. 2021, arXiv:2107.03374) and
    /// MBPP's (`text` or `prompt`, `test_list`, with or without `test_setup_code` and `test_imports`; Austin
    /// et al. 2021, arXiv:2108.07732). Of MBPP's tests the first `shown` are shown, because the text does not
    /// name the function. A record with only a `question` has no tests.
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
                ..
            } => {
                let text =
                    text.or(prompt).ok_or_else(|| bad("it has tests, but neither `text` nor `prompt`"))?;
                from_mbpp(&text, &imports, &setup, &tests, shown, bad)
            }
            Record { question: Some(question), .. } if task.read::<Map<String, Value>>()?.len() == 1 => {
                let text = question.trim().to_owned();
                Ok(Self { text, prelude: String::new(), tests: String::new(), shown: 0 })
            }
            _ => {
                let fields = task.read::<Map<String, Value>>()?;
                let fields = fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(bad(&format!(
                    "a record has `prompt`, `entry_point` and `test` (HumanEval), or `text` and `test_list` (MBPP); \
                     this one has: {fields}"
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
    Ok(Problem {
        text: format!("Complete this function:\n```python\n{}\n```", prompt.trim()),
        prelude: prelude.to_owned(),
        tests: format!("{test}\n\ncheck({entry})\n"),
        shown: 0,
    })
}

/// Converts an MBPP record, in which a function is described in words.
fn from_mbpp(
    text: &str,
    imports: &[String],
    setup: &str,
    tests: &[String],
    shown: u32,
    bad: impl Fn(&str) -> Error,
) -> Result<Problem> {
    if tests.is_empty() || !tests.iter().all(|test| test.trim_start().starts_with("assert")) {
        return Err(bad("its `test_list` is not a list of assert statements"));
    }
    let examples: Vec<&str> = tests.iter().take(shown as usize).map(|test| test.trim()).collect();
    let lines = imports.iter().map(String::as_str).chain([setup]).chain(tests.iter().map(String::as_str));
    Ok(Problem {
        text: format!("{}\nFor example:\n```python\n{}\n```", text.trim(), examples.join("\n")),
        prelude: String::new(),
        tests: lines.map(|line| format!("{line}\n")).collect(),
        shown,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> Result<Problem> {
        Problem::read(&Task::new("7", data).unwrap(), 1)
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
        assert_eq!(problem.prelude, "import math\n\ndef helper(x):\n    return x\n\n");
        assert!(problem.text.contains("\"\"\" Adds. \"\"\"\n```"), "{}", problem.text);
        assert!(problem.tests.ends_with("== 3\n\n\ncheck(add)\n"), "{}", problem.tests);
    }

    #[test]
    fn descriptions_show_as_many_tests_as_they_may() {
        let record = json!({
            "text": "Write a function to add.", "code": "def add(a, b): ...", "task_id": 1,
            "test_setup_code": "one = 1", "test_list": ["assert add(one, 2) == 3", "assert add(2, 2) == 4"],
            "challenge_test_list": [],
        });
        let problem = read(&record).unwrap();
        let example = "For example:\n```python\nassert add(one, 2) == 3\n```";
        assert_eq!(problem.text, format!("Write a function to add.\n{example}"));
        assert_eq!(problem.tests, "one = 1\nassert add(one, 2) == 3\nassert add(2, 2) == 4\n");
        let cleaned =
            json!({"prompt": "Add.", "test_imports": ["import math"], "test_list": ["assert True"]});
        assert_eq!(read(&cleaned).unwrap().tests, "import math\n\nassert True\n");
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
        assert!(message(&json!({"test_list": ["assert 1"]})).contains("neither `text` nor `prompt`"));
        assert!(message(&json!({"text": "t", "test_list": "assert 1"})).starts_with("task 7: "));
        assert_eq!(read(&json!({"question": "By hand?"})).unwrap().text, "By hand?");
    }
}
