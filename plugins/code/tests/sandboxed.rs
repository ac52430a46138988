//! The domain on the real Python worker: good and bad programs, and all solutions of HumanEval and MBPP.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use code::Problems;
use flate2::read::GzDecoder;
use pl_sandbox::{PythonWorkers, SandboxLimits};
use pl_sdk::sandbox::{Ending, Job, Verdict};
use pl_sdk::services::testing;
use pl_sdk::{Action, Environment, Task};
use pl_wasm::{Engine, EngineConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Returns one engine for all tests, because the worker takes seconds to load.
fn workers() -> &'static (Runtime, PythonWorkers) {
    static WORKERS: OnceLock<(Runtime, PythonWorkers)> = OnceLock::new();
    WORKERS.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm");
        let component = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask setup` builds it", path.display()));
        let engine = Engine::new(EngineConfig::workers().cache_dir(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let workers = PythonWorkers::new(&engine, &component, SandboxLimits::default()).unwrap();
        (Runtime::new().unwrap(), workers)
    })
}

/// Runs a guest's job as the host does.
fn execute(job: &Job) -> Verdict {
    let (runtime, workers) = workers();
    let Job { language, source, stdin, .. } = job.clone();
    let job = pl_sandbox::Job { language, source, stdin, ..pl_sandbox::Job::default() };
    let verdict = runtime.block_on(workers.run(job));
    let ending = match verdict.ending {
        pl_sandbox::Ending::Ok => Ending::Ok,
        pl_sandbox::Ending::Error => Ending::Error,
        pl_sandbox::Ending::Timeout => Ending::Timeout,
        pl_sandbox::Ending::Memory => Ending::Memory,
        pl_sandbox::Ending::OutputLimit => Ending::OutputLimit,
        pl_sandbox::Ending::ProcessLimit => Ending::ProcessLimit,
        pl_sandbox::Ending::LostWorker => Ending::LostWorker,
    };
    Verdict { ending, exit: verdict.exit, stdout: verdict.stdout, stderr: verdict.stderr }
}

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
    testing::set_sandbox(execute);
    let task = Task::new("1", record).unwrap();
    let settings = serde_json::from_value(json!({})).unwrap();
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
    let tried = attempt(&record, "def inc(x):\n    return 6");
    assert_eq!((tried.passed, tried.held, tried.total), (false, 1, 2));
    assert!(tried.error.starts_with("assert inc(1) == 2\n"), "{tried:?}");
    let tried = attempt(&record, "def inc(x):\n    return 2");
    assert_eq!(tried.error, "A hidden test failed.\nAssertionError");
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

/// Programs that try to get the reward without solving the task.
#[test]
fn cheats_do_not_pass() {
    for program in [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "import sys\ndef double(x):\n    sys.exit(0)",
        "import os\ndef double(x):\n    os._exit(0)",
        "import os\nos.write(1, b'{\"key\": \"0\", \"ran\": true, \"held\": 3, \"total\": 3, \"error\": null}\\n')\nos._exit(0)",
        "def check(candidate):\n    pass\ndef double(x):\n    return 0",
        "import sys, io\nsys.stdin = io.StringIO('{}')\nsys.stdout = None\ndef double(x):\n    return 0",
        "__held__ = lambda index: None\n__failed__ = lambda index: None\ndef double(x):\n    return 0",
    ] {
        let tried = attempt(&double(), program);
        assert!(!tried.passed && tried.held < tried.total.max(1), "{program}: {tried:?}");
    }
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

fn field<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap()
}

#[test]
fn human_evals_solutions_pass_and_broken_ones_fail() {
    let Some(records) = records("humaneval/HumanEval.jsonl.gz") else { return };
    assert_eq!(records.len(), 164);
    for record in &records {
        let id = field(record, "task_id");
        let solution = format!("{}{}", field(record, "prompt"), field(record, "canonical_solution"));
        let tried = attempt(record, &solution);
        assert!(tried.passed, "{id}: {tried:?}");
        // The same function with a wrong result.
        let entry = field(record, "entry_point");
        let broken =
            format!("{solution}\n\n_right = {entry}\ndef {entry}(*given):\n    return [_right(*given)]\n");
        let tried = attempt(record, &broken);
        assert!(!tried.passed && tried.ran && tried.held < tried.total, "{id}: {tried:?}");
        // No function.
        let tried = attempt(record, "pass");
        assert!(!tried.passed && tried.error.contains("NameError"), "{id}: {tried:?}");
    }
}

#[test]
fn mbpps_solutions_pass() {
    let Some(records) = records("mbpp/mbpp.jsonl") else { return };
    let failed: Vec<String> = records
        .iter()
        .map(|record| (record, attempt(record, field(record, "code"))))
        .filter(|(_, tried)| !tried.passed)
        .map(|(record, tried)| format!("{}: {}", record["task_id"], tried.error))
        .collect();
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), records.len(), failed.join("\n\n"));
}
