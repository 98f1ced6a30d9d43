//! Formats against lines that HAProxy 2.6 wrote, and against generated ones.

use super::format::{FormatError, LogFormat, WORKING_LOG_FORMAT};
use super::latency::LatencyFrom;
use super::line::{Entry, LineError};
use super::outcome::Outcome;
use proptest::prelude::*;

const HTTPLOG: &str = "127.0.0.1:52346 [21/Nov/2026:21:50:03.067] a app/s1 0/0/0/0/43 500 135 - - ---- 1/1/0/0/0 0/0 \
                       {a b#22c#7C#7D#7Bd} \"GET /five HTTP/1.1\"";

fn parse<'a>(format: &str, line: &'a str) -> Result<Entry<'a>, LineError> {
    LogFormat::compile(format).unwrap().parse(line.as_bytes())
}

#[test]
fn the_default_format_is_read() {
    let entry = parse("option httplog", HTTPLOG).unwrap();
    assert_eq!(entry.frontend, Some("a"));
    assert_eq!((entry.backend, entry.server), ("app", "s1"));
    assert_eq!(entry.status, Some(500));
    assert_eq!(entry.termination, *b"--");
    // The head came at once and the body 43 ms later.
    assert_eq!((entry.latency_ms, entry.to_last_byte_ms), (Some(0), Some(43)));
    // 21 November 2026, 21:50:03.067 + 43 ms.
    assert_eq!(entry.ended.unwrap().as_utc_ms, 1_795_297_803_110);
    assert!(!entry.ended.unwrap().zoned);
    assert_eq!(entry.outcome(), Outcome::Completed);
}

