//! Metrics of a run, as Prometheus reads them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use pl_record::scalars;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use tokio::net::TcpListener;

/// Media type of the text format of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type FloatGauge = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MetricLabels {
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvaluationLabels {
    evaluation: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: &'static str,
}

/// The last values of a run's metrics.
pub struct RunGauges {
    registry: Registry,
    step: Gauge,
    steps: Gauge,
    rollouts: Family<MetricLabels, FloatGauge>,
    agents: Family<AgentLabels, FloatGauge>,
    policies: Family<PolicyLabels, FloatGauge>,
    evaluations: Family<EvaluationLabels, FloatGauge>,
    seconds: Family<PartLabels, Counter<f64, AtomicU64>>,
    tokens: Counter,
}

impl Default for RunGauges {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("pl_host_run");
        let (step, steps, tokens) = (Gauge::default(), Gauge::default(), Counter::default());
        let (rollouts, agents, policies) = (Family::default(), Family::default(), Family::default());
        let (evaluations, seconds) = (Family::default(), Family::default());
        registry.register("step", "Finished steps", step.clone());
        registry.register("steps", "Planned steps", steps.clone());
        registry.register("rollouts", "Metrics of the last step's episodes", Family::clone(&rollouts));
        registry.register("agent", "Metrics of an agent in the last step", Family::clone(&agents));
        registry.register("policy", "Metrics of a policy's last update", Family::clone(&policies));
        registry.register(
            "evaluation",
            "Metrics of an evaluation at its last step",
            Family::clone(&evaluations),
        );
        registry.register_with_unit(
            "time",
            "Time that a part of the steps took",
            Unit::Seconds,
            Family::clone(&seconds),
        );
        registry.register("sampled_tokens", "Tokens sampled in the steps", Counter::clone(&tokens));
        RunGauges { registry, step, steps, rollouts, agents, policies, evaluations, seconds, tokens }
    }
}

impl RunGauges {
    /// Takes over a line of `metrics.jsonl`.
    pub fn record(&self, step: u64, steps: u64, line: &Value) {
        let as_i64 = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.step.set(as_i64(step));
        self.steps.set(as_i64(steps));
        if line.get("kind").and_then(Value::as_str) == Some("step") {
            self.tokens.inc_by(line.get("tokens").and_then(Value::as_u64).unwrap_or(0));
            // What the step has not measured must not keep its value of an earlier one.
            self.rollouts.clear();
            self.agents.clear();
        }
        for (path, value) in scalars(line) {
            self.set(&path, value);
        }
    }

    /// Adds the seconds that a part of a step took.
    pub fn add_seconds(&self, part: &'static str, seconds: f64) {
        // A counter never falls.
        if seconds > 0.0 {
            self.seconds.get_or_create(&PartLabels { part }).inc_by(seconds);
        }
    }

    fn set(&self, path: &str, value: f64) {
        let Some((group, rest)) = path.split_once('/') else { return };
        let named = || {
            let (name, metric) = rest.split_once('/')?;
            Some((name.to_owned(), metric.to_owned()))
        };
        match (group, named()) {
            ("agents", Some((agent, metric))) => {
                self.agents.get_or_create(&AgentLabels { agent, metric }).set(value);
            }
            ("policies", Some((policy, metric))) => {
                self.policies.get_or_create(&PolicyLabels { policy, metric }).set(value);
            }
            ("evaluations", Some((evaluation, metric))) => {
                self.evaluations.get_or_create(&EvaluationLabels { evaluation, metric }).set(value);
            }
            _ => {
                self.rollouts.get_or_create(&MetricLabels { metric: rest.to_owned() }).set(value);
            }
        }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Serves the metrics at `/metrics` until the future is dropped.
///
/// # Errors
/// If the listener fails.
pub async fn serve_metrics(listener: TcpListener, gauges: Arc<RunGauges>) -> std::io::Result<()> {
    let page = |State(gauges): State<Arc<RunGauges>>| async move {
        ([(CONTENT_TYPE, OPEN_METRICS)], gauges.to_text()).into_response()
    };
    axum::serve(listener, Router::new().route("/metrics", get(page)).with_state(gauges)).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recorded() -> RunGauges {
        let gauges = RunGauges::default();
        gauges.record(0, 9, &json!({ "kind": "evaluation", "step": 0, "name": "test", "success": 0.25 }));
        let step = json!({ "kind": "step", "step": 1, "tokens": 40, "rollout_success": 0.5,
            "agents": { "tool": { "reward": 1.5 } }, "policies": { "coder": { "loss": -0.25 } } });
        gauges.record(1, 9, &step);
        gauges.record(2, 9, &step);
        gauges.add_seconds("train", 1.5);
        gauges.add_seconds("train", 1.0);
        gauges
    }

    #[test]
    fn metrics_have_labels_for_agents_policies_and_evaluations() {
        let text = recorded().to_text();
        for line in [
            "pl_host_run_step 2",
            "pl_host_run_steps 9",
            "pl_host_run_rollouts{metric=\"rollout_success\"} 0.5",
            "pl_host_run_agent{agent=\"tool\",metric=\"reward\"} 1.5",
            "pl_host_run_policy{policy=\"coder\",metric=\"loss\"} -0.25",
            "pl_host_run_evaluation{evaluation=\"test\",metric=\"success\"} 0.25",
            "pl_host_run_time_seconds_total{part=\"train\"} 2.5",
            "pl_host_run_sampled_tokens_total 80",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[tokio::test]
    async fn metrics_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve_metrics(listener, Arc::new(recorded())));
        let read = tokio::task::spawn_blocking(move || {
            let mut response = ureq::get(format!("http://{address}/metrics")).call().unwrap();
            let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
            (kind, response.body_mut().read_to_string().unwrap())
        });
        let (kind, text) = read.await.unwrap();
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        assert!(text.contains("pl_host_run_step 2"), "{text}");
        server.abort();
    }
}
