//! Repetitions in what a sweep is asked for.

use std::collections::BTreeSet;

/// Reason for which a sweep has a run several times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Repetition {
    /// A seed is given several times.
    #[error("--seeds: {} is repeated; give each seed once, as its run counts once", listed(seeds))]
    Seeds { seeds: BTreeSet<u64> },
    /// Two values of a setting are the same.
    #[error("--grid {path}: the values {first} and {second} are the same; give each value once")]
    Values { path: String, first: String, second: String },
    /// A setting has several lists of values.
    #[error("--grid {path} is repeated; give all of its values in one list")]
    Path { path: String },
}

fn listed(seeds: &BTreeSet<u64>) -> String {
    seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
