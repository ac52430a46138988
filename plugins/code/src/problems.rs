//! The environment: a problem, the programs that attempt it and the tests that agents write for it.

use std::collections::{BTreeMap, BTreeSet};

use pl_sdk::Value;
use pl_sdk::prelude::*;

use crate::asserts::AssertGrading;
use crate::attempt::{ProgramRun, Tally};
use crate::cases::{CaseGrading, CaseResult};
use crate::grading::{self, Grading};
use crate::record::{Problem, Tests};
use crate::work::{TestWork, Work, WorkHistory};
use crate::written::{self, Comparison, MAX_TESTS, ShownTest, TestText, WrittenTest};

/// Number of jobs in which the programs of one turn answer calls. A plugin's default fuel pays for 330 jobs in a call, and
/// the hidden tests' own passes and the jobs of written tests are among them.
const JOBS_PER_TURN: usize = 240;

/// Number of comparisons that are kept and shown.
const KEPT_COMPARISONS: usize = 3;

/// An episode with one problem. It never ends by itself: the turns of the workflow decide
/// (`coder -> end when env.passed`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problems {
    problem: Problem,
    /// Number of steps so far.
    round: u32,
    /// The newest program.
    attempt: Option<ProgramRun>,
    /// A program of this episode that passed the hidden tests. It stands in for a missing reference solution.
    proven: Option<String>,
    /// The newest tests that agents wrote.
    tests: Vec<WrittenTest>,
    /// Number of texts beside them that are not tests.
    unread: u32,
    /// True if the newest program holds all of the newest tests.
    agreed: bool,
    /// The last comparisons of a newest program with newest tests, oldest first.
    comparisons: Vec<Comparison>,
    /// Work of each agent.
    work: BTreeMap<String, WorkHistory>,
    /// Agents that have acted while the newest program passed.
    paid: BTreeSet<String>,
}

/// Results that agents see of their programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// Those of the hidden tests, without the tests themselves, and those of tests that agents write.
    #[default]
    Hidden,
    /// Those of tests that agents write.
    Tests,
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
    /// inputs, except for calls on one object, and where more calls wait at once than a turn has jobs for (120 if it
    /// has one program, fewer for several or in later rounds): those calls share processes. Larger numbers make long
    /// tests cheaper, and let a program that reads its standard input itself see the inputs of its next calls.
    #[schemars(range(min = 1))]
    pub calls_per_job: u32,
    /// Number of tests that a tester writes in a step. More aren't read, and missing ones earn nothing.
    #[schemars(range(min = 1, max = 8))]
    pub tests: u32,
    /// Results that prompts quote: `hidden` or `tests`. With `tests` a team is told nothing that it didn't find out by tests
    /// of its own.
    pub feedback: Feedback,
}

impl Default for Settings {
    fn default() -> Self {
        Self { shown: 0, calls_per_job: 1, tests: 3, feedback: Feedback::Hidden }
    }
}

/// View of every agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// The problem.
    pub problem: String,
    /// Number of steps so far.
    pub round: u32,
    /// The newest program and its result.
    pub attempt: Option<ProgramRun>,
    /// Functions that tests may call. Empty if programs read standard input.
    pub functions: Vec<String>,
    /// Number of tests that a tester should write.
    pub wanted: u32,
    /// The newest tests that an agent wrote.
    pub tests: Vec<ShownTest>,
    /// Number of texts beside them that are not tests.
    pub unread: u32,
    /// The last comparisons of programs with such tests, oldest first.
    pub comparisons: Vec<Comparison>,
}

/// Action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Test a Python program.
    Python(String),
    /// Test programs with these tests.
    Tests(Vec<TestText>),
    /// No usable action, with the reason.
    None(String),
}

/// Facts for the conditions of workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// True if the newest program passed all hidden tests.
    pub passed: bool,
    /// True if the newest program ran to its end, with any test result.
    pub ran: bool,
    /// True if an agent has written tests.
    pub tested: bool,
    /// True if the newest program holds all of the newest tests that an agent wrote.
    pub agreed: bool,
}

/// Evidence for the reward. Agents never see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Result of the newest program in the hidden tests.
    pub team: Tally,
    /// True if all agents of this step have already acted while the newest program passed.
    pub paid: bool,
    /// Work of each agent.
    pub work: BTreeMap<String, WorkHistory>,
}

