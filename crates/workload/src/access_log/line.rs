//! One line of the common or the combined log format.

use jiff::fmt::strtime::BrokenDownTime;

/// What is needed of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// When the request began, seconds of the Unix epoch.
    pub(super) time: i64,
    /// The path with its query; none where the request is not to be sent again.
    pub(super) path: Option<&'a str>,
    /// Whether the method is HEAD.
    pub(super) head: bool,
    /// Bytes of the answer; none where the log has none.
    pub(super) bytes: Option<u64>,
}

/// Reads a line, or says what is wrong with it.
pub(super) fn parse(line: &str) -> Result<Entry<'_>, &'static str> {
    let (before, rest) = line.split_once('[').ok_or("no [time]")?;
    if before.split_whitespace().count() < 3 {
        return Err("not `host ident user` before the time");
    }
    let (time, rest) = rest.split_once(']').ok_or("no end of the [time]")?;
    let time = parse_time(time).ok_or("a time that is not as [28/Aug/1995:00:00:34 -0400]")?;
    let rest = rest.trim_start().strip_prefix('"').ok_or("no \"request\"")?;
    let (request, rest) = split_quoted(rest).ok_or("no end of the \"request\"")?;
    let mut fields = rest.split_whitespace();
    let status = fields.next().ok_or("no status")?;
    if status != "-" && !(status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("a status that is no number of three digits");
    }
    // The number of bytes; some servers leave it out, and `-` stands for none.
    let bytes = match fields
        .next()
        .filter(|bytes| *bytes != "-" && !bytes.starts_with('"'))
    {
        Some(bytes) => Some(
            bytes
                .parse()
                .map_err(|_| "bytes that are neither a number nor -")?,
        ),
        None => None,
    };
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or("-"), words.next());
    if method == "-" || !method.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        // A connection without a request on it (status 408), or one that was not HTTP.
        return Err("no method in the request");
    }
    let target = target.ok_or("no path in the request")?;
    let head = method == "HEAD";
    Ok(Entry {
        time,
        path: (head || method == "GET").then(|| path(target)).flatten(),
        head,
        bytes,
    })
}

/// Splits at the quote that ends the request; quotes inside it are escaped with a backslash, if at all. Older servers did
/// not escape, so it is the last quote before the status: the first that a space and a status follow.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let ends = text.match_indices('"').find(|(at, _)| {
        let mut after = text[at + 1..].chars();
        after.next().is_none_or(char::is_whitespace)
            && after.next().is_none_or(|c| c.is_ascii_digit() || c == '-')
    });
    ends.map(|(at, _)| (&text[..at], &text[at + 1..]))
}

/// The path of a target, which may name the host before it.
fn path(target: &str) -> Option<&str> {
    let path = if let Some(rest) = target.strip_prefix("http://") {
        rest.find('/').map_or("/", |at| &rest[at..])
    } else {
        target
    };
    let path = path.split('#').next().unwrap_or_default();
    let is_path = path.starts_with('/')
        && path
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.authority().is_none());
    is_path.then_some(path)
}

/// `28/Aug/1995:00:00:34 -0400` in seconds of the Unix epoch; without a zone it is UTC.
fn parse_time(text: &str) -> Option<i64> {
    let (time, zone) = text.trim().split_once(' ').unwrap_or((text.trim(), "+0000"));
    let parsed = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S %z", format!("{time} {zone}")).ok()?;
    Some(parsed.to_timestamp().ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("28/Aug/1995:00:00:34 -0400", 809_582_434),
            ("10/Oct/2000:13:55:36 -0700", 971_211_336),
            ("29/Feb/2024:23:59:59 +0530", 1_709_231_399),
            // A leap second counts as the one before it.
            ("31/Dec/1999:23:59:60 +0000", 946_684_799),
            ("01/mar/2000:00:00:00", 951_868_800),
        ] {
            assert_eq!(parse_time(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "28/Foo/1995:00:00:34 -0400",
            "32/Aug/1995:00:00:34 -0400",
            "28/Aug/1995:24:00:34 -0400",
            "28/Aug/1995:00:00 -0400",
            "28/Aug/1995:00:00:34:1 -0400",
            "28/Aug/1995/1:00:00:34 -0400",
            "28/Aug/1995:00:00:34 0400",
            "28/Aug/1995:00:00:34 -04€",
            "+1/Aug/1995:00:00:34 -0400",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn lines_of_both_formats() {
        let time = 809_582_434;
        let stamp = "[28/Aug/1995:00:00:34 -0400]";
        let entry = |path, head, bytes| {
            Ok(Entry {
                time,
                path,
                head,
                bytes,
            })
        };
        for (request, rest, expected) in [
            (
                "GET /pub/a.gif HTTP/1.0",
                "200 1839",
                entry(Some("/pub/a.gif"), false, Some(1839)),
            ),
            ("HEAD /x?y=1 HTTP/1.1", "304 -", entry(Some("/x?y=1"), true, None)),
            ("GET /old", "200 5", entry(Some("/old"), false, Some(5))),
            ("POST /cgi HTTP/1.0", "200 17", entry(None, false, Some(17))),
            (
                "GET http://a.b/c#d HTTP/1.0",
                "200 1",
                entry(Some("/c"), false, Some(1)),
            ),
            (
                "GET http://a.b HTTP/1.0",
                "200 1",
                entry(Some("/"), false, Some(1)),
            ),
            ("OPTIONS * HTTP/1.0", "200 1", entry(None, false, Some(1))),
            ("GET not-a-path HTTP/1.0", "404 1", entry(None, false, Some(1))),
            (
                "GET /with\"quotes\" HTTP/1.0",
                "404 -",
                entry(Some("/with\"quotes\""), false, None),
            ),
            (
                "GET /c HTTP/1.1",
                "200 23 \"http://ref/\" \"Agent \\\"x\\\" 4\"",
                entry(Some("/c"), false, Some(23)),
            ),
            ("GET /n HTTP/1.1", "200", entry(Some("/n"), false, None)),
            ("-", "408 -", Err("no method in the request")),
            ("\\x16\\x03\\x01", "400 226", Err("no method in the request")),
            ("GET", "400 0", Err("no path in the request")),
            (
                "GET /a HTTP/1.0",
                "20 5",
                Err("a status that is no number of three digits"),
            ),
            (
                "GET /a HTTP/1.0",
                "200 many",
                Err("bytes that are neither a number nor -"),
            ),
        ] {
            let line = format!("host.example - - {stamp} \"{request}\" {rest}");
            assert_eq!(parse(&line), expected, "{line}");
        }
        for (line, problem) in [
            ("garbage", "no [time]"),
            ("h - [x", "not `host ident user` before the time"),
            ("h - - [x", "no end of the [time]"),
            (
                "h - - [x] \"GET / HTTP/1.0\" 200 1",
                "a time that is not as [28/Aug/1995:00:00:34 -0400]",
            ),
        ] {
            assert_eq!(parse(line), Err(problem), "{line}");
        }
        assert_eq!(parse(&format!("h - - {stamp} GET")), Err("no \"request\""));
        assert_eq!(
            parse(&format!("h - - {stamp} \"GET /")),
            Err("no end of the \"request\"")
        );
        assert_eq!(parse(&format!("h - - {stamp} \"GET /\"")), Err("no status"));
    }
}
