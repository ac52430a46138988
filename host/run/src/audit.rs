//! Audits of a workflow's environment and reward, before a model plays.
//!
//! Adversaries that know nothing of the task ([`Strategy`]) play the training tasks. A reward that they earn is one that
//! training will find too: answers that are right by themselves, actions that pay without end, prompts that hold the
//! solution. Splits that share tasks are found by their starting states. The environment's oracle, if it has one, tells
//! which tasks can be solved, what that earns, and if a solution of one task solves others. Its moves are searched for
//! loops that pay, and the first ones are played thousands of times in one plan.
//!
//! No model is needed: prompts are passed on as text.

mod adversary;
mod double_scores;
#[cfg(test)]
mod fixtures;
mod fragments;
mod judge;
mod leaks;
mod long_plans;
mod loops;
pub(crate) mod note;
mod oracle;
mod splits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pl_dsl::workflow::objective::{Advantage, Returns};
use pl_dsl::workflow::{Agent, Tasks, Workflow};
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
use self::double_scores::DoubleScores;
use self::leaks::Leaks;
pub use self::oracle::OracleResult;
use self::oracle::{Advice, AdvisedAgent, AdvisedEnvironment, Silent, all_actions, other_solutions};
pub use self::splits::SharedTasks;

/// Number of the prompt's fragments that are tried as constant answers.
const CONSTANTS: usize = 8;

/// Number of the prompt's fragments that are tried in alternating pairs.
const ALTERNATED: usize = 6;

/// Factors of the limit on visits in episodes that show loops: in the first, progress towards a solution has ended.
pub const LONGER: [u32; 2] = [4, 8];

/// Longest part of an example that findings show, in characters.
const SHOWN_EXAMPLE: usize = 48;

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
    /// Smallest and largest part of a reward, the team's or an agent's own, before they are weighted. `None` if there was
    /// none.
    pub rewards: Option<(f64, f64)>,
    /// The same as the reward declares it. `None` if it doesn't.
    pub declared_rewards: Option<(f64, f64)>,
    /// Agents whose own score was the team's whenever the team's wasn't 0, also where nothing was solved, if both count.
    pub double_scores: Vec<String>,
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
    /// Number of episodes, with those that failed in every attempt.
    pub episodes: usize,
    /// Share of the episodes that succeeded, of those that came to an end.
    pub success: f64,
    /// Mean over episodes and agents of the sum of an agent's rewards.
    pub reward: f64,
    /// The same over the tasks that were not solved under any limit on visits: with the workflow's limit, and with those
    /// of [`LONGER`]. `None` if there is no such task.
    pub unsolved: Option<[f64; 3]>,
    /// Number of episodes in which a plugin failed, also if a later attempt went well.
    pub faults: usize,
    /// Description of the first of these faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
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
        let mut result = Audit {
            scenario: block.name.clone(),
            adversaries: Vec::new(),
            oracle: Vec::new(),
            rewards: None,
            declared_rewards: audit.declared_rewards,
            double_scores: Vec::new(),
            shared_tasks,
            findings: Vec::new(),
        };
        let (own, solutions) = audit.oracle(&block.environment.name, tasks, &audit.tasks)?;
        result.add_rewards(&solutions);
        let mut double_scores = DoubleScores::default();
        double_scores.add(&solutions.traces);
        let has_oracle = own.actions > 0;
        result.oracle.push(own);
        for (evaluation, tasks) in evaluations().zip(&evaluated) {
            let (own, played) = audit.oracle(&evaluation.name, &evaluation.tasks, tasks)?;
            result.add_rewards(&played);
            result.oracle.push(own);
        }
        let mut leaks = None;
        // Actions that may be moves of a loop: the oracle's, or else those that fragments of prompts stand for.
        let mut actions = all_actions(&solutions.traces);
        for player in audit.adversaries(&options.answers, &solutions.traces) {
            let batches = audit.play(&player)?;
            let leaks = leaks.get_or_insert_with(|| Leaks::new(&batches[0].traces));
            batches.iter().for_each(|batch| leaks.find(&batch.traces));
            batches.iter().for_each(|batch| double_scores.add(&batch.traces));
            if !has_oracle {
                for (agent, more) in all_actions(&batches[0].traces) {
                    actions.entry(agent).or_default().extend(more);
                }
            }
            result.add(player, &batches);
        }
        let loops = loops::players(&audit, &actions);
        for player in loops.into_iter().chain(long_plans::players(&audit, &actions)) {
            let batches = audit.play(&player)?;
            result.add(player, &batches);
        }
        if audit.setup.team_weight != 0.0 && audit.setup.local_weight != 0.0 {
            result.double_scores = double_scores.found();
        }
        let leaks = leaks.as_ref().map(Leaks::found).unwrap_or_default();
        result.findings = result.judge(&leaks, adds_up(&checked.workflow));
        note::write(checked, block, result.defects())?;
        Ok(result)
    }

    /// Adds the result of an adversary.
    fn add(&mut self, player: Player, batches: &[RolloutBatch; 3]) {
        batches.iter().for_each(|batch| self.add_rewards(batch));
        self.adversaries.push(AdversaryResult::new(player, batches));
    }

    /// Widens the range of rewards by those of a batch.
    fn add_rewards(&mut self, batch: &RolloutBatch) {
        for event in batch.traces.iter().flat_map(|trace| &trace.events) {
            let EventKind::Scores(scores) = &event.kind else { continue };
            for part in scores.local.iter().map(|score| score.reward).chain([scores.team]) {
                let (low, high) = self.rewards.unwrap_or((part, part));
                self.rewards = Some((low.min(part), high.max(part)));
            }
        }
    }

    /// Returns the number of defects.
    pub fn defects(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == FindingSeverity::Defect).count()
    }
}

