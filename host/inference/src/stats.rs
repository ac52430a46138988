//! Counters of the engine's work.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of elements of [`EngineStats::passes_by_rows`].
const ROW_RANGES: usize = 16;

/// Work done by an engine since it started, or within some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Prompts prefilled.
    pub prefills: u64,
    /// Prompt tokens that went through the model. Tokens found in the prefix cache are not counted.
    pub prefilled_tokens: u64,
    /// Tokens sampled.
    pub generated_tokens: u64,
    /// Passes through a model.
    pub steps: u64,
    /// Passes that were replayed as a CUDA graph.
    pub replayed_steps: u64,
    /// Passes that began before the tokens of the one before were read.
    pub steps_ahead: u64,
    /// Sequences that gave up their cache blocks for another sequence.
    pub preemptions: u64,
    /// Time in which the engine scheduled, ran and sampled, in nanoseconds.
    pub busy_nanoseconds: u64,
    /// Passes by their rows, the completions that go on by a token each: passes with 0 rows, 1, 2 to 3, 4 to 7, and so
    /// on. Tokens of prompts are no rows.
    pub passes_by_rows: [PassCount; ROW_RANGES],
}

/// Passes whose numbers of rows are in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassCount {
    /// Number of passes.
    pub passes: u64,
    /// Sum of their rows.
    pub rows: u64,
}

impl EngineStats {
    /// Returns the work of two engines together.
    #[must_use]
    pub fn plus(&self, other: &EngineStats) -> EngineStats {
        self.combine(other, u64::wrapping_add)
    }

    /// Returns the work since the counters were as in `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &EngineStats) -> EngineStats {
        self.combine(earlier, u64::saturating_sub)
    }

    fn combine(&self, other: &EngineStats, combined: fn(u64, u64) -> u64) -> EngineStats {
        EngineStats {
            prefills: combined(self.prefills, other.prefills),
            prefilled_tokens: combined(self.prefilled_tokens, other.prefilled_tokens),
            generated_tokens: combined(self.generated_tokens, other.generated_tokens),
            steps: combined(self.steps, other.steps),
            replayed_steps: combined(self.replayed_steps, other.replayed_steps),
            steps_ahead: combined(self.steps_ahead, other.steps_ahead),
            preemptions: combined(self.preemptions, other.preemptions),
            busy_nanoseconds: combined(self.busy_nanoseconds, other.busy_nanoseconds),
            passes_by_rows: array::from_fn(|range| {
                let (own, other) = (self.passes_by_rows[range], other.passes_by_rows[range]);
                PassCount { passes: combined(own.passes, other.passes), rows: combined(own.rows, other.rows) }
            }),
        }
    }
}

/// The counters behind [`EngineStats`], shared by the engine's thread and its handles.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prefills: AtomicU64,
    pub(crate) prefilled_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) replayed_steps: AtomicU64,
    pub(crate) steps_ahead: AtomicU64,
    pub(crate) preemptions: AtomicU64,
    busy_nanoseconds: AtomicU64,
    passes_by_rows: [PassCounter; ROW_RANGES],
}

/// The counters behind [`PassCount`].
#[derive(Debug, Default)]
struct PassCounter {
    passes: AtomicU64,
    rows: AtomicU64,
}

impl Counters {
    /// Counts a pass in which a number of completions go on by a token each.
    pub(crate) fn count_pass(&self, rows: usize) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let range = (usize::BITS - rows.leading_zeros()) as usize;
        let counter = &self.passes_by_rows[range.min(ROW_RANGES - 1)];
        counter.passes.fetch_add(1, Ordering::Relaxed);
        counter.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts time in which the engine worked.
    pub(crate) fn count_busy(&self, time: Duration) {
        self.busy_nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> EngineStats {
        EngineStats {
            prefills: self.prefills.load(Ordering::Relaxed),
            prefilled_tokens: self.prefilled_tokens.load(Ordering::Relaxed),
            generated_tokens: self.generated_tokens.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            replayed_steps: self.replayed_steps.load(Ordering::Relaxed),
            steps_ahead: self.steps_ahead.load(Ordering::Relaxed),
            preemptions: self.preemptions.load(Ordering::Relaxed),
            busy_nanoseconds: self.busy_nanoseconds.load(Ordering::Relaxed),
            passes_by_rows: array::from_fn(|range| {
                let counter = &self.passes_by_rows[range];
                PassCount {
                    passes: counter.passes.load(Ordering::Relaxed),
                    rows: counter.rows.load(Ordering::Relaxed),
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_their_rows() {
        let counters = Counters::default();
        [0, 1, 2, 3, 3, 64, usize::MAX >> 1].into_iter().for_each(|rows| counters.count_pass(rows));
        let stats = counters.snapshot();
        let count = |passes, rows| PassCount { passes, rows };
        assert_eq!(stats.passes_by_rows[..3], [count(1, 0), count(1, 1), count(3, 8)]);
        assert_eq!(stats.passes_by_rows[7], count(1, 64));
        assert_eq!(stats.passes_by_rows[ROW_RANGES - 1].passes, 1);
        assert_eq!(stats.steps, 7);
    }

    #[test]
    fn the_work_of_some_time_is_a_difference() {
        let counters = Counters::default();
        counters.count_pass(2);
        let earlier = counters.snapshot();
        counters.count_pass(3);
        counters.count_busy(Duration::from_nanos(5));
        let since = counters.snapshot().since(&earlier);
        assert_eq!((since.steps, since.busy_nanoseconds), (1, 5));
        assert_eq!(since.passes_by_rows[2], PassCount { passes: 1, rows: 3 });
        assert_eq!(earlier.plus(&since), counters.snapshot());
    }
}
