//! The PROXY protocol from clients: for whom a proxy in front connects (haproxy.org, doc/proxy-protocol.txt, versions 1 and 2).
//!
//! The header is read to its last byte and no further, so that what follows is TLS or HTTP as it came.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

/// What a header of version 2 begins with.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What one of version 1 begins with.
const V1_START: &[u8] = b"PROXY ";
/// The longest of version 1, its line end included; the shortest is longer than the signature of version 2.
const V1_MAX_BYTES: usize = 107;
/// What of version 2 comes after its signature and before the addresses: version and command, family, length.
const V2_FIXED_BYTES: usize = 4;
/// Addresses and TLVs of version 2. Certificates of clients may be among the TLVs, so it is more than the 216 bytes of the longest addresses.
const V2_MAX_BYTES: usize = 4096 - V2_SIGNATURE.len() - V2_FIXED_BYTES;
/// The longest addresses of version 2 that are read: two of IPv6, with ports.
const V2_ADDRESS_BYTES: usize = 36;

/// Why a header is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it does not begin with a PROXY protocol header")]
    Start,
    #[error("a PROXY line of more than 107 bytes, or without CRLF")]
    Length,
    #[error(
        "a PROXY line that is none of `PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT` and `PROXY UNKNOWN`"
    )]
    Line,
    #[error("a version or command of the PROXY protocol that does not exist")]
    Command,
    #[error("a PROXY header of more than 4096 bytes")]
    TooLong,
    #[error("a PROXY header that is shorter than its addresses")]
    Addresses,
}

impl From<Malformed> for io::Error {
    fn from(error: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A decimal number as the protocol writes it: digits alone, and no zero before others.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The source in a line of version 1, its end included; `None` inside for UNKNOWN.
pub(crate) fn parse_v1(line: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
    let line = line.strip_suffix(b"\r\n").ok_or(Malformed::Length)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed::Line)?;
    let rest = line.strip_prefix("PROXY ").ok_or(Malformed::Start)?;
    // What is after it is not to be looked at.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Ok(None);
    }
    let words: Vec<&str> = rest.splitn(6, ' ').collect();
    let [family, source, destination, source_port, destination_port] = words[..] else {
        return Err(Malformed::Line);
    };
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let source = address(source).zip(number(source_port)).ok_or(Malformed::Line)?;
    address(destination)
        .zip(number::<u16>(destination_port))
        .ok_or(Malformed::Line)?;
    Ok(Some(SocketAddr::from(source)))
}

/// The beginning of a header of version 2: whose address it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct V2 {
    /// Bytes that follow, of which the first are the addresses.
    pub length: usize,
    /// Bytes of addresses that are to be read.
    pub addresses: usize,
}

/// Understands the four bytes after the signature.
pub(crate) fn parse_v2(fixed: [u8; V2_FIXED_BYTES]) -> Result<V2, Malformed> {
    let [command, family, high, low] = fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > V2_MAX_BYTES {
        return Err(Malformed::TooLong);
    }
    let addresses = match (command, family) {
        // LOCAL: the proxy itself, as for a health check; the family is not to be looked at.
        (0x20, _) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => V2_ADDRESS_BYTES,
        // Unspecified, datagrams, Unix sockets: no address that a client of TCP could have.
        (0x21, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => 0,
        _ => return Err(Malformed::Command),
    };
    if addresses > length {
        return Err(Malformed::Addresses);
    }
    Ok(V2 { length, addresses })
}

/// The source in the addresses of version 2.
pub(crate) fn v2_source(addresses: &[u8]) -> Option<SocketAddr> {
    let port = |at: usize| Some(u16::from_be_bytes(addresses.get(at..at + 2)?.try_into().ok()?));
    let ip: IpAddr = match addresses.len() {
        12 => <[u8; 4]>::try_from(&addresses[..4]).ok()?.into(),
        V2_ADDRESS_BYTES => <[u8; 16]>::try_from(&addresses[..16]).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port(if ip.is_ipv4() { 8 } else { 32 })?))
}

/// What a header is read from: it can be looked at before it is taken.
pub(crate) trait Source: AsyncRead + Unpin {
    /// Looks at what has arrived, and waits until there is something; 0 at the end.
    async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Source for TcpStream {
    async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::peek(self, buffer).await
    }
}

/// Takes the header from the front of a connection: the client's address, `None` where it says none (LOCAL, UNKNOWN).
///
/// # Errors
/// What it is not, or the end of the connection. It may take for ever: the caller's patience ends it.
pub(crate) async fn take_header(stream: &mut impl Source) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; V2_SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == V2_SIGNATURE {
        return take_v2(stream).await;
    }
    if !start.starts_with(V1_START) {
        return Err(Malformed::Start.into());
    }
    let mut line = [0; V1_MAX_BYTES];
    line[..start.len()].copy_from_slice(&start);
    let mut length = start.len();
    loop {
        if length == line.len() {
            return Err(Malformed::Length.into());
        }
        let there = stream.peek(&mut line[length..]).await?;
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = line[length..length + there]
            .iter()
            .position(|byte| *byte == b'\n');
        let taken = end.map_or(there, |end| end + 1);
        stream.read_exact(&mut line[length..length + taken]).await?;
        length += taken;
        if end.is_some() {
            return Ok(parse_v1(&line[..length])?);
        }
    }
}

async fn take_v2(stream: &mut impl Source) -> io::Result<Option<SocketAddr>> {
    let mut fixed = [0; V2_FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let V2 { length, addresses } = parse_v2(fixed)?;
    let mut read = [0; V2_ADDRESS_BYTES];
    stream.read_exact(&mut read[..addresses]).await?;
    let mut left = length - addresses;
    let mut skipped = [0; 256];
    while left > 0 {
        let piece = left.min(skipped.len());
        stream.read_exact(&mut skipped[..piece]).await?;
        left -= piece;
    }
    Ok(v2_source(&read[..addresses]))
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