impl AdversaryResult {
    fn new(player: Player, batches: &[RolloutBatch; 3]) -> AdversaryResult {
        let [batch, long, longest] = batches;
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
        let completed = || batch.traces.first().and_then(completion);
        AdversaryResult {
            strategy: player.strategy,
            example: player.example.or_else(completed).unwrap_or_default(),
            episodes: batch.episodes.len() + batch.lost,
            success: mean(batch.episodes.iter().map(|one| f64::from(one.success))),
            reward: mean_return(batch, |_| true),
            unsolved: is_unsolved.then(|| all.map(|batch| mean_return(batch, unsolved))),
            faults: faulty_episodes(batch),
            fault: batch.failures.first().map(|failure| {
                // Errors of plugins may go on with a backtrace.
                failure.describe().lines().next().unwrap_or_default().to_owned()
            }),
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

/// Returns the number of episodes with a fault, of which several attempts may have one.
fn faulty_episodes(batch: &RolloutBatch) -> usize {
    batch.failures.iter().map(|failure| (failure.task, failure.sample)).collect::<BTreeSet<_>>().len()
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

/// An adversary with the episodes that it plays.
struct Player {
    strategy: Strategy,
    setup: EpisodeSetup,
    tasks: Vec<Arc<Task>>,
    /// Number of the agent whose rewards count. `None` for all agents.
    agent: Option<u32>,
    /// One of its actions, if it writes no completions.
    example: Option<String>,
}

/// Tasks of an audit, and the setup of their episodes.
struct AuditSetup<'a> {
    host: &'a Host,
    tasks: Vec<Arc<Task>>,
    seed: u64,
    agents: Vec<Arc<pl_plugin::Agent>>,
    /// Range of rewards that the reward declares.
    declared_rewards: Option<(f64, f64)>,
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
        let declared_rewards = reward.range();
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
        Ok(AuditSetup { host, tasks, seed, agents, declared_rewards, setup })
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

    /// Plays tasks with the environment's oracle. Returns its result, and its episodes.
    fn oracle(
        &self,
        name: &str,
        source: &Tasks,
        tasks: &[Arc<Task>],
    ) -> Result<(OracleResult, RolloutBatch), Error> {
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
            faults: faulty_episodes(&batch),
        };
        Ok((result, batch))
    }

    /// Returns the adversaries that play all tasks. `solutions` are the traces of the oracle's episodes.
    fn adversaries(&self, answers: &[String], solutions: &[Trace]) -> Vec<Player> {
        let player = |strategy: Strategy, setup: EpisodeSetup| {
            let tasks = self.tasks.clone();
            Player { strategy, setup, tasks, agent: None, example: None }
        };
        let writer = |strategy: Strategy| {
            let generator = Arc::new(Adversary { agents: self.agents.clone(), strategy: strategy.clone() });
            player(strategy, EpisodeSetup { generator, ..self.setup.clone() })
        };
        let others = Some(other_solutions(solutions)).filter(|others| !others.is_empty());
        let other = others.map(|others| player(Strategy::OtherSolution, self.advised(Advice::Tasks(others))));
        strategies(answers).into_iter().map(writer).chain(other).collect()
    }

    /// Plays the tasks of an adversary, under the workflow's limit on visits and [`LONGER`] ones.
    fn play(&self, player: &Player) -> Result<[RolloutBatch; 3], Error> {
        let play = |factor| {
            let name = player.strategy.to_string();
            let mut batch = self.play_setup(&player.setup, factor, &player.tasks, &name)?;
            let counts = |number: u32| player.agent.is_none_or(|own| own == number);
            batch.transitions.retain(|transition| counts(transition.key.agent));
            Ok::<_, Error>(batch)
        };
        let first = play(1)?;
        // A long plan has all its moves in one turn: longer episodes would show nothing else.
        if matches!(player.strategy, Strategy::LongPlan) {
            return Ok([first.clone(), first.clone(), first]);
        }
        let [long, longest] = LONGER;
        Ok([first, play(long)?, play(longest)?])
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
        let plan = RolloutPlan::flat(self.seed, Phase::Play, tasks.to_vec(), Arc::new([]));
        let title = format!("audit: {player}");
        let activity = Activity::Episodes { title: &title, generated_tokens: Arc::new(|| 0) };
        let mut tracker = self.host.progress().start(activity);
        let update = |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
        let played = self.host.block_on(play_batch(Arc::new(setup), &plan, update));
        let played = played.and_then(|batch| batch.with_episodes(plan.step));
        played.map_err(Error::rollout)
    }
}

#[cfg(test)]
mod tests;
