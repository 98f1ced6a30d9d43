//! One line of the log, matched against the compiled format.

use super::date::{self, Written};
use super::format::{DateStyle, Field, LogFormat, Part, SLOTS, Shape, Slot};
use super::latency::LatencyFrom;
use memchr::{memchr, memmem};

/// Where a field without a fixed shape ends can be tried at so many places in one line; past that it is given up.
const TRIES_MAX: u32 = 2_000;

/// What one line tells of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The frontend, without the `~` of an encrypted connection; `None` where the format does not have it.
    pub frontend: Option<&'a str>,
    /// The backend; the frontend's name where none was chosen.
    pub backend: &'a str,
    /// The server; a name in angle brackets (`<NOSRV>`, `<STATS>`, `<CACHE>`) where no server was asked.
    pub server: &'a str,
    /// The status sent to the client; `None` where none was sent (-1).
    pub status: Option<u16>,
    /// The two characters of the termination state: who ended it, and when.
    pub termination: [u8; 2],
    /// The latency that the format gives ([`LogFormat::latency_from`]) in whole milliseconds, cut off; `None` where HAProxy
    /// has none (-1).
    pub latency_ms: Option<u64>,
    /// From the request complete to the last byte of the answer, where that is another latency than the one above and the
    /// format tells it; in whole milliseconds, cut off.
    pub to_last_byte_ms: Option<u64>,
    /// When the request ended, as the line's date plus its time; `None` where the format cannot tell.
    pub ended: Option<Written>,
}

/// Why a line cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LineError {
    /// It does not have the shape of the format.
    #[error("it does not have the shape of the log format")]
    Mismatch,
    /// It ends before the last field that is needed.
    #[error("it ends before the last field that is needed")]
    Truncated,
    /// It is longer than 64 KiB.
    #[error("it is longer than 64 KiB")]
    TooLong,
    /// A date or number in it is none.
    #[error("a date or a number in it is none")]
    Value,
    /// It was written before the request had ended.
    #[error("it was written before the request had ended (`option logasap`)")]
    Logasap,
    /// It is JSON, and the format is not.
    #[error("it is JSON, and the log format is not")]
    Json,
    /// It fits the format in too many ways.
    #[error("it fits the log format in too many ways")]
    Ambiguous,
}

/// The longest line that is looked at, bytes. HAProxy writes 65535 at most.
pub(super) const LINE_MAX: usize = 65_536;

impl LogFormat {
    /// Reads one message of HAProxy: the line without syslog's header and without the line end.
    ///
    /// # Errors
    /// [`LineError`]; no line is fatal.
    pub fn parse<'a>(&self, line: &'a [u8]) -> Result<Entry<'a>, LineError> {
        if line.len() > LINE_MAX {
            return Err(LineError::TooLong);
        }
        let mut matching = Matching {
            format: self,
            line,
            found: [None; SLOTS],
            tries: 0,
            ended_early: false,
        };
        // HAProxy writes no space at the beginning, but relays do.
        let start = line.iter().position(|&b| b != b' ').unwrap_or(line.len());
        if !matching.run(0, start) {
            return Err(match () {
                () if matching.tries > TRIES_MAX => LineError::Ambiguous,
                () if matching.ended_early => LineError::Truncated,
                () => LineError::Mismatch,
            });
        }
        matching.entry()
    }
}

struct Matching<'f, 'a> {
    format: &'f LogFormat,
    line: &'a [u8],
    found: [Option<(u32, u32)>; SLOTS],
    tries: u32,
    /// Some part found the line to be over.
    ended_early: bool,
}

