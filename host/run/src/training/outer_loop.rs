//! The outer loop: play a step, update the policies, publish the new weights, evaluate, save a checkpoint.
//!
//! The schedule `sync` is strictly on-policy: nothing is played while weights change. A run that was killed
//! at any moment continues from its last checkpoint and ends as if it had never been killed: everything that
//! the loop writes is either named in the checkpoint's [`LoopState`] or cut off when the run resumes.

use std::time::Instant;

use pl_dsl::workflow::Evaluation;
use pl_record::{LogLengths, RunFolder};
use pl_trainer::advantage::advantages;
use pl_trainer::checkpoint::{Checkpoints, Score};
use pl_trainer::{StepMetrics, UpdateProgress};
use pl_types::seed;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::checkpoints::publish;
use crate::error::Error;
use crate::progress::{Activity, MetricsLine, StepSeconds};

use super::rollouts::PlayedStep;
use super::{StopRequest, TrainingRun};

/// State of the loop after a step, part of every checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Number of finished steps.
    pub step: u64,
    /// Position of the next task in the stream of tasks.
    pub next_task: u64,
    /// Lengths of the run folder's append-only files.
    pub lengths: LogLengths,
}

/// Reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All steps are finished.
    Done,
    /// The user requested a stop. A checkpoint was saved.
    Interrupted,
}

impl TrainingRun<'_> {
    /// Runs all remaining steps, or until a stop is requested.
    ///
    /// # Errors
    /// If a step can't be played, an update fails, or the run folder can't be written. The last checkpoint
    /// stands.
    pub fn train(&mut self, stop: &StopRequest) -> Result<Ending, Error> {
        let steps = u64::from(self.train.steps);
        let checkpoints =
            Checkpoints::new(RunFolder::checkpoints(self.folder.root()), self.train.keep_checkpoints);
        // Finishes what a run that was killed at its very end left undone.
        checkpoints.tidy()?;
        self.folder.draw()?;
        publish(&self.session.engine, &self.session.trainer)?;
        if self.state.step == 0 {
            // The untrained team is the baseline.
            self.evaluate(0, false, &mut StepSeconds::default())?;
        }
        while self.state.step < steps {
            let step = self.state.step + 1;
            let last = step == steps;
            let score = self.run_step(step, last)?;
            let improved = match &score {
                Some(score) => is_best(&checkpoints, score)?,
                None => false,
            };
            let interrupted = stop.is_requested();
            let due = step.is_multiple_of(u64::from(self.train.checkpoint_every.max(1)));
            if last || interrupted || due || improved {
                self.state.lengths = self.folder.sync()?;
                checkpoints.save(&self.session.trainer, step, score, &json!(self.state))?;
                self.folder.draw()?;
            }
            if interrupted && !last {
                return Ok(Ending::Interrupted);
            }
        }
        Ok(Ending::Done)
    }

    /// Runs one step with its evaluations. Returns the score of the policies, if they were evaluated.
    fn run_step(&mut self, step: u64, last: bool) -> Result<Option<Score>, Error> {
        let mut seconds = StepSeconds::default();
        let versions = self.session.trainer.versions();
        let played = timed(&mut seconds.play, || {
            self.rollouts.play_step(self.host, step, self.state.next_task, &versions)
        })?;
        self.folder.write_step(step, &played.transitions)?;
        for failure in &played.failures {
            self.folder.failures.append(failure)?;
        }
        let shuffle = self.train.shuffle_rewards;
        let shuffle = shuffle.then(|| seed::trainer(self.session.seed, "shuffled rewards", "", &[step]));
        let advantages = advantages(&played.transitions, self.train.normalize, shuffle);
        let trainer = &mut self.session.trainer;
        let mut tracker = self.host.progress().start(Activity::Update);
        let metrics = timed(&mut seconds.train, || {
            let mut update = |progress: UpdateProgress| tracker.update(progress.done, progress.total);
            trainer.update(step, &played.transitions, &advantages.values, &mut update)
        })?;
        drop(tracker);
        publish(&self.session.engine, &self.session.trainer)?;
        self.state.step = step;
        self.state.next_task += u64::from(self.train.tasks_per_step);
        let line = step_line(step, &played, (advantages.groups, advantages.flat_groups), &metrics);
        self.folder.metrics.append(&line)?;
        self.report(step, None, &line, seconds);
        let score = self.evaluate(step, last, &mut seconds)?;
        let sampled = played.tokens as f64 / seconds.play.max(1e-9);
        let trained = metrics.fed_tokens as f64 / seconds.train.max(1e-9);
        self.folder.timings.append(&json!({
            "step": step, "seconds": seconds,
            "sampled_tokens_per_second": sampled, "trained_tokens_per_second": trained,
        }))?;
        Ok(score)
    }

    /// Runs the evaluations that are due. Returns the score if the scoring evaluation is among them.
    fn evaluate(&mut self, step: u64, last: bool, seconds: &mut StepSeconds) -> Result<Option<Score>, Error> {
        let versions = self.session.trainer.versions();
        let reports =
            timed(&mut seconds.evaluate, || self.rollouts.evaluate(self.host, step, last, &versions))?;
        let mut score = None;
        for report in reports {
            let mut line = Map::new();
            line.insert("kind".into(), "evaluation".into());
            line.insert("step".into(), step.into());
            line.insert("name".into(), report.name.clone().into());
            line.insert("success".into(), report.success.into());
            line.extend(report.metrics());
            let line = Value::Object(line);
            self.folder.metrics.append(&line)?;
            self.report(step, Some(&report.name), &line, *seconds);
            if let Some(evaluation) = self.rollouts.scoring_evaluation()
                && evaluation.name == report.name
            {
                score = Some(Score { evaluation: identity(evaluation), value: report.success });
            }
        }
        Ok(score)
    }

    fn report(&self, step: u64, evaluation: Option<&str>, line: &Value, seconds: StepSeconds) {
        let steps = u64::from(self.train.steps);
        self.host.progress().metrics(&MetricsLine { step, steps, evaluation, line, seconds });
    }
}

/// Returns true if no checkpoint of the same evaluation has at least this score.
fn is_best(checkpoints: &Checkpoints, score: &Score) -> Result<bool, Error> {
    let best = checkpoints.best()?.and_then(|best| best.score);
    Ok(best.is_none_or(|best| best.evaluation != score.evaluation || score.value > best.value))
}

/// Returns a text that is equal for evaluations whose results can be compared: the name of the block, and a
/// hash of all of its settings except the interval.
fn identity(evaluation: &Evaluation) -> String {
    let settings = json!(Evaluation { every: 0, ..evaluation.clone() }).to_string();
    format!("{} {}", evaluation.name, &blake3::hash(settings.as_bytes()).to_hex()[..16])
}

/// Returns the line of metrics of a training step. `groups` are all groups and those with equal rewards.
fn step_line(step: u64, played: &PlayedStep, groups: (usize, usize), metrics: &StepMetrics) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "step".into());
    line.insert("step".into(), step.into());
    line.extend(played.metrics.clone());
    line.insert("transitions".into(), played.transitions.len().into());
    line.insert("groups".into(), groups.0.into());
    line.insert("flat_groups".into(), groups.1.into());
    let gap = metrics
        .policies
        .iter()
        .filter_map(|m| m.max_logprob_gap)
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    line.insert("max_logprob_gap".into(), json!(gap));
    let policies = metrics.policies.iter().map(|m| (m.policy.clone(), json!(m))).collect();
    line.insert("policies".into(), Value::Object(policies));
    Value::Object(line)
}

fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *seconds += start.elapsed().as_secs_f64();
    result
}
