//! Rollouts and evaluations of a training run, with their traces and metrics.

use std::sync::Arc;
use std::time::Instant;

use pl_dsl::workflow::objective::PolicyTraining;
use pl_dsl::workflow::{Evaluation, Train};
use pl_record::{TraceFile, Traces};
use pl_rollout::{EpisodeSetup, RolloutBatch, RolloutPlan, RolloutProgress, TaskSource, play_batch};
use pl_trainer::filter::tasks_without_spread;
use pl_types::{EpisodeId, Phase, Transition};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::evaluation::{EvaluationReport, Round, play_round};
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::progress::{Activity, Notice, Tracker};
use crate::session::{Session, token_counter};
use crate::workflow::CheckedWorkflow;

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
    /// Position in the stream of tasks after those of this step.
    pub next_task: u64,
    /// Wall-clock seconds that the rollouts took.
    pub seconds: f64,
    /// End of the rollouts. `None` if another process has played them.
    pub finished: Option<Instant>,
}

/// Task sources of a run, and the setup of its episodes.
pub(super) struct Rollouts {
    setup: Arc<EpisodeSetup>,
    router: Arc<PolicyRouter>,
    seed: u64,
    train: Train,
    /// Training of each policy. `None` for policies that are not trained.
    trainings: Vec<Option<PolicyTraining>>,
    tasks: TaskSource,
    evaluations: Vec<(Evaluation, TaskSource)>,
    traces: Option<Traces>,
}

impl Rollouts {
    /// Opens all sources of tasks. An invalid record is found here.
    pub fn new(host: &Host, checked: &CheckedWorkflow, session: &Session) -> Result<Rollouts, Error> {
        let workflow = &checked.workflow;
        let Some(train) = workflow.train.clone() else {
            return Err(Error::NoTrainBlock { workflow: workflow.name.clone() });
        };
        let (tasks, evaluations) = host.block_on(async {
            let wanted = &workflow.scenarios[0].environment.tasks;
            let tasks = checked.tasks(wanted, &session.environment, Some(session.seed)).await?;
            let mut evaluations = Vec::new();
            for evaluation in &workflow.evaluations {
                let source = checked.tasks(&evaluation.tasks, &session.environment, None).await?;
                evaluations.push((evaluation.clone(), source));
            }
            Ok::<_, Error>((tasks, evaluations))
        })?;
        let (setup, router) = (Arc::clone(&session.setup), Arc::clone(&session.router));
        let trainings = workflow.policies.iter().map(|policy| policy.training.clone()).collect();
        let seed = session.seed;
        Ok(Rollouts { setup, router, seed, train, trainings, tasks, evaluations, traces: None })
    }

    /// Writes the trace of every episode from now on.
    pub fn keep_traces(&mut self, traces: Traces) {
        self.traces = Some(traces);
    }

    /// Returns the evaluation that checkpoints are compared by: the first in the file that is run during
    /// training.
    pub fn scoring_evaluation(&self) -> Option<&Evaluation> {
        self.evaluations.iter().map(|(evaluation, _)| evaluation).find(|evaluation| evaluation.every > 0)
    }

    /// Plays the tasks from `next_task` on with the weights that were published last.
    pub fn play_step(
        &self,
        host: &Host,
        step: u64,
        next_task: u64,
        versions: &[u64],
    ) -> Result<PlayedStep, Error> {
        let started = Instant::now();
        let (played, tasks) = host.block_on(self.play_tasks(host, step, next_task, versions))?;
        let played = played.and_then(|batch| batch.with_episodes(step));
        let batch = self.keep(host, &TraceFile { step, evaluation: None }, played)?;
        let mut metrics = step_metrics(&batch, &self.setup.agents);
        if self.train.max_refills > 0 {
            metrics.insert("refilled_tasks".into(), (tasks - self.train.tasks_per_step).into());
        }
        Ok(PlayedStep {
            step,
            next_task: next_task + u64::from(tasks),
            seconds: started.elapsed().as_secs_f64(),
            finished: Some(Instant::now()),
            failures: batch.failures.iter().map(|failure| json!(failure)).collect(),
            tokens: batch.episodes.iter().map(|e| e.tokens).sum(),
            metrics,
            transitions: batch.transitions,
        })
    }

    /// Plays a step's tasks, and others in place of those without a spread of returns if the objectives leave these
    /// out. Returns the number of tasks too.
    async fn play_tasks(
        &self,
        host: &Host,
        step: u64,
        next_task: u64,
        versions: &[u64],
    ) -> Result<(Result<RolloutBatch, pl_rollout::Error>, u32), Error> {
        let mut tracker = self.start_tracker(host, &format!("step {step}"));
        let mut all = RolloutBatch::default();
        let (mut first_task, mut count, mut episodes) = (0, self.train.tasks_per_step, 0);
        for refill in 0..=self.train.max_refills {
            let start = next_task + u64::from(first_task);
            let plan = RolloutPlan {
                seed: self.seed,
                phase: Phase::Train,
                step,
                tasks: self.tasks.take(start, count).await.map_err(Error::Tasks)?,
                first_task,
                mode: self.train.rollout,
                samples: self.train.samples,
                in_flight: self.train.episodes as usize,
                versions: versions.into(),
            };
            let mut total = 0;
            let update = |p: RolloutProgress| {
                total = p.total as u64;
                tracker.update(episodes + p.done as u64, episodes + total);
            };
            let batch = match play_batch(self.setup.clone(), &plan, update).await {
                Ok(batch) => batch,
                Err(error) => return Ok((Err(error), first_task)),
            };
            episodes += total;
            first_task += count;
            let refills = refill < self.train.max_refills;
            let without = refills.then(|| tasks_without_spread(&batch.transitions, &self.trainings, step));
            all.append(batch);
            count = without.map_or(0, |tasks| tasks.len() as u32);
            if count == 0 {
                break;
            }
        }
        Ok((Ok(all), first_task))
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
            let playing = play_round(&self.setup, evaluation, source, &round, update, keep);
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

/// Returns true if an evaluation is due after `step`. After the last step, all are due that have an interval.
fn is_due(evaluation: &Evaluation, step: u64, last: bool) -> bool {
    evaluation.every > 0 && (last || step.is_multiple_of(u64::from(evaluation.every)))
}