#[test]
fn lines_of_haproxy_in_the_default_format_are_told_apart() {
    let cases = [
        (
            "127.0.0.1:52360 [21/Nov/2026:21:50:03.479] a app/s1 0/0/0/-1/1001 504 198 - - sH-- 2/2/1/1/0 0/0 \
             {127.0.0.1:8101} \"GET /slow HTTP/1.1\"",
            Outcome::FailedByServer,
            None,
        ),
        (
            "127.0.0.1:52378 [21/Nov/2026:21:50:04.792] a a/<NOSRV> -1/-1/-1/-1/0 400 0 - - CR-- 1/1/0/0/0 0/0 \
             \"<BADREQ>\"",
            Outcome::Local,
            None,
        ),
        (
            "::1:52378 [21/Nov/2026:21:50:04.792] a~ app/s1 0/0/0/1/7 200 0 id=1 - --NI 1/1/0/0/0 0/0 \"GET / \
             HTTP/1.1\"",
            Outcome::Completed,
            Some(1),
        ),
        // A captured cookie with a space in it.
        (
            "::1:52378 [21/Nov/2026:21:50:04.792] a app/s1 0/0/0/1/7 200 0 id=1 2 x -1 --NI 1/1/0/0/0 0/0 \"GET / \
             HTTP/1.1\"",
            Outcome::Completed,
            Some(1),
        ),
        // Cut short behind the last field that is needed.
        (
            "unix:1 [21/Nov/2026:21:50:04.792] a app/s1 0/0/0/1/7 -1 0 - - CC-- 1/1/0",
            Outcome::FailedByClient,
            Some(1),
        ),
    ];
    for (line, outcome, latency_ms) in cases {
        let entry = parse("option httplog", line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(entry.outcome(), outcome, "{line}");
        assert_eq!(entry.latency_ms, latency_ms, "{line}");
        assert_eq!(entry.frontend, Some("a"), "{line}");
    }
}

#[test]
fn custom_formats_are_read() {
    let cases = [
        (
            r#"log-format '{"t":"%tr","ta":%Ta,"st":%ST,"ts":"%tsc","b":"%b","s":"%s","r":%{+Q}r,"h":"%[capture.req.hdr(0)]"}'"#,
            r#"{"t":"21/Nov/2026:21:50:03.168","ta":41,"st":500,"ts":"----","b":"app","s":"s1","r":"GET /five HTTP/1.1","h":"-"}"#,
            41,
        ),
        (
            "%{+Q}o %t %Tt %Ta %Th %Ti %ST %ts %b %s %ft %hr %hs %CC %HQ",
            r#"21/Nov/2026:21:50:03.266 48 44 0 4 500 -- "app" "s1" "c" "" """#,
            44,
        ),
        (
            "%hr %hs %CC x %HQ %T %Ts %Ta %ST %ts %b %s",
            "- x ?q=1 21/Nov/2026:21:50:03 +0000 1795297803 2 500 -- app s1",
            2,
        ),
        // The query is empty, and HAProxy writes both spaces.
        (
            "%hr %hs %CC x %HQ %T %Ts %Ta %ST %ts %b %s",
            "- x  21/Nov/2026:21:50:03 +0000 1795297803 43 500 -- app s1",
            43,
        ),
        (
            "option httplog clf",
            r#"127.0.0.1 - - [21/Nov/2026:21:50:03 +0000] "GET /n HTTP/1.1" 500 217 "" "" 37848 472 "d" "app" "s1" 0 1 2 6 20 ---- 2 1 0 0 0 0 0 "" "" "#,
            9,
        ),
        // The whole request unquoted, before what is needed.
        (
            r"log-format %t\ %r\ %ST\ %Tt\ %Th\ %Ti\ %tsc\ %b/%s",
            "21/Nov/2026:21:50:03.266 GET /a b HTTP/1.1 500 48 1 4 ---- app/s1",
            43,
        ),
        // As HAProxy 3.0 lets fields be named.
        (
            "%(begin)tr %(who){+Q}b %(server)s %(code)ST %(time)Ta %(end)tsc 100%%",
            r#"21/Nov/2026:21:50:03.266 "app" s1 500 5 ---- 100%"#,
            5,
        ),
    ];
    for (format, line, latency_ms) in cases {
        let entry = parse(format, line).unwrap_or_else(|error| panic!("{error}: {format}: {line}"));
        assert_eq!((entry.backend, entry.server), ("app", "s1"), "{line}");
        assert_eq!(entry.status, Some(500), "{line}");
        assert_eq!(entry.latency_ms, Some(latency_ms), "{line}");
        // The connection's date needs the total time to say when the request ended.
        assert_eq!(entry.ended.is_none(), format.contains("%T "), "{format}");
    }
}

#[test]
fn the_latency_that_is_least_the_clients_doing_is_chosen() {
    let times = |times: &str, values: &str| {
        let format = LogFormat::compile(&format!("%t {times} %ST %ts %b %s")).unwrap();
        let line = format!("21/Nov/2026:21:50:03.266 {values} 200 -- app s1");
        let entry = format.parse(line.as_bytes()).unwrap();
        assert_eq!(entry.ended.unwrap().as_utc_ms, 1_795_297_804_266, "{times}");
        (format.latency_from(), entry.latency_ms, entry.to_last_byte_ms)
    };
    // The connection was idle for 300 ms; the client took 100 ms to send the head and 400 ms to take the answer, of 200 ms.
    let cases = [
        (
            "%Tt %TR/%Tw/%Tc/%Tr/%Ta",
            "1000 100/20/30/150/700",
            (LatencyFrom::FirstByte, Some(200), Some(600)),
        ),
        (
            "%Tw/%Tc/%Tr %Tt",
            "20/30/150 1000",
            (LatencyFrom::FirstByte, Some(200), None),
        ),
        (
            "%Tt %Th %Ti %TR %Tw %Tc %Tr",
            "1000 0 300 100 20 30 150",
            (LatencyFrom::FirstByte, Some(200), Some(600)),
        ),
        // The answer's time alone leaves out what a request waited for.
        (
            "%Tt %TR %Tr %Ta",
            "1000 100 150 700",
            (LatencyFrom::LastByte, Some(600), None),
        ),
        (
            "%Tt %Tr %Ta",
            "1000 150 700",
            (LatencyFrom::Active, Some(700), None),
        ),
        (
            "%Tt %Th %Ti",
            "1000 0 300",
            (LatencyFrom::TotalLessIdle, Some(700), None),
        ),
        ("%Tt", "1000", (LatencyFrom::Total, Some(1000), None)),
    ];
    for (format, values, expected) in cases {
        assert_eq!(times(format, values), expected, "{format}");
    }
}

#[test]
fn a_missing_field_is_named_with_a_line_that_works() {
    let error = LogFormat::compile("%ci [%tr] %Ta %ST %b").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("%tsc") && text.contains("(%s)"), "{text}");
    assert!(
        !text.contains("no backend") && !text.contains("no status"),
        "{text}"
    );
    let offered = text.lines().last().unwrap();
    assert_eq!(offered.trim(), WORKING_LOG_FORMAT);
    assert_eq!(
        LogFormat::compile(offered).unwrap().text(),
        LogFormat::httplog().text()
    );
    let Err(FormatError::Missing { missing }) = LogFormat::compile("nothing") else {
        panic!("a format without fields was taken");
    };
    assert_eq!(missing.matches("no ").count() + 1, 6, "{missing}");
}

