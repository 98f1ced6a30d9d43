//! RFC 9112 section 3.2, RFC 9110 section 7.2, RFC 3986 section 3.2.2.

use crate::case::{Case, ask};

fn with(section: &'static str, name: &'static str, host: &str) -> Case {
    ask(section, name, &format!("GET /c HTTP/1.1\nHost: {host}\n\n"))
}

pub fn cases() -> Vec<Case> {
    const GET: &str = "GET /c HTTP/1.1";
    // Valid, and passed on as it is.
    let valid =
        |name: &'static str, host: &'static str| with("9110 7.2", name, host).sent(GET).has("host", host);
    let bad = |name: &'static str, host: &'static str| with("9112 3.2", name, host).strictly(&[400]);
    vec![
        valid("a name", "a.example"),
        valid("a name and a port", "a.example:8080"),
        valid("an empty port", "a.example:"),
        valid("capitals", "A.Example"),
        valid("an IPv4 address", "192.0.2.7:80"),
        valid("an IPv6 address", "[2001:db8::1]"),
        valid("an IPv6 address and a port", "[::1]:8080"),
        valid("an underscore", "a_b"),
        valid("an escape", "a%41b"),
        valid("a trailing dot", "a.example."),
        with("9112 3.2", "an empty Host", "")
            .sent(GET)
            .has("host", "")
            .refused(&[400]),
        with("9110 7.2", "sub-delimiters", "a!$&'()*+,;=b")
            .sent(GET)
            .has("host", "a!$&'()*+,;=b")
            .refused(&[400]),
        with("9110 7.2", "an address of the future", "[v1.a:b]")
            .sent(GET)
            .has("host", "[v1.a:b]")
            .refused(&[400]),
        with("9110 7.2", "a port that no TCP has", "t:65536")
            .refused(&[400])
            .sent(GET),
        with("9110 7.2", "a port that overflows", "t:99999999999999999999")
            .refused(&[400])
            .sent(GET),
        bad("a port with a letter", "t:8o"),
        bad("a negative port", "t:-1"),
        bad("a signed port", "t:+80"),
        bad("two ports", "t:80:80"),
        bad("a blank in it", "t evil"),
        bad("a tab in it", "t\tevil"),
        bad("a path", "t/evil"),
        bad("a query", "t?evil"),
        bad("a fragment", "t#evil"),
        bad("a backslash", "t\\evil"),
        bad("user information", "u@t"),
        bad("a scheme", "http://t"),
        bad("IPv6 without brackets", "2001:db8::1"),
        bad("an open bracket", "[::1"),
        bad("a closing bracket", "::1]"),
        bad("empty brackets", "[]"),
        bad("brackets around a name", "[t]"),
        bad("brackets around IPv4", "[192.0.2.7]"),
        bad("something behind the brackets", "[::1]t"),
        bad("brackets within a name", "a[::1]"),
        bad("a quote", "t\"evil"),
        bad("angles", "<t>"),
        bad("a half escape", "a%4"),
        bad("an escape of no digits", "a%zz"),
        bad("a NUL", "t\0"),
        bad("a letter beyond ASCII", "é"),
        ask("9112 3.2", "no Host", "GET /c HTTP/1.1\n\n").strictly(&[400]),
        ask("9112 3.2", "two Hosts", "GET /c HTTP/1.1\nHost: t\nHost: u\n\n").strictly(&[400]),
        ask(
            "9112 3.2",
            "two equal Hosts",
            "GET /c HTTP/1.1\nHost: t\nHost: t\n\n",
        )
        .strictly(&[400]),
        ask(
            "9112 3.2",
            "two Hosts, one empty",
            "GET /c HTTP/1.1\nHost: t\nHost:\n\n",
        )
        .refused(&[400]),
        ask(
            "9112 5.1",
            "a blank before the colon",
            "GET /c HTTP/1.1\nHost : t\n\n",
        )
        .refused(&[400]),
        ask(
            "9112 5.1",
            "no blank behind the colon",
            "GET /c HTTP/1.1\nHost:t\n\n",
        )
        .sent(GET)
        .has("host", "t"),
        ask(
            "9112 5.1",
            "blanks and tabs around it",
            "GET /c HTTP/1.1\nHost: \t t \t \n\n",
        )
        .sent(GET)
        .has("host", "t"),
        ask("9110 5.1", "its name in capitals", "GET /c HTTP/1.1\nHOST: t\n\n")
            .sent(GET)
            .has("host", "t"),
        ask("9112 3.2", "absolute, no Host", "GET http://t/c HTTP/1.1\n\n").refused(&[400]),
        ask(
            "9112 3.2",
            "absolute, two Hosts",
            "GET http://t/c HTTP/1.1\nHost: t\nHost: t\n\n",
        )
        .refused(&[400]),
        ask(
            "9112 3.2",
            "absolute, a bad Host",
            "GET http://t/c HTTP/1.1\nHost: t evil\n\n",
        )
        .refused(&[400]),
        // What is sent on is HTTP/1.1, which has a Host.
        ask("9112 3.2", "HTTP/1.0 without Host", "GET /c HTTP/1.0\n\n").sent(GET),
        ask("9112 3.2", "HTTP/1.0 with Host", "GET /c HTTP/1.0\nHost: t\n\n")
            .sent(GET)
            .has("host", "t"),
        ask(
            "9112 3.2",
            "HTTP/1.0 with a bad Host",
            "GET /c HTTP/1.0\nHost: t evil\n\n",
        )
        .refused(&[400]),
        ask("9112 3.2.2", "HTTP/1.0, absolute", "GET http://u/c HTTP/1.0\n\n")
            .sent(GET)
            .has("host", "u"),
    ]
}
