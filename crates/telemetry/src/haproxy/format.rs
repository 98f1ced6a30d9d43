//! HAProxy's `log-format` language, compiled into a parser of what it writes.
//!
//! Only what an observation needs is taken out of a line: the date, the total time, the status, the termination
//! state, and the names of frontend, backend and server. The rest is stepped over, and matching stops after the
//! last field that is needed, so a line that `log ... len` cut short behind it is as good as a whole one.

use super::latency::{LatencyFrom, tells_first_byte};
use super::quoting;
use std::fmt;

/// `option httplog`, HAProxy 1.8 to 3.x; the lines of `option httpslog` begin alike.
const HTTPLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq \
                       %hr %hs %{+Q}r";

/// `option httplog clf`.
const HTTPLOG_CLF: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc \
                           %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";

/// The line that is offered where a format lacks a field.
pub const WORKING_LOG_FORMAT: &str = "log-format \"%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc \
                                      %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r\"";

/// A format may have this many parts at most; HAProxy's own longest has about 50.
const PARTS_MAX: usize = 512;

/// A log format that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fields that an observation needs are not in the format.
    #[error(
        "the log format has no {missing}: the time, the outcome and the server of a request cannot be known. Put it \
         in, or use this line, which has all that is needed and equals `option httplog`:\n    {WORKING_LOG_FORMAT}"
    )]
    Missing {
        /// The fields, with their names in the format.
        missing: String,
    },
    /// The text is not a log format.
    #[error("log format, at byte {position} ({near:?}): {what}")]
    Syntax {
        /// Where, in bytes from the beginning of the format.
        position: usize,
        /// The text from there on, shortened.
        near: String,
        /// What is wrong there, and the remedy.
        what: String,
    },
    /// A quote is not closed, or there is more than one word.
    #[error("log format: {0}; give the line as it stands in HAProxy's configuration, or the format alone")]
    Quoting(String),
}

/// What a field of a line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Frontend,
    Backend,
    Server,
    Status,
    Termination,
    Date,
    ActiveTime,
    TotalTime,
    IdleTime,
    HandshakeTime,
    RequestTime,
    QueueTime,
    ConnectTime,
    ResponseTime,
}

/// How many slots there are.
pub(super) const SLOTS: usize = 14;

/// How a date is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateStyle {
    /// `06/Feb/2009:12:14:14.655`, in HAProxy's time zone.
    Milliseconds,
    /// `06/Feb/2009:12:14:14 +0100`.
    Zone,
    /// Seconds since 1970.
    Epoch,
}

/// What a field can look like, which says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An optional sign and digits.
    Number,
    /// So many letters and dashes.
    Termination(u8),
    /// A date.
    Date(DateStyle),
    /// No space in it.
    Word,
    /// Anything but nothing: HAProxy writes `-` where there is none.
    Text,
    /// Captured headers in braces, or nothing. A brace in a header is escaped.
    Captures,
    /// Anything, nothing included.
    Free,
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub shape: Shape,
    /// The flag Q is on: HAProxy puts strings (and from 3.0 on numbers too) in double quotes.
    pub quoted: bool,
    pub slot: Option<Slot>,
}

/// One part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// One or more spaces; HAProxy writes one, or none where nothing stands before it since the last.
    Space,
    Literal(Box<[u8]>),
    Field(Field),
}

/// A compiled log format.
#[derive(Clone, PartialEq, Eq)]
pub struct LogFormat {
    pub(super) parts: Vec<Part>,
    /// How many parts are matched: up to the last that is needed and what delimits it.
    pub(super) matched: usize,
    pub(super) latency_from: LatencyFrom,
    /// The time to the last byte of the answer can be told, without that of the request's head.
    pub(super) to_last_byte: bool,
    pub(super) date_style: DateStyle,
    /// The date is that of the request (`%tr`), not of the connection (`%t`).
    pub(super) date_of_request: bool,
    has_frontend: bool,
    text: String,
}

impl fmt::Debug for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFormat").field(&self.text).finish()
    }
}

impl Default for LogFormat {
    fn default() -> Self {
        Self::httplog()
    }
}

impl LogFormat {
    /// `option httplog` and `option httpslog`.
    pub fn httplog() -> Self {
        // A constant that the tests compile.
        Self::compile(HTTPLOG).expect("the default log format compiles")
    }

