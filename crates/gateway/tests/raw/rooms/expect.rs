//! RFC 9110 section 10.1.1.

use crate::case::{Backend, Case, Step, ask, lines};

const POST: &str = "POST /c HTTP/1.1";
const HEAD: &str = "POST /c HTTP/1.1\nHost: t\nContent-Length: 5\nExpect: 100-continue\n\n";
const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\nConnection: close\n\nok";

fn hello(case: Case) -> Case {
    case.then(Step::Await(100)).then(Step::Send(b"hello".to_vec()))
}

pub fn cases() -> Vec<Case> {
    let asks = || Backend::Interim(lines("HTTP/1.1 100 Continue\n\n"), lines(OK));
    let got = |case: Case, interims: &[u16]| {
        case.gets(200)
            .body("ok")
            .interims(interims)
            .edit(|reply| reply.requests = Some(1))
    };
    vec![
        got(
            hello(ask("9110 10.1.1", "the backend asks for the body", HEAD)).by(asks()),
            &[100],
        ),
        got(
            hello(ask(
                "9110 10.1.1",
                "in whatever letters",
                &HEAD.replace("100-c", "100-C"),
            ))
            .by(asks()),
            &[100],
        ),
        got(
            ask(
                "9110 10.1.1",
                "a chunked body",
                "POST /c HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n",
            )
            .then(Step::Await(100))
            .then(Step::Send(lines("5\nhello\n0\n\n")))
            .by(asks()),
            &[100],
        ),
        got(
            hello(ask("9110 10.1.1", "the backend stays silent", HEAD)),
            &[100],
        )
        .refused(&[408, 504]),
        hello(ask("9110 10.1.1", "the expectation reaches the backend", HEAD))
            .by(asks())
            .sent(POST)
            .body("hello")
            .has("expect", "100-continue")
            .sent(POST)
            .body("hello"),
        ask("9110 10.1.1", "a final answer, and no body", HEAD)
            .by(Backend::Early(lines(
                "HTTP/1.1 403 Forbidden\nContent-Length: 2\nConnection: close\n\nno",
            )))
            .gets(403)
            .body("no")
            .interims(&[]),
        ask("9110 10.1.1", "a 417 of the backend", HEAD)
            .by(Backend::Early(lines(
                "HTTP/1.1 417 Expectation Failed\nContent-Length: 0\nConnection: close\n\n",
            )))
            .gets(417)
            .interims(&[]),
        ask(
            "9110 10.1.1",
            "a client that does not wait",
            &format!("{HEAD}hello"),
        )
        .by(asks())
        .sent(POST)
        .body("hello"),
        ask(
            "9110 10.1.1",
            "without a body",
            "GET /c HTTP/1.1\nHost: t\nExpect: 100-continue\n\n",
        )
        .sent("GET /c HTTP/1.1"),
        ask(
            "9110 10.1.1",
            "in HTTP/1.0 it is ignored",
            "POST /c HTTP/1.0\nHost: t\nContent-Length: 5\nExpect: 100-continue\n\nhello",
        )
        .gets(200)
        .interims(&[]),
        ask(
            "9110 10.1.1",
            "another expectation",
            "GET /c HTTP/1.1\nHost: t\nExpect: tea\n\n",
        )
        .refused(&[417])
        .sent("GET /c HTTP/1.1"),
        ask(
            "9110 10.1.1",
            "another beside it",
            "GET /c HTTP/1.1\nHost: t\nExpect: 100-continue, tea\n\n",
        )
        .refused(&[417])
        .sent("GET /c HTTP/1.1"),
        ask(
            "9110 15.2.1",
            "a 100 that nobody waits for",
            "POST /c HTTP/1.1\nHost: t\nContent-Length: 5\n\nhello",
        )
        .by(asks())
        .sent(POST)
        .body("hello"),
    ]
}
