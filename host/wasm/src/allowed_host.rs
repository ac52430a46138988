//! Hosts that are granted to guests, and the addresses that their names may lead to.

use std::net::IpAddr;

use http::uri::Scheme;
use pl_types::{is_loopback, is_loopback_host};

/// A host that guests may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    name: String,
    /// `None` means HTTPS on port 443 only.
    port: Option<u16>,
}

impl AllowedHost {
    /// Parses `api.example.org` (HTTPS on port 443) or `localhost:8080` (that port, encrypted or not). Returns `None` if
    /// the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
        let port = authority.port_u16();
        let named_port = authority.as_str().len() > authority.host().len();
        (port.is_some() == named_port).then(|| Self { name: authority.host().to_ascii_lowercase(), port })
    }

    /// Returns the port. `None` means HTTPS on port 443 only.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns true if the grant covers a URI.
    pub(crate) fn allows(&self, uri: &http::Uri) -> bool {
        let Some(name) = uri.host() else { return false };
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let expected = match self.port {
            Some(own) => own == port,
            None => encrypted && port == 443,
        };
        expected && self.name.eq_ignore_ascii_case(name)
    }

    /// Returns true if the host may have an address. Addresses of the machine or of its own network must be granted
    /// themselves, because the owner of a name can let it lead anywhere.
    pub(crate) fn allows_address(&self, address: IpAddr) -> bool {
        let name = self.name.trim_start_matches('[').trim_end_matches(']');
        match name.parse::<IpAddr>() {
            Ok(granted) => address == granted,
            Err(_) if is_loopback_host(name) => is_loopback(address),
            Err(_) => is_public(address),
        }
    }
}

/// Returns true for addresses of the public internet, after IANA's registries of special-purpose addresses.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            let special = match (a, b, c) {
                // This network, private, loopback, link-local.
                (0 | 10 | 127, ..) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
                // Shared by carriers, protocols, documentation, benchmarks.
                (100, 64..=127, _) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) => true,
                (198, 51, 100) | (203, 0, 113) => true,
                // Multicast, reserved, broadcast.
                (224.., ..) => true,
                _ => false,
            };
            !special
        }
        IpAddr::V6(address) => {
            let embedded = |high: u16, low: u16| {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                is_public(IpAddr::from([a, b, c, d]))
            };
            match address.segments() {
                // IPv4 in IPv6: mapped, translated (NAT64), 6to4.
                [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                    embedded(high, low)
                }
                [0x2002, high, low, ..] => embedded(high, low),
                // Protocols (Teredo among them), documentation.
                [0x2001, 0..=0x01ff | 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
                // Everything else that is global is in 2000::/3.
                [first, ..] => first >> 13 == 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_allows_only_its_own_port() {
        let allows = |host: &str, uri: &str| AllowedHost::parse(host).unwrap().allows(&uri.parse().unwrap());
        assert!(allows("api.example.org", "https://API.example.org/v1?x=1"));
        assert!(allows("api.example.org", "https://api.example.org:443/"));
        assert!(!allows("api.example.org", "http://api.example.org/"));
        assert!(!allows("api.example.org", "https://api.example.org:8443/"));
        assert!(!allows("api.example.org", "https://evil.org/api.example.org"));
        assert!(!allows("api.example.org", "https://api.example.org@evil.org/"));
        assert!(!allows("example.org", "https://api.example.org/"));
        assert!(allows("localhost:8080", "http://localhost:8080/"));
        assert!(allows("localhost:80", "http://localhost/"));
        assert!(allows("[::1]:8080", "https://[::1]:8080/"));
        assert!(!allows("localhost:8080", "http://localhost:8081/"));
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for wrong in ["", "https://a.org", "a.org/b", "user@a.org", "a.org:", "a.org:http", "a b"] {
            assert_eq!(AllowedHost::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_the_machine_lead_to_its_loopback_addresses_alone() {
        let allows = |host: &str, address: &str| {
            AllowedHost::parse(host).unwrap().allows_address(address.parse().unwrap())
        };
        for name in ["localhost:80", "LOCALHOST:80", "hub.localhost:80"] {
            for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
                assert!(allows(name, address), "{name} {address}");
            }
            for address in ["10.0.0.1", "::ffff:10.0.0.1", "1.1.1.1"] {
                assert!(!allows(name, address), "{name} {address}");
            }
        }
        assert!(!allows("localhost.example.org", "127.0.0.1"));
        // An address that is granted is that one alone.
        assert!(allows("127.0.0.1:80", "127.0.0.1") && !allows("127.0.0.1:80", "127.0.0.2"));
    }

    #[test]
    fn addresses_of_the_own_network_are_not_public() {
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "9.255.0.1",
            "11.0.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "126.1.1.1",
            "128.0.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.20.0.1",
            "223.1.1.1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
