//! Results that come in several messages, because they are larger than a message may be.

use std::collections::BTreeMap;

use crate::lease::{Outcome, ResultMessage};

/// Largest result in bytes. A longer one would be a broken worker's.
const LARGEST_RESULT: usize = 1 << 30;

/// Parts of results that are not whole yet, by the key of the lease and the worker.
#[derive(Default)]
pub(crate) struct PartialResults {
    parts: BTreeMap<(String, String), StepParts>,
}

#[derive(Default)]
struct StepParts {
    step: u64,
    parts: Parts,
}

/// Parts of one result that have come so far.
#[derive(Default)]
pub(crate) struct Parts(BTreeMap<u32, Vec<u8>>);

impl Parts {
    /// Adds a part, unless the result becomes too large.
    pub fn add(&mut self, index: u32, bytes: Vec<u8>) {
        let size: usize = self.0.values().map(Vec::len).sum();
        if size + bytes.len() <= LARGEST_RESULT {
            self.0.insert(index, bytes);
        }
    }

    /// Joins the parts. Returns `None` if they are not these many.
    pub fn join(self, count: u32) -> Option<Vec<u8>> {
        let is_whole = self.0.keys().copied().eq(0..count);
        is_whole.then(|| self.0.into_values().flatten().collect())
    }
}

impl PartialResults {
    /// Takes a message. Returns it if it is not a part, with the parts before it in place of their number. If some are
    /// missing, it stays as it is.
    pub fn complete(&mut self, message: ResultMessage) -> Option<ResultMessage> {
        let key = (message.key.clone(), message.worker.clone());
        let outcome = match message.outcome {
            Outcome::Part { index, bytes } => {
                let own = self.parts.entry(key).or_default();
                own.step = message.step;
                own.parts.add(index, bytes);
                return None;
            }
            Outcome::Parts { count, hash } => {
                let parts = self.parts.remove(&key).unwrap_or_default().parts;
                match parts.join(count) {
                    Some(bytes) => Outcome::Inline { hash, bytes },
                    None => Outcome::Parts { count, hash },
                }
            }
            whole => whole,
        };
        Some(ResultMessage { outcome, ..message })
    }

    /// Drops the parts of results of steps up to `last`.
    pub fn forget(&mut self, last: u64) {
        self.parts.retain(|_, own| own.step > last);
    }
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
        for (worker, outcome) in
            [("a", part(0, b"on")), ("b", part(0, b"tw")), ("a", part(1, b"e")), ("a", part(1, b"e"))]
        {
            assert_eq!(partial.complete(message(worker, outcome)), None);
        }
        let inline = |bytes: &[u8]| Outcome::Inline { hash: "h".to_owned(), bytes: bytes.to_vec() };
        assert_eq!(partial.complete(message("a", parts(2))).unwrap().outcome, inline(b"one"));
        assert_eq!(partial.complete(message("b", parts(2))).unwrap().outcome, parts(2), "one is missing");
        partial.complete(message("a", part(0, b"on")));
        partial.forget(1);
        assert_eq!(partial.complete(message("a", parts(1))).unwrap().outcome, parts(1));
    }
}
