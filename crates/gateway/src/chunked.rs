//! The chunked transfer coding (RFC 9112 section 7.1), read strictly.
//!
//! Two peers that read the same chunked body differently are how requests are smuggled; so nothing is
//! forgiven: sizes are hexadecimal digits only, lines end in CRLF only, and every length has a bound.

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Longest chunk-size line, with its extensions.
const MAX_LINE_BYTES: usize = 1024;

/// Longest trailer section.
const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Most trailer fields.
const MAX_TRAILERS: usize = 64;

/// What is wrong with a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error("a chunk size is not a hexadecimal number of at most 15 digits")]
    Size,
    #[error("a chunk-size line is too long or holds a control character")]
    Line,
    #[error("a chunk does not end in CRLF")]
    End,
    #[error("the trailer section is not valid")]
    Trailers,
}

/// What came out of a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part of its data.
    Data(Bytes),
    /// Its trailer fields; the body ends here.
    Trailers(HeaderMap),
    /// The body ends here, without trailer fields.
    End,
    /// More input is needed.
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a chunk-size line.
    Line,
    /// So many bytes of data are left in the chunk.
    Data(u64),
    /// At the CRLF after a chunk's data.
    DataEnd,
    /// In the trailer section.
    Trailers,
    Done,
}

/// A decoder fed piece by piece.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// The beginning of a line, or of the trailer section, whose end has not come yet.
    partial: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Line,
            partial: Vec::new(),
        }
    }

    /// Takes the next piece off the front of `input`.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Piece, ChunkError> {
        loop {
            match self.state {
                State::Line => {
                    let Some(line) = self.line(input, MAX_LINE_BYTES).map_err(|()| ChunkError::Line)? else {
                        return Ok(Piece::More);
                    };
                    let size = chunk_size(&line)?;
                    self.state = if size == 0 {
                        State::Trailers
                    } else {
                        State::Data(size)
                    };
                }
                State::Data(left) => {
                    if input.is_empty() {
                        return Ok(Piece::More);
                    }
                    // The lesser of a usize and a u64 fits both.
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let left = left - length as u64;
                    self.state = if left == 0 {
                        State::DataEnd
                    } else {
                        State::Data(left)
                    };
                    return Ok(Piece::Data(input.split_to(length)));
                }
                State::DataEnd => {
                    while !input.is_empty() && self.partial.len() < 2 {
                        self.partial.push(input.get_u8());
                    }
                    match self.partial.as_slice() {
                        b"\r\n" => {
                            self.partial.clear();
                            self.state = State::Line;
                        }
                        b"" | b"\r" => return Ok(Piece::More),
                        _ => return Err(ChunkError::End),
                    }
                }
                State::Trailers => {
                    return match self.trailers(input)? {
                        None => Ok(Piece::More),
                        Some(trailers) => {
                            self.state = State::Done;
                            Ok(if trailers.is_empty() {
                                Piece::End
                            } else {
                                Piece::Trailers(trailers)
                            })
                        }
                    };
                }
                State::Done => return Ok(Piece::End),
            }
        }
    }

    /// A whole line without its CRLF, once it is there.
    fn line(&mut self, input: &mut Bytes, longest: usize) -> Result<Option<Vec<u8>>, ()> {
        let end = input.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let taken = input.split_to(end.unwrap_or(input.len()));
        if self.partial.len() + taken.len() > longest {
            return Err(());
        }
        self.partial.extend_from_slice(&taken);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.partial);
        if !line.ends_with(b"\r\n") {
            return Err(());
        }
        line.truncate(line.len() - 2);
        Ok(Some(line))
    }

    /// The trailer section, once its empty line is there.
    fn trailers(&mut self, input: &mut Bytes) -> Result<Option<HeaderMap>, ChunkError> {
        while !input.is_empty() {
            self.partial.push(input.get_u8());
            if self.partial.len() > MAX_TRAILER_BYTES {
                return Err(ChunkError::Trailers);
            }
            if self.partial == b"\r\n" || self.partial.ends_with(b"\r\n\r\n") {
                let trailers = parse_trailers(&self.partial)?;
                self.partial = Vec::new();
                return Ok(Some(trailers));
            }
        }
        Ok(None)
    }
}

/// `chunk-size [ chunk-ext ]`, of which the extension is dropped.
fn chunk_size(line: &[u8]) -> Result<u64, ChunkError> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    // 15 digits cannot overflow; no body has more.
    if digits == 0 || digits > 15 {
        return Err(ChunkError::Size);
    }
    let blank = extension
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    match extension.get(blank) {
        None if blank == 0 => {}
        Some(b';') => {}
        _ => return Err(ChunkError::Size),
    }
    if extension
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return Err(ChunkError::Line);
    }
    let text = std::str::from_utf8(size).map_err(|_| ChunkError::Size)?;
    u64::from_str_radix(text, 16).map_err(|_| ChunkError::Size)
}

/// Fields that must not come after the body: they would change its framing, routing or meaning.
pub(crate) fn may_trail(name: &HeaderName) -> bool {
    !matches!(
        name.as_str(),
        "transfer-encoding"
            | "content-length"
            | "host"
            | "connection"
            | "trailer"
            | "te"
            | "upgrade"
            | "content-encoding"
            | "content-type"
            | "content-range"
            | "authorization"
            | "set-cookie"
            | "cache-control"
            | "expect"
            | "max-forwards"
            | "keep-alive"
            | "proxy-connection"
    )
}

fn parse_trailers(section: &[u8]) -> Result<HeaderMap, ChunkError> {
    let mut trailers = HeaderMap::new();
    if section == b"\r\n" {
        return Ok(trailers);
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(section, &mut fields) else {
        return Err(ChunkError::Trailers);
    };
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ChunkError::Trailers)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| ChunkError::Trailers)?;
        if may_trail(&name) {
            trailers.append(name, value);
        }
    }
    Ok(trailers)
}

/// Writes trailer fields and the end of a chunked body.
pub(crate) fn encode_end(trailers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.iter().filter(|(name, _)| may_trail(name)) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "chunked_tests.rs"]
mod tests;
