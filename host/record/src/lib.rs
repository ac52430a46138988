//! The run folder: transitions, metrics, curves, lock file, atomic writes.

pub mod transition;
