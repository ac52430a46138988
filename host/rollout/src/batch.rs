//! Concurrent episodes: all tasks of a step, retried if they fail, sorted by key.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_types::{Phase, StreamKey, Transition};
use tracing::Instrument;

use crate::attempt::{Attempt, play_episode};
use crate::context::EpisodeContext;
use crate::error::{EpisodeFailure, Error};
use crate::events::EpisodeEvent;
use crate::result::EpisodeSummary;
use crate::setup::EpisodeSetup;
use crate::spans::SPAN_TARGET;
use crate::trace::Trace;

/// Attempts at one episode before the batch continues without it.
const ATTEMPTS: u32 = 3;

/// The episodes of one batch.
#[derive(Clone)]
pub struct RolloutPlan {
    pub seed: u64,
    pub phase: Phase,
    pub step: u64,
    pub tasks: Vec<Arc<Task>>,
    /// Number of the first task within the step: of tasks that were played before it.
    pub first_task: u32,
    pub mode: Rollout,
    /// Flat: episodes per task. Tree: candidates per node visit.
    pub samples: u32,
    /// Number of the first sample of a task: of those that were played before it.
    pub first_sample: u32,
    /// Limit on concurrent episodes (or trees).
    pub in_flight: usize,
    /// Versions of all policies.
    pub versions: Arc<[u64]>,
}

impl RolloutPlan {
    /// Usual limit on concurrent episodes outside of training: enough to fill an engine's batches.
    pub const IN_FLIGHT: usize = 64;

    /// Returns a plan of one episode per task, in step 0.
    pub fn flat(seed: u64, phase: Phase, tasks: Vec<Arc<Task>>, versions: Arc<[u64]>) -> RolloutPlan {
        RolloutPlan {
            seed,
            phase,
            step: 0,
            tasks,
            first_task: 0,
            mode: Rollout::Flat,
            samples: 1,
            first_sample: 0,
            in_flight: Self::IN_FLIGHT,
            versions,
        }
    }

    /// Number of episodes, or trees, per task.
    fn per_task(&self) -> u32 {
        if self.mode == Rollout::Flat { self.samples } else { 1 }
    }

    /// Number of episodes, or trees.
    pub fn size(&self) -> usize {
        self.tasks.len().saturating_mul(self.per_task() as usize)
    }

    /// Task and sample of each episode, or tree, in order.
    pub fn episodes(&self) -> Vec<(u32, u32)> {
        let samples = |task| (0..self.per_task()).map(move |sample| (task, self.first_sample + sample));
        (0..self.tasks.len() as u32).flat_map(samples).collect()
    }

    /// Plays an episode, or a tree, and again with fresh random streams if it fails. Returns all attempts in order.
    pub async fn play(&self, setup: &EpisodeSetup, task: u32, sample: u32) -> Vec<Attempt> {
        let (step, number) = (self.step, self.first_task + task);
        let span = tracing::info_span!(target: SPAN_TARGET, "episode", step, task = number, sample);
        run_with_retries(setup, self, task, sample).instrument(span).await
    }

    /// Returns the results of `tasks` of the plan's tasks, from the attempts at all of their episodes in any order.
    pub fn collect(&self, tasks: usize, mut attempts: Vec<Attempt>) -> RolloutBatch {
        let mut batch = RolloutBatch::default();
        attempts.sort_by_key(|a| (a.trace.key.task, a.trace.key.sample, a.trace.key.attempt));
        for Attempt { result, failure, trace } in attempts {
            batch.failures.extend(result.failures);
            batch.traces.push(trace);
            match failure {
                Some(failure) => {
                    // A tree that failed for good keeps the groups of the node visits before: they are whole.
                    if self.mode == Rollout::Tree && failure.attempt + 1 == ATTEMPTS {
                        batch.transitions.extend(result.transitions);
                    }
                    batch.failures.push(failure);
                }
                None => {
                    batch.transitions.extend(result.transitions);
                    batch.episodes.push(result.summary);
                }
            }
        }
        batch.lost = tasks * self.per_task() as usize - batch.episodes.len();
        batch.transitions.sort_by(|a, b| a.key.cmp(&b.key));
        batch.failures.sort();
        batch
    }
}

/// Player of the episodes of plans. An [`EpisodeSetup`] plays them in this process.
#[async_trait]
pub trait PlayEpisodes: Send + Sync {
    /// Plays an episode, or a tree, and again with fresh random streams if it fails. Returns all attempts in order, which
    /// don't depend on where they are played.
    ///
    /// # Errors
    /// If nothing can play it.
    async fn play(&self, plan: &Arc<RolloutPlan>, task: u32, sample: u32) -> Result<Vec<Attempt>, Error>;
}

#[async_trait]
impl PlayEpisodes for EpisodeSetup {
    async fn play(&self, plan: &Arc<RolloutPlan>, task: u32, sample: u32) -> Result<Vec<Attempt>, Error> {
        Ok(plan.play(self, task, sample).await)
    }
}

