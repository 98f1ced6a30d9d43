//! Answers of backends: RFC 9112 sections 4, 5 and 6, RFC 9110 sections 6, 7.6.1 and 15.

use crate::case::{Backend, Case, answer, lines};

fn ok(section: &'static str, name: &'static str, fields: &str, rest: &str) -> Case {
    answer(section, name, &format!("HTTP/1.1 200 OK\n{fields}\n\n{rest}"))
}

fn line(section: &'static str, name: &'static str, line: &str) -> Case {
    answer(section, name, &format!("{line}\nContent-Length: 2\n\nok"))
}

pub fn cases() -> Vec<Case> {
    const CHUNKED: &str = "Transfer-Encoding: chunked";
    const HEAD: &str = "HEAD /c HTTP/1.1\nHost: t\n\n";
    const OLD: &str = "GET /c HTTP/1.0\nHost: t\n\n";
    let whole = |case: Case| case.gets(200).body("hello");
    let raw =
        |section, name, text: &str| answer(section, name, "").by(Backend::Closes(text.as_bytes().to_vec()));
    let field =
        |section, name, field: &str| ok(section, name, &format!("{field}\nContent-Length: 5"), "hello");
    let long = "x".repeat(70_000);
    vec![
        whole(ok("9112 6.2", "a length", "Content-Length: 5", "hello")),
        whole(
            ok(
                "9112 6.2",
                "a length, and the connection stays",
                "Content-Length: 5",
                "hello",
            )
            .kept(),
        ),
        whole(ok("9112 7.1", "chunked", CHUNKED, "2\nhe\n3\nllo\n0\n\n")),
        whole(
            ok(
                "9112 7.1",
                "chunked, and the connection stays",
                CHUNKED,
                "5\nhello\n0\n\n",
            )
            .kept(),
        ),
        whole(ok(
            "9112 7.1.1",
            "chunked with extensions",
            CHUNKED,
            "5;a=\"b\"\nhello\n0;c\n\n",
        )),
        whole(ok(
            "9112 7.1.2",
            "chunked with a trailer",
            CHUNKED,
            "5\nhello\n0\nX-A: b\n\n",
        )),
        whole(ok("9112 6.3", "until the end of the connection", "X: y", "hello")),
        whole(
            ok(
                "9112 6.3",
                "until the end of the connection, to HTTP/1.0",
                "X: y",
                "hello",
            )
            .to(OLD),
        ),
        whole(answer(
            "9112 6.3",
            "until the end of the connection, in HTTP/1.0",
            "HTTP/1.0 200 OK\n\nhello",
        )),
        whole(answer(
            "9112 6.2",
            "a length in HTTP/1.0",
            "HTTP/1.0 200 OK\nContent-Length: 5\n\nhello",
        )),
        whole(ok("9112 7.1", "chunked, to HTTP/1.0", CHUNKED, "5\nhello\n0\n\n").to(OLD)),
        ok("9112 6.3", "a length of 0", "Content-Length: 0", "")
            .gets(200)
            .body(""),
        ok(
            "9112 6.3",
            "no content until the end of the connection",
            "X: y",
            "",
        )
        .gets(200)
        .body(""),
        ok("9112 6.3", "to HEAD, with a length", "Content-Length: 5", "")
            .to(HEAD)
            .gets(200)
            .has("content-length", "5")
            .body(""),
        ok("9112 6.3", "to HEAD, chunked", CHUNKED, "")
            .to(HEAD)
            .gets(200)
            .body(""),
        ok(
            "9112 6.3",
            "to HEAD, with content that may not be",
            "Content-Length: 5",
            "hello",
        )
        .to(HEAD)
        .gets(200)
        .body(""),
        ok("9112 6.3", "to HEAD, with neither", "X: y", "")
            .to(HEAD)
            .gets(200)
            .body(""),
        answer("9112 6.3", "204", "HTTP/1.1 204 No Content\n\n")
            .gets(204)
            .body(""),
        answer(
            "9112 6.3",
            "204, and the connection stays",
            "HTTP/1.1 204 No Content\n\n",
        )
        .kept()
        .gets(204)
        .body(""),
        answer(
            "9110 8.6",
            "204 with a length",
            "HTTP/1.1 204 No Content\nContent-Length: 5\n\n",
        )
        .gets(204)
        .lacks("content-length")
        .bad_gateway(),
        answer(
            "9112 6.1",
            "204 with a coding",
            "HTTP/1.1 204 No Content\nTransfer-Encoding: chunked\n\n",
        )
        .gets(204)
        .lacks("transfer-encoding")
        .bad_gateway(),
        answer(
            "9112 6.3",
            "204 with content that may not be",
            "HTTP/1.1 204 No Content\n\nhello",
        )
        .gets(204)
        .body(""),
        answer(
            "9112 6.3",
            "304 with a length",
            "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n",
        )
        .gets(304)
        .body(""),
        answer(
            "9112 6.3",
            "304, and the connection stays",
            "HTTP/1.1 304 Not Modified\nETag: \"a\"\n\n",
        )
        .kept()
        .gets(304)
        .has("etag", "\"a\""),
        answer(
            "9110 15.3.6",
            "205",
            "HTTP/1.1 205 Reset Content\nContent-Length: 0\n\n",
        )
        .gets(205)
        .body(""),
        ok(
            "9112 6.3",
            "two equal lengths",
            "Content-Length: 5\nContent-Length: 5",
            "hello",
        )
        .bad_gateway()
        .gets(200)
        .has("content-length", "5"),
        ok(
            "9112 6.3",
            "a list of equal lengths",
            "Content-Length: 5, 5",
            "hello",
        )
        .bad_gateway()
        .gets(200)
        .has("content-length", "5"),
        ok(
            "9112 6.3",
            "two lengths",
            "Content-Length: 5\nContent-Length: 4",
            "hello",
        )
        .bad_gateway(),
        ok("9112 6.3", "a list of lengths", "Content-Length: 5, 4", "hello").bad_gateway(),
        ok("9112 6.3", "length +5", "Content-Length: +5", "hello").bad_gateway(),
        ok("9112 6.3", "length -5", "Content-Length: -5", "hello").bad_gateway(),
        ok("9112 6.3", "length five", "Content-Length: five", "hello").bad_gateway(),
        ok("9112 6.3", "length 5 5", "Content-Length: 5 5", "hello").bad_gateway(),
        ok("9112 6.3", "an empty length", "Content-Length:", "hello").bad_gateway(),
        ok(
            "9112 6.3",
            "a length that overflows",
            "Content-Length: 18446744073709551621",
            "hello",
        )
        .bad_gateway(),
        whole(
            ok(
                "9112 6.3",
                "chunked and a length",
                &format!("{CHUNKED}\nContent-Length: 3"),
                "5\nhello\n0\n\n",
            )
            .bad_gateway(),
        )
        .lacks("content-length"),
        whole(
            ok(
                "9112 6.3",
                "a length and chunked",
                &format!("Content-Length: 3\n{CHUNKED}"),
                "5\nhello\n0\n\n",
            )
            .bad_gateway(),
        )
        .lacks("content-length"),
        answer(
            "9112 6.1",
            "chunked in HTTP/1.0",
            "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
        )
        .bad_gateway()
        .gets(200)
        .body("hello"),
        ok(
            "9112 6.1",
            "chunked twice",
            "Transfer-Encoding: chunked, chunked",
            "5\nhello\n0\n\n",
        )
        .bad_gateway(),
        ok(
            "9112 6.1",
            "a coding that nobody knows",
            "Transfer-Encoding: foo, chunked",
            "5\nhello\n0\n\n",
        )
        .bad_gateway(),
        ok(
            "9112 6.1",
            "xchunked",
            "Transfer-Encoding: xchunked",
            "5\nhello\n0\n\n",
        )
        .bad_gateway()
        .gets(200)
        .lacks("transfer-encoding"),
        ok("9112 8", "less than the length", "Content-Length: 50", "hello")
            .broken(200)
            .bad_gateway(),
        ok("9112 8", "no chunk", CHUNKED, "").broken(200).bad_gateway(),
        ok("9112 8", "no last chunk", CHUNKED, "5\nhello\n")
            .broken(200)
            .bad_gateway(),
        ok("9112 8", "a chunk that breaks off", CHUNKED, "5\nhel")
            .broken(200)
            .bad_gateway(),
        ok(
            "9112 8",
            "no line behind the last chunk",
            CHUNKED,
            "5\nhello\n0\n",
        )
        .broken(200)
        .bad_gateway(),
        ok(
            "9112 7.1",
            "a chunk size that is none",
            CHUNKED,
            "5\nhello\nx\nhello\n0\n\n",
        )
        .broken(200)
        .bad_gateway(),
        ok(
            "9112 7.1",
            "a chunk size that overflows",
            CHUNKED,
            "10000000000000005\nhello\n0\n\n",
        )
        .broken(200)
        .bad_gateway(),
        ok("9112 7.1", "a chunk that is too long", CHUNKED, "4\nhello\n0\n\n")
            .broken(200)
            .bad_gateway(),
        ok(
            "9112 8",
            "less than the length, to HTTP/1.0",
            "Content-Length: 50",
            "hello",
        )
        .to(OLD)
        .broken(200)
        .bad_gateway(),
        ok(
            "9112 9.2",
            "another answer behind it",
            "Content-Length: 5",
            "helloHTTP/1.1 200 OK\nContent-Length: 4\n\nevil",
        )
        .kept()
        .gets(200)
        .body("hello"),
        ok("9112 9.2", "bytes behind it", "Content-Length: 5", "hello, world")
            .gets(200)
            .body("hello"),
        answer("9112 8", "nothing at all", "").bad_gateway(),
        answer("9112 8", "half a head", "HTTP/1.1 200 OK\nContent-Length: 5\n").bad_gateway(),
        answer("9112 4", "what is no HTTP", "SSH-2.0-x\n\n").bad_gateway(),
        line("9112 4", "another protocol", "HTPP/1.1 200 OK").bad_gateway(),
        line("9112 4", "version 2.0", "HTTP/2.0 200 OK").bad_gateway(),
        line("9110 6.2", "version 1.2, read as 1.1", "HTTP/1.2 200 OK")
            .gets(200)
            .bad_gateway(),
        line("9112 2.3", "a version in small letters", "http/1.1 200 OK").bad_gateway(),
        line("9112 4", "a status of two digits", "HTTP/1.1 20 OK").bad_gateway(),
        line("9112 4", "a status of four digits", "HTTP/1.1 2000 OK").bad_gateway(),
        line("9112 4", "a status of letters", "HTTP/1.1 abc OK").bad_gateway(),
        line("9110 15", "a status below 100", "HTTP/1.1 099 OK")
            .bad_gateway()
            .gets(99),
        line("9112 4", "an empty reason", "HTTP/1.1 200 ")
            .gets(200)
            .body("ok"),
        line("9112 4", "no blank and no reason", "HTTP/1.1 200")
            .gets(200)
            .body("ok")
            .bad_gateway(),
        line("9112 4", "a reason of several words", "HTTP/1.1 200 All is well")
            .gets(200)
            .body("ok"),
        line("9112 4", "two blanks before the status", "HTTP/1.1  200 OK")
            .bad_gateway()
            .gets(200)
            .body("ok"),
        line("9110 15", "a status that nobody knows", "HTTP/1.1 299 Well")
            .gets(299)
            .body("ok"),
        line("9110 15", "a 4xx that nobody knows", "HTTP/1.1 499 Hm")
            .gets(499)
            .body("ok"),
        line("9110 15", "a 5xx that nobody knows", "HTTP/1.1 599 Hm")
            .gets(599)
            .body("ok"),
        raw(
            "9112 2.2",
            "bare line feeds",
            "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        )
        .gets(200)
        .body("ok")
        .bad_gateway(),
        whole(field("9112 5.2", "a folded value", "X-A: a\n b").bad_gateway()).has("x-a", "a b"),
        whole(field("9112 5.1", "a blank before the colon", "X-A : a"))
            .has("x-a", "a")
            .bad_gateway(),
        field("9112 5", "no colon", "X-A")
            .bad_gateway()
            .gets(200)
            .lacks("x-a"),
        field("9112 5", "no name", ": a").bad_gateway().gets(200),
        field("9110 5.1", "brackets in a name", "[x]: a")
            .bad_gateway()
            .gets(200)
            .lacks("[x]"),
        field("9110 5.5", "a NUL in a value", "X-A: a\0b")
            .bad_gateway()
            .gets(200)
            .has("x-a", "a b"),
        raw(
            "9110 5.5",
            "a CR in a value",
            "HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 2\r\n\r\nok",
        )
        .bad_gateway()
        .gets(200)
        .has("x-a", "a b"),
        whole(field("9110 5.5", "bytes beyond ASCII in a value", "X-A: é")).has("x-a", "é"),
        whole(field(
            "9110 5.3",
            "two of one name, in their order",
            "Set-Cookie: a=1\nSet-Cookie: b=2",
        ))
        .has("set-cookie", "a=1, b=2"),
        whole(field("9110 5.5", "an empty value", "X-A:")).has("x-a", ""),
        field("9110 5.4", "a value that is too long", &format!("X: {long}"))
            .bad_gateway()
            .gets(200),
        whole(field(
            "9110 7.6.1",
            "what Connection names ends here",
            "Connection: X-Hop\nX-Hop: 1",
        ))
        .lacks("x-hop"),
        whole(field(
            "9110 7.6.1",
            "in two fields",
            "Connection: X-Hop\nConnection: X-Hip\nX-Hop: 1\nX-Hip: 2",
        ))
        .lacks("x-hop")
        .lacks("x-hip"),
        whole(field(
            "9110 7.6.1",
            "Proxy-Connection ends here",
            "Proxy-Connection: close",
        ))
        .lacks("proxy-connection")
        .gets(200),
        whole(field(
            "9110 7.6.1",
            "the backend's Keep-Alive ends here",
            "Connection: keep-alive\nKeep-Alive: timeout=99",
        ))
        .lacks("keep-alive"),
        whole(field("9110 6.6.1", "a Date where there was none", "X: y")).has("date", "*"),
        whole(field(
            "9110 6.6.1",
            "a Date stays",
            "Date: Mon, 01 Jan 2024 00:00:00 GMT",
        ))
        .has("date", "Mon, 01 Jan 2024 00:00:00 GMT"),
        whole(field("9110 10.2.2", "Location stays", "Location: http://other/x"))
            .has("location", "http://other/x"),
        whole(field("9110 8.4", "Content-Encoding stays", "Content-Encoding: x"))
            .has("content-encoding", "x"),
        answer("9112 6.3", "an early refusal of a body", "")
            .to("POST /c HTTP/1.1\nHost: t\nContent-Length: 500000\n\nhello")
            .by(Backend::Early(lines(
                "HTTP/1.1 413 Content Too Large\nContent-Length: 2\nConnection: close\n\nno",
            )))
            .gets(413)
            .body("no")
            .refused(&[408]),
    ]
}
