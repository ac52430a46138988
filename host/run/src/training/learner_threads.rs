//! Threads of the learners: each trains on the steps that it is given, one after the other.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Instant;

use pl_kernels::cpu::affinity;
use pl_rollout::SPAN_TARGET;
use pl_trainer::{LearnerTraining, LearnerUpdate, UpdateProgress};
use pl_types::Transition;

use crate::cluster::RemoteLearner;
use crate::error::Error;
use crate::host::Host;
use crate::progress::Activity;
use crate::update_source::UpdateSource;

use super::loop_events::{EventSender, LoopEvent, TrainedStep, report_panic};

/// An update of a learner.
pub(super) struct UpdateOrder {
    pub step: u64,
    /// Steps that some of its policies train on, in order. Empty if none is updated.
    pub sources: Vec<UpdateSource>,
    /// Seed that rewards are shuffled by, if they are.
    pub shuffle: Option<[u8; 32]>,
}

/// Learners, each on a thread of its own if there are several. The threads end when this is dropped, after the updates that they have begun.
pub(super) struct LearnerThreads<'t, 'h> {
    orders: Vec<Sender<UpdateOrder>>,
    /// The learner, if there is one alone and it has no cores of its own. It trains on the caller's thread: a new thread in
    /// each step would start libtorch's own threads again and leave memory behind.
    only: Option<LearnerThread<'t, 'h>>,
    events: EventSender,
    /// Names of the policies of each learner.
    pub names: Vec<Vec<String>>,
}

impl<'t, 'h> LearnerThreads<'t, 'h> {
    /// Starts the threads, each on its `cores`; an empty list is all of them. With `copies`, the weights that they send are
    /// copies, which later updates don't change.
    pub fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        learners: Vec<LearnerTraining<'t>>,
        cores: &[Vec<u32>],
        host: &'h Host,
        copies: bool,
        events: &EventSender,
        remote: &'t mut BTreeMap<usize, RemoteLearner>,
    ) -> LearnerThreads<'t, 'h>
    where
        't: 'scope,
        'h: 'scope,
    {
        let mut remote: BTreeMap<usize, &'t mut RemoteLearner> =
            remote.iter_mut().map(|(learner, own)| (*learner, own)).collect();
        let names = learners.iter().map(LearnerTraining::names).collect();
        let mut threads = LearnerThreads { orders: Vec::new(), only: None, events: events.clone(), names };
        let is_alone = learners.len() == 1 && cores.iter().all(Vec::is_empty);
        for (index, training) in learners.into_iter().enumerate() {
            let cores = cores.get(index).cloned().unwrap_or_default();
            let remote = remote.remove(&index);
            let thread = LearnerThread { index, training, remote, cores, host, copies };
            if is_alone {
                threads.only = Some(thread);
                break;
            }
            let (sender, orders) = channel();
            threads.orders.push(sender);
            let events = events.clone();
            scope.spawn(move || report_panic(&events, || thread.run(&orders, &events)));
        }
        threads
    }

    /// Starts a learner's update. Its result is an event. If there is one learner alone, the update ends before this returns.
    pub fn train(&mut self, learner: usize, order: UpdateOrder) {
        if let Some(only) = &mut self.only {
            // The loop receives it after this call.
            drop(self.events.send(only.result(&order)));
        } else if let Some(orders) = self.orders.get(learner) {
            // A thread that has ended has sent the reason.
            drop(orders.send(order));
        }
    }
}

struct LearnerThread<'t, 'h> {
    index: usize,
    training: LearnerTraining<'t>,
    /// The process that does the updates. `None` for this one.
    remote: Option<&'t mut RemoteLearner>,
    /// Empty for all.
    cores: Vec<u32>,
    host: &'h Host,
    copies: bool,
}

impl LearnerThread<'_, '_> {
    fn run(mut self, orders: &Receiver<UpdateOrder>, events: &EventSender) {
        if let Err(error) = self.take_cores() {
            // A loop that has ended needs no result.
            return drop(events.send(Err(error)));
        }
        for order in orders {
            let result = self.result(&order);
            let failed = result.is_err();
            // A loop that has ended needs no result.
            if events.send(result).is_err() || failed {
                return;
            }
        }
    }

    /// Lets this thread, and libtorch on it, compute on its cores alone.
    fn take_cores(&self) -> Result<(), Error> {
        if !self.cores.is_empty() && self.remote.is_none() {
            affinity::confine_thread(&self.cores).map_err(|source| Error::Devices {
                policy: self.training.names().join(", "),
                source: source.into(),
            })?;
            affinity::limit_libtorch_threads(self.cores.len());
        }
        Ok(())
    }

    fn result(&mut self, order: &UpdateOrder) -> Result<LoopEvent, Error> {
        Ok(LoopEvent::Trained(Box::new(self.train(order)?)))
    }

    fn train(&mut self, order: &UpdateOrder) -> Result<TrainedStep, Error> {
        let (step, started) = (order.step, Instant::now());
        let is_due = self.training.is_due(step);
        let (update, policies) = match &mut self.remote {
            // Without an update, there is nothing to send.
            Some(remote) if is_due => {
                let served = self.training.served(false);
                self.host.block_on(remote.update(step, &order.sources, order.shuffle, served))?
            }
            _ => (self.train_here(order)?, is_due.then(|| self.training.served(self.copies))),
        };
        Ok(TrainedStep { learner: self.index, step, update, policies, started, ended: Instant::now() })
    }

    fn train_here(&mut self, order: &UpdateOrder) -> Result<LearnerUpdate, Error> {
        let step = order.step;
        let trained: Vec<&Transition> =
            order.sources.iter().flat_map(|own| own.trained(&self.training, step)).collect();
        let mut tracker = self.host.progress().start(Activity::Update);
        let mut progress = |progress: UpdateProgress| tracker.update(progress.done, progress.total);
        let policies = self.training.names().join(", ");
        let span =
            tracing::info_span!(target: SPAN_TARGET, "update", step, policies, transitions = trained.len());
        Ok(span.in_scope(|| self.training.update(step, trained, order.shuffle, &mut progress))?)
    }
}
