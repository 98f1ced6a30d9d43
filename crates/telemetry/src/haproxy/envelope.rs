//! What stands around HAProxy's message: syslog's header, a file's prefix, a container runtime's wrapping.

use serde::Deserialize;
use std::borrow::Cow;

/// What a container runtime or its tools put around a whole line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapping {
    None,
    /// `haproxy-1  | …`, as docker compose prints.
    Compose,
    /// `2026-02-06T12:14:14.655Z stdout F …`, as Kubernetes' container runtimes write.
    Cri,
    /// `{"log":"…\n","stream":"stdout","time":"…"}`, as docker's json-file driver writes.
    DockerJson,
}

/// What stands before the message itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// `<134>1 2026-02-06T12:14:14.655+00:00 host haproxy 1234 - - …`.
    Rfc5424,
    /// `<134>Feb  6 12:14:14 host haproxy[1234]: …` with and without priority and host (HAProxy's formats `local`
    /// and `rfc3164`, a syslog daemon's file, `journalctl`), and the same with an ISO date.
    Rfc3164,
    /// `<134>2026-02-06T12:14:14.655+00:00 …`, with and without priority (`timed`, `iso`).
    Dated,
    /// `<134>…` (`short`).
    Priority,
    /// Nothing (`raw`).
    Bare,
}

const WRAPPINGS: [Wrapping; 4] = [
    Wrapping::None,
    Wrapping::Compose,
    Wrapping::Cri,
    Wrapping::DockerJson,
];

/// The strictest shape first, so that no looser one swallows its beginning.
const HEADERS: [Header; 5] = [
    Header::Rfc5424,
    Header::Rfc3164,
    Header::Dated,
    Header::Priority,
    Header::Bare,
];

/// Finds the message in a line. Lines of one source look alike, so what fitted the last is tried first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    last: (Wrapping, Header),
}

impl Default for Envelope {
    fn default() -> Self {
        Self {
            last: (Wrapping::None, Header::Rfc3164),
        }
    }
}

impl Envelope {
    /// Gives `use_message` each message that the line can be read as, until it returns a success; otherwise its
    /// error for the most likely reading (the last error of an unwrapped header, or the plain line's).
    pub(super) fn open<E>(
        &mut self,
        line: &[u8],
        mut use_message: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = trimmed(line);
        if let Some(message) = unwrap(self.last.0, line)
            .as_deref()
            .and_then(|inner| strip(self.last.1, inner))
            && use_message(message).is_ok()
        {
            return Ok(());
        }
        let mut first_error = None;
        for wrapping in WRAPPINGS {
            let Some(inner) = unwrap(wrapping, line) else {
                continue;
            };
            for header in HEADERS {
                let Some(message) = strip(header, &inner) else {
                    continue;
                };
                match use_message(message) {
                    Ok(()) => {
                        self.last = (wrapping, header);
                        return Ok(());
                    }
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
        // The plain line is always one reading, so there was an error.
        first_error.map_or(Ok(()), Err)
    }
}

/// Without line ends, and without the zero bytes that a file cut by `copytruncate` begins with.
fn trimmed(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&b| b != 0).unwrap_or(line.len());
    let end = line
        .iter()
        .rposition(|b| !matches!(b, b'\n' | b'\r' | 0))
        .map_or(start, |last| last + 1);
    &line[start..end.max(start)]
}

fn unwrap(wrapping: Wrapping, line: &[u8]) -> Option<Cow<'_, [u8]>> {
    match wrapping {
        Wrapping::None => Some(Cow::Borrowed(line)),
        Wrapping::Compose => {
            let bar = memchr::memchr(b'|', line.get(..line.len().min(128))?)?;
            let name = line[..bar].trim_ascii_end();
            let plain = !name.is_empty()
                && name.len() < bar
                && name
                    .iter()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b));
            plain.then(|| Cow::Borrowed(line[bar + 1..].trim_ascii_start()))
        }
        Wrapping::Cri => {
            let rest = after_iso_date(line)?;
            let rest = rest
                .strip_prefix(b"stdout ")
                .or_else(|| rest.strip_prefix(b"stderr "))?;
            let rest = rest.strip_prefix(b"F ").or_else(|| rest.strip_prefix(b"P "))?;
            Some(Cow::Borrowed(rest))
        }
        Wrapping::DockerJson => {
            #[derive(Deserialize)]
            struct Record<'a> {
                #[serde(borrow)]
                log: Cow<'a, str>,
            }
            if !line.starts_with(b"{\"log\":") {
                return None;
            }
            let record: Record<'_> = serde_json::from_slice(line).ok()?;
            Some(match record.log {
                Cow::Borrowed(log) => Cow::Borrowed(log.trim_end().as_bytes()),
                Cow::Owned(log) => Cow::Owned(log.trim_end().as_bytes().to_vec()),
            })
        }
    }
}

