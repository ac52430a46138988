//! Leases and results in the process of the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::lease::{KEY_LENGTH, Lease, LeaseId, Outcome, ResultMessage};
use crate::partial_results::PartialResults;

/// Memory of results that nothing waits for yet, and of parts of results, in bytes. Tasks of results that are dropped are
/// played again.
const MOST_BUFFERED: usize = 4 << 30;

/// Leases whose results are awaited, and results.
pub(crate) struct Board {
    waiting: BTreeMap<LeaseId, Waiting>,
    /// Results without a request so far: those of the coordinator before this one.
    early: BTreeMap<LeaseId, ResultMessage>,
    /// Memory of [`Board::early`] in bytes.
    early_size: usize,
    /// Leases whose results were handed over.
    done: BTreeSet<LeaseId>,
    /// Workers whose results are dropped.
    excluded: BTreeSet<String>,
    /// Parts of results that are not whole yet.
    parts: PartialResults<LeaseId>,
    most_buffered: usize,
}

/// A lease whose result is awaited.
pub(crate) struct Waiting {
    sender: oneshot::Sender<ResultMessage>,
    pub lease: Lease,
    /// Its message in the work queue. 0 before it is there.
    pub sequence: u64,
    pub published: Instant,
    /// Number of earlier messages of it.
    pub reissues: u32,
}

impl Default for Board {
    fn default() -> Board {
        Board::with_limit(MOST_BUFFERED)
    }
}

impl Board {
    /// Board that keeps at most these bytes of parts, and of results that nothing waits for.
    fn with_limit(most_buffered: usize) -> Board {
        Board {
            waiting: BTreeMap::new(),
            early: BTreeMap::new(),
            early_size: 0,
            done: BTreeSet::new(),
            excluded: BTreeSet::new(),
            parts: PartialResults::default(),
            most_buffered,
        }
    }

    /// Returns the receiver of a lease's next result, and true if the lease has to be published. It doesn't if its result came
    /// before.
    pub fn await_result(
        &mut self,
        id: &LeaseId,
        lease: &Lease,
        reissues: u32,
    ) -> (oneshot::Receiver<ResultMessage>, bool) {
        let (sender, receiver) = oneshot::channel();
        if let Some(early) = self.early.remove(id) {
            self.early_size -= early.size();
            self.done.insert(id.clone());
            // The receiver is below.
            drop(sender.send(early));
            return (receiver, false);
        }
        self.done.remove(id);
        let (lease, published) = (lease.clone(), Instant::now());
        self.waiting.insert(id.clone(), Waiting { sender, lease, sequence: 0, published, reissues });
        (receiver, true)
    }

    /// Takes over a result. Of several of a lease, the first counts. One with the key of a lease but of another queue or step
    /// is not a result of that lease: a worker can compute the keys of updates, and may not store their results.
    pub fn receive(&mut self, result: ResultMessage) {
        let id = match result.outcome {
            Outcome::Unreadable { .. } => match self.waiting_for(&result) {
                Some(id) => id,
                None => return,
            },
            _ => result.id(),
        };
        // No lease has a key of another length, which could take any memory.
        if id.key.len() != KEY_LENGTH || self.excluded.contains(&result.worker) || self.done.contains(&id) {
            return;
        }
        let whole = self.parts.complete(id.clone(), result);
        if let Some(result) = whole {
            match self.waiting.remove(&id) {
                Some(waiting) => {
                    // Those of other workers are not needed any more.
                    self.parts.remove_all(&id);
                    self.done.insert(id);
                    // The receiver may be gone.
                    drop(waiting.sender.send(result));
                }
                None if !self.early.contains_key(&id) => {
                    self.early_size += result.size();
                    self.early.insert(id, result);
                }
                None => {}
            }
        }
        self.limit_memory();
    }

    /// Returns the awaited lease of a message that can't be read, which doesn't say which of the learners has sent it.
    fn waiting_for(&self, unreadable: &ResultMessage) -> Option<LeaseId> {
        let ResultMessage { key, queue, step, .. } = unreadable;
        let is_own = |id: &&LeaseId| {
            id.key == *key && id.step == *step && discriminant(&id.queue) == discriminant(queue)
        };
        self.waiting.keys().find(is_own).cloned()
    }

    /// Drops results that nothing waits for if there is more than a run has, and all parts if that is not enough.
    fn limit_memory(&mut self) {
        if self.parts.size() + self.early_size <= self.most_buffered {
            return;
        }
        tracing::warn!("results that no task waits for are dropped: they take too much memory");
        self.early.clear();
        self.early_size = 0;
        self.parts.retain(|id| self.waiting.contains_key(id));
        if self.parts.size() > self.most_buffered {
            self.parts.retain(|_| false);
        }
    }

    /// Drops the later results of a worker.
    pub fn exclude(&mut self, worker: &str) {
        self.excluded.insert(worker.to_owned());
    }

    /// Notes the message of a lease in the work queue.
    pub fn set_published(&mut self, id: &LeaseId, sequence: u64, reissues: u32) {
        if let Some(waiting) = self.waiting.get_mut(id) {
            (waiting.sequence, waiting.published, waiting.reissues) = (sequence, Instant::now(), reissues);
        }
    }

