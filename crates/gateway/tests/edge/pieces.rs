//! A stream of requests is answered the same in whatever pieces it comes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use crate::common::{Backend, Client, Message, gateway, ok};

/// Requests with every kind of body, the last of which ends the connection.
const REQUESTS: &str = "GET /1 HTTP/1.1\r\nHost: t\r\n\r\n\
    POST /2 HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello\
    \r\nPOST /3 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nx-a: b\r\n\r\n\
    GET /chunks HTTP/1.1\r\nHost: t\r\nTE: trailers\r\n\r\n\
    HEAD /5 HTTP/1.1\r\nHost: t\r\n\r\n\
    GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n\
    GET /7 HTTP/1.1\r\nHost: t\r\nConnection: x, close\r\n\r\n";

fn answer(request: &Message) -> Vec<u8> {
    let dated = |answer: &[u8]| {
        let text = String::from_utf8_lossy(answer);
        text.replacen(
            "\r\n",
            "\r\nDate: today\r\nConnection: keep-alive\r\nETag: \"a\"\r\n",
            1,
        )
        .into_bytes()
    };
    let target = request.start.split(' ').nth(1).unwrap();
    if target == "/chunks" {
        return dated(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n0\r\nx-t: 1\r\n\r\n",
        );
    }
    if target == "/nothing" {
        return dated(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
    }
    let body = format!("{target}:{}", request.text());
    if request.start.starts_with("HEAD") {
        let length = body.len();
        return dated(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    }
    dated(&ok(&body))
}

/// What is answered to requests that come in these pieces.
fn answers(address: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut client = Client::connect(address);
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 && pieces.len() == 2 {
            // So that they are read apart; where they are not, that is as right.
            std::thread::sleep(Duration::from_millis(3));
        }
        client.stream.write_all(piece).unwrap();
    }
    let mut text = String::new();
    client.reader.read_to_string(&mut text).unwrap();
    let _ = client.stream.shutdown(Shutdown::Both);
    text
}

#[test]
fn requests_behind_each_other_are_answered_the_same_in_whatever_pieces_they_come() {
    let backend = Backend::http(answer);
    let (_gateway, address) = gateway(&backend);
    let requests = REQUESTS.as_bytes();
    let whole = answers(address, &[requests]);
    let expected = "HTTP/1.1 200 OK\r\nDate: today\r\nETag: \"a\"\r\ncontent-length: 3\r\nvia: 1.1 headroom\r\n\r\n/1:\
        HTTP/1.1 200 OK\r\nDate: today\r\nETag: \"a\"\r\ncontent-length: 8\r\nvia: 1.1 headroom\r\n\r\n/2:hello\
        HTTP/1.1 200 OK\r\nDate: today\r\nETag: \"a\"\r\ncontent-length: 10\r\nvia: 1.1 headroom\r\n\r\n/3:abcdefg";
    assert!(whole.starts_with(expected), "{whole}");
    let end = "HTTP/1.1 200 OK\r\nDate: today\r\nETag: \"a\"\r\nContent-Length: 3\r\nvia: 1.1 headroom\r\n\r\n\
        HTTP/1.1 204 No Content\r\ndate: today\r\netag: \"a\"\r\nvia: 1.1 headroom\r\n\r\n\
        HTTP/1.1 200 OK\r\nDate: today\r\nETag: \"a\"\r\ncontent-length: 3\r\nvia: 1.1 headroom\r\nconnection: close\r\n\r\n/7:";
    assert!(whole.ends_with(end), "{whole}");
    let chunked = &whole[expected.len()..whole.len() - end.len()];
    assert!(chunked.ends_with("0\r\nx-t: 1\r\n\r\n"), "{chunked}");
    // How an answer's chunks are cut is nobody's promise.
    let without_sizes = |text: &str| text.replace("5\r\nfirst\r\n6\r\nsecond", "b\r\nfirstsecond");
    let whole = without_sizes(&whole);
    for cut in 1..requests.len() {
        let (front, back) = requests.split_at(cut);
        let cut_in_two = answers(address, &[front, back]);
        assert_eq!(
            without_sizes(&cut_in_two),
            whole,
            "cut at {cut}, behind {:?}",
            &REQUESTS[..cut]
        );
    }
    let bytes: Vec<&[u8]> = requests.chunks(1).collect();
    assert_eq!(without_sizes(&answers(address, &bytes)), whole, "byte by byte");
}
