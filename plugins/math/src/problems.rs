//! The environment: a problem, the newest program, and the answers so far.

use std::collections::BTreeMap;

use pl_sdk::Value;
use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};

use crate::generator;
use crate::record::Problem;
use crate::votes::Votes;

/// Characters kept of a program's output and error, so that they fit into the context of a small model.
const MAX_SHOWN: usize = 1000;

/// An episode with one problem. It never ends by itself: the turns of the workflow decide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problems {
    problem: Problem,
    /// Number of steps so far.
    round: u32,
    /// The newest program.
    tool: Option<ProgramRun>,
    /// All answers in words, oldest first.
    answers: Vec<AgentAnswer>,
    /// Answers of the newest step that gave any in words. Agents side by side give several.
    newest: Vec<String>,
    /// Newest answer of each agent. `None` if its last step gave none.
    latest: BTreeMap<String, Option<String>>,
    /// Agents of the last step.
    acted: Vec<String>,
}

/// A program and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRun {
    /// The program.
    pub code: String,
    /// Its output.
    pub output: String,
    /// Reason why there is no answer, in one line.
    pub error: Option<String>,
    /// Last line of its output.
    pub answer: Option<String>,
}

/// An answer in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAnswer {
    /// Agent that gave it.
    pub agent: String,
    /// The answer.
    pub answer: String,
    /// The work that leads to it, if the agent hands it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
}

/// An answer and the work that leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Solution {
    /// The answer.
    pub answer: String,
    /// The whole completion, which other agents may see.
    pub work: String,
}

/// Settings of the environment.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of the set of generated problems. Train and test never share a problem, for any seed.
    pub seed: u64,
}

/// View of every agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The problem.
    pub question: String,
    /// Number of steps so far.
    pub round: u32,
    /// The newest program and its output.
    pub tool: Option<ProgramRun>,
    /// All answers in words, oldest first.
    pub answers: Vec<AgentAnswer>,
}

/// Action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run a Python program, whose last line of output is its answer.
    Python(String),
    /// Answer.
    Answer(String),
    /// Answer, and show the other agents the work.
    Solution(Solution),
    /// No usable action, with the reason.
    None(String),
}

/// Facts for the conditions of workflows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// True if an agent that has just acted gives the same answer as the last one of another agent.
    pub agreed: bool,
    /// True if at least two agents have given an answer, and the newest ones of all agents are the same.
    pub unanimous: bool,
    /// True if more than half of the agents that have acted, and at least two, give the same newest answer.
    pub majority: bool,
    /// True if there is an answer in words.
    pub answered: bool,
    /// True if the newest program printed an answer.
    pub computed: bool,
}

/// Evidence for the reward. Agents never see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The right answer.
    pub gold: String,
    /// The newest program's answer.
    pub tool_answer: Option<String>,
    /// The newest answer in words. If several agents answered side by side, the one that most of them gave.
    pub answer: Option<String>,
    /// Newest answer of each agent. `None` if its last step gave none.
    pub latest: BTreeMap<String, Option<String>>,
}

impl Environment for Problems {
    const NAME: &'static str = "problems";
    const DOC: &'static str = "Maths problems: generated word problems, or GSM8K's and MATH's records.";
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(_settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        let problem = Problem::read(task)?;
        Ok(Self {
            problem,
            round: 0,
            tool: None,
            answers: Vec::new(),
            newest: Vec::new(),
            latest: BTreeMap::new(),
            acted: Vec::new(),
        })
    }

    fn view(&self, _settings: &Settings, _agent: &str) -> Result<View> {
        let question = self.problem.question.clone();
        Ok(View { question, round: self.round, tool: self.tool.clone(), answers: self.answers.clone() })
    }

    fn apply(
        &mut self,
        _settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        let programs = actions.iter().filter_map(|action| match &action.action {
            Action::Python(code) => Some(code.as_str()),
            Action::Answer(_) | Action::Solution(_) | Action::None(_) => None,
        });
        // All programs of a turn at once: the sandbox runs them in parallel.
        let jobs: Vec<Job> = programs.map(python_job).collect();
        let verdicts = if jobs.is_empty() { Vec::new() } else { sandbox::execute(&jobs) };
        self.step(actions, verdicts);
        Ok(Outcome { done: false, truncated: false, facts: self.facts(), evidence: self.evidence() })
    }

