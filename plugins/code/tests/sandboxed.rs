//! The domain on the real Python worker: good and bad programs, and solutions of HumanEval and MBPP.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod worker;

use std::io::Read;

use code::Problems;
use flate2::read::GzDecoder;
use pl_sdk::sandbox::{Job, Verdict};
use pl_sdk::services::testing;
use pl_sdk::{Action, Environment, Task};
use serde_json::{Value, json};

use crate::worker::execute;

/// Result of a program.
#[derive(Debug)]
struct TestResult {
    passed: bool,
    ran: bool,
    held: u64,
    total: u64,
    /// Empty if there was no error.
    error: String,
}

fn attempt(record: &Value, program: &str) -> TestResult {
    attempt_with(json!({}), record, program, execute)
}

fn attempt_with(
    settings: Value,
    record: &Value,
    program: &str,
    sandbox: impl FnMut(&Job) -> Verdict + 'static,
) -> TestResult {
    testing::set_sandbox(sandbox);
    let task = Task::new("1", record).unwrap();
    let settings = serde_json::from_value(settings).unwrap();
    let mut episode = Problems::start(&settings, &task, 0).unwrap();
    let action = serde_json::from_value(json!({ "python": program })).unwrap();
    let facts = episode.apply(&settings, &[Action { agent: "a".to_owned(), action }]).unwrap().facts;
    let attempt = json!(episode.view(&settings, "a").unwrap())["attempt"].take();
    TestResult {
        passed: facts.passed,
        ran: facts.ran,
        held: attempt["tally"]["held"].as_u64().unwrap(),
        total: attempt["tally"]["total"].as_u64().unwrap(),
        error: attempt["error"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Returns a task: a function that doubles its argument.
fn double() -> Value {
    json!({
        "prompt": "import math\n\ndef half(x):\n    return x / 2\n\n\ndef double(x):\n    \"\"\" Twice x. \"\"\"\n",
        "entry_point": "double",
        "test": "def check(candidate):\n    for x in [1, 2, 3]:\n        assert half(candidate(x)) == x\n    \
                 assert candidate(0) == 0\n    assert candidate(10) == 20, 'ten'\n",
    })
}

#[test]
fn a_right_program_passes_with_any_output() {
    let tried = attempt(&double(), "def double(x):\n    print('x' * 5000)\n    return math.floor(2 * x)");
    assert!(tried.passed && tried.ran && tried.error.is_empty(), "{tried:?}");
    assert_eq!((tried.held, tried.total), (3, 3));
}

#[test]
fn asserts_are_counted_and_hidden_tests_stay_hidden() {
    let tried = attempt(&double(), "def double(x):\n    return 2 * x if x < 3 else 20");
    assert!(!tried.passed && tried.ran);
    // The first assert failed in one of three rounds.
    assert_eq!((tried.held, tried.total), (2, 3));
    assert_eq!(tried.error, "A hidden test failed.\nAssertionError");
}

#[test]
fn the_programs_own_lines_are_quoted() {
    let tried = attempt(&double(), "def double(x):\n    return x.two()");
    assert_eq!((tried.passed, tried.ran, tried.held), (false, true, 0));
    assert!(tried.error.contains("File \"solution.py\", line 2, in double\n    return x.two()"), "{tried:?}");
    assert!(tried.error.ends_with("AttributeError: 'int' object has no attribute 'two'"), "{tried:?}");
    assert!(!tried.error.contains("candidate"), "{tried:?}");
    let deep = attempt(&double(), "def double(x):\n    return double(x + 1)");
    assert!(deep.error.ends_with("maximum recursion depth exceeded"), "{deep:?}");
}

#[test]
fn shown_tests_are_quoted() {
    let record = json!({"text": "Add one.", "test_list": ["assert inc(1) == 2", "assert inc(5) == 6"]});
    let run = |shown: u32, program| attempt_with(json!({ "shown": shown }), &record, program, execute);
    let tried = run(1, "def inc(x):\n    return 6");
    assert_eq!((tried.passed, tried.held, tried.total), (false, 1, 2));
    assert_eq!(tried.error, "assert inc(1) == 2\nAssertionError");
    for (shown, program) in [(1, "def inc(x):\n    return 2"), (0, "def inc(x):\n    return 6")] {
        assert_eq!(run(shown, program).error, "A hidden test failed.\nAssertionError");
    }
}

#[test]
fn a_program_that_does_not_run_is_not_tested() {
    for (program, error) in [
        ("def double(x)\n    return 2 * x", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("raise SystemExit", "SystemExit"),
    ] {
        let tried = attempt(&double(), program);
        assert_eq!((tried.passed, tried.ran, tried.held), (false, false, 0), "{program}: {tried:?}");
        assert!(tried.error.contains(error), "{program}: {tried:?}");
    }
}

/// Returns a task whose results can't be guessed.
fn mix() -> Value {
    json!({
        "prompt": "def mix(x):\n    \"\"\" Mixes. \"\"\"\n",
        "entry_point": "mix",
        "test": "
def reference(x):
    return (x * 7919 + 104729) % 65537

def check(candidate):
    for x in [3, 14, 159]:
        assert candidate(x) == reference(x)
    assert [candidate(x) for x in range(5)] == [reference(x) for x in range(5)]
    assert all(candidate(x) == reference(x) for x in (26, 53))
    assert all(map(lambda x: candidate(x) == reference(x), (58, 97)))
    assert abs(candidate(93) - reference(93)) < 1
",
    })
}

/// Each file of `cheats` is a program that tries to get a reward without solving the task. None gets more than
/// an empty program.
#[test]
fn cheats_get_nothing() {
    let solution = "def mix(x):\n    return (x * 7919 + 104729) % 65537";
    let control = attempt(&mix(), solution);
    assert!(control.passed && (control.held, control.total) == (5, 5), "{control:?}");
    let empty = attempt(&mix(), "");
    assert_eq!((empty.passed, empty.held, empty.total), (false, 0, 5), "{empty:?}");
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cheats")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let program = std::fs::read_to_string(&path).unwrap();
        let tried = attempt(&mix(), &program);
        assert!(!tried.passed && tried.held <= empty.held, "{}: {tried:?}", path.display());
        assert!(!tried.error.contains("SyntaxError"), "{} is no program: {tried:?}", path.display());
        assert!(!tried.error.contains("7919"), "{}: {tried:?}", path.display());
        count += 1;
    }
    assert!(count >= 20, "{count} cheats");
}

/// Returns a task whose tests use operators and methods of the results.
fn index() -> Value {
    json!({
        "prompt": "def index(x):\n    \"\"\" Returns the index of x. \"\"\"\n",
        "entry_point": "index",
        "test": "
def key(x):
    return str((x * 7919 + 104729) % 65537)

def check(candidate):
    assert key(3) in candidate(3)
    assert all(name in candidate(14) for name in [key(14)])
    assert candidate(15).get(key(15)) == int(key(15))
    assert candidate(26)[key(26)] == int(key(26))
    assert candidate(53) != {key(54): 0}
    assert not candidate(58) == {key(59): 0}
",
    })
}

/// Each file of `cheats/objects` returns objects whose operators and methods would hold the tests, or tell what they
/// are given.
#[test]
fn objects_of_a_program_decide_nothing_and_learn_nothing() {
    let expected = [3_u64, 14, 15, 26, 54, 59].map(|x| ((x * 7919 + 104_729) % 65537).to_string());
    let run = |program: &str| {
        let (sender, jobs) = std::sync::mpsc::channel();
        let watched = move |job: &Job| {
            sender.send(job.stdin.clone()).unwrap();
            execute(job)
        };
        let tried = attempt_with(json!({}), &index(), &format!("{program}\n# the program"), watched);
        for job in jobs.try_iter().filter(|job| job.contains("# the program")) {
            assert!(!expected.iter().any(|value| job.contains(value.as_str())), "{job}");
        }
        assert!(!expected.iter().any(|value| tried.error.contains(value.as_str())), "{tried:?}");
        tried
    };
    let control = run("def index(x):\n    n = (x * 7919 + 104729) % 65537\n    return {str(n): n}");
    assert!(control.passed && (control.held, control.total) == (6, 6), "{control:?}");
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cheats/objects")).unwrap() {
        let path = entry.unwrap().path();
        let tried = run(&std::fs::read_to_string(&path).unwrap());
        assert!(!tried.passed && tried.ran && tried.held == 0, "{}: {tried:?}", path.display());
        count += 1;
    }
    assert!(count >= 6, "{count} cheats");
}

/// A judge without a defence against the program: it shares the program's process, whose last line is the result.
const JUDGE_BESIDE_PROGRAM: &str = r#"
import ast
import json
import sys

job = json.loads(sys.stdin.readline())
names = {}
exec(job["program"], names)
tests = ast.parse(job["test"])
check = tests.body.pop()
exec(compile(tests, "tests", "exec"), names)
names["candidate"] = names[job["entry_point"]]
held = 0
for statement in check.body:
    try:
        exec(compile(ast.Module([statement], []), "tests", "exec"), names)
        held += 1
    except Exception:
        pass
print(json.dumps({"total": len(check.body), "held": held}))
"#;

/// Returns the number of tests that held and that of all, as [`JUDGE_BESIDE_PROGRAM`] reports them.
fn judged_beside(record: &Value, program: &str) -> (u64, u64) {
    let stdin = json!({ "program": program, "test": record["test"], "entry_point": record["entry_point"] });
    let verdict = execute(&Job {
        language: "python".to_owned(),
        source: JUDGE_BESIDE_PROGRAM.to_owned(),
        stdin: stdin.to_string(),
        files: Vec::new(),
    });
    let report = verdict.stdout.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    report.and_then(|report| report["held"].as_u64().zip(report["total"].as_u64())).unwrap_or_default()
}

/// The control of the two tests of cheats: of each kind, some get a reward from a judge that shares their process.
#[test]
fn cheats_pay_where_the_judge_shares_their_process() {
    let cheat = |name: &str| {
        let path = format!("{}/tests/cheats/{name}.py", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    // That judge does tell a solution from other programs.
    let solution = "def mix(x):\n    return (x * 7919 + 104729) % 65537";
    assert_eq!(judged_beside(&mix(), solution), (5, 5));
    assert_eq!(judged_beside(&mix(), "def mix(x):\n    return -1"), (0, 5));
    for name in ["always_equal", "equal_number", "frames", "patched_json", "printed_verdict"] {
        let (held, total) = judged_beside(&mix(), &cheat(name));
        assert!(total > 0 && held >= total, "{name}: {held} of {total}");
    }
    for name in ["objects/class_for_function", "objects/contains", "objects/differs"] {
        let (held, total) = judged_beside(&index(), &cheat(name));
        assert!(held > 0, "{name}: {held} of {total}");
    }
}

#[test]
fn expected_values_never_meet_the_program() {
    let program = "def mix(x):\n    return x  # the program";
    let (sender, jobs) = std::sync::mpsc::channel();
    let watched = move |job: &Job| {
        sender.send(format!("{}\n{}", job.source, job.stdin)).unwrap();
        execute(job)
    };
    let tried = attempt_with(json!({}), &mix(), program, watched);
    assert!(!tried.passed && tried.ran);
    let jobs: Vec<String> = jobs.try_iter().collect();
    let with_program: Vec<&String> = jobs.iter().filter(|job| job.contains("# the program")).collect();
    assert!(
        with_program.len() >= 10 && with_program.len() < jobs.len(),
        "{} of {}",
        with_program.len(),
        jobs.len()
    );
    for job in with_program {
        assert!(!job.contains("7919") && !job.contains("assert "), "{job}");
        assert_eq!(job.matches("\"function\":{\"name\":\"mix\"}").count(), 1, "one call a job: {job}");
    }
}

/// Asserts that a program passes or fails tests in the form of MBPP.
fn check(tests: &[&str], program: &str, passes: bool) {
    for calls_per_job in [1, 100] {
        let record = json!({"text": "Write it.", "code": program, "test_list": tests});
        let settings = json!({ "calls_per_job": calls_per_job });
        let tried = attempt_with(settings, &record, program, execute);
        assert_eq!(tried.passed, passes, "{tests:?}: {tried:?}");
    }
}

#[test]
fn plain_data_arrives_as_it_was_sent() {
    let echo = "import datetime, decimal, fractions, collections\ndef echo(x):\n    return x";
    let same =
        |value: &str| format!("assert echo({value}) == {value} and type(echo({value})) is type({value})");
    for value in [
        "None",
        "True",
        "-7",
        "10**40",
        "-0.1",
        "float('inf')",
        "1e-320",
        "2-3j",
        "'a\\n\\u00e9\\U0001f600'",
        "''",
        "b'\\x00\\xff'",
        "bytearray(b'ab')",
        "[1, [2.5, 'x'], None]",
        "(1, (2,), ())",
        "{1, 2}",
        "frozenset('ab')",
        "{'a': 1, (1, 2): {3: 4}}",
        "range(1, 9, 2)",
    ] {
        check(&[&same(value)], echo, true);
    }
    check(&["assert (lambda x: x != x)(echo(float('nan')))"], echo, true);
    check(&["assert echo(True) is True and echo(None) is None"], echo, true);
    check(&["assert echo(1) is True"], echo, false);
    check(&["assert list(echo(iter([1, 2]))) == [1, 2]"], echo, true);
    check(&["assert up([3, 1], key=abs) == [1, 3]"], "def up(x, key):\n    return sorted(x, key=key)", true);
    check(&["assert list(two(3)) == [3, 4]"], "def two(x):\n    yield x\n    yield x + 1", true);
    check(&["assert list(two(3)) == [3, 4]"], "def two(x):\n    while True:\n        yield x", false);
    check(
        &["assert count('aab') == {'a': 2, 'b': 1}"],
        "import collections\ncount = collections.Counter",
        false,
    );
    let count = "import collections\ndef count(x):\n    return collections.Counter(x)";
    check(&["assert count('aab') == {'a': 2, 'b': 1}"], count, true);
}

#[test]
fn tests_see_changed_arguments_exceptions_and_objects() {
    let push = "def push(to, x):\n    to.append(x)\n    to[0].append(x)";
    check(
        &[
            "assert (lambda a, b: push(a, 2) is None and a == [[1, 2], 2] and b is a[0])(*(lambda b: ([b], b))([1]))",
        ],
        push,
        true,
    );
    let stack = "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        \
                 self.items.append(x)\n        return self\n    def pop(self):\n        return self.items.pop()\n    \
                 def __len__(self):\n        return len(self.items)\n    def __eq__(self, other):\n        return True\n";
    check(&["assert (lambda stack: (stack.push(1), stack.pop()))(Stack())[1] == 1"], stack, true);
    check(&["assert Stack().push(1).items == [1]", "assert len(Stack().push(3)) == 1"], stack, true);
    check(&["assert Stack() is not None and Stack() != None and Stack() != Stack()"], stack, true);
    check(&["assert Stack() == 5"], stack, false);
    check(&["assert Stack() != 5"], stack, false);
    // A method may return another object than its own.
    check(&["assert Stack().push(1).push(2).pop() == 2"], stack, false);
    let tree = "class Node:\n    left = None\n    def __init__(self, value):\n        self.value = value\n\
                def total(node):\n    return node.value + total(node.left) if node else 0";
    let grown = "assert (lambda root: (setattr(root, 'left', Node(2)), setattr(root.left, 'left', Node(3)), \
                 total(root)))(Node(1))[2] == 6";
    check(&[grown], tree, true);
    // A call that depends on another one's result.
    check(
        &["assert half(half(half(40))) == 5", "assert half(half(8)) == 2"],
        "def half(x):\n    return x // 2",
        true,
    );
    // Functions are objects, too.
    check(&["assert adder(2)(3) == 5"], "def adder(x):\n    return lambda y: x + y", true);
    let raising = json!({
        "prompt": "def root(x):\n", "entry_point": "root",
        "test": "def check(candidate):\n    try:\n        candidate(-1)\n    except ValueError:\n        right = True\n    \
                 else:\n        right = False\n    assert right\n    assert candidate(4) == 2\n",
    });
    let root = "class Negative(ValueError):\n    pass\ndef root(x):\n    if x < 0:\n        raise Negative(x)\n    \
                return int(x ** 0.5)";
    assert!(attempt(&raising, root).passed);
    assert!(!attempt(&raising, "def root(x):\n    return int(abs(x) ** 0.5)").passed);
}

#[test]
fn objects_that_tests_did_not_make_get_no_arguments() {
    let yes = "class Yes:\n    x = 5\n    __contains__ = __getitem__ = __ne__ = __format__ = lambda *_: 'yes'\n    \
               __hash__ = object.__hash__\n    def __getattr__(self, name):\n        return lambda *_: True\n\
               def made(x):\n    return Yes()\n\
               class Solution:\n    def made(self, x):\n        return Yes()";
    for test in [
        "42 in made(1)",
        "made(1).startswith('secret')",
        "made(1).has(key=5)",
        "getattr(made(1), 'has')(5)",
        "made(1)[0]",
        "format(made(1), 'x') == 'yes'",
        "made(1) != 5",
        "not made(1) == 5",
        "not 5 == made(1)",
        "made(1) not in [2, 3]",
        "made(1) not in {2, 3}",
        "[made(1)] != [2]",
        "(lambda made: (setattr(made, 'y', 7), made.y))(made(1))[1] == 7",
        "Solution().made(1).startswith('secret')",
        "42 in Solution().made(1)",
    ] {
        check(&[&format!("assert {test}")], yes, false);
    }
    check(&["assert made(1).x == 5 and Solution().made(1).x == 5"], yes, true);
    let text = "def made(x):\n    return 'secret'";
    check(&["assert made(1).startswith('sec') and 'cr' in made(1) and made(1) != 'x'"], text, true);
}

#[test]
fn tests_learn_neither_type_nor_identity_of_objects_that_they_did_not_make() {
    let any = "class Any:\n    x = 5\n    def __getattr__(self, name):\n        return True\n\
               def made(x):\n    return Any()\n\
               class Solution:\n    x = 5\n    def made(self, x):\n        return Any()";
    for test in [
        "not isinstance(made(1), int)",
        "type(made(1)) is not int",
        "type(made(1)) == type(made(2))",
        "made(1).__class__ != str",
        "'secret' not in made(1).__dict__",
        "made(1) is not True",
        "(lambda one: one is one)(made(1))",
        "hasattr(made(1), 'push')",
        "callable(made(1))",
        "not isinstance(Solution().made(1), (str, bytes))",
    ] {
        check(&[&format!("assert {test}")], any, false);
    }
    check(
        &["assert made(1) is not None and isinstance(made(1).x, int) and type(made(1).x) is int"],
        any,
        true,
    );
    check(&["assert hasattr(Solution(), 'x') and (lambda one: one is one)(Solution())"], any, true);
    let list = "def made(x):\n    return [x]";
    check(
        &["assert isinstance(made(1), list) and type(made(1)) is list and made(1) is not made(1)"],
        list,
        true,
    );
    check(&["assert not isinstance(made(1), list)"], list, false);
}

#[test]
fn contests_run_the_program_once_for_each_input() {
    let record = json!({"problem": "Sum.", "tests": {"inputs": ["1 2\n", "5 6\n", "0 0"], "outputs": ["3", "11\n", "0"]}});
    let tried = attempt(&record, "print(sum(map(int, input().split())))");
    assert!(tried.passed && tried.ran && tried.total == 3, "{tried:?}");
    let tried = attempt(&record, "print(3)");
    assert_eq!((tried.passed, tried.held), (false, 1), "{tried:?}");
    assert_eq!(tried.error, "A hidden test failed.\nWrong output.");
    let tried = attempt(&record, "import os\nos._exit(0)");
    assert_eq!((tried.passed, tried.held), (false, 0), "{tried:?}");
    let tried = attempt(&record, "print(int(input()))");
    assert!(tried.error.contains("ValueError") && !tried.ran, "{tried:?}");
}

#[test]
fn programs_may_use_all_of_the_language() {
    for program in [
        "from __future__ import annotations\nimport typing\ndef double(x: Undefined) -> int:\n    return 2 * x",
        "from dataclasses import dataclass\n@dataclass\nclass Two:\n    n: int = 2\ndef double(x):\n    return Two().n * x",
        "def double(x):\n    return x + x\nif __name__ == '__main__':\n    print(double(int(input())))",
        "class Solver:\n    def run(self, x):\n        return x << 1\ndouble = Solver().run",
    ] {
        let tried = attempt(&double(), program);
        assert!(tried.passed, "{program}: {tried:?}");
    }
}

/// Reads the records of a data set. Returns `None` if it is missing.
fn records(file: &str) -> Option<Vec<Value>> {
    let bytes = std::fs::read(pl_testing::data(file)?).unwrap();
    let mut text = String::new();
    match file.ends_with(".gz") {
        true => GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap(),
        false => bytes.as_slice().read_to_string(&mut text).unwrap(),
    };
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Step between the records that are tried in every way, of those that are tried at all.
const IN_EVERY_WAY: usize = 8;

/// Tries a solution of a record. Few records have a process for each call, as by default, the others one for all.
fn solved(index: usize, record: &Value, program: &str) -> TestResult {
    let settings =
        if index.is_multiple_of(IN_EVERY_WAY) { json!({}) } else { json!({ "calls_per_job": 100_000 }) };
    attempt_with(settings, record, program, execute)
}

/// Applies `work` to all records and their indices on all CPUs.
fn in_parallel(records: &[Value], work: impl Fn(usize, &Value) -> Option<String> + Sync) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let part = records.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = records
            .chunks(part)
            .map(|part| {
                let tried = move || part.iter().enumerate().filter_map(|(index, record)| work(index, record));
                scope.spawn(move || tried().collect::<Vec<String>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

fn field<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap()
}

#[test]
fn human_evals_solutions_pass_and_broken_ones_fail() {
    let Some(records) = records("humaneval/HumanEval.jsonl.gz") else { return };
    assert_eq!(records.len(), 164);
    let records = pl_testing::sample(records, 2);
    let failed = in_parallel(&records, |index, record| {
        let solution = format!("{}{}", field(record, "prompt"), field(record, "canonical_solution"));
        let right = solved(index, record, &solution);
        if !index.is_multiple_of(IN_EVERY_WAY) {
            return (!right.passed).then(|| format!("{}: {right:?}", field(record, "task_id")));
        }
        // The same function with a wrong result.
        let entry = field(record, "entry_point");
        let broken =
            format!("{solution}\n\n_right = {entry}\ndef {entry}(*given):\n    return [_right(*given)]\n");
        let wrong = attempt(record, &broken);
        let none = attempt(record, "pass");
        let as_expected = right.passed
            && !wrong.passed
            && wrong.ran
            && wrong.held < wrong.total
            && !none.passed
            && none.error.contains("NameError");
        (!as_expected).then(|| format!("{}: {right:?}\n{wrong:?}\n{none:?}", field(record, "task_id")))
    });
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn mbpps_solutions_pass() {
    let Some(records) = records("mbpp/mbpp.jsonl") else { return };
    assert_eq!(records.len(), 974);
    let records = pl_testing::sample(records, 4);
    let failed = in_parallel(&records, |index, record| {
        let tried = solved(index, record, field(record, "code"));
        (!tried.passed).then(|| format!("{}: {}", record["task_id"], tried.error))
    });
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), records.len(), failed.join("\n\n"));
}
