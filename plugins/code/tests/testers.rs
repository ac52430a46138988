//! Testers on the real Python worker: what their tests earn, and what tests that cheat don't.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod worker;

use code::Problems;
use pl_sdk::services::testing;
use pl_sdk::{Action, Environment, Task};
use serde_json::{Value, json};

use crate::worker::execute;

/// Result of tests.
#[derive(Debug, PartialEq, Eq)]
struct Tried {
    right: u64,
    caught: bool,
    unread: u64,
    agreed: bool,
    /// Input, expected and actual result of each mismatch.
    mismatches: Vec<[String; 3]>,
}

/// Returns a function whose results can't be guessed, with a right program.
fn mix() -> Value {
    json!({
        "prompt": "def mix(x):\n    \"\"\" Mixes: mix(3) is 62949. \"\"\"\n",
        "entry_point": "mix",
        "canonical_solution": "    return (x * 7919 + 104729) % 65537\n",
        "test": "def check(candidate):\n    for x in [3, 14, 159]:\n        assert candidate(x) == (x * 7919 + 104729) % 65537\n",
    })
}

/// A program that is right for 14 alone.
const WRONG: &str = "def mix(x):\n    return 18984 if x == 14 else 7";

/// Returns what `mix` is for `x`.
fn mixed(x: u64) -> u64 {
    (x * 7919 + 104_729) % 65537
}

/// Runs tests against a reference solution and against `program`.
fn attempt(record: &Value, program: &str, tests: Value) -> Tried {
    testing::set_sandbox(execute);
    let settings = serde_json::from_value(json!({ "tests": 8 })).unwrap();
    let mut episode = Problems::start(&settings, &Task::new("1", record).unwrap(), 0).unwrap();
    let mut apply = |agent: &str, action: Value| {
        let action = Action { agent: agent.to_owned(), action: serde_json::from_value(action).unwrap() };
        let outcome = episode.apply(&settings, &[action]).unwrap();
        (json!(outcome.evidence), json!(outcome.facts), json!(episode.view(&settings, "b").unwrap()))
    };
    apply("coder", json!({ "python": program }));
    let (evidence, facts, view) = apply("tester", json!({ "tests": tests }));
    let work = &evidence["work"]["tester"]["latest"]["tests"];
    let text = |mismatch: &Value, field: &str| mismatch[field].as_str().unwrap().to_owned();
    let last = view["comparisons"].as_array().unwrap().last().cloned().unwrap_or(json!({"mismatches": []}));
    let mismatches = last["mismatches"].as_array().unwrap().iter();
    Tried {
        right: work["right"].as_u64().unwrap(),
        caught: work["caught"].as_bool().unwrap(),
        unread: view["unread"].as_u64().unwrap(),
        agreed: facts["agreed"].as_bool().unwrap(),
        mismatches: mismatches
            .map(|one| ["input", "expected", "printed"].map(|field| text(one, field)))
            .collect(),
    }
}

fn asserts(texts: &[&str]) -> Value {
    texts.iter().map(|text| json!({ "assert": text })).collect()
}

#[test]
fn right_tests_catch_a_wrong_program() {
    let texts = [
        format!("assert mix(14) == {}", mixed(14)),
        format!("assert {} == mix(x=58)", mixed(58)),
        "assert mix(1) == 5".to_owned(),
        format!("assert mix(3) == {}", mixed(3)),
    ];
    assert_eq!(mixed(3), 62949, "the problem gives it");
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let tried = attempt(&mix(), WRONG, asserts(&texts));
    let mismatch = |input: &str, expected: u64| [input.to_owned(), expected.to_string(), "7".to_owned()];
    let mismatches =
        vec![mismatch("mix(x=58)", mixed(58)), mismatch("mix(1)", 5), mismatch("mix(3)", mixed(3))];
    assert_eq!(tried, Tried { right: 2, caught: true, unread: 0, agreed: false, mismatches });
    let right = "def mix(x):\n    return (x * 7919 + 104729) % 65537";
    let tried = attempt(&mix(), right, asserts(&texts[..2]));
    assert_eq!((tried.right, tried.caught, tried.agreed), (2, false, true), "{tried:?}");
}

