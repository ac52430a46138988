//! Rollouts and evaluations of a training run, with their traces and metrics.

use std::sync::Arc;
use std::time::Instant;

use pl_dsl::workflow::{Evaluation, Train};
use pl_record::{TraceFile, Traces};
use pl_rollout::{
    AgentRuntime, EpisodeId, EpisodeSetup, RolloutBatch, RolloutPlan, RolloutProgress, TaskSource, play_batch,
};
use pl_types::{Phase, Transition};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::evaluation::{EvaluationReport, Round, mean, play_round};
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::progress::{Activity, Notice, Tracker};
use crate::session::{Session, token_counter};
use crate::workflow::CheckedWorkflow;

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
}

/// Task sources of a run, and what its episodes are played with.
pub(super) struct Rollouts {
    setup: Arc<EpisodeSetup>,
    router: Arc<PolicyRouter>,
    seed: u64,
    train: Train,
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
        Ok(Rollouts { setup, router, seed: session.seed, train, tasks, evaluations, traces: None })
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
        let title = format!("step {step}");
        let started = Instant::now();
        let batch = host.block_on(async {
            let tasks = self.tasks.take(next_task, self.train.tasks_per_step).await.map_err(Error::Tasks)?;
            let plan = RolloutPlan {
                seed: self.seed,
                phase: Phase::Train,
                step,
                tasks,
                mode: self.train.rollout,
                samples: self.train.samples,
                in_flight: self.train.episodes as usize,
                versions: versions.into(),
            };
            let mut tracker = self.start_tracker(host, &title);
            let update = move |p: RolloutProgress| tracker.update(p.done as u64, p.total as u64);
            Ok::<_, Error>(play_batch(self.setup.clone(), &plan, update).await)
        })?;
        let batch = self.keep(host, &TraceFile { step, evaluation: None }, batch)?;
        Ok(PlayedStep {
            step,
            next_task: next_task + u64::from(self.train.tasks_per_step),
            seconds: started.elapsed().as_secs_f64(),
            failures: batch.failures.iter().map(|failure| json!(failure)).collect(),
            tokens: batch.episodes.iter().map(|e| e.tokens).sum(),
            metrics: self.metrics(&batch),
            transitions: batch.transitions,
        })
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

    /// Returns the metrics of a step's episodes. `success` is that of the episodes (in a tree, of the chosen
    /// path); `agents` has the means over all samples.
    fn metrics(&self, batch: &RolloutBatch) -> Map<String, Value> {
        let episodes = &batch.episodes;
        // Over every sample that is trained on, not only those that a tree continued from.
        let agent = |agent: &AgentRuntime| {
            let own = || batch.transitions.iter().filter(|t| t.agent == agent.name);
            let reward = mean(own().map(|t| t.reward));
            let success = mean(own().map(|t| f64::from(t.success)));
            (agent.name.clone(), json!({ "success": success, "reward": reward }))
        };
        let agents = self.setup.agents.iter().map(agent).collect::<Map<_, _>>();
        let mut line = Map::new();
        line.insert("episodes".into(), episodes.len().into());
        line.insert("failures".into(), batch.failures.len().into());
        line.insert("lost".into(), batch.lost.into());
        line.insert("success".into(), json!(mean(episodes.iter().map(|e| f64::from(e.success)))));
        line.insert("agents".into(), Value::Object(agents));
        line.insert("turns".into(), json!(mean(episodes.iter().map(|e| f64::from(e.turns)))));
        line.insert("tokens".into(), json!(episodes.iter().map(|e| e.tokens).sum::<u64>()));
        line.insert("truncated".into(), json!(mean(episodes.iter().map(|e| f64::from(e.truncated)))));
        // Episodes in which a wall clock decided something: another run may differ from here on.
        let clocked = episodes.iter().filter(|e| !e.reproducible).count()
            + batch.failures.iter().filter(|f| !f.reproducible).count();
        line.insert("not_reproducible".into(), clocked.into());
        line
    }
}

/// Returns true if an evaluation is due after `step`. After the last step, all are due that have an interval.
fn is_due(evaluation: &Evaluation, step: u64, last: bool) -> bool {
    evaluation.every > 0 && (last || step.is_multiple_of(u64::from(evaluation.every)))
}
