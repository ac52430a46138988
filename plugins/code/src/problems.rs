//! The environment: a problem and the programs that attempt it.

use std::collections::BTreeMap;

use pl_sdk::prelude::*;

use crate::asserts::AssertGrading;
use crate::attempt::{ProgramRun, Tally};
use crate::cases::CaseGrading;
use crate::grading::{self, Grading};
use crate::record::{Problem, Tests};

/// Number of jobs in which the programs of one turn answer calls. A plugin's default fuel pays for 330 jobs in a call, and
/// the tests' own passes are among them.
const JOBS_PER_TURN: usize = 240;

/// An episode with one problem. It never ends by itself: the turns of the workflow decide
/// (`coder -> end when env.passed`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    problem: Problem,
    /// Number of steps so far.
    round: u32,
    /// The newest program.
    attempt: Option<ProgramRun>,
    /// Test result of each agent's last action. An action without a program has a zero tally.
    latest: BTreeMap<String, Tally>,
}

/// Settings of the environment.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of an MBPP record's tests that its problem shows, with the values that they expect. By default the
    /// problem shows a call without its value, because the text does not name the function. The authors of MBPP
    /// show 3. Shown tests count in the reward like hidden ones. All of HumanEval's are hidden.
    pub shown: u32,
    /// Number of calls that one process of the program answers, one after the other. With 1 no process knows two
    /// inputs, except for calls on one object. More make long tests cheaper, and let a program that reads its
    /// standard input itself see the inputs of its next calls.
    #[schemars(range(min = 1))]
    pub calls_per_job: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { shown: 0, calls_per_job: 1 }
    }
}

/// View of every agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The problem.
    pub problem: String,
    /// Number of steps so far.
    pub round: u32,
    /// The newest program and its result.
    pub attempt: Option<ProgramRun>,
}

/// Action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Test a Python program.
    Python(String),
    /// No usable action, with the reason.
    None(String),
}

/// Facts for the conditions of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// True if the newest program passed all tests.
    pub passed: bool,
    /// True if the newest program ran to its end, with any test result.
    pub ran: bool,
}

/// Evidence for the reward. Agents never see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Test result of the newest program.
    pub team: Tally,
    /// Test result of each agent's last action.
    pub latest: BTreeMap<String, Tally>,
}

impl Environment for Problems {
    const NAME: &'static str = "problems";
    const DOC: &'static str =
        "Programs to write, with hidden tests: records of HumanEval, MBPP and contests.";
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        if settings.calls_per_job == 0 {
            return Err(Error::settings("calls_per_job = 0, but a process answers a call: set 1 or more"));
        }
        let problem = Problem::read(task, settings.shown)?;
        Ok(Self { problem, round: 0, attempt: None, latest: BTreeMap::new() })
    }

    fn view(&self, _settings: &Settings, _agent: &str) -> Result<View> {
        let problem = self.problem.text.clone();
        Ok(View { problem, round: self.round, attempt: self.attempt.clone() })
    }

    fn apply(
        &mut self,
        settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        // The tests' random numbers. A program can't know them before it is written.
        let seed = random::next();
        let programs: Vec<&str> = actions.iter().filter_map(|action| action.action.program()).collect();
        let jobs = JOBS_PER_TURN / programs.len().max(1);
        let mut gradings: Vec<Box<dyn Grading + '_>> = programs
            .into_iter()
            .map(|program| -> Box<dyn Grading + '_> {
                match &self.problem.tests {
                    Tests::Asserts(asserts) => {
                        let calls_per_job = settings.calls_per_job as usize;
                        Box::new(AssertGrading::new(asserts, program, seed, calls_per_job, jobs))
                    }
                    Tests::Cases(cases) => Box::new(CaseGrading::new(cases, program)),
                }
            })
            .collect();
        grading::run(&mut gradings)?;
        let attempts: Vec<ProgramRun> = gradings.iter().map(|grading| grading.attempt()).collect();
        drop(gradings);
        self.round += 1;
        let mut attempts = attempts.into_iter();
        for pl_sdk::Action { agent, action } in actions {
            let attempt = action.program().and_then(|_| attempts.next());
            let tally = attempt.as_ref().map_or(Tally::default(), |attempt| attempt.tally);
            self.latest.insert(agent.clone(), tally);
            self.attempt = attempt.or(self.attempt.take());
        }
        Ok(Outcome { done: false, truncated: false, facts: self.facts(), evidence: self.evidence() })
    }
}

