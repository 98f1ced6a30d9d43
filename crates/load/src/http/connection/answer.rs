//! What comes back on a connection: an answer's head and the end of its body (RFC 9112), fed in the pieces in which it comes.

use http::StatusCode;
use httparse::{EMPTY_HEADER, Status};

/// The longest head, and the longest trailer section, bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The most header fields.
const MAX_FIELDS: usize = 100;

/// The longest line with a chunk's size, its extensions included, bytes.
const MAX_LINE_BYTES: usize = 1024;

/// In how many of a body's first bytes a marker is looked for.
const BEGINNING: usize = 512;

/// What came is no answer in HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Where the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of the body are left.
    Length(u64),
    /// In the line with a chunk's size.
    ChunkSize,
    /// So many bytes of the chunk, and then a CRLF.
    Chunk(u64),
    ChunkEnd,
    /// In the lines after the last chunk.
    Trailers,
    /// The body ends with the connection.
    UntilEnd,
    Done,
}

/// A reader of one answer after the other. Its memory is kept from one to the next.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    state: State,
    /// What has come of a head, a line or a trailer section whose end has not: at most [`MAX_HEAD_BYTES`].
    partial: Vec<u8>,
    /// Whether anything of the answer has come.
    pub(crate) has_begun: bool,
    pub(crate) status: StatusCode,
    pub(crate) body_bytes: u64,
    /// Whether the connection can carry another request after it.
    pub(crate) keeps_alive: bool,
    /// Whether it answers a HEAD request, and so has no body.
    is_to_head: bool,
    /// The body's first bytes, where they are wanted.
    beginning: Option<Vec<u8>>,
}

