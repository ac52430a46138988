//! Outgoing HTTP: decides about each request of a guest by an allowlist of hosts.

use std::sync::Arc;

use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::allowed_host::AllowedHost;
use crate::http_connection::send;
use crate::http_message::{HttpFailure, HttpRecorder, HttpRequest, HttpResponse};
use crate::memory_budget::MemoryBudget;

/// Requests to hosts that are not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedRequests {
    /// Host of the first one, shortened to the length of a name.
    pub first: String,
    /// Number of requests.
    pub count: u64,
}

/// Maximum length of a host's name, in characters.
const MAX_HOST_CHARS: usize = 253;

/// Decides about a guest's requests, and counts their cost.
pub(crate) struct HttpPolicy {
    hosts: Arc<[AllowedHost]>,
    /// Records requests and responses, or replays them.
    pub recorder: Option<Arc<dyn HttpRecorder>>,
    /// True once a request was allowed: the guest's behaviour is no longer reproducible.
    pub used: bool,
    /// Fuel for requests that was not deducted yet.
    pub owed: u64,
    /// Requests that were denied since they were last taken.
    pub denied: Option<DeniedRequests>,
    /// Memory of the guest, against which bodies count.
    budget: MemoryBudget,
}

impl HttpPolicy {
    pub(crate) fn new(
        hosts: &Arc<[AllowedHost]>,
        recorder: &Option<Arc<dyn HttpRecorder>>,
        budget: &MemoryBudget,
    ) -> Self {
        Self {
            hosts: Arc::clone(hosts),
            recorder: recorder.clone(),
            used: false,
            owed: 0,
            denied: None,
            budget: budget.clone(),
        }
    }

    pub(crate) fn hosts(&self) -> &[AllowedHost] {
        &self.hosts
    }

    pub(crate) fn set_hosts(&mut self, hosts: &Arc<[AllowedHost]>) {
        self.hosts = Arc::clone(hosts);
    }

    fn note_denied(&mut self, uri: &http::Uri) {
        let host = || uri.host().unwrap_or_default().chars().take(MAX_HOST_CHARS).collect();
        self.denied.get_or_insert_with(|| DeniedRequests { first: host(), count: 0 }).count += 1;
    }
}

/// Fuel of a request: a call with the default fuel may send twenty, and an endless loop of requests ends.
const FUEL_PER_REQUEST: u64 = 50_000_000;

type SendResult =
    Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for HttpPolicy {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = SendResult> + Send> {
        self.owed = self.owed.saturating_add(FUEL_PER_REQUEST);
        let Some(host) = self.hosts.iter().find(|host| host.allows(request.uri())).cloned() else {
            self.note_denied(request.uri());
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        };
        self.used = true;
        let budget = self.budget.clone();
        let recording = self.recorder.clone().map(|recorder| {
            let number = recorder.begin(request.method().as_str(), &request.uri().to_string());
            (recorder, number)
        });
        Box::new(async move {
            let response = exchange(request, &host, options.unwrap_or_default(), recording, &budget).await?;
            Ok((response.into_http(&budget)?, Box::new(std::future::ready(Ok(()))) as Box<_>))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }
}

/// Bytes of a body that the host buffers until the request is read: unsent requests keep them.
const BODY_CHUNK: usize = 32 << 10;

/// Sends a request, or replays its recorded response, and records the result.
async fn exchange(
    request: http::Request<WasiBody>,
    host: &AllowedHost,
    options: RequestOptions,
    recording: Option<(Arc<dyn HttpRecorder>, usize)>,
    budget: &MemoryBudget,
) -> Result<HttpResponse, HttpFailure> {
    let request = HttpRequest::read(request, budget).await?;
    // Held until the response is there.
    let _charge = budget.charge(request.body.len() as u64).map_err(|_| HttpFailure::RequestTooLarge)?;
    let Some((recorder, number)) = recording else { return send(&request, host, options, budget).await };
    let response = match recorder.replay(number, &request) {
        Some(recorded) => recorded,
        None => send(&request, host, options, budget).await,
    };
    recorder.finish(number, &request, &response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_requests_cost_fuel_and_are_counted() {
        let hosts = [AllowedHost::parse("a.org").unwrap()].into();
        let mut policy = HttpPolicy::new(&hosts, &None, &MemoryBudget::new(1 << 20));
        for n in 0..1000 {
            let mut request = http::Request::new(WasiBody::default());
            *request.uri_mut() = format!("https://{n}{}.org/", "x".repeat(1000)).parse().unwrap();
            let _ = policy.send_request(request, None, Box::new(std::future::ready(Ok(()))));
        }
        assert_eq!(policy.owed, 1000 * FUEL_PER_REQUEST);
        let denied = policy.denied.unwrap();
        assert_eq!((denied.count, denied.first.len()), (1000, MAX_HOST_CHARS));
        assert!(!policy.used);
    }
}
