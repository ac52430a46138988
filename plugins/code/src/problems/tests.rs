use pl_sdk::sandbox::{Ending, Job, Verdict};
use pl_sdk::services::testing;
use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof};
use serde_json::{Value, json};

use super::*;
use crate::score::{Score, Settings as ScoreSettings};

fn start() -> Problems {
    let record = json!({
        "prompt": "def add(a, b):\n    \"\"\" Adds. \"\"\"\n",
        "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(2, 2) == 4\n",
    });
    Problems::start(&Settings::default(), &Task::new("1", &record).unwrap(), 0).unwrap()
}

/// A sandbox in which `right` passes, and all other programs fail one assert of two.
fn fake_verdict(job: &Job) -> Verdict {
    let first: Value = serde_json::from_str(job.stdin.lines().next().unwrap()).unwrap();
    let call = json!({"function": {"name": "add"}, "args": [1, 2], "kwargs": {}});
    let report = match (first.get("program"), first["sequences"].get(0)) {
        (Some(program), _) => {
            let value = if program == "right" { 3 } else { 0 };
            return testing::printed(&format!(
                "{{\"loaded\":true}}\n{}",
                json!({"value": value, "changed": {}})
            ));
        }
        (None, None) => json!({"total": 2, "wanted": [[call]]}),
        (None, Some(sequence)) if sequence["answers"][0]["value"] == 3 => {
            json!({"total": 2, "held": 2, "failure": null})
        }
        (None, Some(_)) => {
            let failure = json!({"assert": 1, "type": "AssertionError", "cause": null});
            json!({"total": 2, "held": 1, "failure": failure})
        }
    };
    testing::printed(&report.to_string())
}

fn act(agent: &str, program: &str) -> pl_sdk::Action<Action> {
    pl_sdk::Action { agent: agent.to_owned(), action: Action::Python(program.to_owned()) }
}

fn apply(episode: &mut Problems, actions: &[pl_sdk::Action<Action>]) -> Outcome<Facts, Evidence> {
    episode.apply(&Settings::default(), actions).unwrap()
}

#[test]
fn the_oracle_is_the_records_own_solution() {
    let oracle = |record: Value| {
        let task = Task::new("1", &record).unwrap();
        let episode = Problems::start(&Settings::default(), &task, 0).unwrap();
        episode.oracle(&Settings::default(), "coder").unwrap()
    };
    let without = json!({"problem": "Double.", "tests": [{"input": "1", "output": "2"}]});
    assert_eq!(oracle(without.clone()), None);
    let mut with = without;
    with["solutions"] = json!(["print(2)"]);
    assert_eq!(oracle(with), Some(json!({"python": "print(2)"})));
}

#[test]
fn a_program_is_repaired() {
    testing::set_sandbox(fake_verdict);
    let mut episode = start();
    let outcome = apply(&mut episode, &[act("coder", "wrong")]);
    assert_eq!(outcome.facts, Facts { passed: false, ran: true, tested: false, agreed: false });
    assert_eq!(outcome.evidence.team, Tally { held: 1, total: 2 });
    let view = episode.view(&Settings::default(), "coder").unwrap();
    assert_eq!(view.attempt.unwrap().error.as_deref(), Some("A hidden test failed.\nAssertionError"));
    let outcome = apply(&mut episode, &[act("coder", "right")]);
    assert!(outcome.facts.passed && !outcome.done && !outcome.truncated);
}

#[test]
fn no_view_shows_a_test() {
    testing::set_sandbox(fake_verdict);
    let mut episode = start();
    apply(&mut episode, &[act("coder", "wrong")]);
    let view = json!(episode.view(&Settings::default(), "coder").unwrap());
    let error = "A hidden test failed.\nAssertionError";
    let attempt = json!({"program": "wrong", "ran": true, "tally": {"held": 1, "total": 2}, "error": error});
    let problem = "Complete this function:\n```python\ndef add(a, b):\n    \"\"\" Adds. \"\"\"\n```";
    let expected = json!({
        "problem": problem, "round": 1, "attempt": attempt, "functions": ["add"], "wanted": 3, "tests": [], "unread": 0,
        "comparisons": [],
    });
    assert_eq!(view, expected);
}