impl Action {
    fn program(&self) -> Option<&str> {
        match self {
            Self::Python(program) => Some(program),
            Self::None(_) => None,
        }
    }
}

impl Problems {
    fn team(&self) -> Tally {
        self.attempt.as_ref().map_or(Tally::default(), |attempt| attempt.tally)
    }

    fn facts(&self) -> Facts {
        let ran = self.attempt.as_ref().is_some_and(|attempt| attempt.ran);
        Facts { passed: self.team().passed(), ran }
    }

    fn evidence(&self) -> Evidence {
        Evidence { team: self.team(), latest: self.latest.clone() }
    }
}

#[cfg(test)]
mod tests {
    use pl_sdk::sandbox::{Ending, Job, Verdict};
    use pl_sdk::services::testing;
    use proptest::prelude::{Just, Strategy, prop_assert, prop_oneof};
    use serde_json::{Value, json};

    use super::*;
    use crate::score::Score;

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
    fn a_program_is_repaired() {
        testing::set_sandbox(fake_verdict);
        let mut episode = start();
        let outcome = apply(&mut episode, &[act("coder", "wrong")]);
        assert_eq!(outcome.facts, Facts { passed: false, ran: true });
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
        let attempt =
            json!({"program": "wrong", "ran": true, "tally": {"held": 1, "total": 2}, "error": error});
        let problem = "Complete this function:\n```python\ndef add(a, b):\n    \"\"\" Adds. \"\"\"\n```";
        assert_eq!(view, json!({"problem": problem, "round": 1, "attempt": attempt}));
    }

    #[test]
    fn programs_of_one_turn_keep_their_order() {
        testing::set_sandbox(fake_verdict);
        let mut episode = start();
        let silent = pl_sdk::Action { agent: "b".to_owned(), action: Action::None("no program".to_owned()) };
        let evidence = apply(&mut episode, &[act("a", "right"), silent, act("c", "wrong")]).evidence;
        let tally = |held, total| Tally { held, total };
        let expected = [("a", tally(2, 2)), ("b", tally(0, 0)), ("c", tally(1, 2))];
        assert_eq!(evidence.latest, expected.map(|(agent, tally)| (agent.to_owned(), tally)).into());
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
        apply(&mut episode, &[act("coder", "wrong")]);
        apply(&mut episode, &[act("coder", "wrong")]);
        let seeds: Vec<Value> = seen.try_iter().flatten().collect();
        assert_eq!(seeds.len(), 4, "two passes a turn");
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
    fn settings_without_calls_are_refused() {
        let task = Task::new("1", &json!({"question": "Write something."})).unwrap();
        let settings = Settings { calls_per_job: 0, ..Settings::default() };
        let error = Problems::start(&settings, &task, 0).unwrap_err();
        assert_eq!(error.kind, pl_sdk::ErrorKind::Settings);
    }

    #[test]
    fn a_program_without_tests_is_only_loaded() {
        testing::set_sandbox(fake_verdict);
        let task = Task::new("1", &json!({"question": "Write something."})).unwrap();
        let mut episode = Problems::start(&Settings::default(), &task, 0).unwrap();
        let outcome = apply(&mut episode, &[act("coder", "right")]);
        assert_eq!(outcome.facts, Facts { passed: false, ran: true });
    }

    /// Lines that a job may print, right or wrong.
    fn lines() -> impl Strategy<Value = String> {
        let number =
            prop_oneof![Just("0"), Just("1"), Just("2"), Just("-1"), Just("4294967295"), Just("1e9")];
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
        let endings =
            prop_oneof![4 => Just(Ending::Ok), 1 => Just(Ending::Error), 1 => Just(Ending::Timeout)];
        (endings, proptest::collection::vec(lines(), 0..4))
            .prop_map(|(ending, lines)| Verdict { ending, ..testing::printed(&lines.join("\n")) })
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
            let actions = [act("a", "program"), act("b", "other")];
            if let Ok(outcome) = episode.apply(&Settings::default(), &actions) {
                let Outcome { done, truncated, facts, evidence } = outcome;
                let transition = Transition {
                    task: Task::new("1", &()).unwrap(), actions: actions.to_vec(), done, truncated, facts, evidence,
                };
                let scores = Score::score(&NoSettings {}, &transition).unwrap();
                prop_assert!(scores.team == 0.0 || scores.team == 1.0);
                for local in scores.local {
                    prop_assert!((0.0..=1.0).contains(&local.reward), "{}", local.reward);
                    prop_assert!(!local.success || local.reward == 1.0);
                }
            }
        }
    }
}
