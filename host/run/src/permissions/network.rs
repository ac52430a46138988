//! Addresses in the form of permissions.

use std::net::Ipv6Addr;

/// Prefix of the addresses of Unix sockets, which are compared as a whole.
const UNIX: &str = "unix://";

/// Returns `HOST:PORT` of a URL, whose scheme may imply the port. Other text has that form already.
pub(super) fn host_and_port(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://").filter(|_| !address.starts_with(UNIX)) else {
        return if address.starts_with(UNIX) { address.to_owned() } else { address.to_ascii_lowercase() };
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // What precedes an `@` is a user, not a host.
    let authority = authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
    let port = match scheme.to_ascii_lowercase().as_str() {
        "https" => Some(443),
        "http" => Some(80),
        "nats" | "tls" => Some(4222),
        _ => None,
    };
    match (split_port(&authority), port) {
        ((_, None), Some(port)) => format!("{authority}:{port}"),
        _ => authority,
    }
}

/// Returns true for `HOST`, `HOST:PORT` and the addresses of Unix sockets.
pub(super) fn is_host(address: &str) -> bool {
    if let Some(path) = address.strip_prefix(UNIX) {
        return path.starts_with('/');
    }
    let (host, port) = split_port(address);
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_named = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)),
    };
    is_named && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Returns true if a permission for `allowed` is one for `wanted`.
pub(super) fn covers(allowed: &str, wanted: &str) -> bool {
    let is_host = |text: &str| !text.starts_with(UNIX) && split_port(text).1.is_none();
    allowed == wanted || (is_host(allowed) && !wanted.starts_with(UNIX) && split_port(wanted).0 == allowed)
}

/// Splits `HOST:PORT`. An IPv6 address is in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            if host.starts_with('[') || !host.contains(':') { (host, Some(port)) } else { (authority, None) }
        }
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_port() {
        for (address, expected) in [
            ("https://API.example.org/v1", "api.example.org:443"),
            ("http://10.0.0.1", "10.0.0.1:80"),
            ("http://10.0.0.1:8000/", "10.0.0.1:8000"),
            ("http://[::1]:8000", "[::1]:8000"),
            ("https://[::1]", "[::1]:443"),
            ("https://trusted.org@evil.org", "evil.org:443"),
            ("tcp://docker:2375", "docker:2375"),
            ("unix:///var/run/docker.sock", "unix:///var/run/docker.sock"),
            ("api.example.org:8443", "api.example.org:8443"),
            ("api.example.org", "api.example.org"),
        ] {
            assert_eq!(host_and_port(address), expected, "{address}");
        }
    }

    #[test]
    fn a_host_covers_its_ports_and_a_port_only_itself() {
        assert!(covers("a.org", "a.org:443") && covers("[::1]", "[::1]:80") && covers("a.org:1", "a.org:1"));
        assert!(!covers("a.org:443", "a.org:80") && !covers("a.org", "b.a.org:443"));
        assert!(!covers("a.org:443", "a.org") && !covers("unix", "unix:///run/docker.sock"));
    }
}
