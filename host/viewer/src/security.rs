//! Access to the server: a random token, and the checks that keep other sites out.
//!
//! Pages of other sites run in the same browser ([`RequestOrigin`]). So the cookie is strict, a `Host` is an address or
//! `localhost`, and an `Origin` is the server's own.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use pl_types::RequestOrigin;
use subtle::ConstantTimeEq;

use crate::error::Error;

const OTHER_SITE: &str = "this request comes from a page of another site";

/// Secret that requests must carry.
#[derive(Clone)]
pub struct AccessToken(String);

impl AccessToken {
    /// Draws a token of 128 random bits.
    pub fn random() -> AccessToken {
        AccessToken(hex::encode(rand::random::<[u8; 16]>()))
    }

    /// Returns the token as it stands in an address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes the same time wherever the first difference is.
    pub(crate) fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.as_bytes()).into()
    }

    /// Returns true if the headers have the token, in the cookie of this port or as a bearer token.
    pub(crate) fn is_in(&self, headers: &HeaderMap, port: u16) -> bool {
        let name = cookie_name(port);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        bearer.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|given| self.is(given))
            || cookies.any(|(key, value)| key.trim() == name && self.is(value.trim()))
    }

    /// Returns the cookie that a browser sends from now on.
    pub(crate) fn cookie(&self, port: u16) -> Option<HeaderValue> {
        let text = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name(port), self.0);
        HeaderValue::from_str(&text).ok()
    }
}

/// Returns the name of the cookie: cookies of one machine are shared by all ports.
fn cookie_name(port: u16) -> String {
    format!("pl-host-view-{port}")
}

/// Checks the `Host` and the `Origin` of a request. A request that `acts` must name its origin, as every browser does.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn check_origin(headers: &HeaderMap, acts: bool) -> Result<(), Error> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let request = RequestOrigin::new(text);
    if !request.has_local_host() {
        return Err(Error::Refused("open the viewer by its address or as localhost, not by another name"));
    }
    if acts && request.origin.is_none() {
        return Err(Error::Refused("a request that plays an episode must have the `Origin` of this server"));
    }
    if request.is_other_site() { Err(Error::Refused(OTHER_SITE)) } else { Ok(()) }
}

/// Adds the headers that keep the text of a model from acting on the page: only the server's own files run, and
/// nothing is sent elsewhere.
pub(crate) async fn harden(mut response: Response) -> Response {
    const HEADERS: [(&str, &str); 6] = [
        (
            "content-security-policy",
            "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