#[test]
fn what_is_no_format_says_where() {
    for (format, word) in [
        ("%tr % %Ta", "%%"),
        ("%tr %{+Q %Ta", "`}`"),
        ("%tr %[src %Ta", "`]`"),
        ("%tr %{Q}b", "+ or -"),
        ("%{+json}o %tr", "+json"),
        ("log-format %tr %Ta", "quoted"),
        ("log-format \"%tr", "not closed"),
        ("log-format", "no format"),
        ("option tcplog", "mode http"),
        ("option dontlognull", "httplog"),
    ] {
        let text = LogFormat::compile(format).unwrap_err().to_string();
        assert!(text.contains(word), "{format}: {text}");
    }
}

#[test]
fn lines_that_cannot_be_used_say_why() {
    let format = "option httplog";
    for (line, error) in [
        (HTTPLOG.replace("/43 500", "/+43 500"), LineError::Logasap),
        (HTTPLOG.replace(" 500 ", " 5000 "), LineError::Value),
        (HTTPLOG.replace("21/Nov", "31/Nov"), LineError::Value),
        (HTTPLOG.replace("/43 500", "/x 500"), LineError::Mismatch),
        (HTTPLOG.replace('[', "("), LineError::Mismatch),
        (HTTPLOG[..60].to_owned(), LineError::Truncated),
        (HTTPLOG[..70].to_owned(), LineError::Truncated),
        ("x".repeat(70_000), LineError::TooLong),
    ] {
        assert_eq!(parse(format, &line), Err(error), "{line:.120}");
    }
    // Far more ways to read it than are tried.
    let mean = format!("21/Nov/2026:21:50:03.266 {}", "a 1 ".repeat(5_000));
    assert_eq!(
        parse("%t %r %HU %CC %CS %hr %ST %Tt %tsc %b/%s", &mean),
        Err(LineError::Ambiguous)
    );
}

/// A format that HAProxy could be given, and a way to write lines of it.
#[derive(Clone, Debug)]
struct Line {
    address: String,
    frontend: String,
    backend: String,
    server: String,
    status: i32,
    latency_ms: u32,
    state: String,
    cookie: String,
    path: String,
}

