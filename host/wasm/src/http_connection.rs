//! Connections to granted hosts.
//!
//! Whoever owns a name decides which addresses it has, also those of the machine's own network. So the addresses of a
//! name are checked, and the connection is made to one that was checked.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::AllowedHost;
use crate::http_message::HttpFailure;

/// A connection, encrypted or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// Connects to the host of an absolute URI, which the grant of `host` covers.
pub(crate) async fn connect(uri: &http::Uri, host: &AllowedHost) -> Result<Box<dyn Connection>, HttpFailure> {
    let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
    let name = uri.host().ok_or(HttpFailure::Broken)?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let addresses = resolve(name, port, host).await?;
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(|_| HttpFailure::Unreachable)?;
    if !encrypted {
        return Ok(Box::new(stream));
    }
    let server = ServerName::try_from(name.to_owned()).map_err(|_| HttpFailure::Unencrypted)?;
    let connector = TLS.as_ref().map_err(|_| HttpFailure::Unencrypted)?;
    let stream = connector.connect(server, stream).await.map_err(|_| HttpFailure::Unencrypted)?;
    Ok(Box::new(stream))
}

/// Returns the addresses of a name to which the grant of `host` allows a connection.
async fn resolve(name: &str, port: u16, host: &AllowedHost) -> Result<Vec<SocketAddr>, HttpFailure> {
    let found = lookup_host((name, port)).await.map_err(|_| HttpFailure::Unreachable)?;
    let (allowed, refused): (Vec<_>, Vec<_>) = found.partition(|address| host.allows_address(address.ip()));
    if allowed.is_empty() && !refused.is_empty() {
        return Err(HttpFailure::PrivateAddress);
    }
    Ok(allowed)
}

/// TLS that trusts the authorities of Mozilla's list.
static TLS: LazyLock<Result<TlsConnector, rustls::Error>> = LazyLock::new(|| {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
});

/// Returns true for addresses of the public internet, after IANA's registries of special-purpose addresses.
pub(crate) fn is_public(address: IpAddr) -> bool {
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

    #[tokio::test]
    async fn only_addresses_that_the_grant_covers_are_used() {
        let resolve = async |name: &str, grant: &str| {
            super::resolve(name, 80, &AllowedHost::parse(grant).unwrap()).await
        };
        assert!(resolve("localhost", "localhost:80").await.unwrap().iter().all(|a| a.ip().is_loopback()));
        assert_eq!(resolve("127.0.0.1", "127.0.0.1:80").await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve("::1", "[::1]:80").await.unwrap(), ["[::1]:80".parse().unwrap()]);
        // Another name of the machine itself, which needs no DNS.
        assert_eq!(resolve("127.1", "127.1:80").await, Err(HttpFailure::PrivateAddress));
        assert_eq!(resolve("localhost", "example.org:80").await, Err(HttpFailure::PrivateAddress));
    }
}