    /// The right answer, which the record has.
    fn oracle(&self, _settings: &Settings, _agent: &str) -> Result<Option<Value>> {
        Ok(serde_json::to_value(Action::Answer(self.problem.gold.clone())).ok())
    }

    fn tasks(settings: &Settings, request: &TaskRequest) -> Result<Vec<Task>> {
        generator::tasks(settings.seed, request)
    }
}

fn python_job(code: &str) -> Job {
    Job { language: "python".to_owned(), source: code.to_owned(), stdin: String::new(), files: Vec::new() }
}

impl Problems {
    /// Applies a turn. `verdicts` are those of its programs, in order.
    fn step(&mut self, actions: &[pl_sdk::Action<Action>], verdicts: Vec<Verdict>) {
        self.round += 1;
        self.acted = actions.iter().map(|action| action.agent.clone()).collect();
        let mut verdicts = verdicts.into_iter();
        let before = self.answers.len();
        for pl_sdk::Action { agent, action } in actions {
            let latest = match action {
                Action::Python(code) => {
                    let run = ProgramRun::from_verdict(code, verdicts.next());
                    let answer = run.answer.clone();
                    self.tool = Some(run);
                    answer
                }
                Action::Answer(answer) => self.give(agent, answer, None),
                Action::Solution(Solution { answer, work }) => self.give(agent, answer, Some(work)),
                Action::None(_) => None,
            };
            self.latest.insert(agent.clone(), latest);
        }
        let newest = self.answers.iter().skip(before).map(|given| given.answer.clone());
        let newest: Vec<String> = newest.collect();
        if !newest.is_empty() {
            self.newest = newest;
        }
    }

    fn give(&mut self, agent: &str, answer: &str, work: Option<&String>) -> Option<String> {
        let given = AgentAnswer { agent: agent.to_owned(), answer: answer.to_owned(), work: work.cloned() };
        self.answers.push(given);
        Some(answer.to_owned())
    }

    fn tool_answer(&self) -> Option<&String> {
        self.tool.as_ref()?.answer.as_ref()
    }

    /// Returns the answer in words that counts for the team.
    fn answer(&self) -> Option<&str> {
        match &self.newest[..] {
            // The usual case needs no comparison, which is the expensive part of a turn.
            [only] => Some(only),
            several => Votes::count(several.iter().map(String::as_str)).winner(),
        }
    }