    /// Returns true if the result of a lease is awaited.
    pub fn is_waiting(&self, id: &LeaseId) -> bool {
        self.waiting.contains_key(id)
    }

    /// Returns the leases that were published this long ago and have no result.
    pub fn unanswered(&self, older_than: Duration) -> impl Iterator<Item = (&LeaseId, &Waiting)> {
        let is_old =
            move |waiting: &Waiting| waiting.sequence > 0 && waiting.published.elapsed() > older_than;
        self.waiting.iter().filter(move |(_, waiting)| is_old(waiting))
    }

    /// Drops the results of steps up to `last`.
    pub fn forget(&mut self, last: u64) {
        self.early.retain(|id, _| id.step > last);
        self.early_size = self.early.values().map(ResultMessage::size).sum();
        self.done.retain(|id| id.step > last);
        self.parts.retain(|id| id.step > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeaseQueue, OVERHEAD, hash_of};

    fn update() -> Lease {
        Lease {
            queue: LeaseQueue::Learner(0),
            task: "update 3 of a".to_owned(),
            step: 3,
            weights: Vec::new(),
            body: b"update".to_vec(),
        }
    }

    fn result(lease: &Lease, worker: &str, outcome: Outcome) -> ResultMessage {
        ResultMessage {
            key: lease.key(),
            queue: lease.queue,
            task: lease.task.clone(),
            step: lease.step,
            worker: worker.to_owned(),
            outcome,
        }
    }

    fn inline(bytes: &[u8]) -> Outcome {
        Outcome::Inline { hash: hash_of(bytes), bytes: bytes.to_vec() }
    }

    #[test]
    fn a_result_of_another_queue_or_step_is_not_that_of_an_update() {
        let lease = update();
        let forged = [
            ResultMessage { queue: LeaseQueue::Workers, ..result(&lease, "w", inline(b"forged")) },
            ResultMessage { queue: LeaseQueue::Learner(1), ..result(&lease, "w", inline(b"forged")) },
            ResultMessage { step: 4, ..result(&lease, "w", inline(b"forged")) },
        ];
        // Before the request, and after it.
        for is_early in [true, false] {
            let mut board = Board::default();
            let mut receiver = None;
            if !is_early {
                receiver = Some(board.await_result(&lease.id(), &lease, 0).0);
            }
            for forged in &forged {
                board.receive(forged.clone());
            }
            let (mut receiver, is_published) = match receiver {
                Some(receiver) => (receiver, true),
                None => board.await_result(&lease.id(), &lease, 0),
            };
            assert!(is_published && receiver.try_recv().is_err());
            board.receive(result(&lease, "learner", inline(b"weights")));
            assert_eq!(receiver.try_recv().unwrap().outcome, inline(b"weights"));
        }
    }

    #[test]
    fn a_result_from_before_is_handed_over_once() {
        let lease = update();
        let mut board = Board::default();
        board.receive(result(&lease, "a", inline(b"first")));
        board.receive(result(&lease, "b", inline(b"second")));
        let (mut receiver, is_published) = board.await_result(&lease.id(), &lease, 0);
        assert_eq!(receiver.try_recv().unwrap().outcome, inline(b"first"));
        assert!(!is_published);
        assert_eq!(board.early_size, 0);
        board.receive(result(&lease, "b", inline(b"second")));
        assert!(board.early.is_empty());
    }

    #[test]
    fn results_and_parts_that_nothing_waits_for_have_one_limit() {
        let most = 100 * OVERHEAD;
        let lease = update();
        let mut board = Board::with_limit(most);
        let (mut receiver, _) = board.await_result(&lease.id(), &lease, 0);
        let part = |bytes: &[u8]| Outcome::Part { index: 0, bytes: bytes.to_vec() };
        board.receive(result(&lease, "honest", part(b"weights")));
        for number in 0..1000 {
            // Steps so large that no checkpoint forgets them, and parts without bytes.
            let invented = Lease { body: format!("{number}").into_bytes(), step: u64::MAX, ..update() };
            board.receive(result(&invented, "w", part(b"")));
            board.receive(result(&invented, &format!("w{number}"), part(&[0; 100])));
            board.receive(ResultMessage { step: number, ..result(&invented, "w", inline(b"forged")) });
            assert!(board.parts.size() + board.early_size <= most, "result {number}");
        }
        let whole = Outcome::Parts { count: 1, hash: hash_of(b"weights") };
        board.receive(result(&lease, "honest", whole));
        assert_eq!(receiver.try_recv().unwrap().outcome, inline(b"weights"), "its lease is waited for");
        // Parts that nothing but the limit ends: those of a lease that is waited for, under invented names.
        let next = Lease { body: b"next".to_vec(), ..update() };
        let (_receiver, _) = board.await_result(&next.id(), &next, 0);
        for number in 0..1000 {
            board.receive(result(&next, &format!("w{number}"), part(b"")));
            assert!(board.parts.size() <= most, "part {number}");
        }
    }

    #[test]
    fn results_of_checkpointed_steps_are_dropped() {
        let lease = update();
        let mut board = Board::default();
        board.receive(result(&lease, "a", inline(b"first")));
        board.forget(2);
        assert_eq!(board.early.len(), 1);
        board.forget(3);
        assert!(board.early.is_empty() && board.early_size == 0);
    }
}
