//! RFC 9110 section 7.8, RFC 6455.

use crate::case::{Backend, Case, ask, lines};

const GET: &str = "GET /c HTTP/1.1";
const ASK: &str = "GET /c HTTP/1.1\nHost: t\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n";

fn with(section: &'static str, name: &'static str, fields: &str) -> Case {
    ask(section, name, &format!("GET /c HTTP/1.1\nHost: t\n{fields}\n\n"))
}

fn switched(section: &'static str, name: &'static str, asked: &str, head: &str) -> Case {
    ask(section, name, asked).by(Backend::Switches(lines(head)))
}

pub fn cases() -> Vec<Case> {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\n\n";
    let switches = |case: Case| case.gets(101).has("upgrade", "websocket");
    vec![
        switches(switched("9110 7.8", "a WebSocket", ASK, SWITCH)),
        switches(switched(
            "9110 7.8",
            "in whatever letters",
            &ASK.replace("Upgrade\n", "uPGRADE\n"),
            SWITCH,
        )),
        switches(switched(
            "9110 7.8",
            "beside another option",
            &ASK.replace("Upgrade\n", "keep-alive, Upgrade\n"),
            SWITCH,
        )),
        ask("9110 7.8", "refused by the backend", ASK)
            .by(Backend::Closes(lines(
                "HTTP/1.1 403 Forbidden\nContent-Length: 2\n\nno",
            )))
            .gets(403)
            .body("no"),
        ask("9110 7.8", "ignored by the backend", ASK).sent(GET),
        with("9110 7.8", "without Connection", "Upgrade: websocket")
            .sent(GET)
            .lacks("upgrade"),
        with("9110 7.8", "Connection without Upgrade", "Connection: Upgrade")
            .sent(GET)
            .lacks("upgrade"),
        ask(
            "9110 7.8",
            "in HTTP/1.0",
            "GET /c HTTP/1.0\nHost: t\nConnection: Upgrade\nUpgrade: websocket\n\n",
        )
        .sent(GET)
        .lacks("upgrade"),
        with(
            "9113 3.1",
            "to HTTP/2",
            "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAA",
        )
        .sent(GET)
        .lacks("upgrade"),
        ask(
            "9110 7.8",
            "with a body, ignored by the backend",
            "POST /c HTTP/1.1\nHost: t\nConnection: Upgrade\nUpgrade: websocket\nContent-Length: 2\n\nab",
        )
        .sent("POST /c HTTP/1.1")
        .body("ab"),
        with(
            "9110 7.8",
            "to one of two",
            "Connection: Upgrade\nUpgrade: websocket, other",
        )
        .sent(GET),
        switched(
            "9110 7.8",
            "a 101 that nobody asked for",
            "GET /c HTTP/1.1\nHost: t\n\n",
            SWITCH,
        )
        .bad_gateway(),
        switched(
            "9110 15.2",
            "a 101 to HTTP/1.0",
            "GET /c HTTP/1.0\nHost: t\n\n",
            SWITCH,
        )
        .bad_gateway(),
        switched(
            "9110 7.8",
            "a 101 to another protocol",
            ASK,
            &SWITCH.replace("websocket", "other"),
        )
        .bad_gateway(),
        switched(
            "9110 15.2.2",
            "a 101 without Upgrade",
            ASK,
            "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\n\n",
        )
        .bad_gateway(),
    ]
}
