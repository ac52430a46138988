//! HTTP requests and responses, each read completely.
//!
//! A guest's input must not depend on how bytes happen to be split into packets, and a recorded response must be
//! replayable. So a request is sent once it is complete, and its response is delivered once that is complete.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wasmtime_wasi_http::{Error as HttpError, RequestOptions, WasiBody};

/// Maximum size of the body of a request or response, in bytes: the host holds both in memory.
const MAX_BODY: usize = 4 << 20;

/// Longest wait for a connection, for the first byte and between two parts: no other clock runs while a guest waits.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for a whole response.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(120);

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: String,
    /// Absolute, with scheme and host.
    pub uri: String,
    /// In order; a name may repeat.
    pub headers: Headers,
    /// Content, unchanged.
    pub body: Bytes,
}

/// A complete response, without trailers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResponse {
    /// Such as 200.
    pub status: u16,
    /// In order; a name may repeat.
    pub headers: Headers,
    /// Content, unchanged.
    #[serde(with = "body_text")]
    pub body: Bytes,
}

/// Names and values; invalid UTF-8 is replaced.
pub type Headers = Vec<(String, String)>;

/// Reasons for a missing response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFailure {
    /// The connection or the name lookup failed.
    #[error("the host can't be reached")]
    Unreachable,
    /// The TLS handshake failed.
    #[error("the TLS handshake with the host failed")]
    Unencrypted,
    /// A time limit passed.
    #[error("the host took too long")]
    Timeout,
    /// The body of the request exceeds the limit.
    #[error("the request has more than {} MiB", MAX_BODY >> 20)]
    RequestTooLarge,
    /// The body of the response exceeds the limit.
    #[error("the response has more than {} MiB", MAX_BODY >> 20)]
    ResponseTooLarge,
    /// The response ended early or was not HTTP.
    #[error("the response is incomplete")]
    Broken,
    /// Replay: the recording has no response to this request.
    #[error("the recording has no response")]
    Unrecorded,
}

/// Records the HTTP traffic of guests, or replays a recording.
pub trait HttpRecorder: Send + Sync + 'static {
    /// Notes the start of a request, in the order in which the guest sends them, and returns the request's number.
    fn begin(&self, method: &str, uri: &str) -> usize;

    /// Returns the recorded response to a complete request, or `None` to send the request.
    fn replay(&self, number: usize, request: &HttpRequest) -> Option<Result<HttpResponse, HttpFailure>>;

    /// Notes the response that the guest receives.
    fn finish(&self, number: usize, request: &HttpRequest, response: &Result<HttpResponse, HttpFailure>);
}

impl HttpRequest {
    /// Reads a request until the guest has written all of it.
    pub(crate) async fn read(request: http::Request<WasiBody>) -> Result<Self, HttpFailure> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            headers: headers(&parts.headers),
            body: read_body(body, HttpFailure::RequestTooLarge).await?,
        })
    }

    /// Sends the request to its host.
    pub(crate) async fn send(&self, options: RequestOptions) -> Result<HttpResponse, HttpFailure> {
        match tokio::time::timeout(TOTAL_TIMEOUT, self.try_send(options)).await {
            Ok(response) => response,
            Err(_) => Err(HttpFailure::Timeout),
        }
    }

    async fn try_send(&self, options: RequestOptions) -> Result<HttpResponse, HttpFailure> {
        let limited =
            |wanted: Option<Duration>| Some(wanted.map_or(STEP_TIMEOUT, |wanted| wanted.min(STEP_TIMEOUT)));
        let options = RequestOptions {
            connect_timeout: limited(options.connect_timeout),
            first_byte_timeout: limited(options.first_byte_timeout),
            between_bytes_timeout: limited(options.between_bytes_timeout),
        };
        let mut request = http::Request::builder().method(self.method.as_str()).uri(self.uri.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(body(self.body.clone())).map_err(|_| HttpFailure::Broken)?;
        let (response, connection) =
            wasmtime_wasi_http::default_send_request(request, Some(options)).await.map_err(failure)?;
        // Drives the connection while the body is read; how it closes afterwards doesn't matter.
        let driver = tokio::spawn(connection);
        let (parts, body) = response.into_parts();
        let body = read_body(body.boxed_unsync(), HttpFailure::ResponseTooLarge).await;
        driver.abort();
        Ok(HttpResponse { status: parts.status.as_u16(), headers: headers(&parts.headers), body: body? })
    }
}

impl HttpResponse {
    /// Converts to the form that the guest reads.
    pub(crate) fn into_http(self) -> Result<http::Response<WasiBody>, HttpError> {
        let mut response = http::Response::new(body(self.body));
        *response.status_mut() =
            http::StatusCode::from_u16(self.status).map_err(|_| HttpError::HttpProtocolError)?;
        for (name, value) in &self.headers {
            let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes()))
            else {
                return Err(HttpError::HttpProtocolError);
            };
            response.headers_mut().append(name, value);
        }
        Ok(response)
    }
}

impl From<HttpFailure> for HttpError {
    fn from(failure: HttpFailure) -> Self {
        match failure {
            HttpFailure::Unreachable => Self::ConnectionRefused,
            HttpFailure::Unencrypted => Self::TlsProtocolError,
            HttpFailure::Timeout => Self::ConnectionTimeout,
            HttpFailure::RequestTooLarge => Self::HttpRequestBodySize(Some(MAX_BODY as u64)),
            HttpFailure::ResponseTooLarge => Self::HttpResponseBodySize(Some(MAX_BODY as u64)),
            HttpFailure::Broken => Self::HttpResponseIncomplete,
            HttpFailure::Unrecorded => Self::HttpRequestDenied,
        }
    }
}

/// Maps an error to the reasons that a guest may see: few enough that a replay can repeat them.
fn failure(error: HttpError) -> HttpFailure {
    match error {
        HttpError::Connect(_)
        | HttpError::DnsTimeout
        | HttpError::DnsError { .. }
        | HttpError::ConnectionRefused
        | HttpError::DestinationNotFound
        | HttpError::DestinationUnavailable => HttpFailure::Unreachable,
        HttpError::Tls(_)
        | HttpError::InvalidDnsNameError(_)
        | HttpError::TlsProtocolError
        | HttpError::TlsCertificateError
        | HttpError::TlsAlertReceived { .. } => HttpFailure::Unencrypted,
        HttpError::ConnectionTimeout
        | HttpError::ConnectionReadTimeout
        | HttpError::ConnectionWriteTimeout
        | HttpError::HttpResponseTimeout => HttpFailure::Timeout,
        _ => HttpFailure::Broken,
    }
}

/// Reads a whole body, up to the size limit.
async fn read_body(body: WasiBody, too_large: HttpFailure) -> Result<Bytes, HttpFailure> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large),
        Err(error) => Err(error.downcast::<HttpError>().map_or(HttpFailure::Broken, |error| failure(*error))),
    }
}

fn body(bytes: Bytes) -> WasiBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn headers(map: &HeaderMap) -> Headers {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Serialises a body as text if it is UTF-8, and else in hexadecimal.
mod body_text {
    use bytes::Bytes;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Body<'b> {
        Text(std::borrow::Cow<'b, str>),
        Hex(String),
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Body::Text(text.into()).serialize(to),
            Err(_) => Body::Hex(hex::encode(bytes)).serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        match Body::deserialize(from)? {
            Body::Text(text) => Ok(Bytes::from(text.into_owned())),
            Body::Hex(text) => hex::decode(text).map(Bytes::from).map_err(D::Error::custom),
        }
    }
}
