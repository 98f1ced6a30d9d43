//! RFC 9110 section 15.2, RFC 8297.

use crate::case::{Backend, Case, PLAIN, ask, lines};

const HINTS: &str = "HTTP/1.1 103 Early Hints\nLink: </a>; rel=preload\n\n";
const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\nConnection: close\n\nok";

fn before(section: &'static str, name: &'static str, interim: &str) -> Case {
    ask(section, name, PLAIN).by(Backend::Interim(lines(interim), lines(OK)))
}

pub fn cases() -> Vec<Case> {
    let got = |case: Case, interims: &[u16]| case.gets(200).body("ok").interims(interims);
    let many = HINTS.repeat(30);
    vec![
        got(before("9110 15.2", "early hints", HINTS), &[103]),
        got(
            before("9110 15.2", "processing", "HTTP/1.1 102 Processing\n\n"),
            &[102],
        ),
        got(
            before(
                "9110 15.2",
                "a 100 that nobody waits for",
                "HTTP/1.1 100 Continue\n\n",
            ),
            &[100],
        ),
        got(
            before("9110 15.2", "one that nobody knows", "HTTP/1.1 199 Soon\n\n"),
            &[199],
        ),
        got(
            before(
                "9110 15.2",
                "several",
                &format!("{HINTS}HTTP/1.1 102 Processing\n\n{HINTS}"),
            ),
            &[103, 102, 103],
        ),
        got(before("9110 15.2", "thirty", &many), &[103; 30]),
        got(
            before(
                "9110 8.6",
                "one with a length",
                "HTTP/1.1 103 Early Hints\nContent-Length: 5\n\n",
            ),
            &[103],
        ),
        got(
            before("9110 15.2", "none to HTTP/1.0", HINTS).to("GET /c HTTP/1.0\nHost: t\n\n"),
            &[],
        ),
        before("9110 15.2", "before the answer to HEAD", HINTS)
            .to("HEAD /c HTTP/1.1\nHost: t\n\n")
            .gets(200)
            .body("")
            .interims(&[103]),
        ask("9110 15.2", "and no final answer", PLAIN)
            .by(Backend::Closes(lines(HINTS)))
            .bad_gateway(),
        ask("9110 15.2", "one that is none", PLAIN)
            .by(Backend::Closes(lines("HTTP/1.1 103 Early Hints\nno colon\n\n")))
            .bad_gateway(),
    ]
}
