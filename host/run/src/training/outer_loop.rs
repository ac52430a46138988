//! The outer loop: play steps, update the policies, hand the new weights over, evaluate, save checkpoints.
//!
//! The rollout thread ([`super::rollout_thread`]) plays, the threads of the learners ([`super::learner_threads`]) train,
//! and this one writes the run folder. [`StepSchedule`] names the weights that each step is played with. Learners train at
//! their own pace; they wait for each other at the steps after which the team is evaluated or saved. Methods of the loop that
//! write what is finished are in [`finished_step`]. A run that was killed at any moment continues from its last checkpoint
//! and ends as if it had never been killed: everything that the loop writes is either named in the checkpoint's [`LoopState`] or
//! cut off when the run resumes. Steps that were played ahead of their update are named too.

mod finished_step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use pl_dsl::workflow::{InFlight, Train};
use pl_record::RunFolder;
use pl_record::schedule::RecordedBatch;
use pl_trainer::checkpoint::Checkpoints;
use pl_trainer::{ServedPolicy, Trainer};
use pl_types::{Transition, seed};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::checkpoints::PolicyVersions;
use crate::cluster::{ClusterRun, RemoteLearner};
use crate::error::Error;
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::run_folder::draw;
use crate::schedule::admission::{Admission, AdmissionRules};
use crate::schedule::batches::{BatchRule, Batches};
use crate::schedule::lanes::StepPart;
use crate::schedule::{StepSchedule, UpdateKey};
use crate::stop_request::StopRequest;
use crate::update_source::UpdateSource;

use super::TrainingRun;
use super::barriers::{is_barrier, is_checkpoint_due};
use super::collected_steps::CollectedSteps;
use super::flat_steps::FlatSteps;
use super::in_flight::InFlightWeights;
use super::kept_versions::KeptVersions;
use super::learner_threads::{LearnerThreads, UpdateOrder};
use super::loop_events::{EventSender, LoopEvent, RolloutEvent, report_panic};
use super::loop_state::LoopState;
use super::pace::Pace;
use super::replayed_schedule::RepeatedSchedule;
use super::rollout_thread::{Handover, LearnerWeights, RolloutThread};
use super::rollouts::{PlayedStep, Rollouts};
use super::step_times::{Clock, StepTimes};

/// Reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnding {
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
    pub fn train(&mut self, stop: &StopRequest) -> Result<RunEnding, Error> {
        let ended = self.train_steps(stop);
        if let (Ok(RunEnding::Done), Some(cluster)) = (&ended, &self.cluster) {
            self.host.block_on(cluster.end());
        }
        ended
    }

    fn train_steps(&mut self, stop: &StopRequest) -> Result<RunEnding, Error> {
        let Self { host, train, session, schedule, repeated, earlier, rollouts, folder, state, cluster } =
            self;
        let checkpoints = Checkpoints::new(RunFolder::checkpoints(folder.root()), train.keep_checkpoints);
        // Finishes what a run that was killed at its very end left undone.
        checkpoints.tidy()?;
        draw(host, folder);
        if state.step == schedule.steps() {
            return Ok(RunEnding::Done);
        }
        let collected = CollectedSteps::read(folder, schedule, state.step)?;
        let kept = KeptVersions::restored(std::mem::take(earlier), &session.trainer);
        let first = kept.first_updates(schedule.learners(), state.step);
        let schedule = &schedule.clone().without_weights_before(first);
        let mut played = BTreeMap::new();
        for ahead in std::mem::take(&mut state.ahead) {
            let step = ahead.read(folder)?;
            played.insert(step.step, Arc::new(step));
        }
        let RepeatedSchedule { order, versions } = repeated.take().unwrap_or_default();
        let repeats = order.is_some() || versions.is_some();
        let in_flight = InFlightWeights::new(
            train.in_flight,
            &session.router,
            trained_policies(&session.trainer),
            session.trainer.versions(),
            (versions, schedule.staleness() + schedule.late()),
        )?;
        let rules = AdmissionRules {
            slots: train.episodes as usize,
            draws_in_turn: rollouts.draws_in_turn(),
            // In flight, all episodes have the same weights.
            keeps_versions: in_flight.is_some()
                || (schedule.overlaps() && session.router.keeps_versions(&session.trainer)),
        };
        let batches = schedule.is_by_arrival().then(|| {
            let rule = order.unwrap_or(BatchRule::Arrival { late: schedule.late() });
            let done = state.step + played.len() as u64;
            Batches::new(rule, train.tasks_per_step as usize, done)
        });
        let thread = RolloutThread {
            host,
            rollouts,
            router: Arc::clone(&session.router),
            cluster: cluster.clone(),
            admission: Admission::new(schedule.clone(), rules).with_batches(batches),
            schedule: schedule.clone(),
            keeps_versions: rules.keeps_versions,
            in_flight,
            policies: session.trainer.versions().len(),
            cursors: vec![
                played.values().last().map_or(&state.scenarios, |last| &last.cursors).clone();
                schedule.lanes().count()
            ],
            stop: (!schedule.overlaps()).then(|| stop.clone()),
            published: Vec::new(),
            engine_before: session.router.engine_stats(),
            weights: BTreeMap::new(),
            open: BTreeMap::new(),
            parts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            drawn: BTreeMap::new(),
        };
        let (handovers, received) = unbounded_channel();
        let (sender, events) = channel();
        let router = Arc::clone(&session.router);
        let ended = std::thread::scope(|scope| {
            let rollout_events = sender.clone();
            scope.spawn(move || report_panic(&rollout_events, || thread.run(received, &rollout_events)));
            let last_planned = vec![state.step + played.len() as u64; schedule.lanes().count()];
            let remote = start_remote(host, cluster.as_ref(), &session.trainer, state.step);
            let outer_loop = OuterLoop {
                host,
                train,
                schedule,
                repeats,
                rollouts,
                router: &router,
                cluster: cluster.as_deref(),
                seed: session.seed,
                learner_cores: &session.learner_cores,
                remote: remote?,
                folder,
                state,
                played,
                parts: BTreeMap::new(),
                last_planned,
                collected,
                flat_steps: FlatSteps::default(),
                kept,
                checkpoints,
                handovers,
                sender,
                events,
                clock: Clock::start(),
                trained_until: Instant::now(),
                untrained_times: StepTimes::default(),
            };
            // The rollout thread ends when the loop is dropped.
            outer_loop.run(&mut session.trainer, stop)
        });
        host.block_on(router.release());
        ended
    }
}

/// The side of the loop that the learners and the run folder are on.
struct OuterLoop<'r> {
    host: &'r Host,
    train: &'r Train,
    schedule: &'r StepSchedule,
    /// True if it repeats the schedule of an earlier run.
    repeats: bool,
    rollouts: &'r Rollouts,
    router: &'r PolicyRouter,
    /// Workers that play the episodes. `None` if this process does.
    cluster: Option<&'r ClusterRun>,
    /// Seed of the run.
    seed: u64,
    /// Cores of each learner. Empty for all of them.
    learner_cores: &'r [Vec<u32>],
    /// Learners in processes of their own.
    remote: BTreeMap<usize, RemoteLearner>,
    folder: &'r mut RunFolder,
    state: &'r mut LoopState,
    /// Steps that were played and that some learner has not trained on yet. Their step files are written.
    played: BTreeMap<u64, Arc<PlayedStep>>,
    /// Transitions of the parts of steps that are not whole yet.
    parts: BTreeMap<StepPart, Arc<Vec<Transition>>>,
    /// Last step that the rollout thread was asked to play, of each lane.
    last_planned: Vec<u64>,
    /// Finished steps that later updates train on.
    collected: CollectedSteps,
    flat_steps: FlatSteps,
    /// Empty if all learners have the same staleness.
    kept: KeptVersions,
    checkpoints: Checkpoints,
    handovers: UnboundedSender<Handover>,
    /// Sender of `events`, for the threads of the learners.
    sender: EventSender,
    events: Receiver<Result<LoopEvent, Error>>,
    clock: Clock,
    /// End of the last step's updates, or of the evaluation and the checkpoint after them.
    trained_until: Instant,
    /// Times of the evaluation of the untrained team, until the line of the first step has them.
    untrained_times: StepTimes,
}