impl AnswerReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Done,
            partial: Vec::new(),
            has_begun: false,
            status: StatusCode::OK,
            body_bytes: 0,
            keeps_alive: true,
            is_to_head: false,
            beginning: None,
        }
    }

    /// Begins the answer to the next request.
    pub(crate) fn begin(&mut self, is_to_head: bool, keeps_beginning: bool) {
        self.state = State::Head;
        self.partial.clear();
        self.has_begun = false;
        self.body_bytes = 0;
        self.keeps_alive = true;
        self.is_to_head = is_to_head;
        self.beginning = keeps_beginning.then(Vec::new);
    }

    /// Whether the body's first 512 bytes hold a marker. They must have been asked for.
    pub(crate) fn holds(&self, marker: &[u8]) -> bool {
        let beginning = self.beginning.as_deref().unwrap_or_default();
        marker.is_empty() || beginning.windows(marker.len()).any(|bytes| bytes == marker)
    }

    /// Takes what has come; true once the answer is whole. What comes behind it was not asked for, and the connection is then
    /// not used again.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<bool, Malformed> {
        self.has_begun |= !bytes.is_empty();
        while !bytes.is_empty() && self.state != State::Done {
            bytes = self.step(bytes)?;
        }
        if !bytes.is_empty() {
            self.keeps_alive = false;
        }
        Ok(self.state == State::Done)
    }

    /// The connection has ended; whether that is how the answer ends.
    pub(crate) fn ended(&mut self) -> bool {
        self.keeps_alive = false;
        matches!(self.state, State::UntilEnd | State::Done)
    }

    /// Takes something off the front; what is left.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        match self.state {
            State::Head => self.in_whole(bytes, MAX_HEAD_BYTES, Self::head),
            State::ChunkSize => self.in_whole(bytes, MAX_LINE_BYTES, Self::chunk_size),
            State::ChunkEnd => self.in_whole(bytes, 2, Self::chunk_end),
            State::Trailers => self.in_whole(bytes, MAX_HEAD_BYTES, Self::trailers),
            State::Length(left) => {
                let (rest, left) = self.body(bytes, left);
                self.state = if left == 0 {
                    State::Done
                } else {
                    State::Length(left)
                };
                Ok(rest)
            }
            State::Chunk(left) => {
                let (rest, left) = self.body(bytes, left);
                self.state = if left == 0 {
                    State::ChunkEnd
                } else {
                    State::Chunk(left)
                };
                Ok(rest)
            }
            State::UntilEnd => Ok(self.body(bytes, u64::MAX).0),
            State::Done => Ok(bytes),
        }
    }

    /// Takes what is only understood as a whole, in place where it came as a whole. `part` says how long it is, and nothing
    /// where its end has not come.
    fn in_whole<'a>(
        &mut self,
        bytes: &'a [u8],
        longest: usize,
        part: fn(&mut Self, &[u8]) -> Result<Option<usize>, Malformed>,
    ) -> Result<&'a [u8], Malformed> {
        let before = self.partial.len();
        let found = if before == 0 {
            part(self, bytes)?
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            // A byte beyond the longest is enough to see that it is too long.
            let more = &bytes[..bytes.len().min(longest + 1 - before)];
            whole.extend_from_slice(more);
            // All of them end with a line, so nothing is read again and again that comes byte by byte.
            let found = if more.contains(&b'\n') {
                part(self, &whole)
            } else {
                Ok(None)
            };
            self.partial = whole;
            found?
        };
        let Some(length) = found else {
            if before + bytes.len() > longest {
                return Err(Malformed);
            }
            if before == 0 {
                self.partial.extend_from_slice(bytes);
            }
            return Ok(&[]);
        };
        self.partial.clear();
        Ok(&bytes[length - before..])
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        let length = match answer.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Malformed),
        };
        let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
        self.status = status.ok_or(Malformed)?;
        let is_final = !self.status.is_informational() || self.status == StatusCode::SWITCHING_PROTOCOLS;
        if !is_final {
            // Another head follows (RFC 9110 section 15.2).
            return Ok(Some(length));
        }
        let mut keeps_alive = answer.version == Some(1);
        let (mut closes, mut bytes_left, mut coding) = (false, None, None);
        for field in answer.headers.iter() {
            // The length tells most fields from these.
            match field.name.len() {
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    let given = length_of(field.value)?;
                    if bytes_left.replace(given).is_some_and(|earlier| earlier != given) {
                        return Err(Malformed);
                    }
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = field
                        .value
                        .rsplit(|byte| *byte == b',')
                        .next()
                        .unwrap_or_default();
                    coding = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
                }
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        closes |= option.eq_ignore_ascii_case(b"close");
                        keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        self.keeps_alive = keeps_alive && !closes && self.status != StatusCode::SWITCHING_PROTOCOLS;
        let is_bodiless = self.is_to_head
            || matches!(
                self.status,
                StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            );
        // RFC 9112 section 6.3: a transfer coding comes before a length.
        self.state = match (coding, bytes_left) {
            _ if is_bodiless => State::Done,
            (Some(true), _) => State::ChunkSize,
            (None, Some(0)) => State::Done,
            (None, Some(left)) => State::Length(left),
            (Some(false), _) | (None, None) => State::UntilEnd,
        };
        self.keeps_alive &= self.state != State::UntilEnd;
        Ok(Some(length))
    }

    fn chunk_size(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        // The parser takes a line without a digit for a size of zero.
        if bytes.first().is_some_and(|first| !first.is_ascii_hexdigit()) {
            return Err(Malformed);
        }
        match httparse::parse_chunk_size(bytes) {
            Ok(Status::Complete((length, size))) => {
                self.state = if size == 0 {
                    State::Trailers
                } else {
                    State::Chunk(size)
                };
                Ok(Some(length))
            }
            Ok(Status::Partial) => Ok(None),
            Err(_) => Err(Malformed),
        }
    }

    fn chunk_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if bytes.len() < 2 {
            return if bytes == b"\r" { Ok(None) } else { Err(Malformed) };
        }
        if !bytes.starts_with(b"\r\n") {
            return Err(Malformed);
        }
        self.state = State::ChunkSize;
        Ok(Some(2))
    }

    /// The trailer section: fields, which say nothing here, and an empty line.
    fn trailers(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        match httparse::parse_headers(bytes, &mut fields) {
            Ok(Status::Complete((length, _))) => {
                self.state = State::Done;
                Ok(Some(length))
            }
            Ok(Status::Partial) => Ok(None),
            Err(_) => Err(Malformed),
        }
    }

    /// Takes at most so many bytes of the body; what is left of the bytes and of the number.
    fn body<'a>(&mut self, bytes: &'a [u8], most: u64) -> (&'a [u8], u64) {
        // The lesser of a usize and a u64 fits both.
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        let (taken, rest) = bytes.split_at(length);
        self.body_bytes += length as u64;
        if let Some(beginning) = &mut self.beginning {
            let room = BEGINNING - beginning.len();
            beginning.extend_from_slice(&taken[..length.min(room)]);
        }
        (rest, most - length as u64)
    }
}

/// `1*DIGIT`, nothing else.
fn length_of(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let digits = std::str::from_utf8(value).map_err(|_| Malformed)?;
    digits.parse().map_err(|_| Malformed)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
