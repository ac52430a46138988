//! The rollout thread of a run: plays steps and evaluations with the weights that the trainer hands over.
//!
//! [`Admission`] decides what starts next. Episodes of several steps play at the same time, each with the weights that
//! the schedule names for its step; steps are handed to the trainer in order, with the tasks that were drawn for them or with
//! those that ended first, and the part of a lane before the step is whole. Weights that can't be kept beside others are replaced
//! when no episode uses them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use pl_inference::EngineStats;
use pl_record::schedule::RecordedBatch;
use pl_types::TaskKey;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::checkpoints::PolicyVersions;
use crate::cluster::{ClusterRun, LeasedWeights};
use crate::error::Error;
use crate::generation::{PinnedTeam, PinnedVersion, PolicyRouter};
use crate::host::Host;
use crate::schedule::admission::{Action, Admission};
use crate::schedule::lanes::StepPart;
use crate::schedule::{StepSchedule, UpdateKey};
use crate::stop_request::StopRequest;

use super::cursor::ScenarioCursor;
use super::in_flight::InFlightWeights;
use super::loop_events::{EventSender, LoopEvent, RolloutEvent};
use super::open_step::{EndedEpisode, OpenStep};
use super::rollouts::{PlayedStep, Rollouts};
use super::step_results::{StepResults, TaskResults};
use super::step_weights::{StepWeights, WeightSource};

/// Weights of learners, with the work that they make possible.
pub(super) struct Handover {
    pub weights: Vec<LearnerWeights>,
    /// Number of updates after which evaluations are due, before any of the steps is played.
    pub evaluate: Option<u64>,
    /// Steps to play, of each lane.
    pub steps: Vec<RangeInclusive<u64>>,
}

/// Weights of a learner's policies after an update.
pub(super) struct LearnerWeights {
    /// Last update that the weights include.
    pub update: UpdateKey,
    pub policies: PolicyVersions,
}

/// State and surroundings of the rollout thread.
pub(super) struct RolloutThread<'r> {
    pub host: &'r Host,
    pub rollouts: &'r Rollouts,
    pub router: Arc<PolicyRouter>,
    /// Workers that play the episodes. `None` if this process does.
    pub cluster: Option<Arc<ClusterRun>>,
    pub admission: Admission,
    pub schedule: StepSchedule,
    /// True if weights are kept beside others.
    pub keeps_versions: bool,
    /// Weights that take over while episodes play. `None` if these end with the weights that they begin with.
    pub in_flight: Option<InFlightWeights>,
    /// Number of policies of the workflow.
    pub policies: usize,
    /// Positions of each lane in the tasks of the scenarios. Empty before the first step.
    pub cursors: Vec<Vec<ScenarioCursor>>,
    /// Request that ends the thread before it plays the next step. `None` if steps that the schedule has begun
    /// must be played, because a checkpoint needs them.
    pub stop: Option<StopRequest>,
    /// Times in which weights were made ready since the last step was handed over: their ends and durations.
    pub published: Vec<(Instant, f64)>,
    /// Work of the embedded engines until the last step was handed over.
    pub engine_before: EngineStats,
    /// Weights that were handed over.
    pub weights: BTreeMap<UpdateKey, HandedWeights>,
    pub open: BTreeMap<StepPart, OpenStep>,
    /// Parts that have ended, of steps of which another part plays.
    pub parts: BTreeMap<u64, BTreeMap<usize, StepResults>>,
    /// Results of tasks that wait for their batch, of steps that have ended.
    pub waiting: BTreeMap<TaskKey, TaskResults>,
    /// Steps that were drawn and not handed over. Empty if steps are handed over as they were drawn.
    pub drawn: BTreeMap<u64, DrawnStep>,
}

/// Positions and levels of a step that was drawn.
pub(super) struct DrawnStep {
    /// Positions in the tasks of the scenarios after those of the step.
    cursors: Vec<ScenarioCursor>,
    levels: Vec<Option<u32>>,
}

/// Weights that were handed over.
pub(super) struct HandedWeights {
    /// Index and version of each policy.
    versions: Vec<(usize, u64)>,
    state: WeightState,
}

enum WeightState {
    /// Not in use yet.
    New(PolicyVersions),
    /// Served beside others.
    Pinned(Arc<PinnedVersion>),
    /// Served in place of earlier ones.
    Published,
    /// In the object store of a cluster.
    Leased(Arc<LeasedWeights>),
}

