//! A run as other tools watch it while it goes on: metrics for Prometheus, spans for OpenTelemetry.
//!
//! Both are off unless asked for, and a run never waits for the tool at the other end.

mod otlp;
mod prometheus;

pub use otlp::{OtlpError, OtlpExporter, OtlpLayer};
pub use prometheus::{RunGauges, serve_metrics};