fn line() -> impl Strategy<Value = Line> {
    (
        prop_oneof![
            "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
            "([0-9a-f]{0,4}:){2,6}[0-9a-f]{1,4}",
            Just("unix".to_owned())
        ],
        "[A-Za-z0-9_.:-]{1,12}",
        "[A-Za-z0-9_.:-]{1,12}",
        prop_oneof!["[A-Za-z0-9_.:-]{1,12}", Just("<NOSRV>".to_owned())],
        prop_oneof![Just(-1), 100..600],
        any::<u32>(),
        "[CSPLRIDUKcs-][RQCHDLT-][NIDVEOU-][NIUPRD-]",
        prop_oneof![Just("-".to_owned()), "[a-zA-Z0-9=%]{1,20}"],
        "/[!-~&&[^\"#]]{0,30}",
    )
        .prop_map(
            |(address, frontend, backend, server, status, latency_ms, state, cookie, path)| Line {
                address,
                frontend,
                backend,
                server,
                status,
                latency_ms,
                state,
                cookie,
                path,
            },
        )
}

impl Line {
    fn check(
        &self,
        entry: Result<Entry<'_>, LineError>,
        waited_ms: u64,
        text: &str,
    ) -> Result<(), TestCaseError> {
        let entry = entry.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        prop_assert_eq!(entry.backend, &self.backend);
        prop_assert_eq!(entry.server, &self.server);
        prop_assert_eq!(entry.status.map_or(-1, i32::from), self.status);
        prop_assert_eq!(&entry.termination[..], &self.state.as_bytes()[..2]);
        prop_assert_eq!(entry.latency_ms, Some(u64::from(self.latency_ms) + waited_ms));
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_is_written_in_the_default_format_is_read_back(line in line()) {
        let Line { address, frontend, backend, server, status, latency_ms, state, cookie, path } = &line;
        let text = format!(
            "{address}:4711 [06/Feb/2009:12:14:14.655] {frontend} {backend}/{server} 10/0/30/{latency_ms}/4000000000 {status} 2750 \
             {cookie} - {state} 1/1/1/1/+3 0/0 {{a|b}} \"GET {path} HTTP/1.1\""
        );
        let format = LogFormat::httplog();
        let entry = format.parse(text.as_bytes());
        line.check(entry, 30, &text)?;
        prop_assert_eq!(entry.unwrap().frontend, Some(frontend.as_str()));
    }

    #[test]
    fn what_is_written_as_json_is_read_back(line in line()) {
        let Line { backend, server, status, latency_ms, state, path, .. } = &line;
        let format = LogFormat::compile(
            r#"{"uri":"%HU","tr":"%tr","b":"%b","s":"%s","ms":%Ta,"status":%ST,"state":"%tsc"}"#,
        ).unwrap();
        let text = format!(
            r#"{{"uri":"{path}","tr":"06/Feb/2009:12:14:14.655","b":"{backend}","s":"{server}","ms":{latency_ms},"status":{status},"state":"{state}"}}"#
        );
        line.check(format.parse(text.as_bytes()), 0, &text)?;
    }

    #[test]
    fn no_line_makes_the_parser_panic(noise in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..200) {
        for format in [LogFormat::httplog(), LogFormat::compile("option httplog clf").unwrap()] {
            let _ = format.parse(&noise);
            let mut mixed = HTTPLOG.as_bytes()[..cut.min(HTTPLOG.len())].to_vec();
            mixed.extend_from_slice(&noise);
            let _ = format.parse(&mixed);
        }
    }

    #[test]
    fn no_text_makes_the_compiler_panic(text in "\\PC{0,60}", tail in "(%[a-zA-Z{}\\[\\]()+,-]{0,4}| |:|\"|'|\\\\){0,20}") {
        let _ = LogFormat::compile(&text);
        let _ = LogFormat::compile(&tail);
        let _ = LogFormat::compile(&format!("log-format {tail}"));
        if let Ok(format) = LogFormat::compile(&format!("{tail} %tr %Ta %ST %ts %b %s {tail}")) {
            let _ = format.parse(text.as_bytes());
            let _ = format.parse(HTTPLOG.as_bytes());
        }
    }
}
