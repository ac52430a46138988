//! New weights for sequences in progress.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pl_types::GenerateError;

use crate::config::WeightUpdate;
use crate::during_update::{DuringUpdate, OldCache};
use crate::executor::{Executor, panic_message};
use crate::message::NewRequest;
use crate::policies::{FoundVersion, PolicySnapshot};
use crate::requests::Reply;
use crate::scheduler::free_blocks;
use crate::sequence::{SequenceGoal, SequenceState};

use super::Worker;

/// Requests and sequences that repeat a version which is not there yet.
pub(super) struct Awaiting<E: Executor> {
    requests: Vec<(NewRequest, Reply)>,
    /// Without blocks.
    sequences: Vec<SequenceState<E>>,
}

impl<E: Executor> Default for Awaiting<E> {
    fn default() -> Self {
        Self { requests: Vec::new(), sequences: Vec::new() }
    }
}

/// Weights that sample a sequence's next token.
pub(super) enum NextWeights<E: Executor> {
    Same,
    Other(PolicySnapshot<E>, OldCache),
    Awaited,
    Gone(u64),
}

impl<E: Executor> Worker<E> {
    /// Replaces the weights of a policy. Sequences in progress and requests that await them go on with them.
    pub(super) fn publish(
        &mut self,
        policy: usize,
        update: WeightUpdate,
        version: u64,
    ) -> Result<(), GenerateError> {
        let publish = || self.policies.publish(&self.executor, policy, update, version);
        let result = catch_unwind(AssertUnwindSafe(publish))
            .unwrap_or_else(|panic| Err(GenerateError::Setup(panic_message(&*panic))));
        self.requests.take_over(&self.policies);
        self.scheduler.take_over(&self.requests, &mut self.policies);
        let Awaiting { requests, sequences } = std::mem::take(&mut self.awaiting);
        for (request, reply) in requests {
            self.begin(request, reply);
        }
        // The oldest goes to the front of the queue.
        for sequence in sequences.into_iter().rev() {
            self.continue_sequence(sequence);
        }
        result
    }

    /// Drops requests whose requester is gone.
    pub(super) fn drop_cancelled_awaiting(&mut self) {
        self.awaiting.requests.retain(|(_, reply)| !reply.is_closed());
        self.awaiting.sequences.retain(|sequence| self.requests.contains(sequence.request));
    }

    /// Queues the completions of a request, or keeps it until the version that it begins with is there.
    pub(super) fn begin(&mut self, new: NewRequest, reply: Reply) {
        let (policy, count) = (new.request.policy, new.request.seeds.len());
        let first = match new.during_update.first_version(policy, count) {
            Ok(None) => None,
            Ok(Some(version)) => match self.policies.version(policy, version) {
                FoundVersion::Kept(snapshot) => Some(snapshot),
                FoundVersion::Awaited => {
                    return self.awaiting.requests.push((new, reply));
                }
                FoundVersion::Gone => {
                    return reply.fail(GenerateError::Failed { policy, reason: gone(version) });
                }
            },
            Err(error) => return reply.fail(error),
        };
        let Some(id) = self.open(new, reply, count) else { return };
        if let (Some(first), Some(open)) = (first, self.requests.get_mut(id)) {
            open.policy = first;
        }
        self.scheduler.enqueue_seeds(id, 0..count);
    }

    /// Goes on with a sequence that has blocks, after a token that was not its last.
    pub(super) fn continue_sequence(&mut self, mut sequence: SequenceState<E>) {
        match self.next_weights(&sequence) {
            NextWeights::Same if sequence.table.blocks.is_empty() => {
                self.scheduler.requeue_sequence(&mut self.policies, sequence);
            }
            NextWeights::Same => self.scheduler.running.push(sequence),
            NextWeights::Other(snapshot, cache) => {
                let keeps_blocks = sequence.take_over(snapshot, cache) && !sequence.table.blocks.is_empty();
                match keeps_blocks {
                    true => self.scheduler.running.push(sequence),
                    false => self.scheduler.requeue_sequence(&mut self.policies, sequence),
                }
            }
            NextWeights::Awaited => {
                let table = std::mem::take(&mut sequence.table);
                self.policies.bases[sequence.base()].blocks.free(table);
                sequence.computed = 0;
                self.awaiting.sequences.push(sequence);
            }
            NextWeights::Gone(version) => {
                self.requests.fail(sequence.request, gone(version));
                free_blocks(&mut self.policies, sequence);
            }
        }
    }

    pub(super) fn next_weights(&self, sequence: &SequenceState<E>) -> NextWeights<E> {
        let (Some(open), SequenceGoal::Decode(completion)) =
            (self.requests.get(sequence.request), &sequence.goal)
        else {
            return NextWeights::Same;
        };
        let policy = open.request.policy;
        match &open.during_update {
            DuringUpdate::Finish => NextWeights::Same,
            // A completion that began later than its siblings, with their version.
            DuringUpdate::TakeOver(cache) => {
                match self.policies.newer_than(policy, sequence.weights.newest().version) {
                    Some(newer) => NextWeights::Other(newer, *cache),
                    None => NextWeights::Same,
                }
            }
            DuringUpdate::Repeat(cache, planned) => {
                let count = completion.token_count();
                let changes = planned.get(completion.seed_index()).map_or(&[][..], |own| &own.changes);
                let Some(change) = changes.iter().find(|change| change.token as usize == count) else {
                    return NextWeights::Same;
                };
                match self.policies.version(policy, change.version) {
                    FoundVersion::Kept(snapshot) => NextWeights::Other(snapshot, *cache),
                    FoundVersion::Awaited => NextWeights::Awaited,
                    FoundVersion::Gone => NextWeights::Gone(change.version),
                }
            }
        }
    }
}

fn gone(version: u64) -> String {
    format!("its version {version} is no longer kept")
}