#[test]
fn plain_values_of_all_kinds_are_compared_as_in_python() {
    let record = |body: &str| {
        json!({
            "prompt": "def f(x, y=0):\n    \"\"\" Does it. \"\"\"\n", "entry_point": "f",
            "canonical_solution": format!("    {body}\n"),
            "test": "def check(candidate):\n    assert candidate(1) == 1\n",
        })
    };
    for (body, test, right) in [
        ("return x", "assert f(True) is True", true),
        ("return x", "assert f(-1.5e3) == -1500", true),
        ("return x", "assert f({'a': [1, (2, None)], 2: {3}}) == {2: {3}, 'a': [1, (2, None)]}", true),
        ("return x", "assert f((1, 2)) == [1, 2]", false),
        ("return x", "assert f(10**3) == 1000", false),
        ("return x", "assert f(100000000000000000000) == 100000000000000000000", true),
        ("return x", "assert f('a\\n\\u00e9') == 'a\\né', 'a message'", true),
        ("return x", "assert f(b'\\x00') == b'\\x00'", true),
        ("return x * 0.1", "assert f(3) == 0.3", true),
        ("return float('inf')", "assert f(3) == 1e300", false),
        ("return float('nan')", "assert f(3) == 3", false),
        ("return x > 1", "assert f(3)", true),
        ("return x > 1", "assert not f(1)", true),
        ("return x > 1", "assert not f(3)", false),
        ("return [x]", "assert f(3)", false),
        ("return x + y", "assert f(1, y=2) == 3", true),
        ("return range(x)", "assert f(3) == [0, 1, 2]", false),
        ("raise ValueError(x)", "assert f(3) == 3", false),
        ("return f", "assert f(3) == 3", false),
    ] {
        let tried = attempt(&record(body), "def f(x, y=0):\n    return 'wrong'", asserts(&[test]));
        assert_eq!((tried.right == 1, tried.caught), (right, right), "{body}: {test}: {tried:?}");
    }
}

#[test]
fn one_test_in_several_spellings_counts_once() {
    let right = mixed(58);
    let texts = [
        format!("assert mix(58) == {right}"),
        format!("assert {right} == mix(x=58)"),
        format!("assert mix(58.0) == {right}.0, 'again'"),
        format!("assert mix( (0x3a) ) is {right}"),
    ];
    let tried = attempt(&mix(), WRONG, asserts(&texts.each_ref().map(String::as_str)));
    assert_eq!((tried.right, tried.caught), (1, true), "{tried:?}");
}

/// Texts that try to earn without a right expectation, or to break the judge.
#[test]
fn tests_that_cheat_earn_nothing() {
    let nested = format!("assert mix({}1{}) == 1", "[".repeat(900), "]".repeat(900));
    let long = format!("assert mix(5) == {}", "9".repeat(1900));
    let many_ors = format!("assert mix(5) == 1 {}", "or True ".repeat(200));
    let larger_than_limits = format!("assert mix(\"{}\") == 1", "a".repeat(10_000));
    let cheats = [
        // Code with effects.
        "assert exec('import os; os._exit(0)') is None",
        "assert __import__('os').system('true') == 0",
        "assert mix(__import__('sys').exit(0)) == 1",
        "assert (globals().update(mix=lambda x: 1) or mix(1)) == 1",
        "assert [setattr(__builtins__, 'len', 1)] and mix(1)",
        "assert mix((lambda: 1)()) == 1",
        "assert mix(1) == (y := 5)",
        "import os\nassert mix(1) == 5",
        "assert mix(1) == 5; import os",
        // Expectations that anything meets.
        "assert True",
        "assert 1 == 1",
        "assert mix(1) == mix(1)",
        "assert mix(1) != 5",
        "assert mix(1) in range(100000)",
        "assert mix(1) or True",
        "assert mix(1) >= 0",
        "assert mix(1) == 5 or mix(1) == 6",
        "assert 0 <= mix(1) < 100000",
        "assert type(mix(1)) == int",
        "assert mix(1) == type('Any', (), {'__eq__': lambda self, other: True})()",
        "assert mix(1) == __import__('unittest.mock').mock.ANY",
        "assert isinstance(mix(1), int)",
        "assert mix(1) == ...",
        "assert mix(1) is not None",
        "assert mix",
        "assert mix(1)",
        "assert mix(1) == 1e999",
        "assert mix(1) == float('nan')",
        // Looking for the reference solution or the tests.
        "assert mix.__code__.co_consts == ()",
        "assert check(mix) is None",
        "assert check(1) is None",
        "assert solution(1) == 1",
        "assert mix(*[1]) == 5",
        "assert mix(**{'x': 1}) == 5",
        "assert mix(open('/proc/self/environ').read()) == 1",
        // Things that break readers.
        &nested,
        &long,
        &many_ors,
        &larger_than_limits,
        "assert mix('\\ud800') == '\\ud800'",
        "assert mix(1) == f'{1}'",
        "assert mix(\0) == 1",
        "assert mix(1) ==",
        "assert",
        "",
        "print('[{\"calls\": []}]')",
        "assert mix(10**10**10) == 1",
        // Given by the problem.
        "assert mix(3) == 62949",
        "assert mix( 3 )==62949",
    ];
    for part in cheats.chunks(8) {
        let tried = attempt(&mix(), WRONG, asserts(part));
        assert_eq!((tried.right, tried.caught), (0, false), "{part:#?}: {tried:?}");
    }
    // A cheat does not take the others with it.
    let right = format!("assert mix(58) == {}", mixed(58));
    for cheat in cheats {
        let tried = attempt(&mix(), WRONG, asserts(&[cheat, &right, &right]));
        assert_eq!((tried.right, tried.caught), (1, true), "{cheat}: {tried:?}");
    }
}