fn strip(header: Header, line: &[u8]) -> Option<&[u8]> {
    let (rest, has_priority) = match after_priority(line) {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    match header {
        Header::Bare => Some(line),
        Header::Priority => has_priority.then_some(rest),
        Header::Dated => after_iso_date(rest),
        Header::Rfc3164 => after_tag(after_syslog_date(rest).or_else(|| after_iso_date(rest))?),
        Header::Rfc5424 => {
            let mut rest = rest.strip_prefix(b"1 ").filter(|_| has_priority)?;
            for _ in ["timestamp", "host", "application", "process", "message"] {
                rest = after_token(rest)?.1;
            }
            let rest = after_structured_data(rest)?;
            // HAProxy writes no byte order mark, but relays may.
            Some(rest.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(rest))
        }
    }
}

/// Behind `<134>`.
fn after_priority(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"<")?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=3).contains(&digits) {
        return None;
    }
    rest[digits..].strip_prefix(b">")
}

/// The first token and what stands behind the space after it.
fn after_token(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', line)?;
    (space > 0).then(|| (&line[..space], &line[space + 1..]))
}

/// Behind `Feb  6 12:14:14 `.
fn after_syslog_date(line: &[u8]) -> Option<&[u8]> {
    let date = line.get(..16)?;
    let shaped = date[..3].iter().all(u8::is_ascii_alphabetic)
        && date[3] == b' '
        && date[6] == b' '
        && date[9] == b':'
        && date[12] == b':'
        && date[15] == b' ';
    shaped.then(|| &line[16..])
}

/// Behind `2026-02-06T12:14:14.655+00:00 `.
fn after_iso_date(line: &[u8]) -> Option<&[u8]> {
    let (date, rest) = after_token(line)?;
    let shaped = date.len() >= 19
        && date.len() <= 40
        && date[4] == b'-'
        && date[7] == b'-'
        && matches!(date[10], b'T' | b't')
        && date[13] == b':'
        && date[..4].iter().all(u8::is_ascii_digit);
    shaped.then_some(rest)
}

/// Behind `host haproxy[1234]: ` or `haproxy[1234]: `.
fn after_tag(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in ["host or tag", "tag"] {
        let (token, behind) = after_token(rest)?;
        if token.ends_with(b":") {
            return Some(behind.trim_ascii_start());
        }
        rest = behind;
    }
    None
}

/// Behind `- ` or `[id name="value" …][…] `.
fn after_structured_data(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(b"- ") {
        return Some(rest);
    }
    let mut at = 0;
    while line.get(at) == Some(&b'[') {
        let mut quoted = false;
        loop {
            at += 1;
            match line.get(at)? {
                b'\\' => at += 1,
                b'"' => quoted = !quoted,
                b']' if !quoted => break,
                _ => {}
            }
        }
        at += 1;
    }
    (at > 0 && line.get(at) == Some(&b' ')).then(|| &line[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "10.0.0.1:5 [06/Feb/2009:12:14:14.655] in b/s";

    fn reads(line: &str) -> bool {
        // A reader that wants exactly the message, so that only the right envelope satisfies it.
        Envelope::default()
            .open(line.as_bytes(), |message| {
                if message == MESSAGE.as_bytes() {
                    Ok(())
                } else {
                    Err(())
                }
            })
            .is_ok()
    }

    #[test]
    fn the_message_is_found_in_every_wrapping() {
        for before in [
            "",
            "<134>",
            "<134>Feb  6 12:14:14 haproxy[14387]: ",
            "<134>Feb  6 12:14:14 lb1 haproxy[14387]: ",
            "Feb 16 12:14:14 lb1 haproxy[14387]: ",
            "2009-02-06T12:14:14.655123+00:00 lb1 haproxy[14387]: ",
            "2009-02-06T12:14:14+0000 lb1 haproxy[14387]:  ",
            "<134>1 2009-02-06T12:14:14.655+00:00 lb1 haproxy 14387 - - ",
            "<134>1 2009-02-06T12:14:14+00:00 - haproxy 14387 - [a@1 x=\"1\\\"]\" y=\"]\"][b@1] ",
            "<134>2009-02-06T12:14:14.655+00:00 ",
            "2009-02-06T12:14:14.655+00:00 ",
            "haproxy-1  | ",
            "haproxy-1  | <134>Feb  6 12:14:14 haproxy[14387]: ",
            "2009-02-06T12:14:14.655123456Z stdout F ",
            "2009-02-06T12:14:14.655123456Z stdout F <134>Feb  6 12:14:14 haproxy[1]: ",
        ] {
            assert!(reads(&format!("{before}{MESSAGE}")), "{before}");
            assert!(reads(&format!("{before}{MESSAGE}\n")), "{before} with a line end");
        }
        let json = format!(r#"{{"log":"<134>{MESSAGE}\n","stream":"stdout","time":"2009-02-06T12:14:14Z"}}"#);
        assert!(reads(&json));
        let holes = format!("\0\0\0<134>{MESSAGE}");
        assert!(reads(&holes));
    }

    #[test]
    fn half_a_header_is_no_header() {
        for line in [
            "<134",
            "<>x",
            "Feb  6 12:14",
            "<134>1 a b",
            "{\"log\":",
            "a |",
            "",
            "\0",
        ] {
            assert!(!reads(line), "{line}");
        }
    }
}
