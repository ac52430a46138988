//! Task records: the forms in which programming problems come.

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

/// A problem and its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is asked, as agents see it.
    pub text: String,
    /// Python that stands before every answer: imports and helpers that the problem's text defines.
    pub prelude: String,
    /// Python that is run after an answer, in its names. Empty where nobody knows tests: nothing passes then.
    pub tests: String,
    /// How many of the tests' first asserts the text shows.
    pub shown: u32,
}

/// The fields that are read; others are passed over.
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
    /// Reads HumanEval's records (`prompt`, `entry_point`, `test`; Chen et al. 2021, arXiv:2107.03374) and MBPP's
    /// (`text` or `prompt`, `test_list`, with or without `test_setup_code` and `test_imports`; Austin et al. 2021,
    /// arXiv:2108.07732), of whose tests the first `shown` are shown: their text does not say what the function
    /// is called. A record that is a `question` and nothing else is one that somebody asks by hand.
    ///
    /// # Errors
    /// [`Error::task`] that says which field is missing or wrong.
    pub fn read(task: &Task, shown: u32) -> Result<Self> {
        let bad = |problem: &str| Error::task(format!("task {}: {problem}", task.id));
        match task.read::<Record>()? {
            Record { prompt: Some(prompt), entry_point: Some(entry), test: Some(test), .. } => {
                function(&prompt, &entry, &test).map_err(|problem| bad(&problem))
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
                described(&text, &imports, &setup, &tests, shown).map_err(|problem| bad(&problem))
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

/// A function that is given by its head.
fn function(prompt: &str, entry: &str, test: &str) -> std::result::Result<Problem, String> {
    let head = format!("def {entry}(");
    let mut at = 0;
    let prelude = prompt.split_inclusive('\n').find_map(|line| {
        let before = prompt.get(..at);
        at += line.len();
        before.filter(|_| line.starts_with(&head))
    });
    let prelude = prelude.ok_or_else(|| format!("its `prompt` does not define `{entry}`"))?;
    let has_asserts = test.contains("assert");
    if !(has_asserts && test.contains("def check(")) {
        return Err("its `test` defines no `check` with assert statements".to_owned());
    }
    Ok(Problem {
        text: format!("Complete this function:\n```python\n{}\n```", prompt.trim()),
        prelude: prelude.to_owned(),
        tests: format!("{test}\n\ncheck({entry})\n"),
        shown: 0,
    })
}

/// A function that is described in words.
fn described(
    text: &str,
    imports: &[String],
    setup: &str,
    tests: &[String],
    shown: u32,
) -> std::result::Result<Problem, String> {
    if tests.is_empty() || !tests.iter().all(|test| test.trim_start().starts_with("assert")) {
        return Err("its `test_list` is no list of assert statements".to_owned());
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
        assert!(message(&json!({"text": "t", "test_list": ["print(1)"]})).contains("no list of assert"));
        assert!(message(&json!({"test_list": ["assert 1"]})).contains("neither `text` nor `prompt`"));
        assert!(message(&json!({"text": "t", "test_list": "assert 1"})).starts_with("task 7: "));
        assert_eq!(read(&json!({"question": "By hand?"})).unwrap().text, "By hand?");
    }
}
