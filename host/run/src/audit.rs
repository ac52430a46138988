//! Audits of a workflow's environment and reward, before a model plays.
//!
//! Adversaries that know nothing of the task ([`Strategy`]) play the training tasks. A reward that they earn is one that
//! training will find too: answers that are right by themselves, actions that pay without end, prompts that hold the
//! solution. Splits that share tasks are found by their starting states. The environment's oracle, if it has one, tells
//! which tasks can be solved, what that earns, and if a solution of one task solves others.
//!
//! No model is needed: prompts are passed on as text.

mod adversary;
mod fragments;
mod leaks;
pub(crate) mod note;
mod oracle;
mod splits;

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pl_dsl::workflow::objective::{Advantage, Returns};
use pl_dsl::workflow::{Agent, Rollout, Tasks, Workflow};
use pl_plugin::Task;
use pl_rollout::{
    AgentRuntime, DisabledGenerator, EpisodeSetup, EventKind, RolloutBatch, RolloutPlan, RolloutProgress,
    Trace, play_batch,
};
use pl_types::{Phase, Sampling};
use serde::Serialize;

use crate::error::Error;
use crate::evaluation::mean;
use crate::host::Host;
use crate::progress::Activity;
use crate::workflow::CheckedWorkflow;

pub use self::adversary::Strategy;
use self::adversary::{Adversary, TaggingAgent, TextEncoder};
use self::leaks::Leaks;
pub use self::oracle::OracleResult;
use self::oracle::{Advice, AdvisedAgent, AdvisedEnvironment, Silent, other_solutions};
pub use self::splits::SharedTasks;

/// Episodes in flight.
const IN_FLIGHT: usize = 64;

/// Number of the prompt's fragments that are tried as constant answers.
const CONSTANTS: usize = 8;

/// Number of the prompt's fragments that are tried in alternating pairs.
const ALTERNATED: usize = 6;

/// Shares of solved tasks from which on an adversary is noted, and is a defect.
const NOTED_SUCCESS: f64 = 0.1;
const DEFECTIVE_SUCCESS: f64 = 0.5;

/// Factors of the limit on visits in episodes that show loops: in the first, progress towards a solution has ended.
pub const LONGER: [u32; 2] = [4, 8];

/// Share of a reward by which it must grow between these lengths to be a loop that pays.
const LOOP_GROWTH: f64 = 0.25;

/// Longest part of an example that findings show, in characters.
const SHOWN_EXAMPLE: usize = 48;

/// Share of the tasks in which a piece of evidence must stand in a prompt to be noted.
const NOTED_LEAK: f64 = 0.5;

/// Options of an audit.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Number of training tasks that each adversary plays.
    pub tasks: u32,
    /// Seed of the episodes.
    pub seed: u64,
    /// Answers of the user's own that are tried besides.
    pub answers: Vec<String>,
}

/// Result of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// Name of the scenario, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    pub adversaries: Vec<AdversaryResult>,
    /// Results of the oracle on the training tasks and on those of each evaluation.
    pub oracle: Vec<OracleResult>,
    /// Smallest and largest reward of a turn. `None` if there was no turn.
    pub rewards: Option<(f64, f64)>,
    pub shared_tasks: Vec<SharedTasks>,
    /// Judgement of each property, worst first.
    pub findings: Vec<Finding>,
}

/// Result of one adversary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdversaryResult {
    pub strategy: Strategy,
    /// One of its answers: the last agent's, to the first task.
    pub example: String,
    pub episodes: usize,
    /// Share of the episodes that succeeded.
    pub success: f64,
    /// Mean over episodes and agents of the sum of an agent's rewards.
    pub reward: f64,
    /// The same over the tasks that were not solved under any limit on visits: with the workflow's limit, and with those
    /// of [`LONGER`]. `None` if there is no such task.
    pub unsolved: Option<[f64; 3]>,
    /// Number of episodes that a fault of a plugin ended.
    pub faults: usize,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// Training will learn the wrong thing, or its result will mean nothing.
    Defect,
    /// It may be meant to be so.
    Look,
    Ok,
}

/// Judgement of a property, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    #[serde(rename = "verdict")]
    pub severity: FindingSeverity,
    pub text: String,
}

