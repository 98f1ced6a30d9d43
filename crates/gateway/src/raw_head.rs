//! The raw bytes of request heads, for what the parsed head no longer tells.
//!
//! hyper drops a Content-Length beside a Transfer-Encoding without a word (RFC 9112 section 6.3). So the bytes of a head are
//! kept until it was looked at, and only that head is: what a body says of lengths is nobody's framing.

use std::ops::Range;

use bytes::Bytes;

use crate::chunked::{Decoder, Piece};

/// Header fields that are parsed here; a head with more is not looked at.
const MAX_FIELDS: usize = 128;

/// What a head says of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RawHead {
    /// Its bytes, with the empty line.
    length: usize,
    /// Where the target is, within it.
    target: Range<usize>,
    has_coding: bool,
    /// The first Content-Length; 0 where it is no number.
    content_length: Option<u64>,
}

/// The bytes that were read while a head was waited for, with what of bodies and further requests came with them.
#[derive(Debug, Default)]
pub(crate) struct RawHeads {
    bytes: Vec<u8>,
    /// Requests that were read out of them.
    requests: usize,
    /// So many requests were passed over, and so many bytes.
    passed: usize,
    at: usize,
}

impl RawHeads {
    /// The bytes since the last request's end, as far as they are kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The next bytes begin a head, or go on with one of which a part came with the request before.
    pub(crate) fn begin(&mut self) {
        // What ends with an empty line has no part of a head at its end; that is nearly always so.
        let ends_whole = self.bytes.ends_with(b"\n\r\n") || self.bytes.ends_with(b"\n\n");
        let rest = match ends_whole {
            true => None,
            false => self.pass(self.requests).filter(|at| *at < self.bytes.len()),
        };
        match rest {
            Some(at) => drop(self.bytes.drain(..at)),
            None => self.bytes.clear(),
        }
        (self.requests, self.passed, self.at) = (0, 0, 0);
    }

    /// Keeps these bytes, as far as there is room within `limit`.
    pub(crate) fn note(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// A request was read.
    pub(crate) fn read_one(&mut self) {
        self.requests += 1;
    }

    /// Whether the head of the latest request has both Transfer-Encoding and Content-Length. A head that is not among the
    /// bytes (its beginning came with the body before it) is taken to have not: hyper reads it by its Transfer-Encoding alone
    /// and closes the connection behind it, which is the other thing that RFC 9112 section 6.1 allows.
    pub(crate) fn has_conflicting_length(&mut self) -> bool {
        self.latest()
            .is_some_and(|(_, head)| head.has_coding && head.content_length.is_some())
    }

    /// Whether the target of the latest request is an absolute one with neither path nor query: parsed, its path is `/` as if
    /// it had been sent.
    pub(crate) fn has_empty_path(&mut self) -> bool {
        let Some((bytes, head)) = self.latest() else {
            return false;
        };
        let target = &bytes[head.target];
        let scheme_end = target.windows(3).position(|three| three == b"://");
        scheme_end.is_some_and(|end| !target[end + 3..].iter().any(|byte| b"/?".contains(byte)))
    }

    /// The head of the latest request and the bytes that it begins, if they are there.
    fn latest(&mut self) -> Option<(&[u8], RawHead)> {
        let at = self.pass(self.requests.checked_sub(1)?)?;
        let bytes = &self.bytes[at..];
        parse(bytes).map(|head| (bytes, head))
    }

    /// Where the request behind so many others begins, where that is known.
    fn pass(&mut self, requests: usize) -> Option<usize> {
        while self.passed < requests {
            let rest = self.bytes.get(self.at..)?;
            let head = parse(rest)?;
            let body = if head.has_coding {
                chunked_length(rest.get(head.length..)?)?
            } else {
                usize::try_from(head.content_length.unwrap_or(0)).ok()?
            };
            self.at = self.at.checked_add(head.length)?.checked_add(body)?;
            self.passed += 1;
        }
        (self.at <= self.bytes.len()).then_some(self.at)
    }
}

/// The head at the front, if it is there whole.
fn parse(bytes: &[u8]) -> Option<RawHead> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = request.parse(bytes) else {
        return None;
    };
    // It is a part of the bytes.
    let target = request.path?.as_bytes();
    let start = (target.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    let mut head = RawHead {
        length,
        target: start..start + target.len(),
        has_coding: false,
        content_length: None,
    };
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            head.has_coding = true;
        } else if field.name.eq_ignore_ascii_case("content-length") && head.content_length.is_none() {
            let number = std::str::from_utf8(field.value)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            head.content_length = Some(number.unwrap_or(0));
        }
    }
    Some(head)
}