#[test]
fn programs_of_one_turn_keep_their_order() {
    testing::set_sandbox(fake_verdict);
    let mut episode = start();
    let silent = pl_sdk::Action { agent: "b".to_owned(), action: Action::None("no program".to_owned()) };
    let evidence = apply(&mut episode, &[act("a", "right"), silent, act("c", "wrong")]).evidence;
    let tally = |held, total| Tally { held, total };
    let latest = |agent: &str| evidence.work[agent].latest;
    assert_eq!(latest("a"), Some(Work::Program(tally(2, 2))));
    assert_eq!(latest("b"), None);
    assert_eq!(latest("c"), Some(Work::Program(tally(1, 2))));
    assert_eq!(evidence.team, tally(1, 2), "the newest program is the team's");
}

#[test]
fn a_program_never_meets_its_tests() {
    let (jobs, seen) = std::sync::mpsc::channel();
    testing::set_sandbox(move |job| {
        jobs.send(job.stdin.clone()).unwrap();
        fake_verdict(job)
    });
    apply(&mut start(), &[act("a", "right"), act("b", "wrong")]);
    let jobs: Vec<String> = seen.try_iter().collect();
    let has = |job: &String, text: &str| job.contains(text);
    assert!(jobs.iter().any(|job| has(job, "check(")) && jobs.iter().any(|job| has(job, "right")));
    for job in &jobs {
        let program = has(job, "\"right\"") || has(job, "\"wrong\"");
        assert!(program != has(job, "check("), "{job}");
    }
    // Both programs share the first pass of the tests.
    assert_eq!(jobs.len(), 1 + 2 + 2);
}

#[test]
fn every_turn_has_its_own_random_numbers() {
    let (seeds, seen) = std::sync::mpsc::channel();
    testing::set_sandbox(move |job| {
        if let Ok(Value::Object(input)) = serde_json::from_str::<Value>(&job.stdin) {
            seeds.send(input.get("seed").cloned()).unwrap();
        }
        fake_verdict(job)
    });
    let mut episode = start();
    for program in ["wrong", "also wrong", "also wrong"] {
        apply(&mut episode, &[act("coder", program)]);
    }
    let seeds: Vec<Value> = seen.try_iter().flatten().collect();
    assert_eq!(seeds.len(), 4, "two passes a turn, none for a program that is repeated");
    assert!(seeds[0] == seeds[1] && seeds[1] != seeds[2] && seeds[2] == seeds[3], "{seeds:?}");
}

#[test]
fn a_snapshot_restores_the_episode() {
    testing::set_sandbox(fake_verdict);
    let mut episode = start();
    apply(&mut episode, &[act("coder", "wrong")]);
    let mut restored: Problems = serde_json::from_slice(&serde_json::to_vec(&episode).unwrap()).unwrap();
    assert_eq!(restored, episode);
    let action = [act("coder", "right")];
    assert_eq!(apply(&mut restored, &action), apply(&mut episode, &action));
}

#[test]
fn impossible_settings_are_refused() {
    let task = Task::new("given", &json!({"question": "Write something."})).unwrap();
    let without_calls = Settings { calls_per_job: 0, ..Settings::default() };
    let without_tests = Settings { tests: 0, ..Settings::default() };
    let with_many = Settings { tests: 9, ..Settings::default() };
    for settings in [without_calls, without_tests, with_many] {
        let error = Problems::start(&settings, &task, 0).unwrap_err();
        assert_eq!(error.kind, pl_sdk::ErrorKind::Settings);
    }
}

/// A contest: twice the input. Inputs 1 and 2 are hidden tests.
fn contest(solution: bool) -> Problems {
    let mut record = json!({"problem": "Double it.", "tests": {"inputs": ["1", "2"], "outputs": ["2", "4"]}});
    if solution {
        record["solution"] = "reference".into();
    }
    Problems::start(&Settings::default(), &Task::new("1", &record).unwrap(), 0).unwrap()
}

