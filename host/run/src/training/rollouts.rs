//! Rollouts and evaluations of a training run, with their traces and metrics.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use pl_dsl::workflow::objective::PolicyTraining;
use pl_dsl::workflow::{Curriculum, Evaluation, Train};
use pl_record::{TraceFile, Traces};
use pl_rollout::{
    EpisodeSetup, RolloutBatch, RolloutPlan, RolloutProgress, SPAN_TARGET, TaskSource, play_batch,
};
use pl_trainer::filter::tasks_without_spread;
use pl_types::{EpisodeId, Phase, Transition};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use crate::error::Error;
use crate::evaluation::{EvaluationReport, Round, mean, play_round};
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::progress::{Activity, Notice, Tracker};
use crate::session::{Session, token_counter};
use crate::workflow::CheckedWorkflow;

use super::cursor::ScenarioCursor;
use super::mixture::deal;
use super::step_metrics::step_metrics;

/// Rollouts of one training step.
pub(super) struct PlayedStep {
    pub step: u64,
    /// Sorted by key.
    pub transitions: Vec<Transition>,
    /// Metrics of the episodes, without timings.
    pub metrics: Map<String, Value>,
    /// Lines for `failures.jsonl`.
    pub failures: Vec<Value>,
    /// Number of sampled tokens.
    pub tokens: u64,
    /// Positions in the tasks of the scenarios after those of this step.
    pub cursors: Vec<ScenarioCursor>,
    /// Wall-clock seconds that the rollouts took.
    pub seconds: f64,
    /// End of the rollouts. `None` if another process has played them.
    pub finished: Option<Instant>,
}

/// A scenario of a run, with its source of tasks.
struct TrainedScenario {
    name: Option<String>,
    weight: f64,
    curriculum: Option<Curriculum>,
    setup: Arc<EpisodeSetup>,
    /// `None` if it is only evaluated.
    tasks: Option<TaskSource>,
}

/// Scenarios of a run with their task sources.
pub(super) struct Rollouts {
    router: Arc<PolicyRouter>,
    seed: u64,
    train: Train,
    /// Training of each policy. `None` for policies that are not trained.
    trainings: Vec<Option<PolicyTraining>>,
    scenarios: Vec<TrainedScenario>,
    evaluations: Vec<(Evaluation, TaskSource)>,
    traces: Option<Traces>,
}

/// Tasks of a scenario in a step, and their results.
struct ScenarioBatch {
    /// Position in the workflow's scenarios.
    scenario: usize,
    tasks: u32,
    batch: RolloutBatch,
}

impl Rollouts {
    /// Opens all sources of tasks. An invalid record is found here.
    pub fn new(host: &Host, checked: &CheckedWorkflow, session: &Session) -> Result<Rollouts, Error> {
        let workflow = &checked.workflow;
        let Some(train) = workflow.train.clone() else {
            return Err(Error::NoTrainBlock { workflow: workflow.name.clone() });
        };
        let (scenarios, evaluations) = host.block_on(async {
            let mut scenarios = Vec::new();
            for (index, (block, own)) in workflow.scenarios.iter().zip(&session.scenarios).enumerate() {
                let tasks = match block.weight > 0.0 {
                    true => {
                        let wanted = &block.environment.tasks;
                        let shuffle = Some(session.seed);
                        Some(checked.tasks(host, index, wanted, &own.environment, shuffle).await?)
                    }
                    false => None,
                };
                scenarios.push(TrainedScenario {
                    name: block.name.clone(),
                    weight: block.weight,
                    curriculum: block.environment.curriculum.clone(),
                    setup: Arc::clone(&own.setup),
                    tasks,
                });
            }
            let mut evaluations = Vec::new();
            for evaluation in &workflow.evaluations {
                let (index, tasks) = (evaluation.scenario, &evaluation.tasks);
                let environment = &session.scenarios[index].environment;
                let source = checked.tasks(host, index, tasks, environment, None).await?;
                evaluations.push((evaluation.clone(), source));
            }
            Ok::<_, Error>((scenarios, evaluations))
        })?;
        let router = Arc::clone(&session.router);
        let trainings = workflow.policies.iter().map(|policy| policy.training.clone()).collect();
        Ok(Rollouts { router, seed: session.seed, train, trainings, scenarios, evaluations, traces: None })
    }