/// The results of a batch.
#[derive(Debug, Clone, Default)]
pub struct RolloutBatch {
    /// Sorted by key. Of a tree that failed in every attempt, the groups before the last failure.
    pub transitions: Vec<Transition>,
    /// Sorted by task and sample.
    pub episodes: Vec<EpisodeSummary>,
    /// Every failure, including those that a later attempt made up for.
    pub failures: Vec<EpisodeFailure>,
    /// Number of episodes that failed in every attempt.
    pub lost: usize,
    /// Traces of all attempts, sorted by task, sample and attempt.
    pub traces: Vec<Trace>,
}

/// Progress of a batch, in episodes.
#[derive(Debug, Clone, Copy)]
pub struct RolloutProgress {
    pub done: usize,
    pub total: usize,
}

/// Episodes that ended because an agent's prompt left no room for a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongPrompts {
    /// Number of these episodes.
    pub episodes: usize,
    /// Agent of the first one.
    pub agent: String,
    /// Number of tokens of its prompt.
    pub tokens: usize,
    /// Number of tokens of its model's context.
    pub context: usize,
}

impl RolloutBatch {
    /// Number of episodes that had a failure, also one that a later attempt made up for.
    pub fn faulty_episodes(&self) -> usize {
        let mut episodes: Vec<_> =
            self.failures.iter().map(|failure| (failure.task, failure.sample)).collect();
        episodes.sort_unstable();
        episodes.dedup();
        episodes.len()
    }

    /// Returns the episodes that a long prompt ended. Returns `None` if there are none.
    pub fn long_prompts(&self) -> Option<LongPrompts> {
        let ended = self.traces.iter().filter(|trace| trace.end.failure.is_none());
        let mut long = ended.filter_map(Trace::long_prompt);
        let (agent, tokens, context) = long.next()?;
        Some(LongPrompts { episodes: 1 + long.count(), agent: agent.to_owned(), tokens, context })
    }

    /// Adds the results of other episodes.
    pub fn append(&mut self, other: RolloutBatch) {
        let RolloutBatch { transitions, episodes, failures, lost, traces } = other;
        self.transitions.extend(transitions);
        self.transitions.sort_by(|a, b| a.key.cmp(&b.key));
        self.episodes.extend(episodes);
        self.episodes.sort_by_key(|episode| (episode.task, episode.sample));
        self.failures.extend(failures);
        self.failures.sort();
        self.lost += lost;
        self.traces.extend(traces);
        self.traces.sort_by_key(|trace| (trace.key.task, trace.key.sample, trace.key.attempt));
    }

    /// Returns the batch of a step if it has an episode.
    ///
    /// # Errors
    /// [`Error::NoEpisode`], with the failures and the traces, if every episode failed.
    pub fn with_episodes(self, step: u64) -> Result<RolloutBatch, Error> {
        if !self.episodes.is_empty() || self.lost == 0 {
            return Ok(self);
        }
        let cause = self.failures.first().map_or_else(String::new, EpisodeFailure::describe);
        let RolloutBatch { lost: episodes, failures, traces, .. } = self;
        Err(Error::NoEpisode { episodes, step, cause, failures, traces })
    }
}

/// Plays all episodes of a plan. The result does not depend on `in_flight` or on timing.
///
/// # Errors
/// [`Error::Worker`] if a task of the runtime panicked; those of the player.
pub async fn play_batch(
    player: Arc<dyn PlayEpisodes>,
    plan: &RolloutPlan,
    mut progress: impl FnMut(RolloutProgress),
) -> Result<RolloutBatch, Error> {
    let total = plan.size();
    let shared = Arc::new(plan.clone());
    let mut running = stream::iter(plan.episodes().into_iter().map(|(task, sample)| {
        let (player, plan) = (Arc::clone(&player), Arc::clone(&shared));
        tokio::spawn(async move { player.play(&plan, task, sample).await }.in_current_span())
    }))
    .buffer_unordered(plan.in_flight.max(1));
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut state = RolloutProgress { done: 0, total };
    progress(state);
    while let Some(finished) = running.next().await {
        attempts.extend(finished??);
        state.done += 1;
        progress(state);
    }
    drop(running);
    Ok(plan.collect(plan.tasks.len(), attempts))
}

/// Plays one episode, and again with fresh random streams if it fails. Returns all attempts in order.
async fn run_with_retries(setup: &EpisodeSetup, plan: &RolloutPlan, task: u32, sample: u32) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for number in 0..ATTEMPTS {
        let context = EpisodeContext {
            key: StreamKey {
                seed: plan.seed,
                phase: plan.phase.clone(),
                step: plan.step,
                task: plan.first_task + task,
                sample,
                attempt: number,
            },
            task: Arc::clone(&plan.tasks[task as usize]),
            versions: Arc::clone(&plan.versions),
            mode: plan.mode,
            candidates: plan.samples,
            // Decided by the plan, never by the order of arrival: a run does not depend on timing.
            suspends: plan.in_flight.min(plan.size()) > setup.environment.capacity(),
            answers: None,
        };
        let attempt = play_episode(setup, &context).await;
        let failure = attempt.failure.as_ref().map(EpisodeFailure::describe);
        attempts.push(attempt);
        let Some(failure) = failure else { break };
        if let Some(observer) = setup.observer.as_ref().filter(|_| number + 1 < ATTEMPTS) {
            // The observer may have closed the channel.
            let _ = observer.send(EpisodeEvent::Restarted(failure));
        }
    }
    attempts
}
