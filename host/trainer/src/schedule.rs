//! The outer loop: play a step, train on it, serve the new weights, evaluate, checkpoint.
//!
//! `sync` is strictly on-policy: nothing is played while weights change. A run that was stopped at any moment
//! goes on from its last checkpoint and ends as if it had never stopped: whatever the loop writes is either
//! named in the checkpoint's [`State`] or cut off when the run resumes.

use std::time::Instant;

use pl_dsl::workflow::Train;
use pl_record::{Lengths, RunFolder, Transition};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::advantage::advantages;
use crate::checkpoint::Checkpoints;
use crate::{Error, Progress, StepMetrics, Trainer, stream};

/// Where the loop stands after a step. Kept in every checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Position of the next task in the stream of tasks.
    pub next_task: u64,
    /// Of the run folder's append-only files.
    pub lengths: Lengths,
}

/// A played step.
pub struct Played {
    /// Sorted by key.
    pub transitions: Vec<Transition>,
    /// Of the episodes: goes into the step's line of metrics. No timings.
    pub metrics: Map<String, Value>,
    /// Lines for `failures.jsonl`.
    pub failures: Vec<Value>,
    /// Tokens sampled.
    pub tokens: u64,
}

/// A named evaluation.
pub struct Evaluated {
    pub name: String,
    /// Share of episodes that the team solved.
    pub success: f64,
    /// The rest of its line of metrics.
    pub metrics: Map<String, Value>,
}

/// The rest of the program, as the loop sees it.
pub trait Stage {
    type Error: From<Error> + From<pl_record::Error>;

    /// Plays the tasks at `next_task..` under the weights last served.
    fn play(&mut self, step: u64, next_task: u64, versions: &[u64]) -> Result<Played, Self::Error>;
    /// Serves the policies as they are now.
    fn serve(&mut self, trainer: &Trainer) -> Result<(), Self::Error>;
    /// Runs the evaluations that are due after `step`; the last step makes all of them due.
    fn evaluate(&mut self, step: u64, last: bool, versions: &[u64]) -> Result<Vec<Evaluated>, Self::Error>;
    /// Packed batches trained.
    fn training(&mut self, progress: Progress);
    /// A line of metrics was written.
    fn wrote(&mut self, line: &Value, seconds: &Seconds);
    /// The user wants to stop.
    fn interrupted(&self) -> bool;
}

/// Wall time of a step's parts.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    pub play: f64,
    pub train: f64,
    pub evaluate: f64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// On request, after a checkpoint.
    Interrupted,
}

/// Runs the steps after `state` until the last one.
///
/// # Errors
/// What the stage, the trainer or the run folder could not do. The last checkpoint stands.
pub fn sync<S: Stage>(
    stage: &mut S,
    trainer: &mut Trainer,
    folder: &mut RunFolder,
    checkpoints: &Checkpoints,
    train: &Train,
    seed: u64,
    mut state: State,
) -> Result<Ending, S::Error> {
    let steps = u64::from(train.steps);
    let shuffle = |step| train.shuffle_rewards.then(|| stream::shuffle(seed, step));
    // What a run that was killed at its very end left undone.
    checkpoints.tidy()?;
    folder.draw()?;
    stage.serve(trainer)?;
    if state.step == 0 {
        // The untrained team, to compare with.
        let mut seconds = Seconds::default();
        evaluate(stage, trainer, folder, 0, false, &mut seconds)?;
    }
    while state.step < steps {
        let step = state.step + 1;
        let mut seconds = Seconds::default();
        let played = timed(&mut seconds.play, || stage.play(step, state.next_task, &trainer.versions()))?;
        folder.write_step(step, &played.transitions)?;
        for failure in &played.failures {
            folder.failures.append(failure)?;
        }
        let advantages = advantages(&played.transitions, train.normalize, shuffle(step));
        let metrics = timed(&mut seconds.train, || {
            trainer.update(step, &played.transitions, &advantages.values, &mut |p| stage.training(p))
        })?;
        stage.serve(trainer)?;
        state.step = step;
        state.next_task += u64::from(train.tasks_per_step);
        let line = line(step, &played, (advantages.groups, advantages.flat_groups), &metrics);
        folder.metrics.append(&line)?;
        stage.wrote(&line, &seconds);
        let last = step == steps;
        let score = evaluate(stage, trainer, folder, step, last, &mut seconds)?;
        let sampled = played.tokens as f64 / seconds.play.max(1e-9);
        let trained = metrics.fed_tokens as f64 / seconds.train.max(1e-9);
        folder.timings.append(&json!({
            "step": step, "seconds": seconds,
            "sampled_tokens_per_second": sampled, "trained_tokens_per_second": trained,
        }))?;
        let interrupted = stage.interrupted();
        if last || interrupted || step.is_multiple_of(u64::from(train.checkpoint_every.max(1))) {
            state.lengths = folder.sync()?;
            checkpoints.save(trainer, step, score, &json!(state))?;
            folder.draw()?;
        }
        if interrupted && !last {
            return Ok(Ending::Interrupted);
        }
    }
    Ok(Ending::Done)
}

/// Runs the evaluations that are due. Returns the success of the first one, by which checkpoints are compared.
fn evaluate<S: Stage>(
    stage: &mut S,
    trainer: &Trainer,
    folder: &mut RunFolder,
    step: u64,
    last: bool,
    seconds: &mut Seconds,
) -> Result<Option<f64>, S::Error> {
    let results = timed(&mut seconds.evaluate, || stage.evaluate(step, last, &trainer.versions()))?;
    let score = results.first().map(|result| result.success);
    for result in results {
        let mut line = Map::new();
        line.insert("kind".into(), "evaluation".into());
        line.insert("step".into(), step.into());
        line.insert("name".into(), result.name.into());
        line.insert("success".into(), result.success.into());
        line.extend(result.metrics);
        let line = Value::Object(line);
        folder.metrics.append(&line)?;
        stage.wrote(&line, seconds);
    }
    Ok(score)
}

fn line(step: u64, played: &Played, groups: (usize, usize), metrics: &StepMetrics) -> Value {
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