    /// Writes the trace of every episode from now on.
    pub fn keep_traces(&mut self, traces: Traces) {
        self.traces = Some(traces);
    }

    /// Returns the evaluations that checkpoints are compared by, by their mean: those of the first block in the file that is
    /// run during training.
    pub fn scoring_evaluations(&self) -> Vec<&Evaluation> {
        let all = || self.evaluations.iter().map(|(evaluation, _)| evaluation);
        let first = all().find(|evaluation| evaluation.every > 0);
        all().filter(|evaluation| first.is_some_and(|first| first.block() == evaluation.block())).collect()
    }

    /// Plays the tasks that come after `cursors` with the weights that were published last.
    pub fn play_step(
        &self,
        host: &Host,
        step: u64,
        cursors: &[ScenarioCursor],
        versions: &[u64],
    ) -> Result<PlayedStep, Error> {
        let started = Instant::now();
        let mut cursors = cursors.to_vec();
        cursors.resize_with(self.scenarios.len(), ScenarioCursor::default);
        let levels: Vec<Option<u32>> = self
            .scenarios
            .iter()
            .zip(&cursors)
            .map(|(own, cursor)| Some(cursor.level(own.curriculum.as_ref()?, step)))
            .collect();
        let span = tracing::info_span!(target: SPAN_TARGET, "rollouts", step);
        let playing = self.play_tasks(host, step, &mut cursors, &levels, versions).instrument(span);
        let played = host.block_on(playing)?;
        let (all, by_scenario) = match played {
            Ok(batches) => {
                let by_scenario = self.scenario_metrics(&batches, &levels, &mut cursors);
                let mut all = RolloutBatch::default();
                let tasks = batches.iter().map(|one| one.tasks).sum::<u32>();
                batches.into_iter().for_each(|one| all.append(one.batch));
                (all.with_episodes(step).map(|batch| (batch, tasks)), by_scenario)
            }
            Err(error) => (Err(error), Map::new()),
        };
        let mut tasks = 0;
        let played = all.map(|(batch, count)| {
            tasks = count;
            batch
        });
        let batch = self.keep(host, &TraceFile { step, evaluation: None }, played)?;
        let mut metrics = step_metrics(&batch, &self.scenarios[0].setup.agents);
        metrics.extend(by_scenario);
        if self.train.max_refills > 0 {
            metrics.insert("refilled_tasks".into(), (tasks - self.train.tasks_per_step).into());
        }
        Ok(PlayedStep {
            step,
            cursors,
            seconds: started.elapsed().as_secs_f64(),
            finished: Some(Instant::now()),
            failures: batch.failures.iter().map(|failure| json!(failure)).collect(),
            tokens: batch.episodes.iter().map(|e| e.tokens).sum(),
            metrics,
            transitions: batch.transitions,
        })
    }

