//! Many episodes in flight: a step's tasks played to the end, retried where they fail, sorted by key.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_record::Transition;

use crate::attempt::{Attempt, play};
use crate::record::{Context, Summary};
use crate::trace::Trace;
use crate::{Cast, Error, Failure, Phase, Place};

/// Tries at one episode before the batch does without it.
const ATTEMPTS: u32 = 3;

/// What to play.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub phase: Phase,
    pub step: u64,
    pub tasks: Vec<Arc<Task>>,
    pub mode: Rollout,
    /// Flat: episodes per task. Tree: candidates per node.
    pub samples: u32,
    /// Episodes (or trees) at a time.
    pub in_flight: usize,
    /// Versions of all policies.
    pub versions: Arc<[u64]>,
}

impl Plan {
    /// Episodes, or trees, of a task.
    fn per_task(&self) -> u32 {
        if self.mode == Rollout::Flat { self.samples } else { 1 }
    }

    /// Episodes, or trees, in all.
    fn episodes(&self) -> usize {
        self.tasks.len().saturating_mul(self.per_task() as usize)
    }
}

/// What was played.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Sorted by key.
    pub transitions: Vec<Transition>,
    /// Sorted by task and sample.
    pub episodes: Vec<Summary>,
    /// Every fault, also those made good by another try.
    pub failures: Vec<Failure>,
    /// Episodes given up after all tries.
    pub lost: usize,
    /// Of every attempt. Sorted by task, sample and attempt.
    pub traces: Vec<Trace>,
}

/// How far a batch is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
}

/// Plays all episodes of a plan. The result does not depend on `in_flight` or on timing.
///
/// # Errors
/// [`Error::NoEpisode`] where not a single one could be played; it has the traces.
pub async fn play_batch(
    cast: Arc<Cast>,
    plan: &Plan,
    mut progress: impl FnMut(Progress),
) -> Result<Batch, Error> {
    let places: Vec<(u32, u32)> = (0..plan.tasks.len() as u32)
        .flat_map(|task| (0..plan.per_task()).map(move |sample| (task, sample)))
        .collect();
    let total = places.len();
    let shared = Arc::new(plan.clone());
    let mut running = stream::iter(places.into_iter().map(|(task, sample)| {
        let (cast, plan) = (Arc::clone(&cast), Arc::clone(&shared));
        tokio::spawn(async move { play_stubbornly(&cast, &plan, task, sample).await })
    }))
    .buffer_unordered(plan.in_flight.max(1));
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut batch = Batch::default();
    let mut state = Progress { done: 0, total };
    progress(state);
    while let Some(result) = running.next().await {
        attempts.extend(result?);
        state.done += 1;
        progress(state);
    }
    drop(running);
    attempts.sort_by_key(|a| (a.trace.place.task, a.trace.place.sample, a.trace.place.attempt));
    for Attempt { played, failure, trace } in attempts {
        batch.failures.extend(played.failures);
        batch.traces.push(trace);
        match failure {
            Some(failure) => batch.failures.push(failure),
            None => {
                batch.transitions.extend(played.transitions);
                batch.episodes.push(played.summary);
            }
        }
    }
    batch.lost = total - batch.episodes.len();
    batch.transitions.sort_by(|a, b| a.key.cmp(&b.key));
    batch.failures.sort();
    if batch.episodes.is_empty() && total > 0 {
        let cause = batch.failures.first().map_or_else(String::new, Failure::in_words);
        return Err(Error::NoEpisode { episodes: total, step: plan.step, cause, traces: batch.traces });
    }
    Ok(batch)
}

/// Plays one episode, again under fresh streams where it fails. All attempts in order.
async fn play_stubbornly(cast: &Cast, plan: &Plan, task: u32, sample: u32) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for attempt in 0..ATTEMPTS {
        let context = Context {
            place: Place {
                seed: plan.seed,
                phase: plan.phase.clone(),
                step: plan.step,
                task,
                sample,
                attempt,
            },
            task: Arc::clone(&plan.tasks[task as usize]),
            versions: Arc::clone(&plan.versions),
            mode: plan.mode,
            candidates: plan.samples,
            // Decided by the plan, never by who happens to come first: a run does not depend on timing.
            rests: plan.in_flight.min(plan.episodes()) > cast.environment.seats(),
            recorded: None,
        };
        let attempt = play(cast, &context).await;
        let played = attempt.failure.is_none();
        attempts.push(attempt);
        if played {
            break;
        }
    }
    attempts
}
