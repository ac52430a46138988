//! Origins of HTTP requests.
//!
//! Pages of other sites run in the browsers of a server's users. They can send requests to servers of the same machine, with the
//! user's cookies unless these are strict, and can make their own name resolve to that machine (DNS rebinding).

use std::net::IpAddr;

/// Headers of a request that tell pages of other sites from other clients. `None` for a missing header.
#[derive(Debug, Clone, Copy)]
pub struct RequestOrigin<'a> {
    /// `Host`.
    pub host: Option<&'a str>,
    /// `Origin`.
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub site: Option<&'a str>,
    /// `Sec-Fetch-Mode`.
    pub mode: Option<&'a str>,
}

impl<'a> RequestOrigin<'a> {
    /// Returns the origin of a request. `header` returns the value of a header by its name, empty if it is no text.
    pub fn new(header: impl Fn(&'static str) -> Option<&'a str>) -> RequestOrigin<'a> {
        RequestOrigin {
            host: header("host"),
            origin: header("origin"),
            site: header("sec-fetch-site"),
            mode: header("sec-fetch-mode"),
        }
    }

    /// Returns true if the `Host` is `localhost` or an address, with or without a port. A name may resolve to anything.
    pub fn has_local_host(&self) -> bool {
        let host = self.host.unwrap_or_default();
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    }

    /// Returns true if a page of another site has sent the request. Programs other than browsers send no `Origin`.
    pub fn is_other_site(&self) -> bool {
        let is_own = |origin: &str| self.host.is_some() && origin.strip_prefix("http://") == self.host;
        if self.origin.is_some_and(|origin| !is_own(origin)) {
            return true;
        }
        // A link in a terminal or another page opens a page itself; everything else is asked for by it.
        let navigates = self.mode == Some("navigate");
        self.site.is_some_and(|site| site != "same-origin" && site != "none") && !navigates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: RequestOrigin<'static> =
        RequestOrigin { host: Some("127.0.0.1:80"), origin: None, site: None, mode: None };

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in
            ["127.0.0.1:7575", "localhost:7575", "LOCALHOST", "[::1]:7575", "192.168.1.5:80", "10.0.0.1"]
        {
            assert!(RequestOrigin { host: Some(host), ..NONE }.has_local_host(), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7575", "127.0.0.1.evil.example", "localhost.evil", "[evil]"]
        {
            assert!(!RequestOrigin { host: Some(host), ..NONE }.has_local_host(), "{host}");
        }
        assert!(!RequestOrigin { host: None, ..NONE }.has_local_host());
    }

    #[test]
    fn pages_of_other_sites_are_known_by_their_origin_or_by_their_browser() {
        assert!(!NONE.is_other_site());
        for origin in ["http://evil.example", "https://127.0.0.1:80", "http://127.0.0.1:81", "null", ""] {
            assert!(RequestOrigin { origin: Some(origin), ..NONE }.is_other_site(), "{origin}");
        }
        assert!(!RequestOrigin { origin: Some("http://127.0.0.1:80"), ..NONE }.is_other_site());
        assert!(RequestOrigin { origin: Some(""), host: None, ..NONE }.is_other_site());
        for (site, mode, expected) in [
            ("cross-site", "no-cors", true),
            ("same-site", "cors", true),
            ("cross-site", "navigate", false),
            ("same-origin", "cors", false),
            ("none", "navigate", false),
        ] {
            let request = RequestOrigin { site: Some(site), mode: Some(mode), ..NONE };
            assert_eq!(request.is_other_site(), expected, "{site} {mode}");
        }
    }
}
