use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

/// Bytes that arrive in pieces; after the last the connection has ended.
struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    fn of(bytes: &[u8], every: usize) -> Self {
        Self(bytes.chunks(every.max(1)).map(<[u8]>::to_vec).collect())
    }

    fn rest(self) -> Vec<u8> {
        self.0.into_iter().flatten().collect()
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let taken = piece.len().min(out.remaining());
            let rest = piece.split_off(taken);
            out.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Source for Pieces {
    async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.0.front() else { return Ok(0) };
        let length = piece.len().min(buffer.len());
        buffer[..length].copy_from_slice(&piece[..length]);
        Ok(length)
    }
}

fn take(bytes: &[u8], every: usize) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
    let mut source = Pieces::of(bytes, every);
    // Nothing here ever waits.
    let mut future = Box::pin(take_header(&mut source));
    let taken = match future
        .as_mut()
        .poll(&mut Context::from_waker(std::task::Waker::noop()))
    {
        Poll::Ready(taken) => taken,
        Poll::Pending => panic!("it waits for nothing"),
    };
    drop(future);
    (taken, source.rest())
}

fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn source(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn lines_of_version_1_are_read_as_the_protocol_writes_them() {
    for (line, expected) in [
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n",
            Ok(source("192.0.2.7:56324")),
        ),
        (
            "PROXY TCP6 2001:db8::7 ::1 1 65535\r\n",
            Ok(source("[2001:db8::7]:1")),
        ),
        ("PROXY UNKNOWN\r\n", Ok(None)),
        ("PROXY UNKNOWN ffff::1 anything at all\r\n", Ok(None)),
        ("PROXY UNKNOWNS\r\n", Err(Malformed::Line)),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\n",
            Err(Malformed::Length),
        ),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 9\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4  192.0.2.7 198.51.100.1 56324 443\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 +1 443\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4 192.0.2.7 198.51.100.1 01 443\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY TCP4 192.0.2.07 198.51.100.1 1 443\r\n",
            Err(Malformed::Line),
        ),
        ("PROXY TCP4 ::1 ::1 1 443\r\n", Err(Malformed::Line)),
        (
            "PROXY TCP6 192.0.2.7 198.51.100.1 1 443\r\n",
            Err(Malformed::Line),
        ),
        (
            "PROXY UDP4 192.0.2.7 198.51.100.1 1 443\r\n",
            Err(Malformed::Line),
        ),
        ("PROXY \r\n", Err(Malformed::Line)),
    ] {
        assert_eq!(parse_v1(line.as_bytes()), expected, "{line:?}");
    }
}

#[test]
fn headers_of_version_2_are_read_and_what_follows_is_left() {
    let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];
    let mut with_tlvs = v4.to_vec();
    with_tlvs.extend([4, 0, 3, 1, 2, 3]);
    with_tlvs.extend(vec![0; 3_000]);
    let mut v6 = vec![0x20, 1, 0xd, 0xb8];
    v6.resize(15, 0);
    v6.push(7);
    v6.extend([0; 16]);
    v6.extend([0x12, 0x34, 0, 80]);
    for (header, expected) in [
        (v2(0x21, 0x11, &v4), source("192.0.2.7:56324")),
        (v2(0x21, 0x11, &with_tlvs), source("192.0.2.7:56324")),
        (v2(0x21, 0x21, &v6), source("[2001:db8::7]:4660")),
        (v2(0x20, 0x11, &v4), None),
        (v2(0x20, 0x00, &[]), None),
        (v2(0x21, 0x00, &[9; 40]), None),
        (v2(0x21, 0x31, &[b'/'; 216]), None),
        (v2(0x21, 0x12, &v4), None),
    ] {
        for every in [1, 7, 1 << 20] {
            let mut bytes = header.clone();
            bytes.extend(b"GET / HTTP/1.1\r\n\r\n");
            let (taken, rest) = take(&bytes, every);
            assert_eq!(taken.unwrap(), expected);
            assert_eq!(rest, b"GET / HTTP/1.1\r\n\r\n");
        }
    }
}

#[test]
fn what_is_no_header_is_refused_with_the_reason() {
    for (bytes, said) in [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), "does not begin"),
        (b"proxy TCP4 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(), "does not begin"),
        ([b"PROXY TCP4 ", &[b'1'; 200][..]].concat(), "107"),
        (v2(0x11, 0x11, &[0; 12]), "does not exist"),
        (v2(0x22, 0x11, &[0; 12]), "does not exist"),
        (v2(0x21, 0x41, &[0; 12]), "does not exist"),
        (v2(0x21, 0x11, &[0; 11]), "shorter"),
        (v2(0x21, 0x21, &[0; 12]), "shorter"),
        (v2(0x20, 0, &vec![0; 4081]), "4096"),
    ] {
        let error = take(&bytes, 5).0.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let cut = take(&v2(0x21, 0x11, &[0; 12])[..20], 3).0.unwrap_err();
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
}

proptest! {
    /// Whatever comes, in whatever pieces: it is taken or refused, never beyond the bound, and pieces change nothing.
    #[test]
    fn hostile_bytes_are_refused_and_never_read_beyond_a_header(
        start in prop_oneof![
            Just(Vec::new()),
            Just(b"PROXY ".to_vec()),
            Just(b"PROXY TCP4 ".to_vec()),
            Just(V2_SIGNATURE.to_vec()),
            Just([&V2_SIGNATURE[..], &[0x21, 0x11, 0x00]].concat()),
            Just([&V2_SIGNATURE[..], &[0x21, 0x21]].concat()),
        ],
        rest in prop::collection::vec(any::<u8>(), 0..5000),
        every in 1_usize..400,
    ) {
        let bytes = [start, rest].concat();
        let (whole, left) = take(&bytes, bytes.len());
        let (pieces, left_of_pieces) = take(&bytes, every);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let (Ok(one), Ok(two)) = (&whole, &pieces) {
            prop_assert_eq!(one, two);
            prop_assert_eq!(&left, &left_of_pieces);
        }
        prop_assert!(bytes.len() - left.len() <= 4096);
    }

    #[test]
    fn every_source_that_a_proxy_can_write_is_read(ip in any::<IpAddr>(), port in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..50)) {
        let (family, any, code) = match ip {
            IpAddr::V4(_) => ("TCP4", "1.2.3.4", 0x11),
            IpAddr::V6(_) => ("TCP6", "::", 0x21),
        };
        let line = format!("PROXY {family} {ip} {any} {port} 443\r\n").into_bytes();
        let mut addresses = match ip {
            IpAddr::V4(ip) => [&ip.octets()[..], &[0; 4]].concat(),
            IpAddr::V6(ip) => [&ip.octets()[..], &[0; 16]].concat(),
        };
        addresses.extend(port.to_be_bytes());
        addresses.extend([0, 80]);
        for header in [line, v2(0x21, code, &addresses)] {
            let (taken, rest) = take(&[header, body.clone()].concat(), 11);
            prop_assert_eq!(taken.unwrap(), Some(SocketAddr::new(ip, port)));
            prop_assert_eq!(&rest, &body);
        }
    }
}
