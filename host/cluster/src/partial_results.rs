//! Results that come in several messages, because they are larger than a message may be.

use std::collections::BTreeMap;

use crate::lease::{LeaseId, OVERHEAD, Outcome, ResultMessage};

/// Largest result in bytes. A longer one would be a broken worker's.
const LARGEST_RESULT: usize = 1 << 30;

/// Parts of results that are not whole yet, by their lease or job and the name of their sender.
pub(crate) struct PartialResults<K> {
    parts: BTreeMap<(K, String), Parts>,
    /// Memory of all parts in bytes.
    size: usize,
}

/// Parts of one result that have come so far.
#[derive(Default)]
struct Parts {
    parts: BTreeMap<u32, Vec<u8>>,
    /// Their memory in bytes.
    size: usize,
}

impl Parts {
    /// Adds a part, unless the result becomes too large.
    fn add(&mut self, index: u32, bytes: Vec<u8>) {
        let before = self.parts.get(&index).map_or(0, |own| OVERHEAD + own.len());
        let size = self.size - before + OVERHEAD + bytes.len();
        if size <= LARGEST_RESULT {
            self.size = size;
            self.parts.insert(index, bytes);
        }
    }

    /// Joins the parts. Returns `None` if they are not these many.
    fn join(self, count: u32) -> Option<Vec<u8>> {
        let is_whole = self.parts.keys().copied().eq(0..count);
        is_whole.then(|| self.parts.into_values().flatten().collect())
    }
}

impl<K> Default for PartialResults<K> {
    fn default() -> PartialResults<K> {
        PartialResults { parts: BTreeMap::new(), size: 0 }
    }
}

impl<K: Clone + Ord> PartialResults<K> {
    /// Adds a part of a sender's result.
    pub fn add(&mut self, id: K, sender: String, index: u32, bytes: Vec<u8>) {
        let key = (id, sender);
        let mut own = self.remove(&key);
        own.add(index, bytes);
        self.size += entry_size(&key.1, &own);
        self.parts.insert(key, own);
    }

    /// Takes the parts of a sender's result out, and joins them. Returns `None` if they are not these many.
    pub fn join(&mut self, id: K, sender: String, count: u32) -> Option<Vec<u8>> {
        self.remove(&(id, sender)).join(count)
    }

    /// Memory of all parts in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Drops the parts of all senders for a lease or a job.
    pub fn remove_all(&mut self, id: &K) {
        let all = self.parts.range((id.clone(), String::new())..).map(|(key, _)| key);
        let own: Vec<(K, String)> = all.take_while(|(other, _)| other == id).cloned().collect();
        for key in own {
            self.remove(&key);
        }
    }

    /// Drops the parts of leases or jobs that `is_kept` returns false for.
    pub fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.parts.retain(|(id, _), _| is_kept(id));
        self.size = self.parts.iter().map(|((_, sender), own)| entry_size(sender, own)).sum();
    }

    fn remove(&mut self, key: &(K, String)) -> Parts {
        let own = self.parts.remove(key);
        self.size -= own.as_ref().map_or(0, |own| entry_size(&key.1, own));
        own.unwrap_or_default()
    }
}

impl PartialResults<LeaseId> {
    /// Takes a message. Returns it if it is not a part, with the parts before it in place of their number. If some are
    /// missing, it stays as it is.
    pub fn complete(&mut self, id: LeaseId, message: ResultMessage) -> Option<ResultMessage> {
        let sender = message.worker.clone();
        let outcome = match message.outcome {
            Outcome::Part { index, bytes } => {
                self.add(id, sender, index, bytes);
                return None;
            }
            Outcome::Parts { count, hash } => match self.join(id, sender, count) {
                Some(bytes) => Outcome::Inline { hash, bytes },
                None => Outcome::Parts { count, hash },
            },
            whole => whole,
        };
        Some(ResultMessage { outcome, ..message })
    }
}

/// Memory that the parts of a sender take, in bytes.
fn entry_size(sender: &str, parts: &Parts) -> usize {
    OVERHEAD + sender.len() + parts.size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseQueue;

    fn message(worker: &str, outcome: Outcome) -> ResultMessage {
        let (key, task) = ("k".to_owned(), "train 1.0".to_owned());
        ResultMessage { key, queue: LeaseQueue::Workers, task, step: 1, worker: worker.to_owned(), outcome }
    }

    fn part(index: u32, bytes: &[u8]) -> Outcome {
        Outcome::Part { index, bytes: bytes.to_vec() }
    }

    fn parts(count: u32) -> Outcome {
        Outcome::Parts { count, hash: "h".to_owned() }
    }

    #[test]
    fn parts_make_a_result_once_they_are_all_there() {
        let mut partial = PartialResults::default();
        let mut complete = |message: ResultMessage| {
            let whole = partial.complete(message.id(), message);
            (whole, partial.size())
        };
        for (worker, outcome) in
            [("a", part(0, b"on")), ("b", part(0, b"tw")), ("a", part(1, b"e")), ("a", part(1, b"e"))]
        {
            assert_eq!(complete(message(worker, outcome)).0, None);
        }
        let inline = |bytes: &[u8]| Outcome::Inline { hash: "h".to_owned(), bytes: bytes.to_vec() };
        assert_eq!(complete(message("a", parts(2))).0.unwrap().outcome, inline(b"one"));
        let (whole, size) = complete(message("b", parts(2)));
        assert_eq!(whole.unwrap().outcome, parts(2), "one is missing");
        assert_eq!(size, 0);
    }

    #[test]
    fn parts_are_counted_until_they_are_dropped() {
        let mut partial = PartialResults::default();
        let parts = [("x", "a", 0), ("x", "b", 0), ("x", "b", 0), ("x", "b", 1), ("y", "a", 0)];
        for (id, sender, index) in parts {
            partial.add(id, sender.to_owned(), index, vec![0; 10]);
        }
        // Four parts of three senders.
        assert_eq!(partial.size(), 4 * (OVERHEAD + 10) + 3 * (OVERHEAD + 1));
        partial.remove_all(&"x");
        assert_eq!(partial.size(), 2 * OVERHEAD + 11);
        assert_eq!(partial.join("x", "a".to_owned(), 1), None);
        partial.retain(|id| *id != "y");
        assert_eq!(partial.size(), 0);
    }
}
