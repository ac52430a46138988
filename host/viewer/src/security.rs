//! Access to the server: a random token, and the checks that keep other sites out.
//!
//! Pages of other sites run in the same browser. They can send requests to this server, with the user's cookies
//! unless these are strict, and can make their own name resolve to this machine (DNS rebinding). So the cookie is
//! strict, a `Host` is an address or `localhost`, and an `Origin` is the server's own.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
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
    let host = text(header::HOST).unwrap_or_default();
    if !is_local_name(host) {
        return Err(Error::Refused("open the viewer by its address or as localhost, not by another name"));
    }
    let origin = text(header::ORIGIN);
    if acts && origin.is_none() {
        return Err(Error::Refused("a request that plays an episode must have the `Origin` of this server"));
    }
    if origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host)) {
        return Err(Error::Refused(OTHER_SITE));
    }
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    // A link in a terminal or another page opens the page itself; everything else is asked for by it.
    let navigates = headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    if site.is_some_and(|site| site != "same-origin" && site != "none") && !navigates {
        return Err(Error::Refused(OTHER_SITE));
    }
    Ok(())
}

/// Returns true for `localhost` and for addresses, with or without a port. A name may resolve to anything.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in
            ["127.0.0.1:7575", "localhost:7575", "LOCALHOST", "[::1]:7575", "192.168.1.5:80", "10.0.0.1"]
        {
            assert!(is_local_name(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7575", "127.0.0.1.evil.example", "localhost.evil", "[evil]"]
        {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