/// A sandbox with programs that are known by their names.
fn double(job: &Job) -> Verdict {
    let number: i64 = job.stdin.trim().parse().unwrap_or(0);
    let printed = match job.source.as_str() {
        "reference" | "right" => 2 * number,
        "for hidden" if number < 3 => 2 * number,
        // Right for 2 alone.
        "square" => number * number,
        "broken" => return Verdict { ending: Ending::Error, ..testing::printed("") },
        _ => 0,
    };
    testing::printed(&printed.to_string())
}

fn tests(agent: &str, pairs: &[(i64, i64)]) -> pl_sdk::Action<Action> {
    let case = |(input, output): &(i64, i64)| TestText::Case {
        input: input.to_string(),
        output: output.to_string(),
    };
    pl_sdk::Action { agent: agent.to_owned(), action: Action::Tests(pairs.iter().map(case).collect()) }
}

/// Returns the team's reward and the acting agent's.
fn step(episode: &mut Problems, action: pl_sdk::Action<Action>) -> (f64, f64, Facts) {
    let actions = [action];
    let Outcome { done, truncated, facts, evidence } = apply(episode, &actions);
    let task = Task::new("1", &()).unwrap();
    let transition = Transition { task, actions: actions.to_vec(), done, truncated, facts, evidence };
    let scores = Score::score(&ScoreSettings::default(), &transition).unwrap();
    (scores.team, scores.local[0].reward, facts)
}

#[test]
fn a_coder_and_a_tester_agree() {
    testing::set_sandbox(double);
    let mut episode = contest(true);
    let (team, local, facts) = step(&mut episode, act("coder", "square"));
    assert_eq!((team, local, facts.tested, facts.agreed), (0.0, 0.5, false, false));
    // Two right tests, one of which catches the program, and a wrong one: 0.5 * 2/3 + 0.5.
    let (team, local, facts) = step(&mut episode, tests("tester", &[(2, 4), (5, 10), (7, 15)]));
    assert!((local - 5.0 / 6.0).abs() < 1e-12, "{local}");
    assert_eq!((team, facts.tested, facts.agreed), (0.0, true, false));
    let view = episode.view(&Settings::default(), "coder").unwrap();
    let mismatch = |input: &str, expected: &str, printed: &str| written::Mismatch {
        input: input.to_owned(),
        expected: expected.to_owned(),
        printed: printed.to_owned(),
    };
    let mismatches = vec![mismatch("5", "10", "25"), mismatch("7", "15", "49")];
    assert_eq!(view.comparisons, [Comparison { held: 1, total: 3, mismatches }]);
    let (team, local, facts) = step(&mut episode, act("coder", "right"));
    assert_eq!((team, local, facts.passed, facts.agreed), (1.0, 0.5, true, false));
    assert_eq!(episode.comparisons.len(), 2, "a new program meets the old tests");
    // The tests are better than the tester's best by 1/6, and the team's success is new to it.
    let (team, local, facts) = step(&mut episode, tests("tester", &[(2, 4), (5, 10), (7, 14)]));
    assert!((local - 1.0 / 6.0).abs() < 1e-12, "{local}");
    assert_eq!((team, facts.agreed), (1.0, true));
    for again in [tests("tester", &[(2, 4), (5, 10), (7, 14)]), act("coder", "right")] {
        let (team, local, facts) = step(&mut episode, again);
        assert_eq!((team, local, facts.agreed), (0.0, 0.0, true), "nothing is earned twice");
    }
    assert_eq!(episode.comparisons.len(), KEPT_COMPARISONS);
}

#[test]
fn without_a_reference_solution_a_program_that_passed_decides() {
    testing::set_sandbox(double);
    let mut episode = contest(false);
    let right = || tests("tester", &[(2, 4), (5, 10), (7, 14)]);
    assert_eq!(step(&mut episode, right()).1, 0.0, "nothing is known to be right");
    step(&mut episode, act("coder", "square"));
    assert_eq!(step(&mut episode, right()).1, 0.0);
    step(&mut episode, act("coder", "right"));
    assert_eq!(step(&mut episode, tests("tester", &[(2, 5)])).1, 0.0);
    assert_eq!(step(&mut episode, right()).1, 1.0);
    // A later program does not change what is right.
    step(&mut episode, act("coder", "square"));
    assert_eq!(step(&mut episode, tests("other", &[(5, 25)])).1, 0.0);
    assert_eq!(step(&mut episode, tests("other", &[(5, 10)])).1, 0.5 / 3.0 + 0.5);
}