    fn facts(&self) -> Facts {
        let given = || self.latest.iter().filter_map(|(agent, answer)| Some((agent, answer.as_deref()?)));
        let votes = Votes::count(given().map(|(_, answer)| answer));
        let mut voters = given().enumerate().filter(|(_, (agent, _))| self.acted.contains(agent));
        Facts {
            agreed: voters.any(|(voter, _)| votes.is_confirmed(voter)),
            unanimous: votes.most() > 1 && votes.most() == self.latest.len(),
            majority: votes.most() > 1 && votes.most() > self.latest.len() / 2,
            answered: !self.newest.is_empty(),
            computed: self.tool_answer().is_some(),
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence {
            gold: self.problem.gold.clone(),
            tool_answer: self.tool_answer().cloned(),
            answer: self.answer().map(str::to_owned),
            latest: self.latest.clone(),
        }
    }
}

impl ProgramRun {
    fn from_verdict(code: &str, verdict: Option<Verdict>) -> Self {
        let code = code.to_owned();
        let Some(Verdict { ending, stdout, stderr, .. }) = verdict else {
            let error = Some("the sandbox gave no verdict".to_owned());
            return Self { code, output: String::new(), error, answer: None };
        };
        let answer = last_line(&stdout).map(|line| cut(line, MAX_SHOWN));
        let error = match ending {
            Ending::Ok if answer.is_none() => Some("the program printed nothing".to_owned()),
            Ending::Ok => None,
            // The last line of a Python traceback names the exception.
            Ending::Error => {
                Some(last_line(&stderr).map_or("the program failed".to_owned(), |line| cut(line, MAX_SHOWN)))
            }
            Ending::Timeout => Some("the program took too long".to_owned()),
            Ending::Memory => Some("the program used too much memory".to_owned()),
            Ending::OutputLimit => Some("the program printed too much".to_owned()),
            Ending::ProcessLimit => Some("the program started too many processes".to_owned()),
            Ending::LostWorker => Some("the sandbox lost the program".to_owned()),
        };
        // The output of a failed program is not an answer.
        let answer = answer.filter(|_| error.is_none());
        Self { code, output: cut(stdout.trim_end(), MAX_SHOWN), error, answer }
    }
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

fn cut(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;
    use serde_json::json;

    use super::*;

    fn start() -> Problems {
        let task = Task::new("1", &json!({"question": "3 + 4?", "answer": "#### 7"})).unwrap();
        Problems::start(&Settings::default(), &task, 0).unwrap()
    }

    fn act(agent: &str, action: Action) -> pl_sdk::Action<Action> {
        pl_sdk::Action { agent: agent.to_owned(), action }
    }

    fn apply(episode: &mut Problems, actions: &[pl_sdk::Action<Action>]) -> Outcome<Facts, Evidence> {
        episode.apply(&Settings::default(), actions).unwrap()
    }

    #[test]
    fn a_team_computes_answers_and_agrees() {
        testing::set_sandbox(|job| {
            assert_eq!((job.language.as_str(), job.source.as_str()), ("python", "print(3 + 4)"));
            testing::printed("thinking\n7.0\n\n")
        });
        let mut episode = start();
        let outcome = apply(&mut episode, &[act("tool", Action::Python("print(3 + 4)".to_owned()))]);
        assert_eq!(outcome.facts, Facts { computed: true, ..Facts::default() });
        assert_eq!(outcome.evidence.tool_answer.as_deref(), Some("7.0"));
        let outcome = apply(&mut episode, &[act("reason", Action::Answer("7 apples".to_owned()))]);
        assert_eq!(
            outcome.facts,
            Facts { agreed: true, unanimous: true, majority: true, answered: true, computed: true }
        );
        assert!(!outcome.done && !outcome.truncated);
        let outcome = apply(&mut episode, &[act("reason", Action::Answer("8".to_owned()))]);
        assert!(!outcome.facts.agreed);
        assert_eq!(outcome.evidence.latest["reason"].as_deref(), Some("8"));
    }

    #[test]
    fn the_oracle_knows_the_answer() {
        let mut episode = start();
        let advice = episode.oracle(&Settings::default(), "any").unwrap().unwrap();
        assert_eq!(advice, json!({"answer": "7"}));
        let action = serde_json::from_value(advice).unwrap();
        let evidence = apply(&mut episode, &[act("reason", action)]).evidence;
        assert_eq!(evidence.answer, Some(evidence.gold));
    }

    #[test]
    fn two_agents_that_answer_in_words_can_agree() {
        let mut episode = start();
        let mut answer_agrees = |agent, answer: &str| {
            apply(&mut episode, &[act(agent, Action::Answer(answer.to_owned()))]).facts.agreed
        };
        assert!(!answer_agrees("solve", "2"));
        assert!(!answer_agrees("solve", "2"), "an agent can't confirm itself");
        assert!(answer_agrees("check", "2.0"));
        assert!(!answer_agrees("solve", "3"));
    }

    #[test]
    fn samplers_vote_and_an_aggregator_decides() {
        let solution = |agent: &str, answer: &str| {
            act(agent, Action::Solution(Solution { answer: answer.to_owned(), work: format!("so {answer}") }))
        };
        let mut episode = start();
        let outcome = apply(&mut episode, &[solution("a", "8"), solution("b", "7"), solution("c", "7.0")]);
        let split = Facts { agreed: true, majority: true, answered: true, ..Facts::default() };
        assert_eq!(outcome.facts, split);
        assert_eq!(outcome.evidence.answer.as_deref(), Some("7"), "most of them answer 7");
        assert_eq!(outcome.evidence.latest["a"].as_deref(), Some("8"));
        let view = episode.view(&Settings::default(), "sum").unwrap();
        let shown: Vec<_> =
            view.answers.iter().map(|given| (&*given.answer, given.work.as_deref())).collect();
        assert_eq!(shown, [("8", Some("so 8")), ("7", Some("so 7")), ("7.0", Some("so 7.0"))]);
        let outcome = apply(&mut episode, &[act("sum", Action::Answer("8".to_owned()))]);
        assert_eq!(outcome.evidence.answer.as_deref(), Some("8"), "the aggregator has the last word");
        assert!(outcome.facts.agreed && !outcome.facts.majority, "two of four are not a majority");
        let all = [solution("a", "7"), solution("b", "7"), solution("c", "7"), solution("sum", "7")];
        assert!(apply(&mut episode, &all).facts.unanimous);
        let outcome = apply(&mut episode, &[act("a", Action::None("no answer".to_owned()))]);
        assert!(!outcome.facts.unanimous && outcome.facts.majority);
    }

    #[test]
    fn no_view_shows_the_gold_answer() {
        testing::set_sandbox(|_| testing::printed("8"));
        let mut episode = start();
        apply(&mut episode, &[act("tool", Action::Python("print(8)".to_owned()))]);
        apply(&mut episode, &[act("reason", Action::None("no answer".to_owned()))]);
        let view = json!(episode.view(&Settings::default(), "reason").unwrap());
        assert_eq!(view["round"], 2);
        let run = json!({"code": "print(8)", "output": "8", "error": null, "answer": "8"});
        assert_eq!(view, json!({"question": "3 + 4?", "round": 2, "tool": run, "answers": []}));
    }

    #[test]
    fn a_failing_program_gives_no_answer() {
        let verdict = |ending, stdout: &str, stderr: &str| Verdict {
            ending,
            exit: Some(1),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        };
        let run = ProgramRun::from_verdict(
            "x",
            Some(verdict(Ending::Error, "5\n", "Traceback\nNameError: name 'x' is not defined\n")),
        );
        assert_eq!((run.answer, run.error.as_deref()), (None, Some("NameError: name 'x' is not defined")));
        let run = ProgramRun::from_verdict("x", Some(verdict(Ending::Ok, " \n", "")));
        assert_eq!((run.answer, run.error.as_deref()), (None, Some("the program printed nothing")));
        let run = ProgramRun::from_verdict("x", Some(verdict(Ending::OutputLimit, &"9".repeat(5000), "")));
        assert_eq!((run.answer, run.output.len()), (None, MAX_SHOWN));
        assert!(ProgramRun::from_verdict("x", None).error.is_some());
    }

    #[test]
    fn programs_of_one_turn_keep_their_order() {
        testing::set_sandbox(|job| testing::printed(&job.source));
        let mut episode = start();
        let turn = [
            act("a", Action::Python("1".to_owned())),
            act("b", Action::Answer("2".to_owned())),
            act("c", Action::Python("3".to_owned())),
        ];
        let evidence = apply(&mut episode, &turn).evidence;
        let latest: Vec<_> =
            evidence.latest.iter().map(|(agent, answer)| (agent.as_str(), answer.as_deref())).collect();
        assert_eq!(latest, [("a", Some("1")), ("b", Some("2")), ("c", Some("3"))]);
    }

    #[test]
    fn a_snapshot_restores_the_episode() {
        testing::set_sandbox(|_| testing::printed("7"));
        let mut episode = start();
        apply(&mut episode, &[act("tool", Action::Python("print(7)".to_owned()))]);
        let mut restored: Problems = serde_json::from_slice(&serde_json::to_vec(&episode).unwrap()).unwrap();
        assert_eq!(restored, episode);
        let action = [act("reason", Action::Answer("7".to_owned()))];
        assert_eq!(apply(&mut restored, &action), apply(&mut episode, &action));
    }
}
