//! Untrusted code: jobs, verdicts, WASM workers.
