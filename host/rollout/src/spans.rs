//! Tracing spans of episodes and calls.

use tracing::Span;

/// Target of the tracing spans of a run, which an exporter may send to a collector: steps, episodes, calls, updates.
pub const SPAN_TARGET: &str = "pl_host::spans";

/// Returns the span of a call of a plugin's function, for an agent or, with an empty name, for none.
pub(crate) fn call_span(function: &'static str, agent: &str) -> Span {
    tracing::info_span!(target: SPAN_TARGET, "call", function, agent)
}
