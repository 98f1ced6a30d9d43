//! RFC 9112 section 6, RFC 9110 section 8.6.

use super::SMUGGLED;
use crate::case::{Case, Step, ask, raw};

fn post(section: &'static str, name: &'static str, fields: &str, rest: &str) -> Case {
    ask(
        section,
        name,
        &format!("POST /c HTTP/1.1\nHost: t\n{fields}\n\n{rest}"),
    )
}

pub fn cases() -> Vec<Case> {
    const POST: &str = "POST /c HTTP/1.1";
    const GET: &str = "GET /c HTTP/1.1";
    const HELLO: &str = "5\nhello\n0\n\n";
    const EMPTY: &str = "0\n\n";
    let bad_length = |name: &'static str, value: &str| {
        post("9112 6.3", name, &format!("Content-Length: {value}"), "hello").refused(&[400, 413])
    };
    let coding = |name: &'static str, value: &str, rest: &str| {
        post("9112 6.1", name, &format!("Transfer-Encoding: {value}"), rest)
    };
    let smuggled = SMUGGLED.replace('\n', "\r\n");
    vec![
        post("9112 6.2", "a length", "Content-Length: 5", "hello").sent(POST).body("hello"),
        post("9112 6.2", "a length of 0", "Content-Length: 0", "").sent(POST).has("content-length", "0"),
        post("9112 6.3", "neither length nor coding", "X: y", "").sent(POST),
        ask("9110 8.6", "GET with a length", "GET /c HTTP/1.1\nHost: t\nContent-Length: 5\n\nhello").sent(GET).body("hello"),
        ask("9112 6.3", "GET, chunked", &format!("GET /c HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\n\n{HELLO}")).sent(GET).body("hello"),
        ask("9110 9.3.5", "DELETE with a length", "DELETE /c HTTP/1.1\nHost: t\nContent-Length: 5\n\nhello")
            .sent("DELETE /c HTTP/1.1")
            .body("hello"),
        post("9110 8.6", "a length with leading zeros", "Content-Length: 0005", "hello").sent(POST).body("hello").refused(&[400]),
        post("9112 6.3", "two equal lengths", "Content-Length: 5\nContent-Length: 5", "hello")
            .refused(&[400])
            .sent(POST)
            .body("hello"),
        post("9112 6.3", "a list of equal lengths", "Content-Length: 5, 5", "hello").refused(&[400]).sent(POST).body("hello"),
        post("9112 6.3", "two lengths", "Content-Length: 5\nContent-Length: 6", "hello!").refused(&[400]),
        post("9112 6.3", "two lengths, 0 first", "Content-Length: 0\nContent-Length: 35", SMUGGLED).refused(&[400]),
        post("9112 6.3", "two lengths, 0 last", "Content-Length: 35\nContent-Length: 0", SMUGGLED).refused(&[400]),
        bad_length("a list of lengths", "5, 6"),
        bad_length("length +5", "+5"),
        bad_length("length -5", "-5"),
        bad_length("length 0x5", "0x5"),
        bad_length("length 5 5", "5 5"),
        bad_length("length 5.0", "5.0"),
        bad_length("length 5e0", "5e0"),
        bad_length("length with a quote", "\"5\""),
        bad_length("length that overflows 64 bits", "18446744073709551621"),
        bad_length("length that overflows by far", "99999999999999999999999999999"),
        bad_length("length with a letter", "5a"),
        bad_length("length with a comment", "5 (five)"),
        bad_length("length and a comma", "5,"),
        post("9112 6.3", "an empty length", "Content-Length:", SMUGGLED).refused(&[400]),
        post("9112 5.1", "a blank before the colon of a length", "Content-Length : 5", "hello").refused(&[400]),
        post("9112 5.2", "a folded length", "Content-Length:\n 5", "hello").refused(&[400]).sent(POST).body("hello"),
        post("9112 6.3", "less than the length, then the end", "Content-Length: 50", "hello").then(Step::Finish).refused(&[400, 408]),
        post("9112 6.3", "less than the length, then nothing", "Content-Length: 50", "hello").refused(&[408, 400, 504]),
        post("9112 6.1", "length, then chunked", "Content-Length: 5\nTransfer-Encoding: chunked", EMPTY).refused(&[400]).sent(POST),
        post("9112 6.1", "chunked, then length", "Transfer-Encoding: chunked\nContent-Length: 5", EMPTY).refused(&[400]).sent(POST),
        post("9112 6.1", "both, a request within the length", "Content-Length: 40\nTransfer-Encoding: chunked", &format!("{EMPTY}{SMUGGLED}"))
            .refused(&[400])
            .sent(POST),
        post("9112 6.1", "both, a request in a chunk", "Transfer-Encoding: chunked\nContent-Length: 4", &format!("23\n{SMUGGLED}\n0\n\n"))
            .refused(&[400])
            .sent(POST)
            .body(&smuggled),
        post("9112 6.1", "chunked and a length of 0", "Transfer-Encoding: chunked\nContent-Length: 0", HELLO)
            .refused(&[400])
            .sent(POST)
            .body("hello"),
        post("9112 6.1", "chunked and a length that is none", "Transfer-Encoding: chunked\nContent-Length: x", EMPTY).refused(&[400]).sent(POST),
        coding("chunked", "chunked", HELLO).sent(POST).body("hello"),
        coding("chunked in capitals", "CHUNKED", HELLO).sent(POST).body("hello"),
        coding("chunked with blanks before", "  \t chunked", HELLO).sent(POST).body("hello"),
        coding("chunked with blanks behind", "chunked \t", HELLO).sent(POST).body("hello"),
        coding("chunked behind an empty element", ", chunked", HELLO).sent(POST).body("hello").refused(&[400, 501]),
        coding("chunked, identity", "chunked, identity", EMPTY).refused(&[400, 501]),
        coding("identity, chunked", "identity, chunked", EMPTY).refused(&[501, 400]),
        coding("gzip, chunked", "gzip, chunked", EMPTY).refused(&[501, 400]),
        coding("gzip", "gzip", SMUGGLED).refused(&[400, 501]),
        coding("identity", "identity", SMUGGLED).refused(&[400, 501]),
        coding("xchunked", "xchunked", EMPTY).refused(&[501, 400]),
        coding("chunkedx", "chunkedx", EMPTY).refused(&[501, 400]),
        coding("chunk", "chunk", EMPTY).refused(&[501, 400]),
        coding("quoted", "\"chunked\"", EMPTY).refused(&[400, 501]),
        coding("with a parameter", "chunked;q=1", EMPTY).refused(&[400, 501]),
        coding("chunked twice", "chunked, chunked", EMPTY).refused(&[400, 501]),
        coding("empty", "", SMUGGLED).refused(&[400, 501]),
        coding("a vertical tab before it", "\u{b}chunked", EMPTY).refused(&[400, 501]),
        coding("a NUL behind it", "chunked\0", EMPTY).refused(&[400, 501]),
        post("9112 6.1", "two fields, both chunked", "Transfer-Encoding: chunked\nTransfer-Encoding: chunked", EMPTY).refused(&[400, 501]),
        post("9112 6.1", "two fields, identity last", "Transfer-Encoding: chunked\nTransfer-Encoding: identity", EMPTY).refused(&[400, 501]),
        post("9112 6.1", "two fields, identity first", "Transfer-Encoding: identity\nTransfer-Encoding: chunked", EMPTY).refused(&[501, 400]),
        post("9112 5.1", "a blank before the colon of a coding", "Transfer-Encoding : chunked", EMPTY).refused(&[400]),
        post("9112 5.1", "a tab before the colon of a coding", "Transfer-Encoding\t: chunked", EMPTY).refused(&[400]),
        post("9112 5.2", "a folded coding", "Transfer-Encoding:\n chunked", HELLO).refused(&[400]).sent(POST).body("hello"),
        raw(
            "9112 2.2",
            "a line feed hides a coding",
            "POST /c HTTP/1.1\r\nHost: t\r\nX: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        )
        .refused(&[400])
        .sent(POST),
        raw(
            "9112 2.2",
            "a CR hides a coding",
            "POST /c HTTP/1.1\r\nHost: t\r\nX: a\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        )
        .refused(&[400])
        .sent(POST)
        .body("hello"),
        ask("9112 6.1", "chunked in HTTP/1.0", &format!("POST /c HTTP/1.0\nHost: t\nTransfer-Encoding: chunked\n\n{HELLO}"))
            .refused(&[400, 501])
            .sent(POST)
            .body("hello"),
        ask("9112 6.2", "a length in HTTP/1.0", "POST /c HTTP/1.0\nHost: t\nContent-Length: 5\n\nhello").sent(POST).body("hello"),
        ask("9112 6.3", "HTTP/1.0 without a length", "POST /c HTTP/1.0\nHost: t\n\n").sent(POST).refused(&[400, 411]),
        post("9112 6.3", "a body that reads like a head", "Content-Length: 42", "a\nContent-Length: 5\nTransfer-Encoding: x")
            .sent(POST)
            .body("a\r\nContent-Length: 5\r\nTransfer-Encoding: x"),
        post(
            "9112 6.3",
            "a chunk that reads like a head",
            "Transfer-Encoding: chunked",
            "2a\na\nContent-Length: 5\nTransfer-Encoding: x\n0\n\n",
        )
        .sent(POST)
        .body("a\r\nContent-Length: 5\r\nTransfer-Encoding: x"),
        post("9112 6.3", "a body of one byte too many", "Content-Length: 4", "hello").gets(200).edit(|reply| reply.requests = Some(1)),
    ]
}