impl Audit {
    /// Audits the scenario at a position of a workflow, with the tasks of the first level if it has a curriculum.
    ///
    /// # Errors
    /// [`Error::NotAllowed`]; if a plugin can't be loaded, the tasks can't be read, or the cache can't be written.
    pub fn new(
        host: &Host,
        checked: &CheckedWorkflow,
        scenario: usize,
        options: &AuditOptions,
    ) -> Result<Audit, Error> {
        checked.require_permissions()?;
        let environment = checked.environments(host)?.swap_remove(scenario);
        let block = &checked.workflow.scenarios[scenario];
        let tasks = &block.environment.tasks;
        let evaluations =
            || checked.workflow.evaluations.iter().filter(|evaluation| evaluation.scenario == scenario);
        let (training, evaluated, shared_tasks) = host.block_on(async {
            let source = checked.tasks(host, scenario, tasks, &environment, Some(options.seed)).await?;
            let shared = splits::shared_tasks(host, checked, scenario, &environment, &source).await?;
            let mut evaluated = Vec::new();
            for evaluation in evaluations() {
                let source = checked.tasks(host, scenario, &evaluation.tasks, &environment, None).await?;
                evaluated.push(source.take(0, options.tasks).await.map_err(Error::Tasks)?);
            }
            Ok::<_, Error>((source.take(0, options.tasks).await.map_err(Error::Tasks)?, evaluated, shared))
        })?;
        let audit = AuditSetup::new(host, checked, scenario, environment, training, options.seed)?;
        let (own, solutions) = audit.oracle(&block.environment.name, tasks, &audit.tasks)?;
        let mut oracle = vec![own];
        for (evaluation, tasks) in evaluations().zip(&evaluated) {
            oracle.push(audit.oracle(&evaluation.name, &evaluation.tasks, tasks)?.0);
        }
        let mut result = Audit {
            scenario: block.name.clone(),
            adversaries: Vec::new(),
            oracle,
            rewards: None,
            shared_tasks,
            findings: Vec::new(),
        };
        let mut leaks = None;
        for (strategy, setup) in audit.adversaries(&options.answers, &solutions) {
            let [batch, long, longest] = audit.play(&strategy, &setup)?;
            let leaks = leaks.get_or_insert_with(|| Leaks::new(&batch.traces));
            for batch in [&batch, &long, &longest] {
                leaks.find(&batch.traces);
            }
            for reward in batch.transitions.iter().map(|transition| transition.reward) {
                let (low, high) = result.rewards.unwrap_or((reward, reward));
                result.rewards = Some((low.min(reward), high.max(reward)));
            }
            result.adversaries.push(AdversaryResult::new(strategy, &batch, &[long, longest]));
        }
        let leaks = leaks.as_ref().map(Leaks::shares).unwrap_or_default();
        result.findings = result.judge(&leaks, adds_up(&checked.workflow));
        note::write(checked, block, result.defects())?;
        Ok(result)
    }

    /// Returns the number of defects.
    pub fn defects(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == FindingSeverity::Defect).count()
    }

    /// Judges all properties. `leaks` has the share of tasks by the path of the evidence that their prompts hold;
    /// `adds_up` is true if a policy is trained on the rewards of several turns together.
    fn judge(&self, leaks: &BTreeMap<String, f64>, adds_up: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |severity, text: String| findings.push(Finding { severity, text });
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        // Of the adversaries of a kind, which are adjacent, findings name the one that goes furthest.
        for kind in self.adversaries.chunk_by(|a, b| discriminant(&a.strategy) == discriminant(&b.strategy)) {
            let own = || kind.iter();
            let best = own().max_by(|a, b| a.success.total_cmp(&b.success));
            if let Some(best) = best.filter(|best| best.success >= NOTED_SUCCESS) {
                let severity = if best.success >= DEFECTIVE_SUCCESS {
                    FindingSeverity::Defect
                } else {
                    FindingSeverity::Look
                };
                add(severity, format!("{} solves {} of the tasks", best.named(), percent(best.success)));
            }
            let unsolved = || own().filter_map(|own| Some((own, own.unsolved?)));
            let growth = |[_, long, longest]: [f64; 3]| longest - long.max(0.0);
            let grown = unsolved().max_by(|a, b| growth(a.1).total_cmp(&growth(b.1)));
            // Shaping that telescopes gives no more in twice the time.
            let pays = |rewards: [f64; 3]| growth(rewards) > 1e-9 + LOOP_GROWTH * rewards[1].abs();
            if let Some((own, [_, long, longest])) = grown.filter(|(_, rewards)| pays(*rewards)) {
                let [first, second] = LONGER;
                let text = format!(
                    "{} earns {long:.2} without a solution in {first} times as many turns, and {longest:.2} in {second} \
                     times as many: its actions pay in a loop",
                    own.named()
                );
                match adds_up {
                    true => add(FindingSeverity::Defect, text),
                    false => add(FindingSeverity::Look, text + "; `returns = step` doesn't add them up"),
                }
            }
            let paid =
                unsolved().max_by(|a, b| a.1[0].total_cmp(&b.1[0])).filter(|(_, [short, ..])| *short > 0.0);
            if let Some((own, [short, ..])) = paid {
                add(FindingSeverity::Look, format!("{} earns {short:.2} without a solution", own.named()));
            }
            let faulty = own().max_by_key(|own| own.faults).filter(|own| own.faults > 0);
            if let Some(own) = faulty {
                let text = format!("{} makes a plugin fail in {} episodes", own.named(), own.faults);
                add(FindingSeverity::Look, text);
            }
        }
        if findings.is_empty() {
            findings.push(Finding {
                severity: FindingSeverity::Ok,
                text: "no adversary solves a task or earns a reward".to_owned(),
            });
        }
        findings.extend(self.judge_oracle());
        findings.extend(self.outearned());
        let mut add = |severity, text: String| findings.push(Finding { severity, text });
        for shared in &self.shared_tasks {
            let SharedTasks { evaluation, tasks, shared, training } = shared;
            match shared {
                0 => add(
                    FindingSeverity::Ok,
                    format!(
                        "evaluation `{evaluation}` shares no starting state with {training} training tasks"
                    ),
                ),
                _ => add(
                    FindingSeverity::Defect,
                    format!(
                        "{shared} of the {tasks} tasks of evaluation `{evaluation}` start like one of {training} training \
                         tasks"
                    ),
                ),
            }
        }
        match leaks.iter().filter(|(_, share)| **share >= NOTED_LEAK).collect::<Vec<_>>()[..] {
            [] => add(FindingSeverity::Ok, "prompts hold no evidence".to_owned()),
            ref held => {
                for (path, share) in held {
                    let text = format!(
                        "the evidence at {path} stands in prompts of {} of the tasks",
                        percent(**share)
                    );
                    add(FindingSeverity::Look, text);
                }
            }
        }
        findings.sort();
        findings
    }
}

