//! Results that come in several messages, because they are larger than a message may be.

use std::collections::BTreeMap;

use crate::lease::{Outcome, ResultMessage};

/// Largest result in bytes. A longer one would be a broken worker's.
const LARGEST_RESULT: usize = 1 << 30;

/// Parts of results that are not whole yet, by the key of the lease and the worker.
#[derive(Default)]
pub(crate) struct PartialResults {
    parts: BTreeMap<(String, String), Parts>,
}

#[derive(Default)]
struct Parts {
    step: u64,
    bytes: BTreeMap<u32, Vec<u8>>,
}

impl PartialResults {
    /// Takes a message. Returns it if it is not a part, with the parts before it in place of their number. If some are
    /// missing, it stays as it is.
    pub fn complete(&mut self, message: ResultMessage) -> Option<ResultMessage> {
        let key = (message.key.clone(), message.worker.clone());
        let outcome = match message.outcome {
            Outcome::Part { index, bytes } => {
                let parts = self.parts.entry(key).or_default();
                parts.step = message.step;
                let size: usize = parts.bytes.values().map(Vec::len).sum();
                if size + bytes.len() <= LARGEST_RESULT {
                    parts.bytes.insert(index, bytes);
                }
                return None;
            }
            Outcome::Parts { count, hash } => {
                let parts = self.parts.remove(&key).unwrap_or_default();
                let is_whole = parts.bytes.keys().copied().eq(0..count);
                match is_whole {
                    true => Outcome::Inline { hash, bytes: parts.bytes.into_values().flatten().collect() },
                    false => Outcome::Parts { count, hash },
                }
            }
            whole => whole,
        };
        Some(ResultMessage { outcome, ..message })
    }

    /// Drops the parts of results of steps up to `last`.
    pub fn forget(&mut self, last: u64) {
        self.parts.retain(|_, parts| parts.step > last);
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