impl Environment for Problems {
    const NAME: &'static str = "problems";
    const DOC: &'static str = "Programs to write, with hidden tests: records of HumanEval, MBPP, APPS, LiveCodeBench, \
                               CodeContests and other contests.";
    type Settings = Settings;
    type View = View;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(settings: &Settings, task: &Task, _seed: u64) -> Result<Self> {
        if settings.calls_per_job == 0 {
            return Err(Error::settings("calls_per_job = 0, but a process answers a call: set 1 or more"));
        }
        if !(1..=MAX_TESTS).contains(&settings.tests) {
            let tests = settings.tests;
            return Err(Error::settings(format!(
                "tests = {tests}, but a step may write 1 to {MAX_TESTS} tests"
            )));
        }
        Ok(Self {
            problem: Problem::read(task, settings.shown)?,
            round: 0,
            attempt: None,
            proven: None,
            tests: Vec::new(),
            unread: 0,
            agreed: false,
            comparisons: Vec::new(),
            work: BTreeMap::new(),
            paid: BTreeSet::new(),
        })
    }

    fn view(&self, settings: &Settings, _agent: &str) -> Result<View> {
        Ok(View {
            problem: self.problem.text.clone(),
            round: self.round,
            attempt: self.attempt.as_ref().map(|attempt| self.shown_attempt(settings.feedback, attempt)),
            functions: self.problem.functions.clone(),
            wanted: settings.tests,
            tests: self.tests.iter().map(WrittenTest::shown).collect(),
            unread: self.unread,
            comparisons: self.comparisons.clone(),
        })
    }

    /// The record's own solution, if it has one.
    fn oracle(&self, _settings: &Settings, _agent: &str) -> Result<Option<Value>> {
        let solution = self.problem.solution.clone();
        Ok(solution.and_then(|program| serde_json::to_value(Action::Python(program)).ok()))
    }

    fn apply(
        &mut self,
        settings: &Settings,
        actions: &[pl_sdk::Action<Action>],
    ) -> Result<Outcome<Facts, Evidence>> {
        // The hidden tests' random numbers. A program can't know them before it is written.
        let seed = random::next();
        let programs: Vec<&str> = actions.iter().filter_map(|action| action.action.program()).collect();
        let attempts = self.grade(settings, &programs, seed)?;
        self.round += 1;
        let passed = attempts.iter().rfind(|attempt| attempt.tally.passed());
        self.proven = passed.map(|attempt| attempt.program.clone()).or(self.proven.take());
        let before = self.attempt.take();
        self.attempt = attempts.last().or(before.as_ref()).cloned();
        if self.attempt != before {
            self.compare_again()?;
        }
        let mut attempts = attempts.into_iter();
        for pl_sdk::Action { agent, action } in actions {
            let work = match action {
                Action::Python(_) => attempts.next().map(|attempt| Work::Program(attempt.tally)),
                Action::Tests(texts) => Some(Work::Tests(self.take_tests(settings, texts)?)),
                Action::None(_) => None,
            };
            self.work.entry(agent.clone()).or_default().push(work);
        }
        let evidence = self.pay(actions);
        Ok(Outcome { done: false, truncated: false, facts: self.facts(), evidence })
    }
}

impl Action {
    fn program(&self) -> Option<&str> {
        match self {
            Self::Python(program) => Some(program),
            Self::Tests(_) | Self::None(_) => None,
        }
    }
}