/// The bytes of the chunked body at the front, if it is there whole.
fn chunked_length(body: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new();
    let mut input = Bytes::copy_from_slice(body);
    loop {
        match decoder.next(&mut input) {
            Ok(Piece::Data(_)) => {}
            Ok(Piece::Trailers(_) | Piece::End) => return Some(body.len() - input.len()),
            Ok(Piece::More) | Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str =
        "POST /b HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\ntransfer-ENCODING: chunked\r\n\r\n";
    const CHUNKED: &str = "POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// After each of the requests that these bytes hold: whether it conflicts.
    fn judged(reads: &[&str], requests: usize) -> Vec<bool> {
        let mut raw = RawHeads::default();
        for read in reads {
            raw.note(read.as_bytes(), 1 << 16);
        }
        (0..requests)
            .map(|_| {
                raw.read_one();
                raw.has_conflicting_length()
            })
            .collect()
    }

    #[test]
    fn only_the_head_counts_and_not_the_body() {
        assert_eq!(judged(&[BOTH], 1), [true]);
        assert_eq!(judged(&["\r\n", BOTH], 1), [true], "an empty line before");
        assert_eq!(judged(&[&BOTH.replace("\r\n", "\n")], 1), [true]);
        assert_eq!(judged(&[CHUNKED], 1), [false]);
        let body =
            format!("{CHUNKED}39\r\n\nContent-Length: 5\nTransfer-Encoding: chunked\nX: y\r\n0\r\n\r\n");
        assert_eq!(judged(&[&body], 1), [false], "a body that looks like a head");
        let part = "\r\n--x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc";
        let posts = format!("{CHUNKED}{:x}\r\n{part}\r\n0\r\n\r\n{BOTH}", part.len());
        assert_eq!(judged(&[&posts], 2), [false, true], "the one behind it");
    }

    #[test]
    fn a_target_without_a_path_is_told_from_one_with_a_slash() {
        let mut raw = RawHeads::default();
        let targets = ["http://h", "http://h/", "http://h?q", "HTTP://[::1]:80", "/", "*"];
        for target in targets {
            raw.note(
                format!("OPTIONS {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
                1 << 16,
            );
        }
        let empty = targets.map(|_| {
            raw.read_one();
            raw.has_empty_path()
        });
        assert_eq!(empty, [true, false, false, true, false, false]);
    }

    #[test]
    fn pipelined_requests_are_told_apart() {
        let length = "POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\nTransfe";
        let all = format!("{length}{CHUNKED}0\r\n\r\nGET / HTTP/1.1\r\n\r\n{BOTH}");
        assert_eq!(judged(&[&all], 4), [false, false, false, true]);
        let (front, back) = all.split_at(all.len() - 30);
        assert_eq!(judged(&[front, back], 4), [false, false, false, true]);
    }

    #[test]
    fn what_came_of_a_head_with_the_request_before_is_kept() {
        let (front, back) = BOTH.split_at(40);
        let mut raw = RawHeads::default();
        raw.note(format!("GET / HTTP/1.1\r\n\r\n{front}").as_bytes(), 1 << 16);
        raw.read_one();
        raw.begin();
        raw.note(back.as_bytes(), 1 << 16);
        raw.read_one();
        assert!(raw.has_conflicting_length());
        raw.begin();
        assert!(raw.bytes().is_empty());
    }

    #[test]
    fn a_head_that_is_not_there_is_not_judged() {
        assert_eq!(
            judged(&["nt-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"], 1),
            [false]
        );
        assert_eq!(judged(&[BOTH], 2), [true, false]);
        let mut raw = RawHeads::default();
        raw.note(BOTH.as_bytes(), 20);
        raw.read_one();
        assert!(!raw.has_conflicting_length());
        assert_eq!(raw.bytes().len(), 20);
    }
}
