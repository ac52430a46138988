//! JSON over HTTP to one server.

use std::error::Error as _;
use std::fmt::Display;
use std::time::{Duration, SystemTime};

use backon::BackoffBuilder;
use pl_types::erased::{Erased, erased};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{Backoff, HttpSettings};
use crate::error::ServerError;

/// Longest time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest answer. A completion of 100,000 tokens with 20 likeliest tokens at each has 100 MB.
const LARGEST_ANSWER: usize = 256 << 20;

/// Longest `Retry-After` that is followed: a server that was restarted would otherwise stay idle.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Number of characters of a server's message that errors show.
const MESSAGE_LENGTH: usize = 500;

/// Connections to one server. Redirects are not followed, and no proxy is used.
pub struct HttpClient {
    client: Erased<Client>,
    /// Address without a slash at its end.
    pub(crate) address: String,
    /// Left out of messages that repeat it.
    key: Option<String>,
    timeout: Duration,
}

impl HttpClient {
    /// Prepares connections to an address that begins with `http://` or `https://`. None is opened.
    ///
    /// # Errors
    /// [`ServerError::Setup`] if the address or the key is not usable.
    pub fn new(settings: &HttpSettings, address: &str) -> Result<Self, ServerError> {
        let setup = |problem: String| ServerError::Setup { server: address.to_owned(), problem };
        let url = Url::parse(address).map_err(|error| setup(format!("not an address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(setup("an address begins with http:// or https:// and a host".to_owned()));
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = &settings.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| setup("the key has characters that a header can't have".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.timeout)
            .pool_max_idle_per_host(settings.connections)
            // A redirect could lead the key elsewhere, and a proxy of the environment is not meant for the
            // machines of a cluster.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| setup(reason(&error)))?;
        let address = address.trim_end_matches('/').to_owned();
        let key = settings.key.clone().filter(|key| !key.is_empty());
        Ok(Self { client: Erased::new(client), address, key, timeout: settings.timeout })
    }

    /// True if the address has a path.
    pub fn has_path(&self) -> bool {
        Url::parse(&self.address).is_ok_and(|url| url.path() != "/")
    }

    /// Sends a GET request and returns its answer.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ServerError> {
        self.send(Method::GET, path, None, path).await
    }

    /// Sends a GET request with a parameter and returns its answer. Errors name the request by `label`.
    pub(crate) async fn get_with(
        &self,
        path: &str,
        (key, value): (&str, &str),
        label: &str,
    ) -> Result<Value, ServerError> {
        let query = Url::parse_with_params("http://server", [(key, value)]);
        let query = query.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default();
        self.send(Method::GET, &format!("{path}?{query}"), None, label).await
    }

    /// Sends a body and returns the answer. Errors name the request by `label`.
    pub(crate) async fn post(&self, path: &str, body: &Value, label: &str) -> Result<Value, ServerError> {
        self.send(Method::POST, path, Some(body), label).await
    }

    /// Sends a body until `read` accepts the answer, up to `retries` times again after failures that may pass.
    /// `read` returns an error for an answer that is wrong. Errors name the request by `label`.
    ///
    /// # Errors
    /// The last failure.
    pub async fn post_with_retries<T, E: Display>(
        &self,
        path: &str,
        body: &Value,
        label: &str,
        retries: u32,
        backoff: Backoff,
        read: impl Fn(Value) -> Result<T, E>,
    ) -> Result<T, ServerError> {
        let mut waits = backoff.delays().with_max_times(retries as usize).build();
        let accepted = |answer| read(answer).map_err(|problem| self.wrong(label, problem.to_string()));
        loop {
            let error = match self.post(path, body, label).await.and_then(accepted) {
                Ok(value) => return Ok(value),
                Err(error) if error.is_permanent() => return Err(error),
                Err(error) => error,
            };
            let Some(wait) = waits.next() else { return Err(error) };
            // A server may say 0, and its clock may be another.
            tokio::time::sleep(error.retry_after().unwrap_or(wait).max(wait)).await;
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        label: &str,
    ) -> Result<Value, ServerError> {
        erased(self.exchange(method, path, body, label)).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        label: &str,
    ) -> Result<Value, ServerError> {
        let mut request = self.client.request(method, format!("{}{path}", self.address));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.broken(&error, label))?;
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let target =
            response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
        let bytes = self.read(response, label).await?;
        if let (true, Some(target)) = (status.is_redirection(), target) {
            return Err(self.redirected(status, &target, label));
        }
        if !status.is_success() {
            return Err(self.refusal(status, &bytes, retry_after, label));
        }
        // Answers such as those that acknowledge an adapter are text.
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(value),
            Err(_) if !bytes.starts_with(b"{") && !bytes.starts_with(b"[") => {
                Ok(Value::from(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(error) => Err(self.wrong(label, format!("the body is not JSON: {error}"))),
        }
    }

    async fn read(&self, mut response: Response, label: &str) -> Result<Vec<u8>, ServerError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error, label))? {
            if bytes.len() + chunk.len() > LARGEST_ANSWER {
                return Err(self.wrong(label, format!("it is longer than {LARGEST_ANSWER} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Reads an answer of the server. Errors name the request by `label`.
    ///
    /// # Errors
    /// The error that it has instead of an answer; [`ServerError::Answer`] if it has another form.
    pub(crate) fn parse<T: DeserializeOwned>(&self, answer: Value, label: &str) -> Result<T, ServerError> {
        let reported = self.reported(&answer, label);
        serde_json::from_value(answer).map_err(|error| {
            reported.unwrap_or_else(|| self.wrong(label, format!("it has another form: {error}")))
        })
    }

    /// Returns the error that an answer with a status of success has as OpenAI's `error`. Gateways pass those of other servers on
    /// like this, with the status as `code`.
    fn reported(&self, answer: &Value, label: &str) -> Option<ServerError> {
        let error = answer.get("error").filter(|error| !error.is_null())?;
        let code =
            error["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let body = answer.to_string();
        Some(match code.filter(|code| code.is_client_error() || code.is_server_error()) {
            Some(status) => self.refusal(status, body.as_bytes(), None, label),
            None => self.wrong(label, format!("it is an error: {}", message(&body))),
        })
    }

    /// Error of an answer that can't be right.
    pub(crate) fn wrong(&self, label: &str, problem: impl Into<String>) -> ServerError {
        let (server, request) = (self.address.clone(), label.to_owned());
        ServerError::Answer { server, request, problem: self.without_key(problem.into()) }
    }

    /// Error of a server that policies can't use.
    pub(crate) fn unfit(&self, problem: impl Into<String>, hint: impl Into<String>) -> ServerError {
        ServerError::Unfit { server: self.address.clone(), problem: problem.into(), hint: hint.into() }
    }

    /// Returns a server's text without the key, which some servers repeat: messages go to logs and into run folders.
    fn without_key(&self, text: String) -> String {
        match &self.key {
            Some(key) => text.replace(key.as_str(), "[key]"),
            None => text,
        }
    }

    fn broken(&self, error: &reqwest::Error, label: &str) -> ServerError {
        let server = self.address.clone();
        if error.is_timeout() && !error.is_connect() {
            return ServerError::Timeout { server, request: label.to_owned(), limit: self.timeout };
        }
        ServerError::Unreachable { server, problem: reason(error) }
    }

    fn redirected(&self, status: StatusCode, target: &str, label: &str) -> ServerError {
        let target: String = self.without_key(target.to_owned()).chars().take(MESSAGE_LENGTH).collect();
        ServerError::Refused {
            server: self.address.clone(),
            request: label.to_owned(),
            status: status.as_u16(),
            message: format!(
                "it redirects to {target}; redirects are not followed: name the server's own address"
            ),
        }
    }

    fn refusal(
        &self,
        status: StatusCode,
        body: &[u8],
        retry_after: Option<Duration>,
        label: &str,
    ) -> ServerError {
        let (server, request) = (self.address.clone(), label.to_owned());
        let (message, code) =
            (message(&self.without_key(String::from_utf8_lossy(body).into_owned())), status.as_u16());
        match code {
            // Waiting doesn't help.
            429 if lacks_quota(body) => ServerError::Refused { server, request, status: code, message },
            429 => ServerError::Busy { server, message, retry_after },
            502..=504 => ServerError::Unavailable { server, status: code, message, retry_after },
            404 => ServerError::NotFound { server, request, message },
            401 | 403 => self.unfit(
                format!("it refuses the key (status {code}): {message}"),
                match self.key {
                    Some(_) => "check the value of the environment variable that `key_variable` names",
                    None => "name the environment variable with the server's key: `key_variable = \"NAME\"`",
                },
            ),
            500.. => ServerError::Failed { server, request, status: code, message },
            _ => ServerError::Refused { server, request, status: code, message },
        }
    }
}

/// Returns the message of an error's body: that of OpenAI's form, or else the body's beginning.
fn message(text: &str) -> String {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let of_form = json.as_ref().and_then(|json| {
        let found = json.pointer("/error/message").or_else(|| json.get("message"));
        found.or_else(|| json.get("detail"))?.as_str()
    });
    let message = of_form.unwrap_or(text.trim());
    if message.is_empty() { "no message".to_owned() } else { message.chars().take(MESSAGE_LENGTH).collect() }
}

/// Returns true if an error's body says, as OpenAI's does, that what was paid for is used up.
fn lacks_quota(body: &[u8]) -> bool {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    ["code", "type"].iter().any(|name| json["error"][*name] == "insufficient_quota")
}

/// Returns an error with its causes, without the address, which the message has already.
fn reason(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// Returns the time of a `Retry-After`, which has seconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn retry_after_has_seconds_or_a_date() {
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(parse("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse("86400"), Some(LONGEST_RETRY_AFTER));
        assert_eq!(parse("soon"), None);
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        assert!(parse(&date).is_some_and(|wait| (25..=30).contains(&wait.as_secs())));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    }

    #[test]
    fn a_key_that_a_server_repeats_is_in_no_message() {
        let client = client(Some("sk-SECRET"));
        let body = br#"{"error": {"message": "Incorrect key Bearer sk-SECRET"}}"#;
        for status in [400, 401, 404, 429, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let message = client.refusal(status, body, None, "chat").to_string();
            assert!(message.contains("Incorrect key Bearer [key]"), "{message}");
        }
        assert!(!client.wrong("chat", "it ended with `sk-SECRET`").to_string().contains("SECRET"));
    }

    fn client_of(address: &str, key: Option<&str>) -> HttpClient {
        let key = key.map(str::to_owned);
        let settings = HttpSettings { key, timeout: Duration::from_secs(20), connections: 1 };
        HttpClient::new(&settings, address).unwrap()
    }

    fn client(key: Option<&str>) -> HttpClient {
        client_of("http://localhost:1", key)
    }

    #[test]
    fn an_error_in_place_of_an_answer_is_what_the_server_says() {
        let parse = |answer: Value| client(None).parse::<Vec<u8>>(answer, "chat").unwrap_err();
        let overloaded = json!({ "error": { "message": "upstream overloaded", "code": 502 } });
        let error = parse(overloaded);
        assert!(matches!(error, ServerError::Unavailable { status: 502, .. }), "{error}");
        assert!(error.to_string().contains("upstream overloaded"), "{error}");
        let error = parse(json!({ "error": { "message": "no such model", "code": "not_found" } }));
        assert!(matches!(error, ServerError::Answer { .. }), "{error}");
        assert!(error.to_string().ends_with("it is an error: no such model"), "{error}");
        assert!(parse(json!({ "error": null })).to_string().contains("another form"));
    }

    #[test]
    fn a_key_that_is_refused_is_not_asked_for_again() {
        let refused = |key| client(key).refusal(StatusCode::UNAUTHORIZED, b"no", None, "chat").to_string();
        assert!(refused(None).contains("`key_variable = \"NAME\"`"));
        assert!(refused(Some("wrong")).contains("check the value"));
    }

    #[tokio::test]
    async fn a_redirect_says_where_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client_of(&format!("http://{}", listener.local_addr().unwrap()), Some("secret"));
        let serving = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let head =
                "HTTP/1.1 302 Found\r\nlocation: https://b.example/?key=secret\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
        });
        let error = client.get("/v1/models").await.unwrap_err().to_string();
        serving.join().unwrap();
        assert!(error.contains("status 302: it redirects to https://b.example/?key=[key]; "), "{error}");
    }

    #[test]
    fn messages_of_errors_are_found() {
        assert_eq!(message(r#"{"error": {"message": "too long"}}"#), "too long");
        assert_eq!(message(r#"{"detail": "Not Found"}"#), "Not Found");
        assert_eq!(message(" plain "), "plain");
        assert_eq!(message(""), "no message");
    }
}