impl Audit {
    /// Judges the share of tasks that the oracle can't solve. An environment has an oracle if it gives any action.
    fn judge_oracle(&self) -> Vec<Finding> {
        if self.oracle.iter().all(|result| result.actions == 0) {
            let text = "the environment has no oracle: its tasks may have no solution".to_owned();
            let note = |_: &OracleResult| Finding { severity: FindingSeverity::Look, text };
            return self.oracle.first().map(note).into_iter().collect();
        }
        self.oracle.iter().map(judge_oracle).collect()
    }

    /// Returns the finding that an adversary earns as much as the oracle, which solves tasks.
    fn outearned(&self) -> Option<Finding> {
        let solves = |oracle: &&OracleResult| oracle.actions > 0 && oracle.success >= DEFECTIVE_SUCCESS;
        let oracle = self.oracle.first().filter(solves)?;
        let best = self.adversaries.iter().max_by(|a, b| a.reward.total_cmp(&b.reward))?;
        (best.reward >= oracle.reward).then(|| Finding {
            severity: FindingSeverity::Defect,
            text: format!(
                "{} earns {:.2}, and the oracle's solutions earn {:.2}",
                best.named(),
                best.reward,
                oracle.reward
            ),
        })
    }
}

/// Judges the share of tasks that the oracle can't solve.
fn judge_oracle(result: &OracleResult) -> Finding {
    let (name, percent) = (result.named(), |share: f64| format!("{:.0} %", 100.0 * share));
    let severity = match result.unsolvable {
        share if share >= DEFECTIVE_SUCCESS => FindingSeverity::Defect,
        share if share > 0.0 => FindingSeverity::Look,
        _ => FindingSeverity::Ok,
    };
    let text = match severity {
        FindingSeverity::Ok => format!("the oracle solves all tasks of {name}"),
        _ if result.unsolvable >= 1.0 => {
            format!("the oracle solves none of the {} tasks of {name}", result.episodes)
        }
        _ => format!("the oracle can't solve {} of the tasks of {name}", percent(result.unsolvable)),
    };
    Finding { severity, text }
}

