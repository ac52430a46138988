//! Tests that an agent writes: what of them is a test, and what a program makes of it.

use pl_sdk::prelude::*;

use crate::attempt::shorten;
use crate::cases::{CallCase, Case, CaseResult};
use crate::reader::{self, ReadAssert};
use crate::record::Problem;

/// Largest number of tests that a step may write.
pub const MAX_TESTS: u32 = 8;

/// Limit of a test's text in bytes.
const MAX_TEXT: usize = 2000;

/// Characters of a test that views show of its input and of its output.
const MAX_SHOWN: usize = 300;

/// Mismatches that a comparison shows.
const MAX_MISMATCHES: usize = 3;

/// Text after an input, in words or in characters without white space, in which its output counts as given with it.
const WORDS_AFTER: usize = 8;
const CHARACTERS_AFTER: usize = 32;

/// A test as an agent writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestText {
    /// An assert statement about a function.
    Assert(String),
    /// Standard input and output of a program.
    Case {
        /// Standard input.
        input: String,
        /// Standard output.
        output: String,
    },
}

/// A test that can be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenTest {
    /// The test.
    pub case: Case,
    /// Input as text: that of a program, or the call of a function.
    pub input: String,
    /// Expected output as text.
    pub output: String,
    /// True if the problem's text already gives this output for this input. Such a test earns nothing.
    pub copied: bool,
}

/// A test as views show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTest {
    /// Input, cut if it is long.
    pub input: String,
    /// Output that the tester expects.
    pub output: String,
}

/// Result of a program by the tests of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of tests that held.
    pub held: u32,
    /// Number of tests.
    pub total: u32,
    /// The first tests that did not hold, at most 3.
    pub mismatches: Vec<Mismatch>,
}

/// A test that a program did not hold. Either may be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Input of the test.
    pub input: String,
    /// Output that the tester expects.
    pub expected: String,
    /// Output of the program, or its error.
    pub printed: String,
}

impl Comparison {
    /// Compares the results of a program with its tests.
    pub fn new(tests: &[WrittenTest], results: &[CaseResult]) -> Self {
        let held = results.iter().filter(|result| result.held).count();
        let pairs = tests.iter().zip(results).filter(|(_, result)| !result.held);
        let mismatch = |(test, result): (&WrittenTest, &CaseResult)| {
            let ShownTest { input, output } = test.shown();
            Mismatch { input, expected: output, printed: result.printed.clone() }
        };
        Self {
            held: u32::try_from(held).unwrap_or(u32::MAX),
            total: u32::try_from(tests.len()).unwrap_or(u32::MAX),
            mismatches: pairs.take(MAX_MISMATCHES).map(mismatch).collect(),
        }
    }

    /// Returns true if there are tests and the program holds all of them.
    pub fn agrees(&self) -> bool {
        self.total > 0 && self.held == self.total
    }
}

impl WrittenTest {
    /// Returns the test as views show it.
    pub fn shown(&self) -> ShownTest {
        let cut = |text: &str| shorten(text.trim_end(), MAX_SHOWN);
        ShownTest { input: cut(&self.input), output: cut(&self.output) }
    }

    fn of_program(input: &str, output: &str, problem: &Problem) -> Option<Self> {
        let short = input.len() + output.len() <= MAX_TEXT;
        // A program that prints nothing holds a test without output.
        let test = short && !output.trim().is_empty() && problem.functions.is_empty();
        test.then(|| Self {
            case: Case::Input { input: input.to_owned(), output: output.to_owned() },
            copied: gives_words(&problem.text, input, output),
            input: input.trim().to_owned(),
            output: output.trim().to_owned(),
        })
    }

    fn of_function(read: ReadAssert, problem: &Problem) -> Self {
        let ReadAssert { calls, expected, input, output } = read;
        let case = Case::Call(CallCase { calls, accepted: vec![expected], json: false });
        Self { case, copied: gives_characters(&problem.text, &input, &output), input, output }
    }
}

/// Returns the tests of the first `wanted` texts that are tests of the problem, each input once. Statements are read in a
/// job of the sandbox.
pub fn read(texts: &[TestText], problem: &Problem, wanted: u32) -> Vec<WrittenTest> {
    let texts = texts.iter().take(wanted.min(MAX_TESTS) as usize);
    let mut tests: Vec<WrittenTest> = Vec::new();
    let mut asserts = Vec::new();
    for text in texts {
        match text {
            TestText::Assert(text) if text.len() <= MAX_TEXT => asserts.push(text.as_str()),
            TestText::Assert(_) => {}
            TestText::Case { input, output } => tests.extend(WrittenTest::of_program(input, output, problem)),
        }
    }
    if !asserts.is_empty() && !problem.functions.is_empty() {
        let verdicts = sandbox::execute(&[reader::job(&asserts, &problem.functions)]);
        let read = verdicts.first().map(|verdict| reader::read(verdict, asserts.len()));
        let read = read.into_iter().flatten().flatten();
        tests.extend(read.map(|read| WrittenTest::of_function(read, problem)));
    }
    let mut different: Vec<WrittenTest> = Vec::new();
    for test in tests {
        if !different.iter().any(|other| other.case.same_input(&test.case)) {
            different.push(test);
        }
    }
    different
}

