//! Task records: the formats of programming data sets.

mod apps;
mod contests;
mod functions;
mod livecodebench;
mod packed;

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

use crate::cases::Case;

/// A problem and its tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The question, as agents see it.
    pub text: String,
    /// The tests, which agents don't see.
    pub tests: Tests,
    /// Reference solution, which agents don't see either.
    pub solution: Option<String>,
    /// Functions that tests call: `name` or `Class().method`. Empty if programs read standard input.
    pub functions: Vec<String>,
}

/// Tests of a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tests {
    /// Calls of functions.
    Asserts(Asserts),
    /// Inputs of a whole program, or calls with their results.
    Cases(Cases),
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

/// Tests that are data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cases {
    /// Python code before every answer.
    pub prelude: String,
    /// The tests.
    pub cases: Vec<Case>,
}

/// The fields that are read. Others are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    prompt: Option<String>,
    entry_point: Option<String>,
    test: Option<String>,
    canonical_solution: Option<String>,
    text: Option<String>,
    test_list: Option<Vec<String>>,
    test_imports: Vec<String>,
    test_setup_code: String,
    code: String,
    question: Option<String>,
    problem: Option<String>,
    tests: Option<contests::CaseList>,
    solution: Option<Value>,
    solutions: Option<Value>,
    starter_code: Option<String>,
    input_output: Option<Value>,
    description: Option<String>,
    public_tests: Option<contests::CaseColumns>,
    private_tests: Option<contests::CaseColumns>,
    generated_tests: Option<contests::CaseColumns>,
    question_content: Option<String>,
    public_test_cases: Option<Value>,
    private_test_cases: Option<Value>,
    metadata: Option<Value>,
}

impl Problem {
    /// Reads HumanEval's records (`prompt`, `entry_point`, `test`; Chen et al. 2021, arXiv:2107.03374), MBPP's
    /// (`text` or `prompt`, `test_list`, with or without `code`, `test_setup_code` and `test_imports`; Austin et
    /// al. 2021, arXiv:2108.07732), those of programming contests (`problem`, and `tests` as
    /// `{"inputs": […], "outputs": […]}` or `[{"input": …, "output": …}]`), CodeContests' (`description`, `public_tests`;
    /// Li et al. 2022, arXiv:2203.07814), APPS' (`question`, `input_output`; Hendrycks et al. 2021, arXiv:2105.09938) and
    /// LiveCodeBench's (`question_content`, `public_test_cases`; Jain et al. 2024, arXiv:2403.07974). MBPP's text does not
    /// name the function: a call without its value does, or the first `shown` tests. A person's own task may have only
    /// a `question`: it has no tests.
    ///
    /// # Errors
    /// [`Error::task`] that names the missing or invalid field.
    pub fn read(task: &Task, shown: u32) -> Result<Self> {
        let bad = |problem: &str| Error::task(format!("task {}: {problem}", task.id));
        match task.read::<Record>()? {
            record @ Record { prompt: Some(_), entry_point: Some(_), test: Some(_), .. } => {
                functions::from_human_eval(record, bad)
            }
            record @ Record { test_list: Some(_), .. } => functions::from_mbpp(record, shown, bad),
            record @ Record { problem: Some(_), tests: Some(_), .. } => contests::from_contest(record, bad),
            record @ Record { description: Some(_), public_tests: Some(_), .. } => {
                contests::from_code_contests(record, bad)
            }
            record @ Record { question: Some(_), input_output: Some(_), .. } => apps::read(record, bad),
            record @ Record { question_content: Some(_), public_test_cases: Some(_), .. } => {
                livecodebench::read(record, bad)
            }
            Record { question: Some(question), .. }
                if task.is_given() && task.read::<Map<String, Value>>()?.len() == 1 =>
            {
                let tests = Tests::Asserts(Asserts::default());
                Ok(Self { text: question.trim().to_owned(), tests, solution: None, functions: Vec::new() })
            }
            _ => {
                let fields = task.read::<Map<String, Value>>()?;
                let fields = fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(bad(&format!(
                    "a record has `prompt`, `entry_point` and `test` (HumanEval), `text` and `test_list` (MBPP), \
                     `problem` and `tests` (contests), `description` and `public_tests` (CodeContests), `question` and \
                     `input_output` (APPS), or `question_content` and `public_test_cases` (LiveCodeBench); this one has: \
                     {fields}"
                )))
            }
        }
    }

