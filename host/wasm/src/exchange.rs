//! A request over HTTP and what came of it, each read to its end.
//!
//! What a guest is told must not depend on the pieces in which bytes happen to come, and whoever keeps an answer must be
//! able to give it again. So a request is sent when it is whole, and its answer is handed over when that is.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wasmtime_wasi_http::{Error as HttpError, RequestOptions, WasiBody};

/// Most bytes of a request's body, and of an answer's: the host keeps both.
const MOST: usize = 4 << 20;

/// Longest wait for a connection, for an answer and between two pieces of it: while a guest waits, no clock runs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for all of it.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(120);

/// What a guest asks, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, say.
    pub method: String,
    /// With scheme and host.
    pub uri: String,
    /// In order; a name may come twice.
    pub headers: Headers,
    /// As it was written.
    pub body: Bytes,
}

/// What a host answered, whole. Trailers are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// 200, say.
    pub status: u16,
    /// In order; a name may come twice.
    pub headers: Headers,
    /// As it came.
    #[serde(with = "written")]
    pub body: Bytes,
}

/// Names and values; what is no UTF-8 is replaced.
pub type Headers = Vec<(String, String)>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Nobody listens there, or the name leads nowhere.
    #[error("the host can't be reached")]
    Unreachable,
    /// No encrypted connection came about.
    #[error("the host offers no encryption that holds")]
    Unencrypted,
    /// It took too long.
    #[error("the host took too long")]
    Timeout,
    /// The request has more bytes than the host keeps.
    #[error("the request has more than {} MiB", MOST >> 20)]
    RequestTooLarge,
    /// The answer has.
    #[error("the answer has more than {} MiB", MOST >> 20)]
    AnswerTooLarge,
    /// It ended half-way, or was no HTTP.
    #[error("the answer broke off")]
    Broken,
    /// A replay, and the recording has no answer to this.
    #[error("the recording has no answer")]
    Unrecorded,
}

/// Keeps what guests ask over HTTP and what came of it, or answers itself, as it was once answered.
pub trait Post: Send + Sync + 'static {
    /// A guest sends a request with this method to this address. Called in the order in which it does; gives back
    /// the number that tells this request from others.
    fn sent(&self, method: &str, uri: &str) -> usize;

    /// The request is whole. An answer takes the place of the host's; none: the host is asked.
    fn answer(&self, number: usize, request: &Request) -> Option<Result<Response, Failure>>;

    /// What the guest is told, now that it is known.
    fn answered(&self, number: usize, request: &Request, answer: &Result<Response, Failure>);
}

impl Request {
    /// Waits until the guest has written all of it.
    pub(crate) async fn read(request: http::Request<WasiBody>) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            headers: headers(&parts.headers),
            body: whole(body, Failure::RequestTooLarge).await?,
        })
    }

    /// Asks the host.
    pub(crate) async fn send(&self, options: RequestOptions) -> Result<Response, Failure> {
        match tokio::time::timeout(PATIENCE_IN_ALL, self.try_send(options)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Timeout),
        }
    }

    async fn try_send(&self, options: RequestOptions) -> Result<Response, Failure> {
        let patient = |asked: Option<Duration>| Some(asked.map_or(PATIENCE, |asked| asked.min(PATIENCE)));
        let options = RequestOptions {
            connect_timeout: patient(options.connect_timeout),
            first_byte_timeout: patient(options.first_byte_timeout),
            between_bytes_timeout: patient(options.between_bytes_timeout),
        };
        let mut request = http::Request::builder().method(self.method.as_str()).uri(self.uri.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(body(self.body.clone())).map_err(|_| Failure::Broken)?;
        let (answer, connection) =
            wasmtime_wasi_http::default_send_request(request, Some(options)).await.map_err(failure)?;
        // Drives the connection while the body is read. How it closes after that is nobody's concern.
        let driven = tokio::spawn(connection);
        let (parts, body) = answer.into_parts();
        let body = whole(body.boxed_unsync(), Failure::AnswerTooLarge).await;
        driven.abort();
        Ok(Response { status: parts.status.as_u16(), headers: headers(&parts.headers), body: body? })
    }
}

impl Response {
    /// As the guest reads it.
    pub(crate) fn deliver(self) -> Result<http::Response<WasiBody>, HttpError> {
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

impl From<Failure> for HttpError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable => Self::ConnectionRefused,
            Failure::Unencrypted => Self::TlsProtocolError,
            Failure::Timeout => Self::ConnectionTimeout,
            Failure::RequestTooLarge => Self::HttpRequestBodySize(Some(MOST as u64)),
            Failure::AnswerTooLarge => Self::HttpResponseBodySize(Some(MOST as u64)),
            Failure::Broken => Self::HttpResponseIncomplete,
            Failure::Unrecorded => Self::HttpRequestDenied,
        }
    }
}

/// What went wrong, as far as a guest is told: no more than what can be told again.
fn failure(error: HttpError) -> Failure {
    match error {
        HttpError::Connect(_)
        | HttpError::DnsTimeout
        | HttpError::DnsError { .. }
        | HttpError::ConnectionRefused
        | HttpError::DestinationNotFound
        | HttpError::DestinationUnavailable => Failure::Unreachable,
        HttpError::Tls(_)
        | HttpError::InvalidDnsNameError(_)
        | HttpError::TlsProtocolError
        | HttpError::TlsCertificateError
        | HttpError::TlsAlertReceived { .. } => Failure::Unencrypted,
        HttpError::ConnectionTimeout
        | HttpError::ConnectionReadTimeout
        | HttpError::ConnectionWriteTimeout
        | HttpError::HttpResponseTimeout => Failure::Timeout,
        _ => Failure::Broken,
    }
}

/// All of a body, unless it is longer than the host keeps.
async fn whole(body: WasiBody, too_large: Failure) -> Result<Bytes, Failure> {
    match Limited::new(body, MOST).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large),
        Err(error) => Err(error.downcast::<HttpError>().map_or(Failure::Broken, |error| failure(*error))),
    }
}

fn body(bytes: Bytes) -> WasiBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn headers(map: &HeaderMap) -> Headers {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// A body as text where it is text, and in hexadecimal where it is not.
mod written {
    use bytes::Bytes;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Written<'b> {
        Text(std::borrow::Cow<'b, str>),
        Hex(String),
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Written::Text(text.into()).serialize(to),
            Err(_) => Written::Hex(hex::encode(bytes)).serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        match Written::deserialize(from)? {
            Written::Text(text) => Ok(Bytes::from(text.into_owned())),
            Written::Hex(text) => hex::decode(text).map(Bytes::from).map_err(D::Error::custom),
        }
    }
}
