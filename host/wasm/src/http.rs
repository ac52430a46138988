//! The door to HTTP: `wasi:http` is linked for every guest, and closed but to the hosts that are granted.

use std::sync::Arc;

use http::uri::Scheme;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::exchange::{Failure, Post, Request, Response};

/// A host that guests may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: String,
    /// None: HTTPS on its usual port, and nothing else.
    port: Option<u16>,
}

impl Host {
    /// From `api.example.org` (HTTPS on port 443) or `localhost:8080` (that port, encrypted or not). None: it is
    /// neither.
    pub fn parse(text: &str) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
        let port = authority.port_u16();
        let named_port = authority.as_str().len() > authority.host().len();
        (port.is_some() == named_port).then(|| Self { name: authority.host().to_ascii_lowercase(), port })
    }

    fn admits(&self, uri: &http::Uri) -> bool {
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

/// What a store answers a guest that wants to send a request.
pub(crate) struct Door {
    hosts: Arc<[Host]>,
    /// Who keeps what is asked and answered.
    pub post: Option<Arc<dyn Post>>,
    /// A request was let through: what the guest does from here on depends on the world.
    pub passed: bool,
    /// Fuel that requests have cost and that was not taken yet.
    pub owed: u64,
}

impl Door {
    pub(crate) fn new(hosts: &Arc<[Host]>, post: &Option<Arc<dyn Post>>) -> Self {
        Self { hosts: Arc::clone(hosts), post: post.clone(), passed: false, owed: 0 }
    }
}

/// Fuel of a request: a call with the default fuel may send twenty, and one that sends for ever ends.
const REQUEST: u64 = 50_000_000;

type Sent = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Door {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        if !self.hosts.iter().any(|host| host.admits(request.uri())) {
            tracing::warn!(uri = %request.uri(), "a plugin asked a host that is not granted");
            return Box::new(std::future::ready(Err(Error::HttpRequestDenied)));
        }
        self.passed = true;
        self.owed = self.owed.saturating_add(REQUEST);
        let kept = self.post.clone().map(|post| {
            let number = post.sent(request.method().as_str(), &request.uri().to_string());
            (post, number)
        });
        Box::new(async move {
            let answer = exchange(request, options.unwrap_or_default(), kept).await?;
            Ok((answer.deliver()?, Box::new(std::future::ready(Ok(()))) as Box<_>))
        })
    }
}

/// Asks the host, or whoever answers in its place, and has it kept.
async fn exchange(
    request: http::Request<WasiBody>,
    options: RequestOptions,
    kept: Option<(Arc<dyn Post>, usize)>,
) -> Result<Response, Failure> {
    let request = Request::read(request).await?;
    let Some((post, number)) = kept else { return request.send(options).await };
    let answer = match post.answer(number, &request) {
        Some(answer) => answer,
        None => request.send(options).await,
    };
    post.answered(number, &request, &answer);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_admits_its_own_port_alone() {
        let admits = |host: &str, uri: &str| Host::parse(host).unwrap().admits(&uri.parse().unwrap());
        assert!(admits("api.example.org", "https://API.example.org/v1?x=1"));
        assert!(admits("api.example.org", "https://api.example.org:443/"));
        assert!(!admits("api.example.org", "http://api.example.org/"));
        assert!(!admits("api.example.org", "https://api.example.org:8443/"));
        assert!(!admits("api.example.org", "https://evil.org/api.example.org"));
        assert!(!admits("api.example.org", "https://api.example.org@evil.org/"));
        assert!(!admits("example.org", "https://api.example.org/"));
        assert!(admits("localhost:8080", "http://localhost:8080/"));
        assert!(admits("localhost:80", "http://localhost/"));
        assert!(admits("[::1]:8080", "https://[::1]:8080/"));
        assert!(!admits("localhost:8080", "http://localhost:8081/"));
    }

    #[test]
    fn what_is_no_host_is_told() {
        for wrong in ["", "https://a.org", "a.org/b", "user@a.org", "a.org:", "a.org:http", "a b"] {
            assert_eq!(Host::parse(wrong), None, "{wrong}");
        }
    }
}
