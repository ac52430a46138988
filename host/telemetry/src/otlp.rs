//! Spans of a run, sent to a collector of OpenTelemetry: OTLP over HTTP, in its JSON encoding.
//!
//! A layer of `tracing-subscriber` turns the spans that it sees into OTLP's when they close. A thread sends them
//! in batches. If the collector is slower than the run, or not there, spans are dropped and counted; the run never waits.
//! The `opentelemetry` crates would do the same with a tenth more to compile.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Spans in a request at most.
const BATCH: usize = 512;

/// Spans that wait to be sent at most. A tree of many candidates ends hundreds at once.
const QUEUE: usize = 16_384;

/// Longest time for which a finished span waits for others.
const DELAY: Duration = Duration::from_secs(2);

/// Longest time of a request. The end of a run waits for one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Errors of an exporter.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is not an address of HTTP.
    #[error("{0:?} is not the address of a collector; write it as in http://127.0.0.1:4318")]
    Endpoint(String),
    /// The system refused a thread.
    #[error("cannot start the thread that sends spans: {0}")]
    Thread(std::io::Error),
}

/// Sender of spans. Dropping it sends what is left.
pub struct OtlpExporter {
    /// `None` once the exporter is dropped.
    queue: Option<SyncSender<Value>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// Spans that were sent and that were lost.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
}

impl OtlpExporter {
    /// Starts the thread that sends spans to a collector, such as `http://127.0.0.1:4318`, under the name of a service.
    ///
    /// # Errors
    /// [`OtlpError`].
    pub fn start(endpoint: &str, service: &str) -> Result<OtlpExporter, OtlpError> {
        if !["http://", "https://"]
            .iter()
            .any(|scheme| endpoint.len() > scheme.len() && endpoint.starts_with(scheme))
        {
            return Err(OtlpError::Endpoint(endpoint.to_owned()));
        }
        let (queue, spans) = sync_channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let sender = Sender {
            url: format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            service: service.to_owned(),
            agent: ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into(),
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(move || sender.run(&spans));
        Ok(OtlpExporter { queue: Some(queue), counts, thread: Some(thread.map_err(OtlpError::Thread)?) })
    }

    /// Returns the layer that collects spans.
    pub fn layer(&self) -> OtlpLayer {
        OtlpLayer { queue: self.queue.clone(), counts: Arc::clone(&self.counts) }
    }

    /// Sends what is left and returns the numbers of spans that were sent and lost. The layers must be gone, or no span
    /// closes any more.
    pub fn finish(mut self) -> (u64, u64) {
        self.end();
        (self.counts.sent.load(Ordering::Relaxed), self.counts.lost.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        // The layer of a global subscriber is never dropped, so the channel stays open: the end is a message.
        let _ = queue.send(Value::Null);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread that sends spans.
struct Sender {
    url: String,
    service: String,
    agent: ureq::Agent,
    counts: Arc<Counts>,
}

impl Sender {
    fn run(&self, spans: &Receiver<Value>) {
        let mut batch: Vec<Value> = Vec::new();
        let mut due = Instant::now() + DELAY;
        loop {
            let ended = match spans.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Value::Null) | Err(RecvTimeoutError::Disconnected) => true,
                Ok(span) => {
                    batch.push(span);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
            };
            if ended || batch.len() >= BATCH || Instant::now() >= due {
                self.send(std::mem::take(&mut batch));
                due = Instant::now() + DELAY;
            }
            if ended {
                return;
            }
        }
    }

    fn send(&self, spans: Vec<Value>) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": [attribute("service.name", json!({ "stringValue": self.service }))] },
            "scopeSpans": [{ "scope": { "name": "pl-host", "version": env!("CARGO_PKG_VERSION") }, "spans": spans }],
        }] });
        let request = self.agent.post(&self.url).header("content-type", "application/json");
        match request.send(body.to_string()) {
            Ok(_) => drop(self.counts.sent.fetch_add(count, Ordering::Relaxed)),
            Err(error) => {
                if self.counts.lost.fetch_add(count, Ordering::Relaxed) == 0 {
                    tracing::warn!(url = self.url, %error, "spans can't be sent; the run goes on without");
                }
            }
        }
    }
}

/// Layer that turns closed spans into OTLP's.
pub struct OtlpLayer {
    queue: Option<SyncSender<Value>>,
    counts: Arc<Counts>,
}

