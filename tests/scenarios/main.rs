//! Whole-program scenarios.