#[test]
fn tests_meet_the_program_of_their_own_step() {
    testing::set_sandbox(double);
    let mut episode = contest(true);
    let outcome = apply(&mut episode, &[tests("tester", &[(4, 8)]), act("coder", "right")]);
    assert!(outcome.facts.agreed && outcome.evidence.work.len() == 2);
    // A step without tests keeps the old ones; one with no readable test, too.
    let nothing = pl_sdk::Action { agent: "tester".to_owned(), action: Action::Tests(Vec::new()) };
    let outcome = apply(&mut episode, &[nothing]);
    assert!(outcome.facts.agreed && outcome.facts.tested);
    assert!(!apply(&mut episode, &[act("coder", "square")]).facts.agreed);
    assert!(apply(&mut episode, &[act("coder", "reference")]).facts.agreed);
}

#[test]
fn with_feedback_by_tests_no_view_shows_hidden_results() {
    testing::set_sandbox(double);
    let settings = Settings { feedback: Feedback::Tests, ..Settings::default() };
    let mut views = Vec::new();
    for program in ["square", "right", "broken"] {
        let mut episode = contest(true);
        apply(&mut episode, &[act("coder", program)]);
        let shown = episode.view(&settings, "coder").unwrap().attempt.unwrap();
        views.push((shown.tally, shown.error));
    }
    assert_eq!(views, vec![(Tally::default(), None); 3]);
}

/// Hidden tests and the reference solution are in no view, in no job of a program, and in no evidence.
#[test]
fn secrets_stay_in_their_jobs() {
    let (jobs, seen) = std::sync::mpsc::channel();
    testing::set_sandbox(move |job| {
        jobs.send((job.source.clone(), job.stdin.clone())).unwrap();
        double(job)
    });
    let mut episode = contest(true);
    let mut shown = Vec::new();
    let actions = [tests("tester", &[(7, 14)]), act("coder", "square"), tests("tester", &[(8, 16)])];
    for action in actions {
        let outcome = apply(&mut episode, &[action]);
        shown.push(json!(outcome.evidence).to_string());
        shown.push(json!(episode.view(&Settings::default(), "tester").unwrap()).to_string());
    }
    assert!(shown.iter().all(|text| !text.contains("reference")), "{shown:?}");
    let inputs = |name: &str| -> Vec<String> {
        seen.try_iter().filter(|(source, _)| source == name).map(|(_, stdin)| stdin).collect()
    };
    // The reference solution runs on written tests alone.
    assert_eq!(inputs("reference"), ["7", "8"]);
}

#[test]
fn a_program_without_tests_is_only_loaded() {
    testing::set_sandbox(fake_verdict);
    let task = Task::new("given", &json!({"question": "Write something."})).unwrap();
    let mut episode = Problems::start(&Settings::default(), &task, 0).unwrap();
    let outcome = apply(&mut episode, &[act("coder", "right")]);
    assert_eq!(outcome.facts, Facts { passed: false, ran: true, tested: false, agreed: false });
}