/// Tests whose inputs are too much for any program.
#[test]
fn inputs_that_no_program_bears_are_wrong_tests() {
    let record = json!({
        "problem": "Print the sum of the numbers from 1 to n.",
        "tests": {"inputs": ["3"], "outputs": ["6"]}, "solution": "n = int(input())\nprint(sum(i for i in range(n + 1)))",
    });
    let case = |input: &str, output: &str| json!({"case": {"input": input, "output": output}});
    let enormous = case("100000000000", "5000000000050000000000");
    let wrong = "print(3)";
    assert_eq!(attempt(&record, wrong, json!([case("4", "10"), case("5", "15")])).right, 2);
    let tried = attempt(&record, wrong, json!([case("4", "10"), enormous]));
    assert_eq!((tried.right, tried.caught), (1, true), "{tried:?}");
    for cheat in [
        case("4", ""),
        case("4", " \n "),
        case("4", "10 or anything"),
        case("4", "*"),
        case("__import__('os')", "10"),
        case(&"9".repeat(5000), "10"),
        case("\0", "10"),
        json!({"assert": "assert print(4) == 10"}),
    ] {
        let tried = attempt(&record, wrong, json!([cheat, case("6", "21")]));
        assert_eq!(tried.right, 1, "{tried:?}");
    }
}

/// A program does not learn of the tests by which it is judged, nor of the reference solution.
#[test]
fn secrets_never_meet_programs_or_tests() {
    let (sender, jobs) = std::sync::mpsc::channel();
    testing::set_sandbox(move |job| {
        sender.send(format!("{}\n{}", job.source, job.stdin)).unwrap();
        execute(job)
    });
    let settings = serde_json::from_value(json!({})).unwrap();
    let mut episode = Problems::start(&settings, &Task::new("1", &mix()).unwrap(), 0).unwrap();
    let program = "def mix(x):\n    return x  # the program";
    let tests = asserts(&["assert mix(58) == 31415", "assert mix(59) == 27182"]);
    for action in [json!({ "python": program }), json!({ "tests": tests })] {
        let action = Action { agent: "a".to_owned(), action: serde_json::from_value(action).unwrap() };
        let outcome = episode.apply(&settings, &[action]).unwrap();
        let view = json!(episode.view(&settings, "a").unwrap()).to_string();
        let evidence = json!(outcome.evidence).to_string();
        assert!(!view.contains("7919") && !evidence.contains("7919"), "{view} {evidence}");
    }
    let jobs: Vec<String> = jobs.try_iter().collect();
    let with = |text: &str| jobs.iter().filter(|job| job.contains(text)).collect::<Vec<_>>();
    let programs = with("# the program");
    assert_eq!(programs.len(), 3 + 2, "a call each: hidden inputs, written tests");
    for job in programs {
        for secret in ["7919", "31415", "27182", "assert "] {
            assert!(!job.contains(secret), "{secret}: {job}");
        }
    }
    // The reference solution gets inputs, and the reader gets texts.
    let solutions: Vec<_> = with("7919").into_iter().filter(|job| !job.contains("def check")).collect();
    assert_eq!(solutions.len(), 2);
    assert!(solutions.iter().all(|job| !job.contains("31415") && !job.contains("# the program")));
    assert_eq!(with("31415").len(), 1);
}