    /// Returns the Python code before every program with functions.
    pub fn prelude(&self) -> &str {
        match &self.tests {
            Tests::Asserts(asserts) => &asserts.prelude,
            Tests::Cases(cases) => &cases.prelude,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::candidate::Call;
    use crate::cases::CallCase;

    fn read(data: &Value) -> Result<Problem> {
        Problem::read(&Task::new("7", data).unwrap(), 0)
    }

    fn asserts(problem: &Problem) -> &Asserts {
        match &problem.tests {
            Tests::Asserts(asserts) => asserts,
            Tests::Cases(_) => panic!("cases"),
        }
    }

    fn cases(problem: &Problem) -> &Cases {
        match &problem.tests {
            Tests::Cases(cases) => cases,
            Tests::Asserts(_) => panic!("asserts"),
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
        assert_eq!((&asserts.names, &problem.functions), (&vec!["add".to_owned()], &asserts.names));
        let solution = problem.solution.unwrap();
        assert!(solution.ends_with("\"\"\" Adds. \"\"\"\n    return a + b\n"), "{solution}");
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
        let case =
            |input: &str, output: &str| Case::Input { input: input.to_owned(), output: output.to_owned() };
        let columns = json!({"problem": "Double.", "tests": {"inputs": ["1", "2"], "outputs": ["2", "4"]}});
        let problem = read(&columns).unwrap();
        assert_eq!(cases(&problem).cases, [case("1", "2"), case("2", "4")]);
        assert!(problem.solution.is_none() && problem.functions.is_empty());
        assert!(problem.text.starts_with("Double.\n\nAnswer with a whole program"), "{}", problem.text);
        let rows = json!({"problem": "Double.", "tests": [{"input": "1", "output": "2"}]});
        assert_eq!(cases(&read(&rows).unwrap()).cases, [case("1", "2")]);
        let solved = json!({"problem": "Double.", "tests": [{"input": "1", "output": "2"}], "solutions": ["print(2)"]});
        assert_eq!(read(&solved).unwrap().solution.as_deref(), Some("print(2)"));
        let uneven = json!({"problem": "Double.", "tests": {"inputs": ["1"], "outputs": []}});
        assert!(read(&uneven).unwrap_err().message.contains("different numbers"));
    }

    #[test]
    fn code_contests_has_three_lists_and_solutions_in_many_languages() {
        let list = |input: &str, output: &str| json!({"input": [input], "output": [output]});
        let mut record = json!({
            "description": "Double.", "public_tests": list("1", "2"), "private_tests": list("2", "4"),
            "generated_tests": list("3", "6"),
            "solutions": {"language": [2, 1, 3, 3], "solution": ["c++", "python 2", "python 3", "another"]},
        });
        let problem = read(&record).unwrap();
        assert_eq!((cases(&problem).cases.len(), problem.solution.as_deref()), (3, Some("python 3")));
        record["generated_tests"] = json!({"input": vec!["4"; 500], "output": vec!["8"; 500]});
        assert_eq!(cases(&read(&record).unwrap()).cases.len(), contests::MAX_CASES);
        record["private_tests"] = json!({"input": ["1"], "output": []});
        assert!(read(&record).unwrap_err().message.contains("different numbers"));
    }

    /// Returns a case of JSON with one right result.
    fn call_case(calls: Vec<Call>, accepted: &[Value]) -> Case {
        Case::Call(CallCase { calls, accepted: accepted.to_vec(), json: true })
    }

    #[test]
    fn apps_has_inputs_for_programs_or_functions() {
        let programs = json!({
            "question": "Double.", "solutions": "[\"print(2 * int(input()))\", \"no\"]", "starter_code": "",
            "input_output": "{\"inputs\": [\"1\\n\", [\"2\", \"x\"]], \"outputs\": [\"2\\n\", [\"4\"]]}",
        });
        let problem = read(&programs).unwrap();
        let case =
            |input: &str, output: &str| Case::Input { input: input.to_owned(), output: output.to_owned() };
        assert_eq!(cases(&problem).cases, [case("1\n", "2\n"), case("2\nx", "4")]);
        assert_eq!(problem.solution.as_deref(), Some("print(2 * int(input()))"));
        let mut functions = json!({
            "question": "Add.", "solutions": "[]", "starter_code": "def add(a, b):",
            "input_output": {"fn_name": "add", "inputs": [[1, 0.5], [[1], {"a": 2}]], "outputs": [1.5, [3]]},
        });
        let problem = read(&functions).unwrap();
        let half = json!({"float": "0x1.0000000000000p-1"});
        let first = Call::function("add", vec![json!(1), half]);
        let second = Call::function("add", vec![json!([1]), json!({"dict": [["a", 2]]})]);
        let expected = [
            call_case(vec![first], &[json!({"float": "0x1.8000000000000p+0"})]),
            // Some of the set's outputs are wrapped in a list.
            call_case(vec![second], &[json!([3]), json!(3)]),
        ];
        assert_eq!(cases(&problem).cases, expected);
        assert_eq!((problem.solution.clone(), &problem.functions), (None, &vec!["add".to_owned()]));
        assert!(problem.text.contains("```python\ndef add(a, b):\n```"), "{}", problem.text);
        functions["starter_code"] = "class Solution:\n    def add(self, a, b):".into();
        let problem = read(&functions).unwrap();
        assert_eq!(problem.functions, ["Solution().add"]);
        assert!(matches!(&cases(&problem).cases[0], Case::Call(case) if case.calls.len() == 3));
        functions["input_output"] = "".into();
        assert!(read(&functions).unwrap_err().message.contains("`input_output`"));
        functions["input_output"] = json!({"fn_name": "add", "inputs": ["no list"], "outputs": [1]});
        assert!(read(&functions).unwrap_err().message.contains("not a list of arguments"));
    }

    /// Compresses and encodes bytes as LiveCodeBench does.
    fn packed(bytes: &[u8]) -> String {
        use std::io::Write;

        use base64::Engine;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        base64::engine::general_purpose::STANDARD.encode(encoder.finish().unwrap())
    }

    #[test]
    fn livecodebench_has_tests_in_text_and_packed() {
        let row = |kind: &str, input: &str, output: &str| json!({"input": input, "output": output, "testtype": kind});
        let public = json!([row("stdin", "1\n", "2")]).to_string();
        let private = json!([row("stdin", "2\n", "4")]).to_string();
        let mut record = json!({
            "question_content": "Double.", "starter_code": "", "public_test_cases": public,
            "private_test_cases": private, "metadata": "{}",
        });
        let case =
            |input: &str, output: &str| Case::Input { input: input.to_owned(), output: output.to_owned() };
        let expected = [case("1\n", "2"), case("2\n", "4")];
        assert_eq!(cases(&read(&record).unwrap()).cases, expected);
        // The text of Python's `pickle.dumps(text)`, protocol 4.
        let mut pickled = b"\x80\x04\x95\0\0\0\0\0\0\0\0\x8c".to_vec();
        pickled.push(u8::try_from(private.len()).unwrap());
        pickled.extend(private.as_bytes());
        pickled.extend(b"\x94.");
        for packed in [packed(private.as_bytes()), packed(&pickled)] {
            record["private_test_cases"] = packed.into();
            assert_eq!(cases(&read(&record).unwrap()).cases, expected);
        }
        for (bytes, reason) in [
            (&b"\x80\x04cos\nsystem\n"[..], "a pickle that is more than a text"),
            (&b"nonsense"[..], "tests in JSON"),
        ] {
            record["private_test_cases"] = packed(bytes).into();
            let message = read(&record).unwrap_err().message;
            assert!(message.contains("`private_test_cases`") && message.contains(reason), "{message}");
        }
        record["private_test_cases"] = "&".into();
        assert!(read(&record).unwrap_err().message.contains("neither JSON nor base64"));
        record["private_test_cases"] = "".into();
        record["public_test_cases"] = json!([row("functional", "[1, 2]\n\"a\"", "[2, 1]")]);
        assert!(read(&record).unwrap_err().message.contains("`func_name`"));
        record["metadata"] = "{\"func_name\": \"turn\"}".into();
        record["starter_code"] = "class Solution:\n    def turn(self, x, y):\n        ".into();
        let problem = read(&record).unwrap();
        let calls = Call::method("Solution", "turn", vec![json!([1, 2]), json!("a")]);
        assert_eq!(cases(&problem).cases, [call_case(calls, &[json!([2, 1])])]);
        assert_eq!(problem.functions, ["Solution().turn"]);
        assert!(problem.text.contains("class Solution"), "{}", problem.text);
        record["public_test_cases"] = json!([row("interactive", "1", "2")]);
        assert!(read(&record).unwrap_err().message.contains("`interactive`"));
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
        let by_hand = Task::new("given", &json!({"question": "By hand?"})).unwrap();
        assert_eq!(Problem::read(&by_hand, 0).unwrap().text, "By hand?");
        // Of a task file: no program would be right.
        assert!(message(&json!({"question": "By hand?"})).ends_with("this one has: question"));
    }
}