impl RolloutThread<'_> {
    /// Body of the thread. Ends when the trainer hangs up, or after the first error.
    pub fn run(mut self, handovers: UnboundedReceiver<Handover>, events: &EventSender) {
        let host = self.host;
        let result = host.block_on(async {
            let mut running = JoinSet::new();
            // A trainer that has hung up needs no result.
            let mut send = |event| drop(events.send(Ok(LoopEvent::Rollout(event))));
            let result = self.play(handovers, &mut running, &mut send).await;
            running.shutdown().await;
            result
        });
        if let Err(error) = result {
            drop(events.send(Err(error)));
        }
    }

    async fn play(
        &mut self,
        mut handovers: UnboundedReceiver<Handover>,
        running: &mut JoinSet<Result<EndedEpisode, pl_rollout::Error>>,
        send: &mut dyn FnMut(RolloutEvent),
    ) -> Result<(), Error> {
        let mut is_connected = true;
        loop {
            while let Some(action) = self.admission.next_action() {
                self.act(action, running, send).await?;
            }
            if !is_connected && running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                handover = handovers.recv(), if is_connected => match handover {
                    Some(handover) => self.receive(handover)?,
                    None => {
                        is_connected = false;
                        self.admission.stop();
                    }
                },
                Some(ended) = running.join_next() => {
                    let ended = ended.map_err(pl_rollout::Error::from).flatten().map_err(Error::rollout)?;
                    let (part, episode) = (ended.part, ended.episode);
                    if let Some(open) = self.open.get_mut(&part) {
                        open.end(ended);
                    }
                    self.admission.finished(part, episode);
                }
            }
        }
    }

    async fn act(
        &mut self,
        action: Action,
        running: &mut JoinSet<Result<EndedEpisode, pl_rollout::Error>>,
        send: &mut dyn FnMut(RolloutEvent),
    ) -> Result<(), Error> {
        match action {
            Action::Evaluate { update } => {
                let weights = match &self.in_flight {
                    Some(in_flight) => in_flight.of_evaluation(),
                    None => self.use_weights(&self.schedule.updates_after(update)).await?,
                };
                let started = Instant::now();
                let last = update == self.schedule.steps();
                let evaluations = self.rollouts.evaluate(self.host, update, last, &weights).await?;
                let ended = Instant::now();
                self.admission.evaluated();
                self.drop_unused_weights();
                let seconds = (ended - started).as_secs_f64();
                send(RolloutEvent::Evaluated { evaluations, ended, seconds });
            }
            Action::Draw { part } => {
                let StepPart { step, lane } = part;
                // The first step is always played: a run without one has nothing to continue from.
                if step > 1 && self.stop.as_ref().is_some_and(StopRequest::is_requested) {
                    self.admission.stop();
                    send(RolloutEvent::Stopped);
                    return Ok(());
                }
                let weights = match &self.in_flight {
                    Some(in_flight) => in_flight.of_step(),
                    None => self.use_weights(&self.schedule.lane_updates(lane, step)).await?,
                };
                let (own, cursors) = ((part, self.schedule.lanes()), &self.cursors[lane]);
                let open = OpenStep::draw(self.rollouts, self.host, own, cursors, weights).await?;
                self.cursors[lane] = open.cursors().to_vec();
                self.admission.add_episodes(part, &open.task_of());
                if self.schedule.is_by_arrival() {
                    let (cursors, levels) = (self.cursors[lane].clone(), open.levels().to_vec());
                    self.drawn.insert(step, DrawnStep { cursors, levels });
                }
                self.open.insert(part, open);
            }
            Action::Start { part, episode } => {
                let versions = self.in_flight.as_mut().map(|own| own.start(part, episode));
                if let Some(playing) = self.open.get(&part).and_then(|open| open.play(episode, versions)) {
                    running.spawn(playing);
                }
            }
            Action::Collect { part } if self.schedule.is_by_arrival() => {
                self.admission.close(part);
                if let Some(mut open) = self.open.remove(&part) {
                    let left = open.task_of().into_iter().filter_map(|task| open.take(task));
                    self.waiting.extend(left.map(|results| (results.task, results)));
                    open.write_traces(self.rollouts)?;
                }
                self.drop_unused_weights();
            }
            Action::HandOver(batch) => {
                let played = self.batch(batch)?.into_step(self.rollouts, self.host)?;
                send(RolloutEvent::Played(Box::new(self.with_records(played))));
            }
            Action::Collect { part } => {
                let Some(open) = self.open.get_mut(&part) else { return Ok(()) };
                if open.refill(self.rollouts).await? {
                    self.admission.add_episodes(part, &open.task_of());
                    return Ok(());
                }
                self.admission.close(part);
                if let Some(open) = self.open.remove(&part) {
                    send(self.end_part(part, open.close(self.rollouts))?);
                }
                self.drop_unused_weights();
            }
        }
        Ok(())
    }

    /// Keeps the results of a part, until those of the whole step are there.
    fn end_part(&mut self, part: StepPart, mut results: StepResults) -> Result<RolloutEvent, Error> {
        if self.in_flight.is_some() {
            // Each episode has its own.
            results.versions.clear();
        }
        let lanes = self.schedule.lanes();
        let mut parts = self.parts.remove(&part.step).unwrap_or_default();
        if parts.len() + 1 < lanes.count() {
            let transitions = Arc::new(results.transitions());
            parts.insert(part.lane, results);
            self.parts.insert(part.step, parts);
            return Ok(RolloutEvent::PartPlayed { part, transitions });
        }
        parts.insert(part.lane, results);
        let whole = StepResults::merge(lanes, parts).ok_or_else(|| Error::lost("the parts of a step"))?;
        let played = whole.into_step(self.rollouts, self.host)?;
        if self.rollouts.draws_in_turn() {
            self.cursors.fill(played.cursors.clone());
        }
        Ok(RolloutEvent::Played(Box::new(self.with_records(played))))
    }

    /// Puts the results of tasks together that ended first.
    fn batch(&mut self, RecordedBatch { step, tasks }: RecordedBatch) -> Result<StepResults, Error> {
        let mut results = Vec::with_capacity(tasks.len());
        for task in tasks {
            let part = StepPart { step: task.step, lane: 0 };
            let open = || self.open.get_mut(&part)?.take(task.task);
            // Admission counts a task as ended only if it was played.
            let own = self
                .waiting
                .remove(&task)
                .or_else(open)
                .ok_or_else(|| Error::lost("the results of a task"))?;
            results.push(own);
        }
        let drawn = self.drawn.remove(&step).ok_or_else(|| Error::lost("the tasks of a step"))?;
        Ok(StepResults::by_arrival(step, drawn.cursors, drawn.levels, results))
    }

    /// Adds what happened since the step before: the versions that were used, the times in which weights were made ready, and
    /// the work of the engines.
    fn with_records(&mut self, played: PlayedStep) -> PlayedStep {
        let versions = self.in_flight.as_mut().map(|own| own.take_record(played.step));
        let so_far = self.router.engine_stats();
        let engine = so_far.since(&std::mem::replace(&mut self.engine_before, so_far));
        PlayedStep { versions, published: std::mem::take(&mut self.published), engine, ..played }
    }

    /// Takes over weights, and the work that they make possible.
    fn receive(&mut self, Handover { weights, evaluate, steps }: Handover) -> Result<(), Error> {
        for LearnerWeights { update, policies } in weights {
            if let Some(in_flight) = &mut self.in_flight {
                let started = Instant::now();
                in_flight.take_over(policies)?;
                self.published.push((Instant::now(), started.elapsed().as_secs_f64()));
                continue;
            }
            let versions = policies.versions().to_vec();
            self.weights.insert(update, HandedWeights { versions, state: WeightState::New(policies) });
        }
        if let Some(update) = evaluate {
            self.admission.evaluate(update);
        }
        for (lane, steps) in steps.into_iter().enumerate() {
            self.admission.play(lane, steps);
        }
        self.drop_unused_weights();
        Ok(())
    }

    /// Returns the weights of learners after an update each, ready to be used.
    async fn use_weights(&mut self, updates: &[UpdateKey]) -> Result<StepWeights, Error> {
        let started = Instant::now();
        let mut is_new = false;
        // Those of policies that are not trained, or of another lane, stay 0.
        let mut versions = vec![0; self.policies];
        let (mut pinned, mut leased) = (Vec::new(), Vec::new());
        for update in updates.iter().copied() {
            let Some(handed) = self.weights.remove(&update) else {
                return Err(Error::lost("the weights of a learner"));
            };
            is_new |= matches!(handed.state, WeightState::New(_));
            let state = match (handed.state, &self.cluster) {
                (WeightState::New(policies), Some(cluster)) => {
                    WeightState::Leased(cluster.store_weights(update, &policies).await?)
                }
                (WeightState::New(policies), None) if self.keeps_versions => {
                    WeightState::Pinned(Arc::new(policies.pin(&self.router)?))
                }
                (WeightState::New(policies), None) => {
                    policies.publish(&self.router).await?;
                    WeightState::Published
                }
                (in_use, _) => in_use,
            };
            if let WeightState::Pinned(version) = &state {
                pinned.push(Arc::clone(version));
            }
            if let WeightState::Leased(weights) = &state {
                leased.push(Arc::clone(weights));
            }
            for (policy, version) in &handed.versions {
                if let Some(own) = versions.get_mut(*policy) {
                    *own = *version;
                }
            }
            self.weights.insert(update, HandedWeights { state, ..handed });
        }
        let source = match &self.cluster {
            Some(cluster) => WeightSource::Cluster { cluster: Arc::clone(cluster), weights: leased },
            None if self.keeps_versions => {
                let team = PinnedTeam { router: Arc::clone(&self.router), versions: pinned };
                WeightSource::Generator(Arc::new(team))
            }
            None => WeightSource::Session,
        };
        if is_new {
            self.published.push((Instant::now(), started.elapsed().as_secs_f64()));
        }
        Ok(StepWeights { versions, source })
    }

    /// Drops weights that nothing will use. The newest of each learner are kept: evaluations may still use them.
    fn drop_unused_weights(&mut self) {
        let mut newest = BTreeMap::new();
        for update in self.weights.keys() {
            newest.insert(update.learner, update.step);
        }
        let admission = &self.admission;
        self.weights
            .retain(|update, _| newest.get(&update.learner) == Some(&update.step) || admission.uses(*update));
    }
}