impl Problems {
    /// Grades programs by the hidden tests. One that repeats the newest program keeps its result, also if the tests draw
    /// random numbers.
    fn grade(&self, settings: &Settings, programs: &[&str], seed: u64) -> Result<Vec<ProgramRun>> {
        let known = |program: &str| self.attempt.as_ref().filter(|attempt| attempt.program == program);
        let jobs = JOBS_PER_TURN / programs.len().max(1);
        let mut gradings: Vec<Box<dyn Grading + '_>> = programs
            .iter()
            .filter(|program| known(program).is_none())
            .map(|program| -> Box<dyn Grading + '_> {
                match &self.problem.tests {
                    Tests::Asserts(asserts) => {
                        let calls_per_job = settings.calls_per_job as usize;
                        Box::new(AssertGrading::new(asserts, program, seed, calls_per_job, jobs))
                    }
                    Tests::Cases(cases) => Box::new(CaseGrading::new(&cases.prelude, &cases.cases, program)),
                }
            })
            .collect();
        let mut running: Vec<&mut dyn Grading> = Vec::new();
        for grading in &mut gradings {
            running.push(grading.as_mut());
        }
        grading::run(&mut running)?;
        let mut attempts = gradings.iter().map(|grading| grading.attempt());
        Ok(programs
            .iter()
            .filter_map(|program| known(program).cloned().or_else(|| attempts.next()))
            .collect())
    }

    /// Takes the tests that an agent wrote, and finds out what they are worth.
    fn take_tests(&mut self, settings: &Settings, texts: &[TestText]) -> Result<TestWork> {
        let tests = written::read(texts, &self.problem, settings.tests);
        let wrong_program = self.attempt.as_ref().is_some_and(|attempt| !attempt.tally.passed());
        let mut work = TestWork { right: 0, wanted: settings.tests, wrong_program, caught: false };
        if tests.is_empty() {
            return Ok(work);
        }
        let [own, reference] = self.run_tests(&tests, [self.newest_program(), self.reference()])?;
        let right = |(index, test): (usize, &WrittenTest)| {
            let holds = reference.get(index).is_some_and(|result| result.held);
            (!test.copied && holds).then_some(index)
        };
        let right: Vec<usize> = tests.iter().enumerate().filter_map(right).collect();
        work.right = u32::try_from(right.len()).unwrap_or(u32::MAX);
        work.caught =
            wrong_program && right.iter().any(|index| own.get(*index).is_some_and(|result| !result.held));
        let texts = u32::try_from(texts.len()).unwrap_or(u32::MAX).min(settings.tests);
        self.unread = texts.saturating_sub(u32::try_from(tests.len()).unwrap_or(u32::MAX));
        self.tests = tests;
        self.compared(&own);
        Ok(work)
    }

    /// Compares a new program with the newest tests.
    fn compare_again(&mut self) -> Result<()> {
        if !self.tests.is_empty() {
            let [own] = self.run_tests(&self.tests, [self.newest_program()])?;
            self.compared(&own);
        }
        Ok(())
    }

    /// Keeps the comparison of the newest program, if there is one, with the newest tests.
    fn compared(&mut self, results: &[CaseResult]) {
        self.agreed = false;
        if !results.is_empty() {
            let comparison = Comparison::new(&self.tests, results);
            self.agreed = comparison.agrees();
            self.comparisons.push(comparison);
            let old = self.comparisons.len().saturating_sub(KEPT_COMPARISONS);
            self.comparisons.drain(..old);
        }
    }

    /// Runs tests on programs, and returns the results of each program: none without a program.
    fn run_tests<const N: usize>(
        &self,
        tests: &[WrittenTest],
        programs: [Option<&str>; N],
    ) -> Result<[Vec<CaseResult>; N]> {
        let cases = || tests.iter().map(|test| &test.case);
        let mut gradings =
            programs.map(|program| Some(CaseGrading::new(self.problem.prelude(), cases(), program?)));
        let mut running: Vec<&mut dyn Grading> = Vec::new();
        for grading in gradings.iter_mut().flatten() {
            running.push(grading);
        }
        grading::run(&mut running)?;
        Ok(gradings.map(|grading| grading.map(CaseGrading::into_results).unwrap_or_default()))
    }

    fn newest_program(&self) -> Option<&str> {
        self.attempt.as_ref().map(|attempt| attempt.program.as_str())
    }

    /// Returns the program that decides whether tests are right.
    fn reference(&self) -> Option<&str> {
        self.problem.solution.as_deref().or(self.proven.as_deref())
    }

    /// Returns a program and what agents may know of its result.
    fn shown_attempt(&self, feedback: Feedback, attempt: &ProgramRun) -> ProgramRun {
        // A program with functions that can't be loaded was not tested at all.
        let loading = !attempt.ran && !self.problem.functions.is_empty();
        match feedback {
            Feedback::Hidden => attempt.clone(),
            Feedback::Tests => ProgramRun {
                program: attempt.program.clone(),
                ran: attempt.ran,
                tally: Tally::default(),
                error: attempt.error.clone().filter(|_| loading),
            },
        }
    }

    fn team(&self) -> Tally {
        self.attempt.as_ref().map_or(Tally::default(), |attempt| attempt.tally)
    }

    fn facts(&self) -> Facts {
        let ran = self.attempt.as_ref().is_some_and(|attempt| attempt.ran);
        Facts { passed: self.team().passed(), ran, tested: !self.tests.is_empty(), agreed: self.agreed }
    }

    /// Returns the evidence of a step, and notes who is paid for the team's success.
    fn pay(&mut self, actions: &[pl_sdk::Action<Action>]) -> Evidence {
        let team = self.team();
        let paid = actions.iter().all(|action| self.paid.contains(&action.agent));
        if team.passed() {
            self.paid.extend(actions.iter().map(|action| action.agent.clone()));
        }
        Evidence { team, paid, work: self.work.clone() }
    }
}

#[cfg(test)]
mod tests;