/// Returns true if the text has the words of `input`, and soon after them those of `output`.
fn gives_words(text: &str, input: &str, output: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    gives(&words(text), &words(input), &words(output), WORDS_AFTER)
}

/// Returns true if the text has the characters of `input`, and soon after them those of `output`. White space and the kind
/// of quotes don't count.
fn gives_characters(text: &str, input: &str, output: &str) -> bool {
    let characters = |text: &str| {
        let letters = text.chars().filter(|letter| !letter.is_whitespace());
        letters.map(|letter| if letter == '\'' { '"' } else { letter }).collect::<Vec<_>>()
    };
    gives(&characters(text), &characters(input), &characters(output), CHARACTERS_AFTER)
}

fn gives<T: PartialEq>(text: &[T], input: &[T], output: &[T], within: usize) -> bool {
    if input.is_empty() || output.is_empty() {
        return false;
    }
    let inputs = text.windows(input.len()).enumerate().filter(|(_, part)| *part == input);
    inputs.map(|(start, _)| start + input.len()).any(|end| {
        let rest = text.get(end..).unwrap_or_default();
        let near = rest.get(..within + output.len()).unwrap_or(rest);
        near.windows(output.len()).any(|part| part == output)
    })
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;
    use serde_json::json;

    use super::*;

    fn contest() -> Problem {
        let record = json!({
            "problem": "Read two numbers. Print the sum.\n\nExample Input:\n1 2\n\nExample Output:\n3\n",
            "tests": [{"input": "5 6", "output": "11"}],
        });
        Problem::read(&Task::new("1", &record).unwrap(), 0).unwrap()
    }

    fn case(input: &str, output: &str) -> TestText {
        TestText::Case { input: input.to_owned(), output: output.to_owned() }
    }

    #[test]
    fn tests_of_programs() {
        let texts = [
            case("7 8\n", "15\n"),
            case("7 8", "16"),
            case("1 2\n", "3"),
            case("5", " \n"),
            case("9 9", "18"),
        ];
        let found = read(&texts, &contest(), 3);
        let shown: Vec<_> = found.iter().map(|test| (&*test.input, &*test.output, test.copied)).collect();
        // An input counts once; the problem's own example is no test of the tester's; more than three aren't read.
        assert_eq!(shown, [("7 8", "15", false), ("1 2", "3", true)]);
        let long = case(&"1 ".repeat(MAX_TEXT), "1");
        let function = TestText::Assert("assert add(1) == 2".to_owned());
        assert!(read(&[long, function, case("5", "")], &contest(), 8).is_empty());
    }

    #[test]
    fn tests_of_functions_are_read_by_a_job_without_programs() {
        let record = json!({
            "prompt": "def add(a, b):\n    \"\"\" Adds: add('a', 'b') gives 'ab'. \"\"\"\n", "entry_point": "add",
            "canonical_solution": "    return a + b  # reference\n",
            "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
        });
        let problem = Problem::read(&Task::new("1", &record).unwrap(), 0).unwrap();
        testing::set_sandbox(|job| {
            assert!(!job.stdin.contains("reference") && !job.stdin.contains("check"), "{}", job.stdin);
            let call = json!({"function": {"name": "add"}, "args": ["a", "b"], "kwargs": {}});
            let test = json!({"calls": [call], "expected": "ab", "input": "add('a', 'b')", "output": "'ab'"});
            testing::printed(&json!([test, null]).to_string())
        });
        let texts = ["assert add('a', 'b') == 'ab'", "assert exec('x')"]
            .map(|text| TestText::Assert(text.to_owned()));
        let found = read(&texts, &problem, 3);
        assert_eq!((found.len(), found[0].copied), (1, true));
        assert!(read(&[case("1", "2")], &problem, 3).is_empty());
    }

    #[test]
    fn comparisons_show_the_first_mismatches() {
        let tests: Vec<WrittenTest> = (0..6)
            .filter_map(|n| WrittenTest::of_program(&"9".repeat(100 * n + 1), "5", &contest()))
            .collect();
        testing::set_sandbox(|_| testing::printed(&"4".repeat(1000)));
        let mut grading = crate::cases::CaseGrading::new("", tests.iter().map(|test| &test.case), "program");
        crate::grading::run(&mut [&mut grading]).unwrap();
        let comparison = Comparison::new(&tests, &grading.into_results());
        assert_eq!((comparison.held, comparison.total, comparison.mismatches.len()), (0, 6, 3));
        assert!(!comparison.agrees());
        assert!(comparison.mismatches.iter().all(|one| one.input.len() < 310 && one.printed.len() < 310));
        assert!(!Comparison::default().agrees(), "without tests there is nothing to agree on");
    }

    #[test]
    fn examples_of_a_problem_are_found() {
        for (text, input, output, given) in [
            (">>> f([1, 2])\n'ab'", "f([1, 2])", "'ab'", true),
            ("f([1,2]) == \"ab\"", "f([1, 2])", "'ab'", true),
            ("A call: f(3)", "f(3)", "7", false),
            ("f(3) is given", "f(4)", "7", false),
        ] {
            assert_eq!(gives_characters(text, input, output), given, "{text}");
        }
        assert!(!gives_words("the numbers 1 2 and so on, until at the very end there is a 3", "1 2", "3"));
    }
}
