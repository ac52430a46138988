//! The WebAssembly engine: compile cache, limits, determinism.
