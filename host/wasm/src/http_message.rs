//! HTTP requests and responses, each read completely.
//!
//! A guest's input must not depend on how bytes happen to be split into packets, and a recorded response must be
//! replayable. So a request is sent once it is complete, and its response is delivered once that is complete.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::timeout;
use wasmtime_wasi_http::{Error as HttpError, WasiBody};

use crate::memory_budget::{MemoryBudget, MemoryCharge};

/// Maximum size of the body of a request or response, in bytes: the host holds both in memory.
const MAX_BODY: usize = 4 << 20;

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: String,
    /// Absolute, with scheme and host.
    pub uri: String,
    /// Headers in order; a name may repeat.
    pub headers: Headers,
    /// Content, unchanged.
    pub body: Bytes,
}

/// A complete response, without trailers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResponse {
    /// Such as 200.
    pub status: u16,
    /// Headers in order; a name may repeat.
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
    /// A name leads to an address of the machine or of its own network.
    #[error("the host's name leads to a private address: grant that address itself")]
    PrivateAddress,
    /// The body of the request exceeds the limit.
    #[error("the request has more than {} MiB, or more than the plugin's memory", MAX_BODY >> 20)]
    RequestTooLarge,
    /// The body of the response exceeds the limit.
    #[error("the response has more than {} MiB, or more than the plugin's memory", MAX_BODY >> 20)]
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
    pub(crate) async fn read(
        request: http::Request<WasiBody>,
        budget: &MemoryBudget,
    ) -> Result<Self, HttpFailure> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            headers: headers(&parts.headers),
            // The guest's own writes end it, within the limit on the guest's waits.
            body: read_body(body, Duration::MAX, budget, HttpFailure::RequestTooLarge).await?,
        })
    }
}

impl HttpResponse {
    /// Converts to the form that the guest reads. The body counts against its memory until it is dropped.
    pub(crate) fn into_http(self, budget: &MemoryBudget) -> Result<http::Response<WasiBody>, HttpError> {
        let charge = budget.charge(self.body.len() as u64).map_err(|_| HttpFailure::ResponseTooLarge)?;
        let mut response = http::Response::new(body(self.body, charge));
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
            HttpFailure::PrivateAddress => Self::DestinationIpProhibited,
            HttpFailure::RequestTooLarge => Self::HttpRequestBodySize(Some(MAX_BODY as u64)),
            HttpFailure::ResponseTooLarge => Self::HttpResponseBodySize(Some(MAX_BODY as u64)),
            HttpFailure::Broken => Self::HttpResponseIncomplete,
            HttpFailure::Unrecorded => Self::HttpRequestDenied,
        }
    }
}

/// Reads a whole body, up to the size limit and the memory that the guest has left. `pause` is the longest time between
/// two parts.
pub(crate) async fn read_body<B>(
    mut body: B,
    pause: Duration,
    budget: &MemoryBudget,
    too_large: HttpFailure,
) -> Result<Bytes, HttpFailure>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut bytes = BytesMut::new();
    let mut charge = budget.charge(0).map_err(|_| too_large)?;
    while let Some(frame) = timeout(pause, body.frame()).await.map_err(|_| HttpFailure::Timeout)? {
        // Trailers are dropped.
        let Ok(data) = frame.map_err(|_| HttpFailure::Broken)?.into_data() else { continue };
        let size = bytes.len() + data.len();
        if size > MAX_BODY || charge.grow(size as u64).is_err() {
            return Err(too_large);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// Returns a body that holds the charge for its memory.
fn body(bytes: Bytes, charge: MemoryCharge) -> WasiBody {
    let held = move |frame| {
        let _ = &charge;
        frame
    };
    Full::new(bytes).map_err(|never| match never {}).map_frame(held).boxed_unsync()
}

/// Converts headers to text.
pub(crate) fn headers(map: &HeaderMap) -> Headers {
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
