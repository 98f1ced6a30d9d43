//! RFC 9112 section 5, RFC 9110 sections 5 and 7.6.

use crate::case::{Case, ask, raw};

const GET: &str = "GET /c HTTP/1.1";

fn with(section: &'static str, name: &'static str, fields: &str) -> Case {
    ask(section, name, &format!("GET /c HTTP/1.1\nHost: t\n{fields}\n\n"))
}

fn forwards(section: &'static str, name: &'static str, method: &str, value: &str) -> Case {
    ask(
        section,
        name,
        &format!("{method} /c HTTP/1.1\nHost: t\nMax-Forwards: {value}\n\n"),
    )
}

pub fn cases() -> Vec<Case> {
    let long = "x".repeat(70_000);
    let many: Vec<String> = (0..2_000).map(|number| format!("X-{number}: 1")).collect();
    let none = |case: Case, status: u16| case.gets(status).edit(|reply| reply.requests = Some(0));
    vec![
        with("9110 5.1", "one that nobody knows", "X-Unknown: y")
            .sent(GET)
            .has("x-unknown", "y"),
        with("9110 5.3", "two of one name, in their order", "X-A: 1\nX-A: 2")
            .sent(GET)
            .has("x-a", "1, 2"),
        with("9110 5.5", "an empty value", "X-A:")
            .sent(GET)
            .has("x-a", ""),
        with("9110 5.5", "blanks within a value", "X-A: a  b\tc")
            .sent(GET)
            .has("x-a", "a  b\tc"),
        with("9112 5.1", "blanks around a value", "X-A: \t a \t")
            .sent(GET)
            .has("x-a", "a"),
        with("9110 5.5", "bytes beyond ASCII in a value", "X-A: é")
            .sent(GET)
            .has("x-a", "é"),
        with(
            "9110 5.1",
            "every token character in a name",
            "A!#$%&'*+-.^`|~9: y",
        )
        .sent(GET)
        .refused(&[400]),
        with("9110 5.6.4", "a quoted value", "X-A: \"a, b\"")
            .sent(GET)
            .has("x-a", "\"a, b\""),
        with("9112 5.1", "a blank before the colon", "X-A : y").refused(&[400]),
        with("9112 5.1", "a tab before the colon", "X-A\t: y").refused(&[400]),
        with("9112 5", "no colon", "X-A")
            .refused(&[400])
            .sent(GET)
            .lacks("x-a"),
        with("9112 5", "no name", ": y").refused(&[400]).sent(GET),
        with("9110 5.1", "a name in brackets", "[x]: y")
            .refused(&[400])
            .sent(GET)
            .lacks("[x]"),
        with("9110 5.1", "a blank in a name", "X A: y")
            .refused(&[400])
            .sent(GET)
            .lacks("x a"),
        with("9110 5.1", "a quote in a name", "X\"A: y")
            .refused(&[400])
            .sent(GET)
            .lacks("x\"a"),
        with("9110 5.1", "a letter beyond ASCII in a name", "Xé: y")
            .refused(&[400])
            .sent(GET)
            .lacks("xé"),
        with("9110 5.1", "a NUL in a name", "X\0: y").refused(&[400]),
        with("9110 5.5", "a NUL in a value", "X-A: a\0b")
            .refused(&[400])
            .sent(GET)
            .has("x-a", "a b"),
        raw(
            "9110 5.5",
            "a CR in a value",
            "GET /c HTTP/1.1\r\nHost: t\r\nX-A: a\rb\r\n\r\n",
        )
        .refused(&[400])
        .sent(GET)
        .has("x-a", "a b"),
        raw(
            "9112 2.2",
            "CR CR LF",
            "GET /c HTTP/1.1\r\nHost: t\r\nX-A: a\r\r\n\r\n",
        )
        .refused(&[400])
        .sent(GET)
        .has("x-a", "a"),
        with("9110 5.5", "a control character in a value", "X-A: a\u{1}b")
            .refused(&[400])
            .sent(GET),
        with("9110 5.5", "a DEL in a value", "X-A: a\u{7f}b")
            .refused(&[400])
            .sent(GET),
        with("9112 5.2", "a folded value", "X-A: a\n b")
            .refused(&[400])
            .sent(GET)
            .has("x-a", "a b"),
        with("9112 5.2", "a value folded by a tab", "X-A: a\n\tb")
            .refused(&[400])
            .sent(GET)
            .has("x-a", "a b"),
        ask(
            "9112 2.2",
            "a blank before the first field",
            "GET /c HTTP/1.1\n Host: t\n\n",
        )
        .refused(&[400]),
        ask(
            "9112 2.2",
            "a line of blanks before the first field",
            "GET /c HTTP/1.1\n \nHost: t\n\n",
        )
        .refused(&[400])
        .sent(GET),
        raw(
            "9112 2.2",
            "a line feed ends a field",
            "GET /c HTTP/1.1\r\nHost: t\nX-A: y\r\n\r\n",
        )
        .sent(GET)
        .has("x-a", "y")
        .refused(&[400]),
        with("9110 5.4", "a value that is too long", &format!("X: {long}")).refused(&[431, 400, 413, 494]),
        with("9110 5.4", "a name that is too long", &format!("{long}: x")).refused(&[431, 400, 413, 494]),
        with("9110 5.4", "too many of them", &many.join("\n")).refused(&[431, 400, 413, 494]),
        with("9110 5.1", "an underscore in a name", "My_Field: y")
            .sent(GET)
            .has("my_field", "y")
            .sent(GET)
            .lacks("my_field"),
        with(
            "3875 4.1.18",
            "x_forwarded_for, which CGI reads as X-Forwarded-For",
            "X_Forwarded_For: evil",
        )
        .sent(GET)
        .lacks("x_forwarded_for"),
        with("3875 4.1.18", "x_forwarded-for", "X_Forwarded-For: evil")
            .sent(GET)
            .lacks("x_forwarded-for"),
        with("9110 7.6.3", "a Via of the gateway", "X: y")
            .sent(GET)
            .has("via", "*"),
        with("9110 7.6.1", "Content-Encoding stays", "Content-Encoding: gzip")
            .sent(GET)
            .has("content-encoding", "gzip"),
        with("9110 11.6.2", "Authorization stays", "Authorization: Basic YQ==")
            .sent(GET)
            .has("authorization", "Basic YQ=="),
        with("9110 14.2", "Range stays", "Range: bytes=0-1")
            .sent(GET)
            .has("range", "bytes=0-1"),
        none(
            forwards("9110 7.6.2", "OPTIONS that goes no further", "OPTIONS", "0"),
            200,
        ),
        none(
            none(
                forwards("9110 7.6.2", "TRACE that goes no further", "TRACE", "0"),
                405,
            ),
            200,
        ),
        forwards("9110 7.6.2", "OPTIONS, counted", "OPTIONS", "3")
            .sent("OPTIONS /c HTTP/1.1")
            .has("max-forwards", "2"),
        forwards("9110 7.6.2", "TRACE, counted", "TRACE", "1")
            .sent("TRACE /c HTTP/1.1")
            .has("max-forwards", "0")
            .refused(&[405, 501]),
        forwards("9110 7.6.2", "GET, not counted", "GET", "0")
            .sent(GET)
            .has("max-forwards", "0"),
        forwards("9110 7.6.2", "a Max-Forwards that is no number", "OPTIONS", "x")
            .refused(&[400])
            .sent("OPTIONS /c HTTP/1.1"),
        ask(
            "9110 9.3.8",
            "TRACE with content",
            "TRACE /c HTTP/1.1\nHost: t\nContent-Length: 2\n\nab",
        )
        .refused(&[400, 405, 501]),
    ]
}