/// A span that has not ended.
struct OpenSpan {
    trace: String,
    id: String,
    parent: Option<String>,
    start: SystemTime,
    attributes: SpanAttributes,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OtlpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            parent.extensions().get::<OpenSpan>().map(|open| (open.trace.clone(), open.id.clone()))
        });
        let (trace, parent) = match parent {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (format!("{:032x}", rand::random::<u128>()), None),
        };
        let mut open = OpenSpan {
            trace,
            id: format!("{:016x}", rand::random::<u64>()),
            parent,
            start: SystemTime::now(),
            attributes: SpanAttributes::default(),
        };
        attributes.record(&mut open.attributes);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.attributes);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        let finished = open.finish(span.name());
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(finished).is_err()) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl OpenSpan {
    fn finish(self, name: &str) -> Value {
        let mut span = json!({
            "traceId": self.trace, "spanId": self.id, "name": name,
            // SPAN_KIND_INTERNAL.
            "kind": 1,
            "startTimeUnixNano": nanoseconds(self.start), "endTimeUnixNano": nanoseconds(SystemTime::now()),
            "attributes": self.attributes.0.into_iter().map(|(key, value)| attribute(&key, value)).collect::<Vec<_>>(),
        });
        if let (Some(parent), Some(fields)) = (self.parent, span.as_object_mut()) {
            fields.insert("parentSpanId".to_owned(), parent.into());
        }
        span
    }
}

/// Nanoseconds since 1970: a text, because numbers of JSON are not precise enough.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

/// Fields of a span as values of OTLP.
#[derive(Debug, Default)]
struct SpanAttributes(Map<String, Value>);

impl SpanAttributes {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for SpanAttributes {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, json!({ "doubleValue": value }));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        // Integers of 64 bits are texts in JSON.
        self.set(field, json!({ "intValue": value.to_string() }));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, json!({ "intValue": value.to_string() }));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, json!({ "boolValue": value }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, json!({ "stringValue": value }));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, json!({ "stringValue": format!("{value:?}") }));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const TARGET: &str = "spans";

    /// Answers requests of one connection after the other and returns their bodies once `count` have come.
    fn collect(listener: TcpListener, count: usize) -> JoinHandle<Vec<Value>> {
        std::thread::spawn(move || (0..count).map(|_| answer(listener.accept().unwrap().0)).collect())
    }

    fn answer(stream: TcpStream) -> Value {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn spans_arrive_with_parents_times_and_attributes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let server = collect(listener, 1);
        let exporter = OtlpExporter::start(&endpoint, "math").unwrap();
        let subscriber = tracing_subscriber::registry()
            .with(exporter.layer().with_filter(filter_fn(|metadata| metadata.target() == TARGET)));
        tracing::subscriber::with_default(subscriber, || {
            let episode = tracing::info_span!(target: TARGET, "episode", task = 3_u32);
            let _entered = episode.enter();
            let call = tracing::info_span!(target: TARGET, "generate", agent = "tool", tokens = tracing::field::Empty);
            call.record("tokens", 40_u64);
            // Others' spans are not sent.
            drop(tracing::info_span!("library"));
        });
        assert_eq!(exporter.finish(), (2, 0));
        let request = &server.join().unwrap()[0]["resourceSpans"][0];
        assert_eq!(request["resource"]["attributes"][0]["value"]["stringValue"], "math");
        let spans = request["scopeSpans"][0]["spans"].as_array().unwrap();
        let [call, episode] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((&call["name"], &episode["name"]), (&"generate".into(), &"episode".into()));
        assert_eq!((&call["traceId"], &call["parentSpanId"]), (&episode["traceId"], &episode["spanId"]));
        assert_eq!(episode.get("parentSpanId"), None);
        assert_eq!(episode["attributes"], json!([{ "key": "task", "value": { "intValue": "3" } }]));
        let attributes = call["attributes"].as_array().unwrap();
        assert!(
            attributes.contains(&json!({ "key": "tokens", "value": { "intValue": "40" } })),
            "{attributes:?}"
        );
        let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time(episode, "startTimeUnixNano") <= time(call, "startTimeUnixNano"));
        assert!(time(call, "endTimeUnixNano") <= time(episode, "endTimeUnixNano"));
    }

    #[test]
    fn a_missing_collector_costs_spans_alone() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let exporter = OtlpExporter::start(&format!("http://127.0.0.1:{port}"), "math").unwrap();
        let subscriber = tracing_subscriber::registry().with(exporter.layer());
        tracing::subscriber::with_default(subscriber, || drop(tracing::info_span!("episode")));
        assert_eq!(exporter.finish(), (0, 1));
    }

    #[test]
    fn an_endpoint_is_an_address() {
        for endpoint in ["", "127.0.0.1:4318", "http://", "ftp://a"] {
            assert!(matches!(OtlpExporter::start(endpoint, "x"), Err(OtlpError::Endpoint(_))), "{endpoint}");
        }
    }
}