    /// Compiles a format: either the text itself, or the line of HAProxy's configuration that sets it
    /// (`log-format "…"`, `log-format …\ …`, `option httplog`, `option httpslog`, `option httplog clf`).
    ///
    /// # Errors
    /// [`FormatError`] where the text is no format, or lacks a field that is needed: a date (`%tr`, `%t`, `%T`,
    /// `%Tl`, `%trg`, `%trl` or `%Ts`), a total time (`%Ta`, or `%Tt`), the status `%ST`, the termination state
    /// (`%ts` or `%tsc`), the backend `%b` and the server `%s`.
    pub fn compile(text: &str) -> Result<Self, FormatError> {
        let text = directive(text.trim())?;
        let parts = Compiler::new(&text).run()?;
        Self::assemble(parts, text)
    }

    /// The format as text, without the quoting of the configuration file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Which time the latency is taken from.
    pub const fn latency_from(&self) -> LatencyFrom {
        self.latency_from
    }

    /// Whether the lines are JSON, written with literals.
    pub(super) fn is_json(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Literal(start)) if start.starts_with(b"{"))
    }

    /// Whether the lines tell the time to the last byte of the answer apart from that to the first.
    pub fn tells_last_byte_apart(&self) -> bool {
        self.to_last_byte && self.latency_from == LatencyFrom::FirstByte
    }

    /// Whether the lines name the frontend (`%f` or `%ft`).
    pub const fn has_frontend(&self) -> bool {
        self.has_frontend
    }

    fn assemble(parts: Vec<Candidate>, text: String) -> Result<Self, FormatError> {
        let has = |slot| parts.iter().any(|part| part.slot() == Some(slot));
        let latency_from = LatencyFrom::of(has);
        let (active, first_byte) = (has(Slot::ActiveTime), tells_first_byte(&has));
        let total_less_idle = !active && has(Slot::HandshakeTime) && has(Slot::IdleTime);
        let to_last_byte = (active || total_less_idle) && has(Slot::RequestTime);
        let mut missing = Vec::new();
        for (absent, name) in [
            (!has(Slot::Date), "date (%tr, or %t, %T, %Tl, %trg, %trl, %Ts)"),
            (
                !has(Slot::ActiveTime) && !has(Slot::TotalTime),
                "total time (%Ta, or %Tt)",
            ),
            (!has(Slot::Status), "status (%ST)"),
            (!has(Slot::Termination), "termination state (%tsc, or %ts)"),
            (!has(Slot::Backend), "backend (%b)"),
            (!has(Slot::Server), "server (%s)"),
        ] {
            if absent {
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            return Err(FormatError::Missing {
                missing: missing.join(", no "),
            });
        }
        // The request's own date is worth more than the connection's, so it is taken wherever it stands.
        let request_date = parts.iter().any(|part| {
            matches!(
                part,
                Candidate::Field {
                    date_of_request: true,
                    ..
                }
            )
        });
        let mut taken = [false; SLOTS];
        let mut date_style = DateStyle::Milliseconds;
        let mut last = 0;
        let mut compiled = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            compiled.push(match part {
                Candidate::Space => Part::Space,
                Candidate::Literal(literal) => Part::Literal(literal.into()),
                Candidate::Field {
                    mut field,
                    date_of_request,
                } => {
                    let unused = match field.slot {
                        None => true,
                        Some(Slot::Date) => request_date && !date_of_request,
                        Some(Slot::IdleTime | Slot::HandshakeTime) => !total_less_idle,
                        // The connection's date and the total time together give the end of the request.
                        Some(Slot::TotalTime) => active && request_date,
                        Some(Slot::RequestTime) => !to_last_byte,
                        Some(Slot::QueueTime | Slot::ConnectTime | Slot::ResponseTime) => !first_byte,
                        _ => false,
                    };
                    field.slot = field.slot.filter(|&slot| !unused && !taken[slot as usize]);
                    if let Some(slot) = field.slot {
                        taken[slot as usize] = true;
                        last = index;
                        if let Shape::Date(style) = field.shape {
                            date_style = style;
                        }
                    }
                    Part::Field(field)
                }
            });
        }
        let delimited = matches!(compiled.get(last + 1), Some(Part::Space | Part::Literal(_)));
        Ok(Self {
            matched: last + 1 + usize::from(delimited),
            parts: compiled,
            latency_from,
            to_last_byte,
            date_style,
            date_of_request: request_date,
            has_frontend: taken[Slot::Frontend as usize],
            text,
        })
    }
}

/// A part before it is known which fields are used.
#[derive(Debug)]
enum Candidate {
    Space,
    Literal(Vec<u8>),
    Field { field: Field, date_of_request: bool },
}