/// Lines that a job may print, right or wrong.
fn lines() -> impl Strategy<Value = String> {
    let number = prop_oneof![Just("0"), Just("1"), Just("2"), Just("-1"), Just("4294967295"), Just("1e9")];
    let report = (number.clone(), number)
        .prop_map(|(held, total)| format!("{{\"total\":{total},\"held\":{held},\"failure\":null}}"));
    let call = "{\"function\":{\"name\":\"add\"},\"args\":[],\"kwargs\":{}}";
    prop_oneof![
        report,
        Just(format!("{{\"total\":3,\"wanted\":[[{call}]]}}")),
        Just("{\"total\":3,\"wanted\":[]}".to_owned()),
        Just("{\"loaded\":true}".to_owned()),
        Just("{\"value\":3,\"changed\":{}}".to_owned()),
        Just("{\"raised\":[\"StopIteration\"],\"error\":\"\"}".to_owned()),
        ".{0,12}",
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let endings = prop_oneof![4 => Just(Ending::Ok), 1 => Just(Ending::Error), 1 => Just(Ending::Timeout)];
    (endings, proptest::collection::vec(lines(), 0..4))
        .prop_map(|(ending, lines)| Verdict { ending, ..testing::printed(&lines.join("\n")) })
}

/// An action of a small world: a program by its name, tests, or nothing.
fn actions() -> impl Strategy<Value = pl_sdk::Action<Action>> {
    let programs =
        prop_oneof![Just("right"), Just("square"), Just("for hidden"), Just("broken"), Just("other")];
    let pairs = proptest::collection::vec((0_i64..6, 0_i64..12), 0..4);
    prop_oneof![
        programs.prop_map(|program| act("coder", program)),
        pairs.prop_map(|pairs| tests("tester", &pairs)),
        (0_i64..6).prop_map(|n| tests("tester", &[(n, 2 * n), (n + 1, 2 * n + 2), (n + 2, 2 * n + 4)])),
        Just(pl_sdk::Action { agent: "coder".to_owned(), action: Action::None("no program".to_owned()) }),
    ]
}

proptest::proptest! {
    /// Rewards stay in their range whatever any job prints.
    #[test]
    fn rewards_are_shares(verdicts in proptest::collection::vec(verdicts(), 1..6), cases: bool) {
        let mut next = verdicts.into_iter().cycle();
        testing::set_sandbox(move |_| next.next().unwrap());
        let contest = json!({"problem": "p", "tests": [{"input": "1", "output": "3"}]});
        let mut episode = match cases {
            true => Problems::start(&Settings::default(), &Task::new("1", &contest).unwrap(), 0).unwrap(),
            false => start(),
        };
        let case = TestText::Case { input: "1".to_owned(), output: "3".to_owned() };
        let assert = TestText::Assert("assert add(1, 2) == 3".to_owned());
        let tests = pl_sdk::Action { agent: "c".to_owned(), action: Action::Tests(vec![case, assert]) };
        let actions = [act("a", "program"), act("b", "other"), tests];
        if let Ok(outcome) = episode.apply(&Settings::default(), &actions) {
            let Outcome { done, truncated, facts, evidence } = outcome;
            let transition = Transition {
                task: Task::new("1", &()).unwrap(), actions: actions.to_vec(), done, truncated, facts, evidence,
            };
            let scores = Score::score(&ScoreSettings::default(), &transition).unwrap();
            prop_assert!(scores.team == 0.0 || scores.team == 1.0);
            for local in scores.local {
                prop_assert!((0.0..=1.0).contains(&local.reward), "{}", local.reward);
                prop_assert!(!local.success || local.reward == 1.0);
            }
        }
    }

    /// No sequence of steps pays an agent more than 1 of its own and 1 of the team's, and none pays twice for a step that is
    /// repeated. A restored copy continues in the same way.
    #[test]
    fn no_loop_pays(actions in proptest::collection::vec(actions(), 1..12), solution: bool) {
        testing::set_sandbox(double);
        let mut episode = contest(solution);
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for action in actions {
            let agent = action.agent.clone();
            let mut restored: Problems = serde_json::from_slice(&serde_json::to_vec(&episode).unwrap()).unwrap();
            prop_assert_eq!(&restored, &episode);
            let (team, local, facts) = step(&mut episode, action.clone());
            prop_assert_eq!(step(&mut restored, action.clone()), (team, local, facts));
            let sum = sums.entry(agent).or_default();
            *sum = (sum.0 + team, sum.1 + local);
            let (team, local, _) = step(&mut episode, action);
            prop_assert_eq!((team, local), (0.0, 0.0));
        }
        for (team, local) in sums.values() {
            prop_assert!(*team <= 1.0 && *local <= 1.0 + 1e-9, "{sums:?}");
        }
    }
}