impl AdversaryResult {
    fn new(strategy: Strategy, batch: &RolloutBatch, longer: &[RolloutBatch; 2]) -> AdversaryResult {
        let [long, longest] = longer;
        let all = [batch, long, longest];
        let unsolved = |task: u32| {
            let of_task = |batch: &RolloutBatch| batch.episodes.iter().find(|own| own.task == task).cloned();
            all.map(of_task).iter().flatten().all(|own| !own.success)
        };
        let is_unsolved = batch.episodes.iter().any(|own| unsolved(own.task));
        let completion = |trace: &Trace| {
            trace.events.iter().rev().find_map(|event| match &event.kind {
                EventKind::Completion { text, .. } => Some(text.clone()),
                _ => None,
            })
        };
        AdversaryResult {
            strategy,
            example: batch.traces.first().and_then(completion).unwrap_or_default(),
            episodes: batch.episodes.len(),
            success: mean(batch.episodes.iter().map(|one| f64::from(one.success))),
            reward: mean_return(batch, |_| true),
            unsolved: is_unsolved.then(|| all.map(|batch| mean_return(batch, unsolved))),
            faults: batch.failures.len(),
        }
    }

    /// Returns the name of the adversary, with one of its answers.
    fn named(&self) -> String {
        let line = self.example.split_whitespace().collect::<Vec<_>>().join(" ");
        match (&self.strategy, line.chars().count()) {
            (Strategy::Empty | Strategy::Echo | Strategy::OtherSolution | Strategy::Given(_), _) => {
                self.strategy.to_string()
            }
            (strategy, ..=SHOWN_EXAMPLE) => format!("{strategy} ({line:?})"),
            (strategy, _) => {
                let start: String = line.chars().take(SHOWN_EXAMPLE).collect();
                format!("{strategy} ({start:?}…)")
            }
        }
    }
}

/// Returns the mean, over the episodes of the tasks that `wanted` accepts and their agents, of the sum of an agent's
/// rewards. 0 if there is no such episode.
fn mean_return(batch: &RolloutBatch, wanted: impl Fn(u32) -> bool) -> f64 {
    let mut sums: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for transition in &batch.transitions {
        *sums.entry((transition.key.task, transition.key.agent)).or_default() += transition.reward;
    }
    mean(sums.into_iter().filter(|((task, _), _)| wanted(*task)).map(|(_, sum)| sum))
}

/// Returns true if a policy is trained on the rewards of several turns together, or if none is trained.
fn adds_up(workflow: &Workflow) -> bool {
    let trained = || workflow.policies.iter().filter_map(|policy| policy.training.as_ref());
    trained().next().is_none()
        || trained().any(|training| {
            training.objective.advantage == Advantage::Gae || training.objective.returns != Returns::Step
        })
}

/// Adversaries that write answers.
fn strategies(answers: &[String]) -> Vec<Strategy> {
    let mut all = vec![Strategy::Empty, Strategy::Echo, Strategy::Random];
    all.extend((0..CONSTANTS).map(Strategy::Constant));
    for first in 0..ALTERNATED {
        all.extend((first + 1..ALTERNATED).map(|second| Strategy::Alternate(first, second)));
    }
    all.extend(answers.iter().cloned().map(Strategy::Given));
    all
}

/// Tasks of an audit, and the setup of their episodes.
struct AuditSetup<'a> {
    host: &'a Host,
    tasks: Vec<Arc<Task>>,
    seed: u64,
    agents: Vec<Arc<pl_plugin::Agent>>,
    /// Setup of all adversaries, except the generator.
    setup: EpisodeSetup,
}