impl Candidate {
    fn slot(&self) -> Option<Slot> {
        match self {
            Self::Field { field, .. } => field.slot,
            _ => None,
        }
    }
}

/// Takes the directive's name and the quoting off.
fn directive(text: &str) -> Result<String, FormatError> {
    let quoting = |what: &str| FormatError::Quoting(what.into());
    let first = text.split_whitespace().next().unwrap_or("");
    match first {
        "log-format" => match quoting::words(text).map_err(quoting)?.as_slice() {
            [_, format] => Ok(format.clone()),
            [_] => Err(quoting("`log-format` has no format behind it")),
            _ => Err(quoting(
                "`log-format` takes one word, but there are more: the format must be quoted",
            )),
        },
        "option" => {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words[1..] {
                ["httplog" | "httpslog"] => Ok(HTTPLOG.into()),
                ["httplog", "clf"] => Ok(HTTPLOG_CLF.into()),
                ["tcplog"] => Err(quoting(
                    "`option tcplog` tells of connections, not of requests; the frontend needs `mode http` and \
                     `option httplog`",
                )),
                _ => Err(quoting(
                    "of HAProxy's options only `option httplog`, `option httpslog` and `option httplog clf` set a \
                     format",
                )),
            }
        }
        _ => {
            // One whole word with escaped spaces, or one quoted string, is the argument of the directive.
            let wrapped = text.len() > 1 && (text.starts_with('\'') && text.ends_with('\''))
                || (text.starts_with('"') && text.ends_with('"') && !text.starts_with("\"%{"));
            if (wrapped || text.contains("\\ "))
                && let Ok([format]) = quoting::words(text).as_deref()
            {
                return Ok(format.clone());
            }
            Ok(text.to_owned())
        }
    }
}

/// The state while a format is compiled.
struct Compiler<'a> {
    text: &'a str,
    at: usize,
    /// The flag Q that `%{+Q}o` set for all that follows.
    quoted: bool,
    /// The flag X likewise.
    hexadecimal: bool,
    parts: Vec<Candidate>,
}

impl<'a> Compiler<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            quoted: false,
            hexadecimal: false,
            parts: Vec::new(),
        }
    }

    fn error(&self, position: usize, what: impl Into<String>) -> FormatError {
        FormatError::Syntax {
            position,
            near: self.text[position..].chars().take(24).collect(),
            what: what.into(),
        }
    }

    fn run(mut self) -> Result<Vec<Candidate>, FormatError> {
        while let Some(c) = self.text[self.at..].chars().next() {
            let start = self.at;
            self.at += c.len_utf8();
            match c {
                ' ' | '\t' => {
                    if !matches!(self.parts.last(), None | Some(Candidate::Space)) {
                        self.parts.push(Candidate::Space);
                    }
                }
                '%' if self.text[self.at..].starts_with('%') => {
                    self.at += 1;
                    self.literal("%");
                }
                '%' => self.variable(start)?,
                _ => {
                    let literal = &self.text[start..self.at];
                    self.literal(literal);
                }
            }
            if self.parts.len() > PARTS_MAX {
                return Err(self.error(start, format!("more than {PARTS_MAX} parts: shorten the format")));
            }
        }
        Ok(self.parts)
    }

    fn literal(&mut self, text: &str) {
        if let Some(Candidate::Literal(literal)) = self.parts.last_mut() {
            literal.extend_from_slice(text.as_bytes());
        } else {
            self.parts.push(Candidate::Literal(text.as_bytes().to_vec()));
        }
    }

    /// What stands between `self.at`, which is behind `open`, and the closing character that belongs to it.
    fn bracketed(&mut self, start: usize, open: char, close: char) -> Result<&'a str, FormatError> {
        let from = self.at + open.len_utf8();
        let mut depth = 0_usize;
        for (offset, c) in self.text[self.at..].char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    let inside = &self.text[from..self.at + offset];
                    self.at += offset + close.len_utf8();
                    return Ok(inside);
                }
            }
        }
        Err(self.error(start, format!("`{open}` without `{close}`")))
    }

    fn variable(&mut self, start: usize) -> Result<(), FormatError> {
        let mut quoted = self.quoted;
        let mut hexadecimal = self.hexadecimal;
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with('(') {
                // The name that HAProxy 3.0 can give a field matters to its JSON and CBOR encodings only.
                self.bracketed(start, '(', ')')?;
            } else if rest.starts_with('{') {
                let flags = self.bracketed(start, '{', '}')?;
                for flag in flags.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
                    match flag {
                        "+Q" => quoted = true,
                        "-Q" => quoted = false,
                        "+X" => hexadecimal = true,
                        "-X" => hexadecimal = false,
                        "+json" | "+cbor" | "+bin" => {
                            return Err(self.error(
                                start,
                                format!(
                                    "the encoding {flag} is not read; write `option httplog`, or this line, or JSON with literals, for \
                                     example {{\"status\":%ST,\"backend\":\"%b\", ...}}:\n    {WORKING_LOG_FORMAT}"
                                ),
                            ));
                        }
                        // E, M and newer ones change which characters are escaped, which matters to no needed field.
                        _ if flag.starts_with(['+', '-']) => {}
                        _ => {
                            return Err(
                                self.error(start, format!("the flag {flag:?} has no + or - before it"))
                            );
                        }
                    }
                }
            } else {
                break;
            }
        }
        let rest = &self.text[self.at..];
        if rest.starts_with('[') {
            self.bracketed(start, '[', ']')?;
            self.field(Shape::Free, quoted, None, false);
            return Ok(());
        }
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let name = &rest[..length];
        self.at += length;
        if name.is_empty() {
            return Err(self.error(
                start,
                "a % with no variable behind it; a percent sign itself is written %%",
            ));
        }
        if name == "o" {
            self.quoted = quoted;
            self.hexadecimal = hexadecimal;
            return Ok(());
        }
        let (shape, slot, date_of_request) = meaning(name);
        match (shape, hexadecimal) {
            (Shape::Number, true) if slot.is_none() => self.field(Shape::Word, quoted, None, false),
            (Shape::Date(DateStyle::Epoch), true) => self.field(Shape::Word, quoted, None, false),
            _ => self.field(shape, quoted, slot, date_of_request),
        }
        Ok(())
    }

    fn field(&mut self, shape: Shape, quoted: bool, slot: Option<Slot>, date_of_request: bool) {
        let field = Field { shape, quoted, slot };
        self.parts.push(Candidate::Field {
            field,
            date_of_request,
        });
    }
}

