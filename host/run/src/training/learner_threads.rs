//! Threads of the learners: each trains on the steps that it is given, one after the other.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Instant;

use pl_rollout::SPAN_TARGET;
use pl_trainer::{LearnerTraining, LearnerUpdate, ServedPolicy, UpdateProgress};
use pl_types::GenerateError;

use crate::error::Error;
use crate::host::Host;
use crate::progress::Activity;

use super::rollout_thread::RolloutEvent;
use super::rollouts::PlayedStep;

/// Event that the outer loop waits for.
pub(super) enum LoopEvent {
    Rollout(RolloutEvent),
    Trained(Box<TrainedStep>),
}

/// Sender of events. An error ends the loop.
pub(super) type EventSender = Sender<Result<LoopEvent, Error>>;

/// A step that a learner has trained on.
pub(super) struct TrainedStep {
    /// Position among the learners.
    pub learner: usize,
    pub step: u64,
    pub update: LearnerUpdate,
    /// Weights after the update.
    pub policies: Vec<ServedPolicy>,
    pub started: Instant,
    pub ended: Instant,
}

/// A step to train on.
struct Order {
    played: Arc<PlayedStep>,
    /// Seed that rewards are shuffled by, if they are.
    shuffle: Option<[u8; 32]>,
}

/// Running threads, one for each learner. They end when this is dropped, after the updates that they have begun.
pub(super) struct LearnerThreads {
    orders: Vec<Sender<Order>>,
    /// Names of the policies of each learner.
    pub names: Vec<Vec<String>>,
}

impl LearnerThreads {
    /// Starts the threads. With `copies`, the weights that they send are copies, which later updates don't change.
    pub fn start<'scope, 'env, 't: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        learners: Vec<LearnerTraining<'t>>,
        host: &'scope Host,
        copies: bool,
        events: &EventSender,
    ) -> LearnerThreads {
        let mut threads = LearnerThreads { orders: Vec::new(), names: Vec::new() };
        for (index, training) in learners.into_iter().enumerate() {
            threads.names.push(training.names());
            let (sender, orders) = channel();
            threads.orders.push(sender);
            let thread = LearnerThread { index, training, host, copies };
            let events = events.clone();
            scope.spawn(move || report_panic(&events, || thread.run(&orders, &events)));
        }
        threads
    }

    /// Starts a learner's update on a step. Its result is an event.
    pub fn train(&self, learner: usize, played: &Arc<PlayedStep>, shuffle: Option<[u8; 32]>) {
        let order = Order { played: Arc::clone(played), shuffle };
        if let Some(orders) = self.orders.get(learner) {
            // A thread that has ended has sent the reason.
            drop(orders.send(order));
        }
    }
}

struct LearnerThread<'t, 'h> {
    index: usize,
    training: LearnerTraining<'t>,
    host: &'h Host,
    copies: bool,
}

impl LearnerThread<'_, '_> {
    fn run(mut self, orders: &Receiver<Order>, events: &EventSender) {
        for order in orders {
            let result = self.train(&order).map(|step| LoopEvent::Trained(Box::new(step)));
            let failed = result.is_err();
            // A loop that has ended needs no result.
            if events.send(result).is_err() || failed {
                return;
            }
        }
    }

    fn train(&mut self, order: &Order) -> Result<TrainedStep, Error> {
        let PlayedStep { step, transitions, .. } = &*order.played;
        let started = Instant::now();
        let mut tracker = self.host.progress().start(Activity::Update);
        let mut progress = |progress: UpdateProgress| tracker.update(progress.done, progress.total);
        let policies = self.training.names().join(", ");
        let span = tracing::info_span!(target: SPAN_TARGET, "update", step, policies, transitions = transitions.len());
        let update =
            span.in_scope(|| self.training.update(*step, transitions, order.shuffle, &mut progress))?;
        drop(tracker);
        let mut policies = self.training.served();
        if self.copies {
            policies = policies.iter().map(ServedPolicy::copy).collect();
        }
        let ended = Instant::now();
        Ok(TrainedStep { learner: self.index, step: *step, update, policies, started, ended })
    }
}

/// Runs the body of a thread of the loop. A panic is an event too, so that the loop does not wait for the thread for ever.
pub(super) fn report_panic(events: &EventSender, body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        drop(events.send(Err(Error::Engine(GenerateError::Stopped))));
        resume_unwind(panic);
    }
}
