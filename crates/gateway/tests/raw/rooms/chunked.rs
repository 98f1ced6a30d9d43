//! RFC 9112 section 7.1, RFC 9110 section 6.5.

use crate::case::{Case, Step, ask, lines, raw};

const HEAD: &str = "POST /c HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\n\n";
const POST: &str = "POST /c HTTP/1.1";

fn body(section: &'static str, name: &'static str, text: &str) -> Case {
    ask(section, name, &format!("{HEAD}{text}"))
}

fn raw_body(section: &'static str, name: &'static str, text: &str) -> Case {
    raw(section, name, [lines(HEAD), text.as_bytes().to_vec()].concat())
}

pub fn cases() -> Vec<Case> {
    let hello = |case: Case| case.sent(POST).body("hello");
    let bad = |name: &'static str, text: &str| body("9112 7.1", name, text).refused(&[400]);
    let long = "x".repeat(40_000);
    vec![
        hello(body("9112 7.1", "one chunk", "5\nhello\n0\n\n")),
        hello(body("9112 7.1", "two chunks", "2\nhe\n3\nllo\n0\n\n")),
        body("9112 7.1", "no data", "0\n\n").sent(POST),
        body("9112 7.1", "a size in capitals", "A\n0123456789\n0\n\n")
            .sent(POST)
            .body("0123456789"),
        body("9112 7.1", "a size in small letters", "a\n0123456789\n0\n\n")
            .sent(POST)
            .body("0123456789"),
        hello(body(
            "9112 7.1",
            "a size with leading zeros",
            "0005\nhello\n0\n\n",
        )),
        hello(body(
            "9112 7.1",
            "a last chunk of many zeros",
            "5\nhello\n00000\n\n",
        )),
        hello(body("9112 7.1.1", "an extension", "5;a=b\nhello\n0\n\n")),
        hello(body(
            "9112 7.1.1",
            "an extension without a value",
            "5;a\nhello\n0;b\n\n",
        )),
        hello(body(
            "9112 7.1.1",
            "an extension in quotes",
            "5;a=\"b;c\"\nhello\n0\n\n",
        )),
        hello(body(
            "9112 7.1.1",
            "blanks around an extension",
            "5 ; a = b\nhello\n0\n\n",
        ))
        .refused(&[400]),
        body(
            "9112 7.1.1",
            "a long extension",
            &format!("5;{long}\nhello\n0\n\n"),
        )
        .refused(&[400, 413, 431])
        .sent(POST)
        .body("hello"),
        hello(body("9112 7.1", "blanks behind a size", "5  \nhello\n0\n\n").refused(&[400])),
        hello(body("9112 7.1", "a blank before a size", " 5\nhello\n0\n\n").refused(&[400])),
        bad("size 0x5", "0x5\nhello\n0\n\n"),
        bad("size +5", "+5\nhello\n0\n\n"),
        bad("size -5", "-5\nhello\n0\n\n"),
        bad("an empty size", "\nhello\n0\n\n"),
        bad("an extension without a size", ";a\nhello\n0\n\n"),
        bad("size g", "g\nhello\n0\n\n"),
        bad("size 5_0", "5_0\nhello\n0\n\n"),
        bad("size that overflows 64 bits", "10000000000000005\nhello\n0\n\n"),
        bad(
            "size that overflows by far",
            "fffffffffffffffffffffffffffffff5\nhello\n0\n\n",
        ),
        bad("a size that is too small", "4\nhello\n0\n\n"),
        bad("a size that is too large", "6\nhello\n0\n\n")
            .sent(POST)
            .body("hello\r"),
        bad("a chunk without an end", "5\nhello0\n\n"),
        bad("more than the end of a chunk", "5\nhello\n\n0\n\n"),
        hello(raw_body("9112 7.1", "a chunk that ends in LF", "5\r\nhello\n0\r\n\r\n").refused(&[400])),
        hello(raw_body("9112 7.1", "a size that ends in LF", "5\nhello\r\n0\r\n\r\n").refused(&[400])),
        raw_body("9112 7.1", "a size that ends in CR", "5\rhello\r\n0\r\n\r\n").refused(&[400]),
        raw_body("9112 7.1", "a chunk that ends in CR", "5\r\nhello\r0\r\n\r\n").refused(&[400]),
        raw_body(
            "9112 7.1.1",
            "a CR in an extension",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
        )
        .refused(&[400])
        .sent(POST)
        .body("hello"),
        raw_body(
            "9112 7.1.1",
            "a LF in an extension",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
        )
        .refused(&[400]),
        raw_body("9112 7.1", "an end in LF alone", "5\r\nhello\r\n0\n\n")
            .refused(&[400])
            .sent(POST)
            .body("hello"),
        body("9112 8", "no last chunk", "5\nhello\n")
            .then(Step::Finish)
            .refused(&[400, 408]),
        body("9112 8", "no last chunk, then nothing", "5\nhello\n").refused(&[408, 400, 504]),
        body("9112 8", "a chunk that breaks off", "5\nhel")
            .then(Step::Finish)
            .refused(&[400, 408]),
        body("9112 8", "a size that breaks off", "5")
            .then(Step::Finish)
            .refused(&[400, 408]),
        body("9112 8", "no line behind the last chunk", "5\nhello\n0\n")
            .then(Step::Finish)
            .refused(&[400, 408]),
        hello(body("9110 6.5", "a trailer", "5\nhello\n0\nX-A: b\n\n")),
        hello(body(
            "9110 6.5.1",
            "a length as a trailer",
            "5\nhello\n0\nContent-Length: 9\n\n",
        ))
        .no_trailer("content-length")
        .refused(&[400]),
        hello(body(
            "9110 6.5.1",
            "a coding as a trailer",
            "5\nhello\n0\nTransfer-Encoding: x\n\n",
        ))
        .no_trailer("transfer-encoding")
        .refused(&[400]),
        hello(body(
            "9110 6.5.1",
            "a Host as a trailer",
            "5\nhello\n0\nHost: evil\n\n",
        ))
        .no_trailer("host")
        .refused(&[400]),
        hello(body(
            "9110 6.5.1",
            "Authorization as a trailer",
            "5\nhello\n0\nAuthorization: evil\n\n",
        ))
        .no_trailer("authorization")
        .refused(&[400]),
        bad("a trailer without a colon", "5\nhello\n0\nbad\n\n")
            .sent(POST)
            .body("hello"),
        bad(
            "a trailer with a blank before the colon",
            "5\nhello\n0\nX : y\n\n",
        )
        .sent(POST)
        .body("hello"),
        body(
            "9112 7.1.2",
            "trailers that are too long",
            &format!("5\nhello\n0\nX: {long}\n\n"),
        )
        .refused(&[400, 413, 431])
        .sent(POST)
        .body("hello"),
        body(
            "9112 9.3.2",
            "a request behind it",
            "5\nhello\n0\n\nGET /d HTTP/1.1\nHost: t\nConnection: close\n\n",
        )
        .gets(200)
        .edit(|reply| (reply.answers, reply.requests) = (2, Some(2))),
    ]
}