impl<'a> AuditSetup<'a> {
    fn new(
        host: &'a Host,
        checked: &CheckedWorkflow,
        scenario: usize,
        environment: Arc<pl_plugin::Environment>,
        tasks: Vec<Arc<Task>>,
        seed: u64,
    ) -> Result<AuditSetup<'a>, Error> {
        let Workflow { agents: blocks, scenarios, .. } = &checked.workflow;
        let reward = checked.reward(scenario)?;
        let scenario = &scenarios[scenario];
        let agents = (0..blocks.len())
            .map(|index| checked.agent(index).map(Arc::new))
            .collect::<Result<Vec<_>, Error>>()?;
        let runtime = |(index, block): (usize, &Agent)| AgentRuntime {
            name: block.name.clone(),
            number: index as u32,
            agent: Arc::new(TaggingAgent { agent: Arc::clone(&agents[index]), index }),
            encoder: Arc::new(TextEncoder),
            policy: index,
            sampling: Sampling::default(),
            max_tokens: block.max_tokens,
            stop: Vec::new(),
            long_prompt: block.long_prompt,
            // Adversaries don't call tools.
            tool_rounds: 0,
            bootstraps: false,
        };
        let setup = EpisodeSetup {
            scenario: scenario.name.as_deref().map(Arc::from),
            design: None,
            environment,
            agents: blocks.iter().enumerate().map(runtime).collect(),
            reward: Arc::new(reward),
            team_weight: scenario.reward.team,
            local_weight: scenario.reward.local,
            scores_end: scenario.reward.scores_end,
            drawings: false,
            fault_penalty: Some(0.0),
            turns: scenario.turns.clone(),
            generator: Arc::new(DisabledGenerator),
            observer: None,
        };
        Ok(AuditSetup { host, tasks, seed, agents, setup })
    }

    /// Returns the setup of episodes in which agents take actions without a model.
    fn advised(&self, advice: Advice) -> EpisodeSetup {
        let mut setup = self.setup.clone();
        let environment = Arc::clone(&setup.environment);
        setup.environment = Arc::new(AdvisedEnvironment { environment, advice });
        setup.generator = Arc::new(Silent);
        for (runtime, agent) in setup.agents.iter_mut().zip(&self.agents) {
            runtime.agent = Arc::new(AdvisedAgent(Arc::clone(agent)));
            runtime.encoder = Arc::new(Silent);
        }
        setup
    }

    /// Plays tasks with the environment's oracle. Returns its result, and the traces of its episodes.
    fn oracle(
        &self,
        name: &str,
        source: &Tasks,
        tasks: &[Arc<Task>],
    ) -> Result<(OracleResult, Vec<Trace>), Error> {
        let actions = Arc::new(AtomicU64::new(0));
        let setup = self.advised(Advice::Oracle(Arc::clone(&actions)));
        let batch = self.play_setup(&setup, 1, tasks, "oracle")?;
        let actions = actions.load(Ordering::Relaxed);
        let solved = |batch: &RolloutBatch| mean(batch.episodes.iter().map(|one| f64::from(one.success)));
        let success = solved(&batch);
        let solvable = match actions {
            0 => success,
            _ => success.max(solved(&self.play_setup(&setup, LONGER[0], tasks, "oracle")?)),
        };
        let result = OracleResult {
            tasks: name.to_owned(),
            level: match source {
                Tasks::Generated { level, .. } => Some(*level),
                Tasks::File(_) | Tasks::Named(_) => None,
            },
            actions,
            episodes: batch.episodes.len(),
            success,
            unsolvable: 1.0 - solvable,
            reward: mean_return(&batch, |_| true),
            faults: batch.failures.len(),
        };
        Ok((result, batch.traces))
    }

    /// Returns all adversaries with the setups of their episodes. `solutions` are the traces of the oracle's episodes.
    fn adversaries(&self, answers: &[String], solutions: &[Trace]) -> Vec<(Strategy, EpisodeSetup)> {
        let writer = |strategy: Strategy| {
            let generator = Arc::new(Adversary { agents: self.agents.clone(), strategy: strategy.clone() });
            (strategy, EpisodeSetup { generator, ..self.setup.clone() })
        };
        let others = Some(other_solutions(solutions)).filter(|others| !others.is_empty());
        let other = others.map(|others| (Strategy::OtherSolution, self.advised(Advice::Tasks(others))));
        strategies(answers).into_iter().map(writer).chain(other).collect()
    }

    /// Plays the training tasks with an adversary, under the workflow's limit on visits and [`LONGER`] ones.
    fn play(&self, strategy: &Strategy, setup: &EpisodeSetup) -> Result<[RolloutBatch; 3], Error> {
        let play = |factor| self.play_setup(setup, factor, &self.tasks, &strategy.to_string());
        let [long, longest] = LONGER;
        Ok([play(1)?, play(long)?, play(longest)?])
    }

    /// Plays tasks. The limit on visits is multiplied by `factor`.
    fn play_setup(
        &self,
        setup: &EpisodeSetup,
        factor: u32,
        tasks: &[Arc<Task>],
        player: &str,
    ) -> Result<RolloutBatch, Error> {
        let mut setup = setup.clone();
        setup.turns.max = setup.turns.max.saturating_mul(factor);
        let plan = RolloutPlan {
            seed: self.seed,
            phase: Phase::Play,
            step: 0,
            tasks: tasks.to_vec(),
            first_task: 0,
            mode: Rollout::Flat,
            samples: 1,
            first_sample: 0,
            in_flight: IN_FLIGHT,
            versions: Arc::new([]),
        };
        let title = format!("audit: {player}");
        let activity = Activity::Episodes { title: &title, generated_tokens: Arc::new(|| 0) };
        let mut tracker = self.host.progress().start(activity);
        let update = |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
        let played = self.host.block_on(play_batch(Arc::new(setup), &plan, update));
        let played = played.and_then(|batch| batch.with_episodes(plan.step));
        played.map_err(|error| Error::Rollout { source: error.into(), run: None, episode: None })
    }
}

#[cfg(test)]
mod tests;