impl OuterLoop<'_> {
    fn run(mut self, trainer: &mut Trainer, stop: &StopRequest) -> Result<RunEnding, Error> {
        let steps = self.schedule.steps();
        self.hand_over_all(trainer)?;
        if self.state.step == 0 {
            // The untrained team is the baseline. A resumed run has evaluated its last step already.
            let mut times = StepTimes::default();
            self.state.untrained = self.evaluate(&mut times)?;
            self.untrained_times = times;
        }
        // Score of the finished steps, until a checkpoint has it.
        let mut unsaved = None;
        while self.state.step < steps {
            let Some(mut times) = self.train_to_barrier(trainer, stop)? else {
                if let Some(score) = unsaved.take() {
                    self.save(trainer, score)?;
                }
                return Ok(RunEnding::Interrupted);
            };
            let (step, interrupted) = (self.state.step, stop.is_requested());
            let score = self.evaluate(&mut times)?;
            self.append_times(&times)?;
            let improved = match &score {
                Some(score) => self.is_best(score)?,
                None => false,
            };
            unsaved = Some(score);
            if (step == steps || interrupted || is_checkpoint_due(self.train, step) || improved)
                && let Some(score) = unsaved.take()
            {
                self.save(trainer, score)?;
            }
            if interrupted && step < steps {
                return Ok(RunEnding::Interrupted);
            }
        }
        self.compare_with_untrained()?;
        Ok(RunEnding::Done)
    }

    fn is_evaluation_due(&self, step: u64) -> bool {
        self.rollouts.evaluates_after(step, step == self.schedule.steps())
    }

    /// Returns the next step after which all learners wait. Without overlap, they wait for each other's rollouts after every
    /// step.
    fn next_barrier(&self) -> u64 {
        let waits = |step: &u64| !self.schedule.overlaps() || is_barrier(self.train, self.rollouts, *step);
        let steps = self.schedule.steps();
        (self.state.step + 1..steps).find(waits).unwrap_or(steps)
    }

    /// Trains all learners up to the next barrier, or until a stop is requested. Returns the times of the last step.
    /// Returns `None` if no step was finished.
    fn train_to_barrier(
        &mut self,
        trainer: &mut Trainer,
        stop: &StopRequest,
    ) -> Result<Option<StepTimes>, Error> {
        let names = trainer.names().to_vec();
        let (host, sender, copies) = (self.host, self.sender.clone(), self.schedule.overlaps());
        let (learners, cores) = (trainer.learners_to_train()?, self.learner_cores);
        let mut remote = std::mem::take(&mut self.remote);
        let trained = std::thread::scope(|scope| {
            let mut threads =
                LearnerThreads::start(scope, learners, cores, host, copies, &sender, &mut remote);
            self.train_side_by_side(&mut threads, &names, stop)
        });
        self.remote = remote;
        trained
    }

    fn train_side_by_side(
        &mut self,
        threads: &mut LearnerThreads<'_, '_>,
        names: &[String],
        stop: &StopRequest,
    ) -> Result<Option<StepTimes>, Error> {
        let barrier = self.next_barrier();
        if self.schedule.is_by_arrival() {
            // The steps that waited for the checkpoint.
            let updates = vec![self.state.step; self.schedule.learners()];
            self.hand_over(&updates, Vec::new(), None, self.schedule.steps())?;
        }
        self.trained_until = Instant::now();
        let mut pace = Pace::new(self.state.step, self.schedule.learners());
        let mut last = None;
        loop {
            let end = self.last_step(&pace, barrier, stop);
            if self.state.step >= end {
                return Ok(last);
            }
            self.begin_updates(&mut pace, end, threads)?;
            let trained = match self.next_event()? {
                Some(LoopEvent::Trained(trained)) => *trained,
                Some(LoopEvent::Rollout(RolloutEvent::Stopped)) => return Ok(last),
                Some(LoopEvent::Rollout(_)) | None => continue,
            };
            let policies = trained.policies.as_deref();
            let weights = policies.map(|policies| self.keep(trained.key(), policies));
            let finished = pace.end(trained);
            let evaluate = finished.is_some() && self.is_evaluation_due(pace.finished());
            let until = if stop.is_requested() {
                self.schedule.played_before_checkpoint(self.last_step(&pace, barrier, stop))
            } else if self.schedule.is_by_arrival() {
                // A checkpoint there has the tasks of whole steps.
                self.schedule.played_before_checkpoint(barrier)
            } else {
                self.schedule.steps()
            };
            self.hand_over(
                &pace.updates(),
                weights.into_iter().collect(),
                evaluate.then(|| pace.finished()),
                until,
            )?;
            if let Some(results) = finished {
                let times = self.finish_step(results, &threads.names, names)?;
                if let Some(earlier) = last.replace(times) {
                    self.append_times(&earlier)?;
                }
            }
        }
    }

    /// Returns the step that all learners have to reach before they wait for each other.
    fn last_step(&self, pace: &Pace, barrier: u64, stop: &StopRequest) -> u64 {
        // Without overlap, the rollout thread ends the run before it plays another step.
        if !self.schedule.overlaps() || !stop.is_requested() {
            return barrier;
        }
        // A run without a step has nothing to continue from.
        let begun = pace.last_begun().max(1);
        match self.repeats {
            // Between barriers, the record may put tasks of later steps first.
            true => barrier,
            // Tasks of all steps that were handed over may be in the next batches, so a checkpoint has to come after them.
            false if self.schedule.is_by_arrival() => {
                let planned = self.last_planned.iter().copied().max().unwrap_or(0);
                begun.max(planned.saturating_sub(self.schedule.staleness())).min(barrier)
            }
            false => begun,
        }
    }

    /// Starts the next update of every idle learner whose step is there.
    fn begin_updates(
        &self,
        pace: &mut Pace,
        end: u64,
        threads: &mut LearnerThreads<'_, '_>,
    ) -> Result<(), Error> {
        let next = pace.next_updates().into_iter().filter(|next| next.step <= end);
        let is_there = |next: &UpdateKey| self.transitions(next.learner, next.step).is_some();
        let ready: Vec<UpdateKey> = next.filter(is_there).collect();
        let mut updated = ready.iter().filter(|next| self.schedule.is_updated(next.learner, next.step));
        if updated.next().is_some() && !self.schedule.overlaps() {
            self.host.block_on(self.router.sleep())?;
        }
        for UpdateKey { learner, step } in ready {
            let shuffle = self.train.shuffle_rewards;
            let shuffle = shuffle.then(|| seed::trainer(self.seed, "shuffled rewards", "", &[step]));
            pace.begin(learner);
            threads.train(learner, UpdateOrder { step, sources: self.sources(learner, step), shuffle });
        }
        Ok(())
    }

    /// Returns the completions of the steps that a learner's update after `step` trains on.
    fn sources(&self, learner: usize, step: u64) -> Vec<UpdateSource> {
        let of_step = |step: u64| {
            let transitions = self.collected.get(step).or_else(|| self.transitions(learner, step))?;
            let left_out = self.rollouts.alternation.left_out(step);
            Some(UpdateSource { step, transitions: Arc::clone(transitions), left_out })
        };
        self.schedule.trained_steps(learner, step).filter_map(of_step).collect()
    }

    /// Returns the transitions of an unfinished step for a learner: of the whole step, or those of the learner's lane. `None` if
    /// these are not played yet.
    fn transitions(&self, learner: usize, step: u64) -> Option<&Arc<Vec<Transition>>> {
        let lane = self.schedule.lanes().of_learner(learner);
        let whole = self.played.get(&step).map(|played| &played.transitions);
        whole.or_else(|| self.parts.get(&StepPart { step, lane }))
    }

    /// Hands the weights after the finished steps to the rollout thread, with those that a checkpoint has kept besides.
    fn hand_over_all(&mut self, trainer: &mut Trainer) -> Result<(), Error> {
        let update = self.state.step;
        let kept = self.kept.iter().map(|(update, own)| learner_weights(update, own));
        let mut weights: Vec<LearnerWeights> = kept.collect();
        for (learner, training) in trainer.learners_to_train()?.iter().enumerate() {
            let policies = training.served(self.schedule.overlaps());
            let step = self.schedule.last_update(learner, update);
            weights.push(self.keep(UpdateKey { learner, step }, &policies));
        }
        let updates = vec![update; self.schedule.learners()];
        let evaluate = (update == 0 && self.is_evaluation_due(0)).then_some(0);
        self.hand_over(&updates, weights, evaluate, self.schedule.steps())
    }

    /// Returns a learner's weights for the rollout thread, and keeps them for checkpoints that need them.
    fn keep(&mut self, update: UpdateKey, policies: &[ServedPolicy]) -> LearnerWeights {
        // In flight, no episode begins with earlier weights.
        if self.schedule.differs() && self.train.in_flight == InFlight::Off {
            self.kept.add(update, policies);
        }
        learner_weights(update, policies)
    }

    /// Hands weights to the rollout thread: for evaluations, and for the steps up to `until` that can be played when the
    /// learners have done `updates`.
    fn hand_over(
        &mut self,
        updates: &[u64],
        weights: Vec<LearnerWeights>,
        evaluate: Option<u64>,
        until: u64,
    ) -> Result<(), Error> {
        let mut steps = Vec::with_capacity(self.last_planned.len());
        for (lane, planned) in self.last_planned.iter_mut().enumerate() {
            let playable = self.schedule.steps_to_play(lane, updates, *planned);
            let own = *playable.start()..=(*playable.end()).min(until);
            *planned = (*planned).max(*own.end());
            steps.push(own);
        }
        match self.handovers.send(Handover { weights, evaluate, steps }) {
            Ok(()) => Ok(()),
            // The thread ended with an error, which is its last event.
            Err(_) => loop {
                self.next_event()?;
            },
        }
    }

    /// Waits for the next event. Returns `None` for a step or part that was played, which it keeps.
    fn next_event(&mut self) -> Result<Option<LoopEvent>, Error> {
        let event = self.events.recv().unwrap_or_else(|_| Err(Error::lost("a thread")));
        if let Err(Error::Rollout { source, .. }) = &event
            && let pl_rollout::Error::NoEpisode { failures, .. } = &**source
        {
            // No step or evaluation will have them. The event's error is the one to report, also on a full disk.
            if let Err(error) = failures.iter().try_for_each(|failure| self.folder.failures.append(failure)) {
                tracing::warn!(%error, "the failures of episodes were not written");
            }
        }
        let played = match event? {
            LoopEvent::Rollout(RolloutEvent::Played(played)) => played,
            LoopEvent::Rollout(RolloutEvent::PartPlayed { part, transitions }) => {
                self.parts.insert(part, transitions);
                return Ok(None);
            }
            event => return Ok(Some(event)),
        };
        self.folder.write_step(played.step, &played.transitions)?;
        if !played.tasks.is_empty() {
            let (step, tasks) = (played.step, played.tasks.clone());
            self.folder.append_schedule(&RecordedBatch { step, tasks })?;
        }
        if let Some(versions) = &played.versions {
            self.folder.append_versions(versions)?;
        }
        self.parts.retain(|part, _| part.step != played.step);
        self.played.insert(played.step, Arc::new(*played));
        Ok(None)
    }
}

/// Returns the learners that other processes train, after `step` finished steps.
fn start_remote(
    host: &Host,
    cluster: Option<&Arc<ClusterRun>>,
    trainer: &Trainer,
    step: u64,
) -> Result<BTreeMap<usize, RemoteLearner>, Error> {
    let Some(cluster) = cluster else { return Ok(BTreeMap::new()) };
    let start = |learner: usize| {
        let remote = host.block_on(RemoteLearner::start(cluster, trainer, learner, step))?;
        Ok((learner, remote))
    };
    cluster.remote_learners().map(start).collect()
}

/// Returns the indices of all trained policies.
fn trained_policies(trainer: &Trainer) -> BTreeSet<usize> {
    let learners = trainer.learners().iter();
    learners.flat_map(|learner| learner.policies()).map(|own| own.policy).collect()
}

/// Returns a learner's weights after an update for the rollout thread, in the same memory.
fn learner_weights(update: UpdateKey, policies: &[ServedPolicy]) -> LearnerWeights {
    let policies = PolicyVersions::new(policies.iter().map(ServedPolicy::shallow));
    LearnerWeights { update, policies }
}
