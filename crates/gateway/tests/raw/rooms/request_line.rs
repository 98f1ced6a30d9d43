//! RFC 9112 section 3, RFC 9110 sections 4, 7 and 9.

use crate::case::{Case, PLAIN, ask, raw};

/// A request with this first line.
fn first(section: &'static str, name: &'static str, line: &str) -> Case {
    ask(section, name, &format!("{line}\nHost: t\n\n"))
}

/// A request with this target, which is passed on as it is.
fn target(section: &'static str, name: &'static str, target: &str) -> Case {
    let line = format!("GET {target} HTTP/1.1");
    first(section, name, &line).sent(&line)
}

pub fn cases() -> Vec<Case> {
    const GET: &str = "GET /c HTTP/1.1";
    let long = format!("/{}", "x".repeat(7_900));
    let longer = format!("/{}", "x".repeat(60_000));
    vec![
        ask("9112 3", "a plain request", PLAIN).sent(GET).has("host", "t"),
        first("9110 9.1", "a method that nobody knows", "BREW /c HTTP/1.1")
            .sent("BREW /c HTTP/1.1")
            .refused(&[501, 405]),
        first("9110 9.1", "a method in small letters", "get /c HTTP/1.1")
            .sent("get /c HTTP/1.1")
            .refused(&[501, 405, 400]),
        first(
            "9110 9.1",
            "a method of all token characters",
            "A!#$%&'*+-.^_`|~9 /c HTTP/1.1",
        )
        .sent("A!#$%&'*+-.^_`|~9 /c HTTP/1.1")
        .refused(&[501, 405, 400]),
        first("9110 9.1", "a method with a parenthesis", "G(T /c HTTP/1.1").refused(&[400, 501]),
        first("9110 9.1", "a method with a NUL", "G\0T /c HTTP/1.1").refused(&[400, 501]),
        first("9112 3", "no method", " /c HTTP/1.1").refused(&[400, 501]),
        first("9112 3", "a blank before the method", " GET /c HTTP/1.1")
            .refused(&[400])
            .sent(GET),
        first("9112 3", "two blanks behind the method", "GET  /c HTTP/1.1")
            .refused(&[400])
            .sent(GET),
        first("9112 3", "two blanks behind the target", "GET /c  HTTP/1.1")
            .refused(&[400, 505])
            .sent(GET),
        first("9112 3", "a tab behind the method", "GET\t/c HTTP/1.1")
            .refused(&[400])
            .sent(GET),
        first("9112 3", "a tab behind the target", "GET /c\tHTTP/1.1")
            .refused(&[400, 505])
            .sent(GET),
        first("9112 3", "a blank behind the version", "GET /c HTTP/1.1 ")
            .refused(&[400, 505])
            .sent(GET),
        first("9112 3", "a blank in the target", "GET /c d HTTP/1.1").refused(&[400, 505]),
        first("9112 3", "no target", "GET HTTP/1.1").refused(&[400, 505]),
        first("9112 3", "an empty target", "GET  HTTP/1.1").refused(&[400, 505]),
        first("9112 2.3", "no version", "GET /c").refused(&[400, 505]),
        first("9110 6.2", "version 1.2, read as 1.1", "GET /c HTTP/1.2")
            .sent(GET)
            .refused(&[505, 400]),
        first("9110 6.2", "version 1.9, read as 1.1", "GET /c HTTP/1.9")
            .sent(GET)
            .refused(&[505, 400]),
        first("9110 15.6.6", "version 2.0", "GET /c HTTP/2.0").refused(&[505, 400]),
        first("9110 15.6.6", "version 3.0", "GET /c HTTP/3.0").refused(&[505, 400]),
        first("9110 15.6.6", "version 0.9", "GET /c HTTP/0.9").refused(&[505, 400]),
        first("9112 2.3", "version 1", "GET /c HTTP/1").refused(&[400, 505]),
        first("9112 2.3", "version 1.10", "GET /c HTTP/1.10").refused(&[400, 505]),
        first("9112 2.3", "version 01.1", "GET /c HTTP/01.1").refused(&[400, 505]),
        first("9112 2.3", "a version in small letters", "GET /c http/1.1").refused(&[400, 505]),
        first("9112 2.3", "another protocol", "GET /c HTPP/1.1").refused(&[400, 505]),
        first(
            "9112 3",
            "a request in the version",
            "GET /c HTTP/1.1 GET /smuggled HTTP/1.1",
        )
        .refused(&[400, 505]),
        first("9112 3", "a NUL in the target", "GET /c\0 HTTP/1.1").refused(&[400]),
        first(
            "9112 3",
            "a control character in the target",
            "GET /c\u{1} HTTP/1.1",
        )
        .refused(&[400]),
        first("9112 3", "a DEL in the target", "GET /c\u{7f} HTTP/1.1").refused(&[400]),
        raw(
            "9112 2.2",
            "a bare CR in the target",
            "GET /c\rd HTTP/1.1\r\nHost: t\r\n\r\n",
        )
        .refused(&[400]),
        raw(
            "9112 2.2",
            "a bare CR behind the version",
            "GET /c HTTP/1.1\rX: y\r\nHost: t\r\n\r\n",
        )
        .refused(&[400, 505]),
        raw("9112 2.2", "bare line feeds", "GET /c HTTP/1.1\nHost: t\n\n")
            .sent(GET)
            .refused(&[400]),
        ask("9112 2.2", "an empty line before it", &format!("\n{PLAIN}")).sent(GET),
        ask("9112 2.2", "two empty lines before it", &format!("\n\n{PLAIN}"))
            .sent(GET)
            .refused(&[400]),
        first(
            "9112 3.2",
            "a letter beyond ASCII in the target",
            "GET /é HTTP/1.1",
        )
        .refused(&[400])
        .sent("GET /é HTTP/1.1"),
        first("9112 3.2.1", "a fragment in the target", "GET /c#f HTTP/1.1")
            .refused(&[400])
            .sent(GET)
            .sent("GET /c#f HTTP/1.1"),
        first(
            "9112 3.2",
            "brackets and braces in the target",
            "GET /c[{}] HTTP/1.1",
        )
        .refused(&[400])
        .sent("GET /c[{}] HTTP/1.1"),
        first("9112 3.2", "a quote in the target", "GET /c\" HTTP/1.1")
            .refused(&[400])
            .sent("GET /c\" HTTP/1.1"),
        first("9112 3.2", "angles in the query", "GET /c?<a> HTTP/1.1")
            .refused(&[400])
            .sent("GET /c?<a> HTTP/1.1"),
        first("9112 3.2", "a half escape in the target", "GET /c%4 HTTP/1.1")
            .refused(&[400])
            .sent("GET /c%4 HTTP/1.1"),
        target("9110 7.7", "escapes stay as they are", "/a%2Fb%2e%7E%c3%a9"),
        target("9110 7.7", "dot segments stay", "/a/../c/./d"),
        target("9110 7.7", "double slashes stay", "//a//c"),
        target("9110 7.7", "an empty query stays", "/c?"),
        target(
            "9110 7.7",
            "a query with questions and slashes",
            "/c?a=/b?c&d=e;f",
        ),
        target("9110 7.7", "sub-delimiters in the path", "/c;v=1/a,b/!$&'()*+="),
        target("9112 3", "a target of 7,900 bytes", &long),
        first(
            "9112 3",
            "a target that is too long",
            &format!("GET {longer} HTTP/1.1"),
        )
        .strictly(&[414]),
        first("9112 3.2.2", "absolute", "GET http://t/c HTTP/1.1")
            .sent(GET)
            .has("host", "t"),
        first(
            "9112 3.2.2",
            "absolute, with a scheme in capitals",
            "GET HTTP://t/c HTTP/1.1",
        )
        .sent(GET)
        .has("host", "t"),
        first(
            "9112 3.2.2",
            "absolute, with another Host",
            "GET http://other/c HTTP/1.1",
        )
        .sent(GET)
        .has("host", "other"),
        first(
            "9112 3.2.2",
            "absolute, with a port",
            "GET http://t:81/c HTTP/1.1",
        )
        .sent(GET)
        .has("host", "t:81"),
        first("9112 3.2.1", "absolute, without a path", "GET http://t HTTP/1.1")
            .sent("GET / HTTP/1.1")
            .has("host", "t"),
        first(
            "9112 3.2.1",
            "absolute, with a query only",
            "GET http://t?q HTTP/1.1",
        )
        .sent("GET /?q HTTP/1.1")
        .has("host", "t"),
        first(
            "9112 3.2.2",
            "absolute, with a bad port",
            "GET http://t:x/c HTTP/1.1",
        )
        .refused(&[400, 404]),
        first("9112 3.2.2", "absolute, without a host", "GET http:///c HTTP/1.1").refused(&[400, 404]),
        first(
            "9112 3.2.2",
            "absolute, with a port only",
            "GET http://:80/c HTTP/1.1",
        )
        .refused(&[400, 404]),
        first(
            "9110 4.2.4",
            "absolute, with user information",
            "GET http://u:p@t/c HTTP/1.1",
        )
        .refused(&[400]),
        first("9112 3.2.2", "absolute, another scheme", "GET ftp://t/c HTTP/1.1")
            .refused(&[400, 404, 421, 501]),
        first("9112 3.2", "a host as the target", "GET t:80 HTTP/1.1").refused(&[400]),
        first("9112 3.2", "a path without a slash", "GET c/d HTTP/1.1").refused(&[400]),
        first("9112 3.2.3", "CONNECT", "CONNECT t:80 HTTP/1.1")
            .refused(&[400, 403, 405, 501])
            .sent("CONNECT t:80 HTTP/1.1"),
        first("9112 3.2.4", "OPTIONS *", "OPTIONS * HTTP/1.1")
            .sent("OPTIONS * HTTP/1.1")
            .refused(&[405, 501]),
        first("9112 3.2.4", "GET *", "GET * HTTP/1.1").refused(&[400]),
        first(
            "9112 3.2.4",
            "OPTIONS, absolute, without a path",
            "OPTIONS http://t HTTP/1.1",
        )
        .sent("OPTIONS * HTTP/1.1"),
        first(
            "9112 3.2.4",
            "OPTIONS, absolute, with a slash",
            "OPTIONS http://t/ HTTP/1.1",
        )
        .sent("OPTIONS / HTTP/1.1"),
        first(
            "9112 3.2.4",
            "OPTIONS, absolute, with a query only",
            "OPTIONS http://t?q HTTP/1.1",
        )
        .sent("OPTIONS /?q HTTP/1.1"),
        ask(
            "9110 2.5",
            "the gateway speaks its own version",
            "GET /c HTTP/1.0\nHost: t\n\n",
        )
        .sent(GET)
        .own_version(),
        first("9110 9.3.2", "HEAD", "HEAD /c HTTP/1.1").sent("HEAD /c HTTP/1.1"),
        first("9110 9.3.5", "DELETE", "DELETE /c HTTP/1.1").sent("DELETE /c HTTP/1.1"),
    ]
}
