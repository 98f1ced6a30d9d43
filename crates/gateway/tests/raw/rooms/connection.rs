//! RFC 9112 section 9, RFC 9110 section 7.6.1.

use crate::case::{Backend, Case, PLAIN, Step, ask, lines};

const GET: &str = "GET /c HTTP/1.1";

fn with(section: &'static str, name: &'static str, fields: &str) -> Case {
    ask(section, name, &format!("GET /c HTTP/1.1\nHost: t\n{fields}\n\n"))
}

pub fn cases() -> Vec<Case> {
    let answers = |case: Case, answers: usize| {
        case.gets(200)
            .body("ok")
            .edit(|reply| (reply.answers, reply.requests) = (answers, Some(answers)))
    };
    let closes = |case: Case| {
        case.gets(200)
            .edit(|reply| (reply.closes, reply.requests) = (true, Some(1)))
    };
    vec![
        with("9110 7.6.1", "what Connection names ends here", "Connection: X-Hop\nX-Hop: 1").sent(GET).lacks("x-hop"),
        with("9110 7.6.1", "in whatever letters", "Connection: x-HOP\nX-Hop: 1").sent(GET).lacks("x-hop"),
        with("9110 7.6.1", "several of them", "Connection: X-Hop, close ,X-Hip\nX-Hop: 1\nX-Hip: 2").sent(GET).lacks("x-hop").lacks("x-hip"),
        with("9110 7.6.1", "in two fields", "Connection: X-Hop\nConnection: X-Hip\nX-Hop: 1\nX-Hip: 2").sent(GET).lacks("x-hop").lacks("x-hip"),
        with("9110 5.6.1.2", "between empty elements", "Connection: ,, X-Hop,\nX-Hop: 1").sent(GET).lacks("x-hop"),
        with("9110 7.6.1", "named and not there", "Connection: X-Hop").sent(GET),
        with("9110 7.6.1", "named twice and there twice", "Connection: X-Hop, X-Hop\nX-Hop: 1\nX-Hop: 2").sent(GET).lacks("x-hop"),
        with("9110 7.6.1", "named before and behind", "X-Hop: 1\nConnection: X-Hop\nX-Hop: 2").sent(GET).lacks("x-hop"),
        with("9110 7.6.1", "Connection names Host", "Connection: host").sent(GET).has("host", "t").refused(&[400]),
        ask("9110 7.6.1", "Connection names Content-Length", "POST /c HTTP/1.1\nHost: t\nConnection: content-length\nContent-Length: 2\n\nab")
            .sent("POST /c HTTP/1.1")
            .body("ab")
            .refused(&[400]),
        ask(
            "9110 7.6.1",
            "Connection names Transfer-Encoding",
            "POST /c HTTP/1.1\nHost: t\nConnection: transfer-encoding\nTransfer-Encoding: chunked\n\n2\nab\n0\n\n",
        )
        .sent("POST /c HTTP/1.1")
        .body("ab")
        .refused(&[400]),
        with("9110 7.6.1", "Keep-Alive ends here", "Connection: keep-alive\nKeep-Alive: timeout=5").sent(GET).lacks("keep-alive"),
        with("9110 7.6.1", "Proxy-Connection ends here", "Proxy-Connection: keep-alive").sent(GET).lacks("proxy-connection").sent(GET),
        with("9110 10.1.4", "TE of a coding ends here", "TE: gzip\nConnection: TE").sent(GET).lacks("te"),
        with("9113 3.1", "HTTP2-Settings ends here", "Connection: HTTP2-Settings\nHTTP2-Settings: AAA").sent(GET).lacks("http2-settings"),
        closes(with("9112 9.6", "Connection: close closes", "Connection: close")),
        closes(with("9112 9.6", "close beside keep-alive closes", "Connection: keep-alive, close")),
        closes(with("9112 9.6", "close in capitals closes", "Connection: CLOSE")),
        closes(with("9112 9.6", "close in a second field closes", "Connection: x\nConnection: close")),
        closes(ask("9112 9.3", "HTTP/1.0 closes", "GET /c HTTP/1.0\nHost: t\n\n")),
        ask("9112 9.6", "nothing is read behind close", &format!("GET /c HTTP/1.1\nHost: t\nConnection: close\n\n{PLAIN}"))
            .gets(200)
            .edit(|reply| (reply.closes, reply.requests) = (true, Some(1))),
        ask("9112 9.3", "nothing is read behind HTTP/1.0", &format!("GET /c HTTP/1.0\nHost: t\n\n{PLAIN}"))
            .gets(200)
            .edit(|reply| (reply.closes, reply.requests) = (true, Some(1))),
        answers(ask("9112 9.3.2", "two requests at once", &format!("{PLAIN}{PLAIN}")), 2),
        answers(ask("9112 9.3.2", "five requests at once", &PLAIN.repeat(5)), 5),
        answers(ask("9112 9.3.2", "a GET behind a POST", &format!("POST /c HTTP/1.1\nHost: t\nContent-Length: 5\n\nhello{PLAIN}")), 2),
        answers(ask("9112 9.3.2", "an empty line between two", &format!("{PLAIN}\n{PLAIN}")), 2),
        ask("9112 9.3.2", "the second is none", &format!("{PLAIN}GET  /d HTTP/1.9 x\n\n"))
            .gets(200)
            .edit(|reply| (reply.answers, reply.requests) = (2, Some(1)))
            .gets(200)
            .edit(|reply| (reply.closes, reply.requests) = (true, Some(1))),
        ask("9112 9.3", "HTTP/1.0 that keeps alive", "GET /c HTTP/1.0\nHost: t\nConnection: keep-alive\n\nGET /c HTTP/1.0\nHost: t\n\n")
            .gets(200)
            .edit(|reply| (reply.answers, reply.requests) = (2, Some(2)))
            .gets(200)
            .edit(|reply| reply.closes = true),
        ask("9112 9.6", "a client that has ended its side", PLAIN).then(Step::Finish).sent(GET).refused(&[]),
        ask("9112 9.6", "one that has ended its side behind two", &format!("{PLAIN}{PLAIN}"))
            .then(Step::Finish)
            .gets(200)
            .edit(|reply| (reply.answers, reply.requests) = (2, Some(2)))
            .refused(&[]),
        ask("9112 9.6", "one that has ended its side behind a body", "POST /c HTTP/1.1\nHost: t\nContent-Length: 2\n\nab")
            .then(Step::Finish)
            .sent("POST /c HTTP/1.1")
            .body("ab")
            .refused(&[]),
        ask("9112 9.6", "one that has ended its side within a head", "GET /c HTTP/1.1\nHost: t\n").then(Step::Finish).refused(&[400, 408]),
        ask("9112 9.5", "one that never ends its head", "GET /c HTTP/1.1\nHost: t\n").refused(&[408, 400]),
        with("9112 7.1", "chunked becomes a plain body for HTTP/1.0", "X: y")
            .to("GET /c HTTP/1.0\nHost: t\n\n")
            .by(Backend::Closes(lines("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n")))
            .gets(200)
            .body("hello")
            .lacks("transfer-encoding"),
    ]
}