impl<'a> Matching<'_, 'a> {
    /// Whether the parts from `part` on match the line from `at` on. Recursion is bounded by the parts of the
    /// format, and the work by [`TRIES_MAX`].
    fn run(&mut self, mut part: usize, mut at: usize) -> bool {
        let format = self.format;
        while part < format.matched {
            match &format.parts[part] {
                Part::Space => match self.space(at) {
                    Some(behind) => at = behind,
                    None => return false,
                },
                Part::Literal(literal) => {
                    let rest = &self.line[at..];
                    if !rest.starts_with(literal) {
                        self.ended_early |= literal.starts_with(rest);
                        return false;
                    }
                    at += literal.len();
                }
                Part::Field(field) => {
                    if let Some(extent) = self.fixed(*field, at) {
                        match extent {
                            Some((from, to, behind)) => {
                                self.keep(*field, from, to);
                                at = behind;
                            }
                            None => return false,
                        }
                    } else {
                        return self.search(*field, part, at);
                    }
                }
            }
            part += 1;
        }
        true
    }

    fn keep(&mut self, field: Field, from: usize, to: usize) {
        if let Some(slot) = field.slot {
            // A line is at most LINE_MAX bytes long.
            self.found[slot as usize] = Some((from as u32, to as u32));
        }
    }

    /// Behind the spaces at `at`. None need be there where nothing was written since the last, because HAProxy
    /// does not write two in a row; nor at the end, where it cuts the last off.
    fn space(&mut self, at: usize) -> Option<usize> {
        let behind = at + self.line[at..].iter().take_while(|&&b| b == b' ').count();
        let written_before = at > 0 && self.line[at - 1] != b' ';
        if behind == at && written_before {
            if at == self.line.len() {
                self.ended_early = true;
            } else {
                return None;
            }
        }
        Some(behind)
    }

    /// For a field whose shape says where it ends: from, to, and behind its quotes; the inner `None` where what
    /// stands there is not of the shape. The outer `None` for a field whose end must be searched.
    #[allow(clippy::option_option)]
    fn fixed(&mut self, field: Field, at: usize) -> Option<Option<(usize, usize, usize)>> {
        let line = self.line;
        let opened = field.quoted && line.get(at) == Some(&b'"');
        let from = at + usize::from(opened);
        let rest = line.get(from..).unwrap_or_default();
        let length = match field.shape {
            Shape::Word | Shape::Text | Shape::Free => return None,
            Shape::Captures if rest.first() == Some(&b'{') => memchr(b'}', rest).map(|end| end + 1),
            Shape::Captures => Some(0),
            Shape::Number | Shape::Date(DateStyle::Epoch) => number_length(rest),
            Shape::Termination(length) => {
                let length = usize::from(length);
                let state = |b: &u8| b.is_ascii_alphabetic() || *b == b'-';
                let whole = rest.iter().take_while(|b| state(b)).take(length + 1).count() == length;
                whole.then_some(length)
            }
            Shape::Date(style) => date::length(style, rest),
        };
        let Some(length) = length else {
            self.ended_early |= rest.len() < longest(field.shape);
            return Some(None);
        };
        let to = from + length;
        if opened && line.get(to) != Some(&b'"') {
            self.ended_early |= to == line.len();
            return Some(None);
        }
        Some(Some((from, to, to + usize::from(opened))))
    }

    /// Tries the ends that a field without a fixed shape can have, the nearest first.
    fn search(&mut self, field: Field, part: usize, at: usize) -> bool {
        let format = self.format;
        let line = self.line;
        let opened = field.quoted && line.get(at) == Some(&b'"');
        let from = at + usize::from(opened);
        let limit = match field.shape {
            // A word has no space in it, so it ends at the next one at the latest.
            Shape::Word => memchr(b' ', &line[from..]).map_or(line.len(), |offset| from + offset),
            _ => line.len(),
        };
        // A quoted field may be empty whatever it is; of the others only those that say so.
        let mut next = from + usize::from(!opened && field.shape != Shape::Free);
        while next <= limit {
            let end = if opened {
                memchr(b'"', &line[next..]).map(|offset| next + offset)
            } else {
                match format.parts.get(part + 1) {
                    None => Some(line.len()),
                    Some(Part::Field(_)) => Some(next),
                    Some(Part::Literal(literal)) => {
                        memmem::find(&line[next..], literal).map(|offset| next + offset)
                    }
                    // Nothing may have been written, and then no second space was.
                    Some(Part::Space) if next == from && from > 0 && line[from - 1] == b' ' => Some(from),
                    Some(Part::Space) => {
                        Some(memchr(b' ', &line[next..]).map_or(line.len(), |offset| next + offset))
                    }
                }
            };
            let Some(end) = end.filter(|&end| end <= limit) else {
                self.ended_early |= limit == line.len();
                return false;
            };
            self.tries += 1;
            if self.tries > TRIES_MAX {
                return false;
            }
            self.keep(field, from, end);
            if self.run(part + 1, end + usize::from(opened)) {
                return true;
            }
            next = end + 1;
        }
        false
    }

    fn bytes(&self, slot: Slot) -> Option<&'a [u8]> {
        self.found[slot as usize].map(|(from, to)| &self.line[from as usize..to as usize])
    }

    fn text(&self, slot: Slot) -> Result<Option<&'a str>, LineError> {
        self.bytes(slot)
            .map(|bytes| std::str::from_utf8(bytes).map_err(|_| LineError::Value))
            .transpose()
    }

    /// A number of the line, and whether HAProxy marked it as not final.
    fn number(&self, slot: Slot) -> Result<Option<(i64, bool)>, LineError> {
        self.bytes(slot)
            .map(|bytes| {
                let (digits, more_to_come) = match bytes.strip_prefix(b"+") {
                    Some(digits) => (digits, true),
                    None => (bytes, false),
                };
                std::str::from_utf8(digits)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .map(|number| (number, more_to_come))
                    .ok_or(LineError::Value)
            })
            .transpose()
    }

    fn time_ms(&self, slot: Slot) -> Result<Option<u64>, LineError> {
        match self.number(slot)? {
            Some((_, true)) => Err(LineError::Logasap),
            // -1: the point that the timer ends at was never reached.
            Some((time, false)) => Ok(u64::try_from(time).ok()),
            None => Ok(None),
        }
    }

    /// From the request complete to the head of the answer; `None` where none came.
    fn first_byte_ms(&self) -> Result<Option<u64>, LineError> {
        let queued_ms = self.time_ms(Slot::QueueTime)?.unwrap_or(0);
        let connected_ms = self.time_ms(Slot::ConnectTime)?.unwrap_or(0);
        let answered_ms = self.time_ms(Slot::ResponseTime)?;
        Ok(answered_ms.map(|answered_ms| answered_ms.saturating_add(queued_ms).saturating_add(connected_ms)))
    }

    fn entry(&self) -> Result<Entry<'a>, LineError> {
        let format = self.format;
        let backend = self.text(Slot::Backend)?.ok_or(LineError::Mismatch)?;
        let server = self.text(Slot::Server)?.ok_or(LineError::Mismatch)?;
        let frontend = self.text(Slot::Frontend)?;
        let status = match self.number(Slot::Status)?.ok_or(LineError::Mismatch)?.0 {
            -1 | 0 => None,
            status @ 100..=999 => Some(status as u16),
            _ => return Err(LineError::Value),
        };
        let state = self.bytes(Slot::Termination).ok_or(LineError::Mismatch)?;
        let &[who, when, ..] = state else {
            return Err(LineError::Mismatch);
        };
        let total_ms = self.time_ms(Slot::TotalTime)?;
        let active_ms = match self.time_ms(Slot::ActiveTime)? {
            // The two are -1 where they were not reached, and then nothing was spent in them.
            None if self.bytes(Slot::IdleTime).is_some() => {
                let idle_ms = self.time_ms(Slot::IdleTime)?.unwrap_or(0);
                let handshake_ms = self.time_ms(Slot::HandshakeTime)?.unwrap_or(0);
                total_ms.map(|total| total.saturating_sub(idle_ms).saturating_sub(handshake_ms))
            }
            active_ms => active_ms,
        };
        let request_ms = self.time_ms(Slot::RequestTime)?.unwrap_or(0);
        let last_byte_ms = active_ms.map(|active| active.saturating_sub(request_ms));
        let latency_ms = match format.latency_from {
            LatencyFrom::FirstByte => self.first_byte_ms()?,
            LatencyFrom::LastByte => last_byte_ms,
            LatencyFrom::Active | LatencyFrom::TotalLessIdle => active_ms,
            LatencyFrom::Total => total_ms,
        };
        let began = self.bytes(Slot::Date).ok_or(LineError::Mismatch)?;
        let began = date::parse(format.date_style, began).ok_or(LineError::Value)?;
        let lasted_ms = if format.date_of_request {
            // A format with neither has the connection's total time, which is too long after an idle one.
            active_ms.or(total_ms)
        } else {
            total_ms
        };
        Ok(Entry {
            frontend: frontend.map(|name| name.strip_suffix('~').unwrap_or(name)),
            backend,
            server,
            status,
            termination: [who, when],
            latency_ms,
            to_last_byte_ms: last_byte_ms.filter(|_| format.tells_last_byte_apart()),
            ended: lasted_ms.map(|lasted_ms| began.later_by_ms(lasted_ms)),
        })
    }
}

/// How many bytes an optional sign and its digits take; `None` where there is no digit. Nineteen digits at most,
/// so that no number overflows unseen.
fn number_length(rest: &[u8]) -> Option<usize> {
    let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let digits = rest[sign..].iter().take_while(|b| b.is_ascii_digit()).count();
    (1..=19).contains(&digits).then_some(sign + digits)
}

/// The most bytes that a value of a fixed shape can take, to tell a line that was cut from one that differs.
fn longest(shape: Shape) -> usize {
    match shape {
        Shape::Number => 1,
        Shape::Termination(length) => usize::from(length),
        Shape::Captures => usize::MAX,
        Shape::Date(style) => date::written_length(style),
        Shape::Word | Shape::Text | Shape::Free => 0,
    }
}
