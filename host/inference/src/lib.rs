//! Generation: continuous batching over the embedded engine.
