//! Outgoing HTTP: `wasi:http` is linked for every guest and denied except for an allowlist of hosts.

use std::sync::Arc;

use http::uri::Scheme;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::http_message::{HttpFailure, HttpRecorder, HttpRequest, HttpResponse};

/// A host that guests may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    name: String,
    /// `None` means HTTPS on port 443 only.
    port: Option<u16>,
}

impl AllowedHost {
    /// Parses `api.example.org` (HTTPS on port 443) or `localhost:8080` (that port, encrypted or not). Returns `None` if
    /// the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
        let port = authority.port_u16();
        let named_port = authority.as_str().len() > authority.host().len();
        (port.is_some() == named_port).then(|| Self { name: authority.host().to_ascii_lowercase(), port })
    }

    fn allows(&self, uri: &http::Uri) -> bool {
        let Some(name) = uri.host() else { return false };
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let expected = match self.port {
            Some(own) => own == port,
            None => encrypted && port == 443,
        };
        expected && self.name.eq_ignore_ascii_case(name)
    }
}

/// Decides about a guest's requests, and counts their cost.
pub(crate) struct HttpPolicy {
    hosts: Arc<[AllowedHost]>,
    /// Records requests and responses, or replays them.
    pub recorder: Option<Arc<dyn HttpRecorder>>,
    /// True once a request was allowed: the guest's behaviour is no longer reproducible.
    pub used: bool,
    /// Fuel for requests that was not deducted yet.
    pub owed: u64,
}

impl HttpPolicy {
    pub(crate) fn new(hosts: &Arc<[AllowedHost]>, recorder: &Option<Arc<dyn HttpRecorder>>) -> Self {
        Self { hosts: Arc::clone(hosts), recorder: recorder.clone(), used: false, owed: 0 }
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
        if !self.hosts.iter().any(|host| host.allows(request.uri())) {
            tracing::warn!(uri = %request.uri(), "a plugin called a host that is not granted");
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        }
        self.used = true;
        self.owed = self.owed.saturating_add(FUEL_PER_REQUEST);
        let recording = self.recorder.clone().map(|recorder| {
            let number = recorder.begin(request.method().as_str(), &request.uri().to_string());
            (recorder, number)
        });
        Box::new(async move {
            let response = exchange(request, options.unwrap_or_default(), recording).await?;
            Ok((response.into_http()?, Box::new(std::future::ready(Ok(()))) as Box<_>))
        })
    }
}

/// Sends a request, or replays its recorded response, and records the result.
async fn exchange(
    request: http::Request<WasiBody>,
    options: RequestOptions,
    recording: Option<(Arc<dyn HttpRecorder>, usize)>,
) -> Result<HttpResponse, HttpFailure> {
    let request = HttpRequest::read(request).await?;
    let Some((recorder, number)) = recording else { return request.send(options).await };
    let response = match recorder.replay(number, &request) {
        Some(recorded) => recorded,
        None => request.send(options).await,
    };
    recorder.finish(number, &request, &response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_allows_only_its_own_port() {
        let allows = |host: &str, uri: &str| AllowedHost::parse(host).unwrap().allows(&uri.parse().unwrap());
        assert!(allows("api.example.org", "https://API.example.org/v1?x=1"));
        assert!(allows("api.example.org", "https://api.example.org:443/"));
        assert!(!allows("api.example.org", "http://api.example.org/"));
        assert!(!allows("api.example.org", "https://api.example.org:8443/"));
        assert!(!allows("api.example.org", "https://evil.org/api.example.org"));
        assert!(!allows("api.example.org", "https://api.example.org@evil.org/"));
        assert!(!allows("example.org", "https://api.example.org/"));
        assert!(allows("localhost:8080", "http://localhost:8080/"));
        assert!(allows("localhost:80", "http://localhost/"));
        assert!(allows("[::1]:8080", "https://[::1]:8080/"));
        assert!(!allows("localhost:8080", "http://localhost:8081/"));
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for wrong in ["", "https://a.org", "a.org/b", "user@a.org", "a.org:", "a.org:http", "a b"] {
            assert_eq!(AllowedHost::parse(wrong), None, "{wrong}");
        }
    }
}
