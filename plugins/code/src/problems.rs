//! The environment: a problem and the programs that attempt it.

use std::collections::BTreeMap;

use pl_sdk::prelude::*;
use pl_sdk::sandbox::Job;

use crate::record::Problem;
use crate::run::{self, Attempt, Tally};

/// An episode with one problem. It never ends by itself: the turns of the workflow decide
/// (`coder -> end when env.passed`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    problem: Problem,
    /// Number of steps so far.
    round: u32,
    /// The newest program.
    attempt: Option<Attempt>,
    /// Test result of each agent's last action. An action without a program has a zero tally.
    latest: BTreeMap<String, Tally>,
}

/// Settings of the environment.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of an MBPP record's tests that its problem shows as examples, because the text does not name
    /// the function. The authors of MBPP show 3. All other tests are hidden, like all of HumanEval's.
    #[schemars(range(min = 1))]
    pub shown: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { shown: 1 }
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
    pub attempt: Option<Attempt>,
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
    const DOC: &'static str = "Functions to write, with hidden tests: HumanEval's and MBPP's records.";
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        if settings.shown == 0 {
            return Err(Error::settings("shown = 0, but a problem needs an example: set 1 or more"));
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
        _settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        let key = random::next().to_string();
        // All programs of a turn at once: the sandbox runs them in parallel.
        let programs = actions.iter().filter_map(|action| action.action.program());
        let jobs: Vec<Job> = programs.map(|program| run::to_job(&self.problem, program, &key)).collect();
        let mut verdicts = if jobs.is_empty() { Vec::new() } else { sandbox::execute(&jobs) }.into_iter();
        self.round += 1;
        for pl_sdk::Action { agent, action } in actions {
            let attempt =
                action.program().map(|program| Attempt::from_verdict(program, &key, verdicts.next()));
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
    use pl_sdk::sandbox::Verdict;
    use pl_sdk::services::testing;
    use serde_json::{Value, json};

    use super::*;

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
        let input: Value = serde_json::from_str(&job.stdin).unwrap();
        let right = input["program"] == "right";
        let error = if right { Value::Null } else { "AssertionError".into() };
        let held = if right { 2 } else { 1 };
        let report = json!({"key": input["key"], "ran": true, "held": held, "total": 2, "error": error});
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
        assert_eq!(view.attempt.unwrap().error.as_deref(), Some("AssertionError"));
        let outcome = apply(&mut episode, &[act("coder", "right")]);
        assert!(outcome.facts.passed && !outcome.done && !outcome.truncated);
    }

    #[test]
    fn no_view_shows_a_test() {
        testing::set_sandbox(fake_verdict);
        let mut episode = start();
        apply(&mut episode, &[act("coder", "wrong")]);
        let view = json!(episode.view(&Settings::default(), "coder").unwrap());
        let attempt = json!({
            "program": "wrong", "ran": true, "tally": {"held": 1, "total": 2}, "error": "AssertionError"
        });
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
    fn every_turn_has_its_own_key() {
        let (keys, seen) = std::sync::mpsc::channel();
        testing::set_sandbox(move |job| {
            let input: Value = serde_json::from_str(&job.stdin).unwrap();
            keys.send(input["key"].as_str().unwrap().to_owned()).unwrap();
            fake_verdict(job)
        });
        let mut episode = start();
        apply(&mut episode, &[act("coder", "wrong")]);
        apply(&mut episode, &[act("coder", "wrong")]);
        assert_ne!(seen.recv().unwrap(), seen.recv().unwrap());
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
    fn settings_that_show_nothing_are_refused() {
        let task = Task::new("1", &json!({"question": "Write something."})).unwrap();
        let error = Problems::start(&Settings { shown: 0 }, &task, 0).unwrap_err();
        assert_eq!(error.kind, pl_sdk::ErrorKind::Settings);
    }
}
