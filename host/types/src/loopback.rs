//! Addresses of this machine's loopback interface: what is sent to them reaches no network.

use std::net::IpAddr;

/// Returns true for 127.0.0.0/8 and ::1, and for the former as addresses of IPv6 (`::ffff:127.0.0.1`).
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns true if a host, as addresses name it, is `localhost`, a name below it (RFC 6761, section 6.3), or an address of
/// [`is_loopback`]. An IPv6 address may be in brackets.
pub fn is_loopback_host(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = bracketed.unwrap_or(host).parse::<IpAddr>() {
        return is_loopback(address);
    }
    let name = host.to_ascii_lowercase();
    name == "localhost" || name.strip_suffix(".localhost").is_some_and(|below| !below.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_loopback_interface_are_known_in_every_form() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost", true),
            ("hub.localhost", true),
            ("a.b.LOCALHOST", true),
            ("127.0.0.1", true),
            ("127.255.1.2", true),
            ("::1", true),
            ("[::1]", true),
            ("0:0:0:0:0:0:0:1", true),
            ("::ffff:127.0.0.1", true),
            ("[::ffff:7f01:203]", true),
            ("", false),
            (".localhost", false),
            ("localhost.example.org", false),
            ("notlocalhost", false),
            ("127.0.0.1.example.org", false),
            ("0.0.0.0", false),
            ("[::]", false),
            ("10.0.0.1", false),
            ("192.168.1.5", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
            ("example.org", false),
        ] {
            assert_eq!(is_loopback_host(host), expected, "{host}");
        }
    }
}