/// What a variable's value looks like, what it is for, and whether it is the date of the request.
fn meaning(name: &str) -> (Shape, Option<Slot>, bool) {
    use DateStyle::{Epoch, Milliseconds, Zone};
    match name {
        "f" | "ft" => (Shape::Word, Some(Slot::Frontend), false),
        "b" => (Shape::Word, Some(Slot::Backend), false),
        "s" => (Shape::Word, Some(Slot::Server), false),
        "ST" => (Shape::Number, Some(Slot::Status), false),
        "ts" => (Shape::Termination(2), Some(Slot::Termination), false),
        "tsc" => (Shape::Termination(4), Some(Slot::Termination), false),
        "Ta" => (Shape::Number, Some(Slot::ActiveTime), false),
        "Tt" => (Shape::Number, Some(Slot::TotalTime), false),
        "Ti" => (Shape::Number, Some(Slot::IdleTime), false),
        "Th" => (Shape::Number, Some(Slot::HandshakeTime), false),
        "tr" => (Shape::Date(Milliseconds), Some(Slot::Date), true),
        "trg" | "trl" => (Shape::Date(Zone), Some(Slot::Date), true),
        "t" => (Shape::Date(Milliseconds), Some(Slot::Date), false),
        "T" | "Tl" => (Shape::Date(Zone), Some(Slot::Date), false),
        "Ts" => (Shape::Date(Epoch), Some(Slot::Date), false),
        "TR" => (Shape::Number, Some(Slot::RequestTime), false),
        "Tw" => (Shape::Number, Some(Slot::QueueTime), false),
        "Tc" => (Shape::Number, Some(Slot::ConnectTime), false),
        "Tr" => (Shape::Number, Some(Slot::ResponseTime), false),
        "B" | "U" | "Tq" | "Td" | "Tu" | "ac" | "fc" | "bc" | "sc" | "rc" | "sq" | "bq" | "lc" | "ms"
        | "pid" | "rt" => (Shape::Number, None, false),
        "ci" | "cp" | "bi" | "bp" | "fi" | "fp" | "si" | "sp" | "H" | "HM" | "HV" | "ID" | "sslc"
        | "sslv" => (Shape::Word, None, false),
        "CC" | "CS" | "r" | "HP" | "HU" | "HPO" => (Shape::Text, None, false),
        "hr" | "hs" => (Shape::Captures, None, false),
        // Captured headers in the CLF style, the query, and whatever a newer version adds.
        _ => (Shape::Free, None, false),
    }
}
