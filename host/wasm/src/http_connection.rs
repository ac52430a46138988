//! Requests over connections to granted hosts.
//!
//! The owner of a name chooses its addresses and may choose one of the machine's own network. So the addresses of a
//! name are checked, and the connection is made to one that was checked.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::uri::Scheme;
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use wasmtime_wasi_http::RequestOptions;
use wasmtime_wasi_http::io::TokioIo;

use crate::allowed_host::AllowedHost;
use crate::http_message::{HttpFailure, HttpRequest, HttpResponse, headers, read_body};
use crate::memory_budget::MemoryBudget;

/// Longest wait for a connection, for the first byte and between two parts: no other clock runs while a guest waits.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for a whole response.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Sends a request to its host, which the grant of `host` covers.
pub(crate) async fn send(
    request: &HttpRequest,
    host: &AllowedHost,
    options: RequestOptions,
    budget: &MemoryBudget,
) -> Result<HttpResponse, HttpFailure> {
    match timeout(TOTAL_TIMEOUT, try_send(request, host, options, budget)).await {
        Ok(response) => response,
        Err(_) => Err(HttpFailure::Timeout),
    }
}

async fn try_send(
    complete: &HttpRequest,
    host: &AllowedHost,
    options: RequestOptions,
    budget: &MemoryBudget,
) -> Result<HttpResponse, HttpFailure> {
    let limited = |wanted: Option<Duration>| wanted.map_or(STEP_TIMEOUT, |wanted| wanted.min(STEP_TIMEOUT));
    let uri: http::Uri = complete.uri.parse().map_err(|_| HttpFailure::Broken)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = http::Request::builder().method(complete.method.as_str()).uri(path);
    for (name, value) in &complete.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(complete.body.clone())).map_err(|_| HttpFailure::Broken)?;

    let connection = timeout(limited(options.connect_timeout), connect(&uri, host));
    let connection = connection.await.map_err(|_| HttpFailure::Timeout)??;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(connection))
        .await
        .map_err(|_| HttpFailure::Broken)?;
    // Drives the connection until the response is complete; how it closes afterwards doesn't matter. The task ends
    // with the set.
    let mut drivers = JoinSet::new();
    drivers.spawn(driver);
    let response = timeout(limited(options.first_byte_timeout), sender.send_request(request));
    let response = response.await.map_err(|_| HttpFailure::Timeout)?.map_err(|_| HttpFailure::Broken)?;
    let (parts, body) = response.into_parts();
    let pause = limited(options.between_bytes_timeout);
    let body = read_body(body, pause, budget, HttpFailure::ResponseTooLarge).await?;
    Ok(HttpResponse { status: parts.status.as_u16(), headers: headers(&parts.headers), body })
}

/// A connection, encrypted or not.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// Connects to the host of an absolute URI, which the grant of `host` covers.
async fn connect(uri: &http::Uri, host: &AllowedHost) -> Result<Box<dyn Connection>, HttpFailure> {
    let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
    let name = uri.host().ok_or(HttpFailure::Broken)?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let addresses = resolve(name, port, host).await?;
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(|_| HttpFailure::Unreachable)?;
    if !encrypted {
        return Ok(Box::new(stream));
    }
    let server = ServerName::try_from(name.to_owned()).map_err(|_| HttpFailure::Unencrypted)?;
    let connector = TLS.as_ref().map_err(|_| HttpFailure::Unencrypted)?;
    let stream = connector.connect(server, stream).await.map_err(|_| HttpFailure::Unencrypted)?;
    Ok(Box::new(stream))
}

/// Returns the addresses of a name to which the grant of `host` allows a connection.
async fn resolve(name: &str, port: u16, host: &AllowedHost) -> Result<Vec<SocketAddr>, HttpFailure> {
    let found = lookup_host((name, port)).await.map_err(|_| HttpFailure::Unreachable)?;
    let (allowed, refused): (Vec<_>, Vec<_>) = found.partition(|address| host.allows_address(address.ip()));
    if allowed.is_empty() && !refused.is_empty() {
        return Err(HttpFailure::PrivateAddress);
    }
    Ok(allowed)
}

/// TLS that trusts the authorities of Mozilla's list.
static TLS: LazyLock<Result<TlsConnector, rustls::Error>> = LazyLock::new(|| {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_addresses_that_the_grant_covers_are_used() {
        let resolve = async |name: &str, grant: &str| {
            super::resolve(name, 80, &AllowedHost::parse(grant).unwrap()).await
        };
        assert!(resolve("localhost", "localhost:80").await.unwrap().iter().all(|a| a.ip().is_loopback()));
        assert_eq!(resolve("127.0.0.1", "127.0.0.1:80").await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve("::1", "[::1]:80").await.unwrap(), ["[::1]:80".parse().unwrap()]);
        // Another name of the machine itself, which needs no DNS.
        assert_eq!(resolve("127.1", "127.1:80").await, Err(HttpFailure::PrivateAddress));
        assert_eq!(resolve("localhost", "example.org:80").await, Err(HttpFailure::PrivateAddress));
    }
}