    /// Returns the fields of the step's line that tell scenarios apart, and counts their success for their curricula.
    fn scenario_metrics(
        &self,
        batches: &[ScenarioBatch],
        levels: &[Option<u32>],
        cursors: &mut [ScenarioCursor],
    ) -> Map<String, Value> {
        let mut line = Map::new();
        let mut by_name = Map::new();
        for (index, scenario) in self.scenarios.iter().enumerate() {
            let own: Vec<&ScenarioBatch> = batches.iter().filter(|one| one.scenario == index).collect();
            let episodes = || own.iter().flat_map(|one| &one.batch.episodes);
            let success = mean(episodes().map(|episode| f64::from(episode.success)));
            let was_played = episodes().next().is_some();
            if let (Some(curriculum), true) = (&scenario.curriculum, was_played) {
                cursors[index].count_success(curriculum, success);
            }
            let Some(name) = &scenario.name else {
                line.extend(levels[index].map(|level| ("level".to_owned(), Value::from(level))));
                continue;
            };
            if own.is_empty() {
                continue;
            }
            let transitions = own.iter().flat_map(|one| &one.batch.transitions);
            let mut fields = Map::new();
            fields.insert("tasks".into(), own.iter().map(|one| one.tasks).sum::<u32>().into());
            fields.insert("episodes".into(), episodes().count().into());
            fields.insert("rollout_success".into(), json!(success));
            fields.insert("reward".into(), json!(mean(transitions.map(|transition| transition.reward))));
            fields.extend(levels[index].map(|level| ("level".to_owned(), Value::from(level))));
            by_name.insert(name.clone(), Value::Object(fields));
        }
        if !by_name.is_empty() {
            line.insert("scenarios".into(), Value::Object(by_name));
        }
        line
    }

