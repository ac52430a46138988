//! Continuous batching: which sequences run, how many tokens each contributes to a step, and which are
//! preempted when the KV cache is full.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::block_pool::{BLOCK, BlockTable};
use crate::during_update::{DuringUpdate, OldCache};
use crate::executor::Executor;
use crate::policies::{Policies, PolicySnapshot};
use crate::requests::{OpenRequests, RequestId};
use crate::sequence::{QueuedWork, SequenceGoal, SequenceState, common_prefix};
use crate::sequence_weights::SequenceWeights;
use crate::stats::Counters;

/// The queue and the running sequences.
pub(crate) struct Scheduler<E: Executor> {
    slots: usize,
    /// Number of prompt tokens of a step.
    prefill_budget: usize,
    counters: Arc<Counters>,
    queue: VecDeque<QueuedWork<E>>,
    /// Oldest first.
    pub(crate) running: Vec<SequenceState<E>>,
}

/// Result of an attempt to start queued work.
enum Admission<E: Executor> {
    /// It runs and occupies this number of slots.
    Started(usize),
    /// Another sequence is computing a prefix that it can share.
    PrefixPending(QueuedWork<E>),
    /// Too few cache blocks are available.
    NoBlocks(QueuedWork<E>),
    /// Its request was cancelled.
    Cancelled,
}

