//! Metrics of a server, as Prometheus reads them.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Labels of a finished request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: String,
    status: u16,
}

/// Counters of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    /// Requests in progress.
    pub(crate) running: Gauge,
    pub(crate) prompt_tokens: Counter,
    pub(crate) generation_tokens: Counter,
    latency: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("pl_host");
        let (requests, running, prompt_tokens, generation_tokens) =
            (Family::default(), Gauge::default(), Counter::default(), Counter::default());
        // 10 ms to some 6 minutes.
        let latency = Histogram::new(exponential_buckets(0.01, 2.0, 16));
        registry.register("requests", "Requests by path and status", Family::clone(&requests));
        registry.register("requests_running", "Requests in progress", running.clone());
        registry.register("prompt_tokens", "Tokens of prompts", Counter::clone(&prompt_tokens));
        // Of a response in one piece, nothing is known before its end.
        let help = "Tokens generated, without those of cancelled requests that were not streamed";
        registry.register("generation_tokens", help, Counter::clone(&generation_tokens));
        registry.register("request_latency_seconds", "Time until a response begins", latency.clone());
        Self { registry, requests, running, prompt_tokens, generation_tokens, latency }
    }

    /// Counts a request whose response has begun. `path` is that of the route, so that clients can't make
    /// labels.
    pub(crate) fn count_request(&self, path: &str, status: u16, latency: Duration) {
        self.requests.get_or_create(&RequestLabels { path: path.to_owned(), status }).inc();
        self.latency.observe(latency.as_secs_f64());
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
