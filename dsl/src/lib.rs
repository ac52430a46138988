//! The workflow language: source text to checked workflow.

pub mod workflow;