impl<E: Executor> Scheduler<E> {
    pub(crate) fn new(slots: usize, prefill_budget: usize, counters: Arc<Counters>) -> Self {
        Self { slots, prefill_budget, counters, queue: VecDeque::new(), running: Vec::new() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    /// Queues the completions of a request.
    pub(crate) fn enqueue_seeds(&mut self, request: RequestId, seeds: Range<usize>) {
        self.queue.push_back(QueuedWork::Seeds { request, seeds });
    }

    /// Queues completions that found no blocks before all other work.
    pub(crate) fn requeue_seeds(&mut self, request: RequestId, seeds: Range<usize>) {
        self.queue.push_front(QueuedWork::Seeds { request, seeds });
    }

    /// Queues a sequence without blocks.
    pub(crate) fn enqueue_sequence(&mut self, sequence: SequenceState<E>) {
        self.queue.push_back(QueuedWork::Sequence(sequence));
    }

    /// Drops work of requests that are no longer open, and frees its blocks.
    pub(crate) fn drop_cancelled(&mut self, requests: &OpenRequests<E>, policies: &mut Policies<E>) {
        self.queue.retain(|work| match work {
            QueuedWork::Seeds { request, .. } => requests.contains(*request),
            QueuedWork::Sequence(sequence) => requests.contains(sequence.request),
        });
        for sequence in std::mem::take(&mut self.running) {
            if requests.contains(sequence.request) {
                self.running.push(sequence);
            } else {
                free_blocks(policies, sequence);
            }
        }
    }

    /// Starts queued work while slots and blocks are available.
    pub(crate) fn admit(&mut self, requests: &OpenRequests<E>, policies: &mut Policies<E>) {
        let mut used: usize = self.running.iter().map(|sequence| sequence.goal.slots()).sum();
        let mut deferred = VecDeque::new();
        while let Some(work) = self.queue.pop_front() {
            if used >= self.slots {
                deferred.push_back(work);
                break;
            }
            match self.start(requests, policies, work, self.slots - used) {
                Admission::Started(slots) => used += slots,
                // Later work may start first.
                Admission::PrefixPending(work) => deferred.push_back(work),
                Admission::NoBlocks(work) => {
                    deferred.push_back(work);
                    break;
                }
                Admission::Cancelled => {}
            }
        }
        deferred.append(&mut self.queue);
        self.queue = deferred;
    }

    /// Tries to start `work` on at most `slots` slots.
    fn start(
        &mut self,
        requests: &OpenRequests<E>,
        policies: &mut Policies<E>,
        work: QueuedWork<E>,
        slots: usize,
    ) -> Admission<E> {
        let (mut sequence, rest) = match work {
            QueuedWork::Sequence(sequence) => (sequence, None),
            QueuedWork::Seeds { request, seeds } => {
                let Some(open) = requests.get(request) else { return Admission::Cancelled };
                let end = seeds.end.min(seeds.start + slots);
                let sequence = SequenceState {
                    request,
                    weights: SequenceWeights::new(open.policy.clone()),
                    table: BlockTable::default(),
                    tokens: open.request.prompt.to_vec(),
                    computed: 0,
                    goal: SequenceGoal::Prefill(seeds.start..end),
                };
                (sequence, (end < seeds.end).then_some(end..seeds.end))
            }
        };
        let cacheable = sequence.cacheable_tokens();
        let base = &mut policies.bases[sequence.weights.first().base];
        let snapshot = sequence.weights.first().id;
        let found = base.blocks.prefix_hit(snapshot, &sequence.tokens[..cacheable]);
        let prefix_pending = self.running.iter().any(|other| {
            other.weights.first().id == snapshot
                && other.computed < other.tokens.len() - 1
                && common_prefix(&other.tokens, &sequence.tokens[..cacheable - 1]) / BLOCK > found
        });
        // Blocks for its tokens, one per further seed, and one for each other sequence on this base to grow.
        let others = self.running.iter().filter(|other| other.base() == sequence.base()).count();
        let needed = sequence.tokens.len() / BLOCK + 1 - found + sequence.goal.slots() - 1 + others;
        let no_blocks = base.blocks.available() < needed && others > 0;
        if prefix_pending || no_blocks {
            if let (SequenceGoal::Prefill(seeds), Some(rest)) = (&mut sequence.goal, rest) {
                seeds.end = rest.end;
            }
            let work = sequence.into_queued();
            return if prefix_pending { Admission::PrefixPending(work) } else { Admission::NoBlocks(work) };
        }
        sequence.table = base.blocks.acquire_prefix(snapshot, &sequence.tokens[..cacheable]);
        sequence.computed = sequence.table.blocks.len() * BLOCK;
        let slots = sequence.goal.slots();
        if let Some(seeds) = rest {
            self.queue.push_front(QueuedWork::Seeds { request: sequence.request, seeds });
        }
        self.running.push(sequence);
        Admission::Started(slots)
    }

    /// Number of tokens that each running sequence contributes to the next step. Allocates their blocks, and
    /// preempts the youngest sequences if the cache is full.
    pub(crate) fn schedule(&mut self, policies: &mut Policies<E>) -> Vec<usize> {
        let mut budget = self.prefill_budget;
        let mut scheduled: Vec<usize> = Vec::new();
        while let Some(sequence) = self.running.get(scheduled.len()) {
            let left = sequence.tokens.len() - sequence.computed;
            let same_weights =
                sequence.weights.end(sequence.computed).map_or(left, |end| end - sequence.computed);
            let count = if left == 1 { 1 } else { left.min(budget).min(same_weights) };
            if self.allocate_or_preempt(policies, scheduled.len(), count) {
                budget -= if left == 1 { 0 } else { count };
                scheduled.push(count);
            }
        }
        scheduled
    }

    /// Allocates blocks for `count` more tokens of the sequence at `index`, preempting younger sequences on
    /// its base. Returns false if the sequence itself was preempted.
    fn allocate_or_preempt(&mut self, policies: &mut Policies<E>, index: usize, count: usize) -> bool {
        loop {
            let sequence = &mut self.running[index];
            let base = sequence.base();
            if policies.bases[base].blocks.allocate(&mut sequence.table, sequence.computed + count) {
                return true;
            }
            let youngest = self.running.iter().rposition(|other| other.base() == base).unwrap_or(index);
            self.preempt(policies, youngest.max(index));
            if youngest <= index {
                return false;
            }
        }
    }

    /// Frees a sequence's blocks and queues it again. Recomputation leaves its result unchanged.
    fn preempt(&mut self, policies: &mut Policies<E>, index: usize) {
        let sequence = self.running.remove(index);
        self.counters.preemptions.fetch_add(1, Ordering::Relaxed);
        self.requeue_sequence(policies, sequence);
    }

    /// Frees a sequence's blocks and queues it before all other work.
    pub(crate) fn requeue_sequence(&mut self, policies: &mut Policies<E>, mut sequence: SequenceState<E>) {
        let table = std::mem::take(&mut sequence.table);
        policies.bases[sequence.base()].blocks.free(table);
        self.queue.push_front(sequence.into_queued());
    }

    /// Gives sequences in progress the newest weights, if these may take over.
    pub(crate) fn take_over(&mut self, requests: &OpenRequests<E>, policies: &mut Policies<E>) {
        for work in &mut self.queue {
            if let QueuedWork::Sequence(sequence) = work
                && let Some((newer, cache)) = newer_weights(sequence, requests, policies)
            {
                sequence.take_over(newer, cache);
            }
        }
        let mut restarted = Vec::new();
        for mut sequence in std::mem::take(&mut self.running) {
            let newer = newer_weights(&sequence, requests, policies);
            match newer.is_none_or(|(newer, cache)| sequence.take_over(newer, cache)) {
                true => self.running.push(sequence),
                false => restarted.push(sequence),
            }
        }
        // The oldest is the first in the queue.
        restarted.into_iter().rev().for_each(|sequence| self.requeue_sequence(policies, sequence));
    }
}

/// Returns the weights that take over from those of a sequence.
fn newer_weights<E: Executor>(
    sequence: &SequenceState<E>,
    requests: &OpenRequests<E>,
    policies: &Policies<E>,
) -> Option<(PolicySnapshot<E>, OldCache)> {
    let open = requests.get(sequence.request)?;
    let DuringUpdate::TakeOver(cache) = open.during_update else { return None };
    let version = sequence.weights.newest().version;
    let newer = match sequence.goal {
        // A prompt begins with the version of its request.
        SequenceGoal::Prefill(_) => (open.policy.version != version).then(|| open.policy.clone()),
        _ => policies.newer_than(open.request.policy, version),
    };
    newer.map(|newer| (newer, cache))
}

/// Frees the blocks of a finished or cancelled sequence.
pub(crate) fn free_blocks<E: Executor>(policies: &mut Policies<E>, sequence: SequenceState<E>) {
    policies.bases[sequence.base()].blocks.free(sequence.table);
}
