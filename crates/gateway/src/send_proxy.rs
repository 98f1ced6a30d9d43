//! The PROXY protocol towards backends: what a connection begins with, so that the backend knows whose it is.
//!
//! Versions 1 and 2, sections 2.1 and 2.2 of its specification (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::config::ProxyVersion;

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_LOCAL: u8 = 0x20;
const V2_PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Whose connection to a client it is: the client's address, and the one that it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub client: SocketAddr,
    pub here: SocketAddr,
}

fn to_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The header in front of a connection for these ends, or for nobody, as a health check is.
pub(crate) fn header(version: ProxyVersion, ends: Option<Ends>) -> Vec<u8> {
    let ends = ends.map(|ends| {
        (
            (ends.client.ip().to_canonical(), ends.client.port()),
            (ends.here.ip().to_canonical(), ends.here.port()),
        )
    });
    match version {
        ProxyVersion::V1 => match ends {
            None => b"PROXY UNKNOWN\r\n".to_vec(),
            Some(((IpAddr::V4(client), from), (IpAddr::V4(here), to))) => {
                format!("PROXY TCP4 {client} {here} {from} {to}\r\n").into_bytes()
            }
            Some(((client, from), (here, to))) => {
                format!("PROXY TCP6 {} {} {from} {to}\r\n", to_v6(client), to_v6(here)).into_bytes()
            }
        },
        ProxyVersion::V2 => {
            let mut out = SIGNATURE.to_vec();
            match ends {
                None => out.extend_from_slice(&[V2_LOCAL, UNSPECIFIED, 0, 0]),
                Some(((IpAddr::V4(client), from), (IpAddr::V4(here), to))) => {
                    out.extend_from_slice(&[V2_PROXY, TCP_OVER_IPV4, 0, 12]);
                    out.extend_from_slice(&client.octets());
                    out.extend_from_slice(&here.octets());
                    out.extend_from_slice(&from.to_be_bytes());
                    out.extend_from_slice(&to.to_be_bytes());
                }
                Some(((client, from), (here, to))) => {
                    out.extend_from_slice(&[V2_PROXY, TCP_OVER_IPV6, 0, 36]);
                    out.extend_from_slice(&to_v6(client).octets());
                    out.extend_from_slice(&to_v6(here).octets());
                    out.extend_from_slice(&from.to_be_bytes());
                    out.extend_from_slice(&to.to_be_bytes());
                }
            }
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: &str, here: &str) -> Option<Ends> {
        Some(Ends {
            client: client.parse().unwrap(),
            here: here.parse().unwrap(),
        })
    }

    #[test]
    fn version_1_is_a_line() {
        for (ends, line) in [
            (None, "PROXY UNKNOWN\r\n"),
            (
                ends("192.0.2.7:4711", "198.51.100.1:80"),
                "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n",
            ),
            (
                ends("[::ffff:192.0.2.7]:4711", "[::ffff:198.51.100.1]:80"),
                "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n",
            ),
            (
                ends("[2001:db8::7]:65535", "192.0.2.1:443"),
                "PROXY TCP6 2001:db8::7 ::ffff:192.0.2.1 65535 443\r\n",
            ),
        ] {
            let header = header(ProxyVersion::V1, ends);
            assert_eq!(String::from_utf8(header).unwrap(), line);
        }
    }

    #[test]
    fn version_2_is_binary() {
        let v2 = |ends| header(ProxyVersion::V2, ends);
        let signature = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
        ];
        assert_eq!(v2(None), [&signature[..], &[0x20, 0, 0, 0]].concat());
        let expected = [
            &signature[..],
            &[0x21, 0x11, 0, 12, 192, 0, 2, 7, 198, 51, 100, 1],
            &[0x12, 0x67, 0, 80],
        ]
        .concat();
        assert_eq!(v2(ends("192.0.2.7:4711", "198.51.100.1:80")), expected);
        let v6 = v2(ends("[2001:db8::7]:1", "[2001:db8::1]:2"));
        assert_eq!((v6[13], usize::from(v6[15])), (0x21, v6.len() - 16));
        assert_eq!(&v6[16..20], &[0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(&v6[48..], &[0, 1, 0, 2]);
    }
}