    /// Plays a step's tasks, and others of the same scenario in place of those without a spread of returns if the objectives
    /// leave these out. Moves the cursors on. Returns the batches in order of their tasks' numbers.
    async fn play_tasks(
        &self,
        host: &Host,
        step: u64,
        cursors: &mut [ScenarioCursor],
        levels: &[Option<u32>],
        versions: &[u64],
    ) -> Result<Result<Vec<ScenarioBatch>, pl_rollout::Error>, Error> {
        let tracker = RefCell::new(self.start_tracker(host, &format!("step {step}")));
        let weights: Vec<f64> = self.scenarios.iter().map(|scenario| scenario.weight).collect();
        let mut dealt: Vec<u64> = cursors.iter().map(|cursor| cursor.dealt).collect();
        let mut counts = deal(&weights, &mut dealt, self.train.tasks_per_step);
        cursors.iter_mut().zip(dealt).for_each(|(cursor, dealt)| cursor.dealt = dealt);
        let mut all: Vec<ScenarioBatch> = Vec::new();
        let (mut first_task, mut finished) = (0, 0);
        for refill in 0..=self.train.max_refills {
            let round: u32 = counts.iter().sum();
            let mut plans = Vec::new();
            for (index, scenario) in self.scenarios.iter().enumerate() {
                let (count, Some(source)) = (counts[index], &scenario.tasks) else { continue };
                if count == 0 {
                    continue;
                }
                let source = match levels[index] {
                    Some(level) => &source.at_level(level),
                    None => source,
                };
                let plan = RolloutPlan {
                    seed: self.seed,
                    phase: Phase::Train,
                    step,
                    tasks: source.take(cursors[index].next_task, count).await.map_err(Error::Tasks)?,
                    first_task,
                    mode: self.train.rollout,
                    samples: self.train.samples,
                    in_flight: share_of_episodes(self.train.episodes, count, round),
                    versions: versions.into(),
                };
                cursors[index].next_task += u64::from(count);
                first_task += count;
                plans.push((index, plan));
            }
            // Scenarios are played at the same time, so that they share the engine's batches.
            let progress = RefCell::new(vec![RolloutProgress { done: 0, total: 0 }; plans.len()]);
            let update = |position: usize, own: RolloutProgress| {
                let mut progress = progress.borrow_mut();
                progress[position] = own;
                let done: u64 = progress.iter().map(|one| one.done as u64).sum();
                let total: u64 = progress.iter().map(|one| one.total as u64).sum();
                tracker.borrow_mut().update(finished + done, finished + total);
            };
            let update = &update;
            let playing = plans.iter().enumerate().map(|(position, (index, plan))| {
                let setup = Arc::clone(&self.scenarios[*index].setup);
                async move { play_batch(setup, plan, move |own| update(position, own)).await }
            });
            let batches = match join_all(playing).await.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(batches) => batches,
                Err(error) => return Ok(Err(error)),
            };
            finished += progress.borrow().iter().map(|one| one.total as u64).sum::<u64>();
            counts.fill(0);
            for ((scenario, plan), batch) in plans.into_iter().zip(batches) {
                if refill < self.train.max_refills {
                    let without = tasks_without_spread(&batch.transitions, &self.trainings, step);
                    counts[scenario] = without.len() as u32;
                }
                all.push(ScenarioBatch { scenario, tasks: plan.tasks.len() as u32, batch });
            }
            if counts.iter().all(|count| *count == 0) {
                break;
            }
        }
        Ok(Ok(all))
    }

    /// Returns true if an evaluation is due after `step`.
    pub fn evaluates_after(&self, step: u64, last: bool) -> bool {
        self.evaluations.iter().any(|(evaluation, _)| is_due(evaluation, step, last))
    }

    /// Runs the evaluations that are due after `step`.
    pub fn evaluate(
        &self,
        host: &Host,
        step: u64,
        last: bool,
        versions: &[u64],
    ) -> Result<Vec<EvaluationReport>, Error> {
        let mut reports = Vec::new();
        for (evaluation, source) in self.evaluations.iter().filter(|(e, _)| is_due(e, step, last)) {
            let in_flight = self.train.episodes as usize;
            let round = Round { seed: self.seed, step, versions, in_flight };
            let mut tracker = self.start_tracker(host, &evaluation.name);
            let update = move |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            let file = TraceFile { step, evaluation: Some(evaluation.name.clone()) };
            let keep = |batch| self.keep(host, &file, batch);
            let setup = &self.scenarios[evaluation.scenario].setup;
            let span =
                tracing::info_span!(target: SPAN_TARGET, "evaluation", step, evaluation = evaluation.name);
            let playing = play_round(setup, evaluation, source, &round, update, keep).instrument(span);
            let (report, _) = host.block_on(playing)?;
            reports.push(report);
        }
        Ok(reports)
    }

    fn start_tracker(&self, host: &Host, title: &str) -> Box<dyn Tracker> {
        let generated_tokens = token_counter(&self.router);
        host.progress().start(Activity::Episodes { title, generated_tokens })
    }

    /// Writes the traces of a batch, also if every episode failed, and reports failures.
    fn keep(
        &self,
        host: &Host,
        file: &TraceFile,
        batch: Result<RolloutBatch, pl_rollout::Error>,
    ) -> Result<RolloutBatch, Error> {
        let failed = |error, run, episode| Error::Rollout { source: Box::new(error), run, episode };
        let Some(traces) = &self.traces else { return batch.map_err(|source| failed(source, None, None)) };
        let run = traces.run().to_path_buf();
        match batch {
            Ok(batch) => {
                traces.write(file, &batch.traces)?;
                if let Some(failure) = batch.failures.first() {
                    let message = failure.describe();
                    host.notify(Notice::Faults {
                        count: batch.failures.len(),
                        first: message.lines().next().unwrap_or_default().to_owned(),
                        run,
                        episode: failure.episode.clone(),
                    });
                }
                Ok(batch)
            }
            Err(pl_rollout::Error::NoEpisode { traces: lost, episodes, step, cause }) => {
                traces.write(file, &lost)?;
                let episode = lost.first().map(|trace| EpisodeId::from_key(&trace.key));
                let source = pl_rollout::Error::NoEpisode { traces: Vec::new(), episodes, step, cause };
                Err(failed(source, Some(run), episode))
            }
            Err(source) => Err(failed(source, None, None)),
        }
    }
}

/// Returns the number of episodes at a time that `count` of a round's `all` tasks may have.
fn share_of_episodes(episodes: u32, count: u32, all: u32) -> usize {
    let share = u64::from(episodes) * u64::from(count) / u64::from(all.max(1));
    usize::try_from(share).unwrap_or(usize::MAX).max(1)
}

/// Returns true if an evaluation is due after `step`. After the last step, all are due that have an interval.
fn is_due(evaluation: &Evaluation, step: u64, last: bool) -> bool {
    evaluation.every > 0 && (last || step.is_multiple_of(u64::from(evaluation.every)))
}
