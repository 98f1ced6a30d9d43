//! One request after another through the gateway, seen from both sides.

use std::io::{BufReader, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{Backend, Client, Message, eventually, gateway, gateway_with, ok, take};
use headroom_gateway::ForwardPolicy;

/// A backend that reports each request it gets.
fn recording(answer: &'static str) -> (Backend, mpsc::Receiver<Message>) {
    let (sender, receiver) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let backend = Backend::http(move |request| {
        sender.lock().unwrap().send(request.clone()).unwrap();
        answer.as_bytes().to_vec()
    });
    (backend, receiver)
}

#[test]
fn a_request_arrives_with_what_the_backend_should_know() {
    let (backend, requests) =
        recording("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: now\r\nX-A: 1\r\n\r\nhello");
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send(
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example:8080\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
         X-Forwarded-Proto: https\r\nX-Custom: v\r\nVia: 1.1 front\r\n\r\n",
    );
    let response = client.receive();
    assert_eq!((response.status(), response.text().as_str()), (200, "hello"));
    assert_eq!(response.header("date"), Some("now"));
    assert_eq!(response.header("via"), Some("1.1 headroom"));
    let request = requests.recv().unwrap();
    assert_eq!(request.start, "GET /a/b?c=d HTTP/1.1");
    assert_eq!(request.all("host"), ["shop.example:8080"]);
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["shop.example:8080"]);
    assert_eq!(request.header("forwarded"), None);
    assert_eq!(request.all("via"), ["1.1 front, 1.1 headroom"]);
    assert_eq!(request.header("x-custom"), Some("v"));
}

#[test]
fn trusted_forwarding_is_appended_to() {
    let (backend, requests) = recording("HTTP/1.1 204 No Content\r\n\r\n");
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.forwarding.x_forwarded = ForwardPolicy::Append;
        config.forwarding.forwarded = ForwardPolicy::Append;
        config.forwarding.via = false;
        config.forwarding.preserve_host = false;
    });
    let mut client = Client::connect(address);
    client.send(
        "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\
         Forwarded: for=10.0.0.1\r\n\r\n",
    );
    assert_eq!(client.receive().status(), 204);
    let request = requests.recv().unwrap();
    assert_eq!(request.all("x-forwarded-for"), ["10.0.0.1, 127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["https"]);
    assert_eq!(request.all("x-forwarded-host"), ["a.example"]);
    assert_eq!(
        request.all("forwarded"),
        ["for=10.0.0.1, for=127.0.0.1;proto=http;host=\"a.example\""]
    );
    assert_eq!(request.header("via"), None);
    assert_eq!(request.all("host"), [backend.address.to_string()]);
}

#[test]
fn connection_specific_fields_end_here_both_ways() {
    let (backend, requests) = recording(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\n\
         Proxy-Authenticate: Basic\r\nUpgrade: h3\r\nX-End: 2\r\nContent-Length: 0\r\n\r\n",
    );
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send(
        "GET / HTTP/1.1\r\nHost: t\r\nConnection: X-Secret, Keep-Alive, Host, Content-Length\r\nX-Secret: 1\r\n\
         Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nTE: gzip, trailers\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-Kept: 1\r\n\r\n",
    );
    let response = client.receive();
    for gone in [
        "x-hop",
        "keep-alive",
        "proxy-authenticate",
        "upgrade",
        "connection",
    ] {
        assert_eq!(response.header(gone), None, "{gone}");
    }
    assert_eq!(response.header("x-end"), Some("2"));
    let request = requests.recv().unwrap();
    let gone = [
        "x-secret",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
        "http2-settings",
    ];
    for gone in gone {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    assert_eq!(request.header("te"), Some("trailers"));
    assert_eq!(request.header("connection"), Some("te"));
    assert_eq!(
        (request.header("host"), request.header("x-kept")),
        (Some("t"), Some("1"))
    );
}

#[test]
fn kept_alive_connections_are_used_again_on_both_sides() {
    let backend = Backend::http(|request| ok(&request.start));
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for n in 0..50 {
        assert_eq!(client.get(&format!("/{n}")).text(), format!("GET /{n} HTTP/1.1"));
    }
    assert_eq!(backend.connections(), 1);
    let period = take(&gateway);
    assert_eq!((period.service.arrivals, period.service.completions), (50, 50));
    assert_eq!((period.service.failures, period.service.in_flight), (0, 0));
    assert_eq!((period.histogram.len(), period.connections), (50, 1));
    assert_eq!(period.backends[0].counts.completions, 50);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let backend = Backend::http(|request| ok(&request.start));
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    let wire: String = (0..20)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect();
    client.send(wire);
    for n in 0..20 {
        assert_eq!(client.receive().text(), format!("GET /{n} HTTP/1.1"));
    }
}

#[test]
fn responses_without_a_body_have_none() {
    let backend = Backend::http(|request| {
        let head = match request.start.split(' ').nth(1).unwrap() {
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "/none" => "HTTP/1.1 204 No Content\r\n\r\n",
            _ => "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"a\"\r\n\r\n",
        };
        head.as_bytes().to_vec()
    });
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for path in ["/length", "/chunked"] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        let response = Message::read(&mut client.reader, true).unwrap();
        let length = (path == "/length").then_some("7");
        assert_eq!(
            (response.status(), response.header("content-length")),
            (200, length)
        );
    }
    assert_eq!(client.get("/none").status(), 204);
    let unchanged = client.get("/unchanged");
    assert_eq!(
        (unchanged.status(), unchanged.header("etag")),
        (304, Some("\"a\""))
    );
    assert_eq!(client.get("/none").status(), 204);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_http_1_0_client_gets_what_it_can_read() {
    let backend = Backend::http(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec()
    });
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.0\r\n\r\n");
    let response = client.receive();
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.text(), "abcde");
    assert!(client.is_closed());
    // Only the end of the connection says where such an answer ends, whatever was asked for.
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.receive();
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(response.text(), "abcde");
    assert!(client.is_closed());
}

#[test]
fn a_response_that_ends_with_its_connection_is_passed_on() {
    let backend = Backend::raw(|mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        stream
            .write_all(b"HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nuntil the end")
            .unwrap();
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "until the end");
    assert_eq!(client.get("/").text(), "until the end");
    assert_eq!(backend.connections(), 2);
    assert_eq!(take(&gateway).service.completions, 2);
}

#[test]
fn targets_are_normalised_or_refused() {
    let (backend, requests) = recording("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET http://real.example/x?y HTTP/1.1\r\nHost: fake.example\r\n\r\n");
    assert_eq!(client.receive().status(), 200);
    let request = requests.recv().unwrap();
    assert_eq!(
        (request.start.as_str(), request.all("host")),
        ("GET /x?y HTTP/1.1", vec!["real.example"])
    );
    client.send("GET http://real.example?y HTTP/1.1\r\nHost: fake.example\r\n\r\n");
    assert_eq!(client.receive().status(), 200);
    assert_eq!(
        requests.recv().unwrap().start,
        "GET /?y HTTP/1.1",
        "an empty path is sent"
    );
    client.send("OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.receive().status(), 200);
    assert_eq!(requests.recv().unwrap().start, "OPTIONS * HTTP/1.1");
    let refused = [
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443", 501),
        ("GET * HTTP/1.1\r\nHost: t", 400),
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        ("GET / HTTP/1.1\r\nHost: a b", 400),
        ("GET / HTTP/1.1\r\nHost: a@b", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a", 400),
        ("GET http://u:p@a/ HTTP/1.1\r\nHost: a", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nExpect: 200-ok", 417),
    ];
    for (head, status) in refused {
        let mut client = Client::connect(address);
        client.send(format!("{head}\r\n\r\n"));
        let response = client.receive();
        assert_eq!(response.status(), status, "{head}");
        assert!(!response.body.is_empty(), "{head}: the reason is told");
    }
    assert!(
        requests.try_recv().is_err(),
        "a refused request reached the backend"
    );
}

#[test]
fn a_client_that_expects_100_gets_it_when_the_body_is_wanted() {
    let (backend, requests) = recording("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (_gateway, address) = gateway_with(&backend, |config| config.limits.max_request_body_bytes = 10);
    let mut client = Client::connect(address);
    client.send("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(
        Message::read_head(&mut client.reader).unwrap().start,
        "HTTP/1.1 100 Continue"
    );
    client.send("body");
    assert_eq!(client.receive().status(), 200);
    let request = requests.recv().unwrap();
    assert_eq!(
        (request.text().as_str(), request.header("expect")),
        ("body", Some("100-continue"))
    );
    // Too large: the final answer comes at once, and no 100.
    client.send("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.receive().status(), 413);
}

#[test]
fn trailers_pass_both_ways() {
    let (backend, requests) = recording(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n",
    );
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send(
        "POST / HTTP/1.1\r\nHost: t\r\nTE: trailers\r\nTrailer: X-Check\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Check: 7\r\n\r\n",
    );
    let response = client.receive();
    assert_eq!(response.text(), "ok");
    assert_eq!(response.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    let request = requests.recv().unwrap();
    assert_eq!(request.text(), "abc");
    assert_eq!(request.trailers, [("x-check".to_owned(), "7".to_owned())]);
    assert_eq!(request.header("trailer"), Some("X-Check"));
}

#[test]
fn large_bodies_pass_whole_both_ways() {
    // 24 MB each way, of every byte value, so that a lost or doubled piece shows.
    let body: Vec<u8> = (0..24_000_000u32)
        .map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8)
        .collect();
    let backend = Backend::http(|request| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            request.body.len()
        )
        .into_bytes();
        answer.extend_from_slice(&request.body);
        answer
    });
    let (gateway, address) = gateway(&backend);
    for chunked in [false, true] {
        let mut client = Client::connect(address);
        let mut writer = client.stream.try_clone().unwrap();
        let upload = body.clone();
        let sending = std::thread::spawn(move || {
            if chunked {
                writer
                    .write_all(b"PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .unwrap();
                for piece in upload.chunks(70_001) {
                    write!(writer, "{:x}\r\n", piece.len()).unwrap();
                    writer.write_all(piece).unwrap();
                    writer.write_all(b"\r\n").unwrap();
                }
                writer.write_all(b"0\r\n\r\n").unwrap();
            } else {
                write!(
                    writer,
                    "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
                    upload.len()
                )
                .unwrap();
                writer.write_all(&upload).unwrap();
            }
        });
        let response = client.receive();
        sending.join().unwrap();
        assert_eq!(response.status(), 200);
        assert!(
            response.body == body,
            "the body changed on its way (chunked: {chunked})"
        );
    }
    assert_eq!(take(&gateway).service.response_bytes, 48_000_000);
}

/// Writes without end until the other side stops taking it for a while; gives the bytes taken.
fn flood(stream: &mut std::net::TcpStream, most: u64, taken: &AtomicU64) {
    let piece = [b'x'; 65_536];
    stream
        .set_write_timeout(Some(Duration::from_millis(700)))
        .unwrap();
    while taken.load(Ordering::SeqCst) < most {
        match stream.write(&piece) {
            Ok(written) => taken.fetch_add(written as u64, Ordering::SeqCst),
            Err(_) => return,
        };
    }
}

/// What the kernel's buffers of two connections may hold; the gateway itself holds some 100 kB.
const KERNEL_BYTES: u64 = 96 << 20;
const ENDLESS_BYTES: u64 = 512 << 20;

#[test]
fn a_client_that_does_not_read_stops_the_backend() {
    let taken = Arc::new(AtomicU64::new(0));
    let counter = taken.clone();
    let backend = Backend::raw(move |mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {ENDLESS_BYTES}\r\n\r\n"
        )
        .unwrap();
        flood(&mut stream, ENDLESS_BYTES, &counter);
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut last = 0;
    eventually("the backend is held back", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = taken.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut last, now) == now
    });
    assert!(
        last < KERNEL_BYTES,
        "the gateway took {last} bytes for a client that reads none"
    );
    assert_eq!(take(&gateway).service.in_flight, 1);
    drop(client);
    eventually("the abort is counted", || take(&gateway).service.in_flight == 0);
}

#[test]
fn a_backend_that_does_not_read_stops_the_client() {
    let backend = Backend::raw(|stream, _| {
        Message::read_head(&mut BufReader::with_capacity(64, stream.try_clone().unwrap())).unwrap();
        std::thread::sleep(Duration::from_secs(3));
    });
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {ENDLESS_BYTES}\r\n\r\n"
    ));
    let taken = AtomicU64::new(0);
    flood(&mut client.stream, ENDLESS_BYTES, &taken);
    let taken = taken.load(Ordering::SeqCst);
    assert!(
        taken > 0 && taken < KERNEL_BYTES,
        "the gateway took {taken} bytes for a backend that reads none"
    );
}

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let backend = Backend::raw(|mut stream, _| {
        let request = Message::read_head(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        assert_eq!(request.header("connection"), Some("upgrade"));
        assert_eq!(request.header("upgrade"), Some("echo"));
        // The first bytes of the new protocol come with the head.
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nwelcome ",
            )
            .unwrap();
        let mut buffer = [0; 1000];
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                read => stream.write_all(&buffer[..read]).unwrap(),
            }
        }
        stream.write_all(b" bye").unwrap();
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    // The client, too, may send the first bytes at once.
    client.send("GET /chat HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello");
    let response = Message::read_head(&mut client.reader).unwrap();
    assert_eq!(
        (response.status(), response.header("upgrade")),
        (101, Some("echo"))
    );
    let mut text = [0; 13];
    client.reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"welcome hello");
    for n in 0..100 {
        let word = format!("word {n:05}");
        client.send(&word);
        let mut echo = vec![0; word.len()];
        client.reader.read_exact(&mut echo).unwrap();
        assert_eq!(echo, word.as_bytes());
    }
    let period = take(&gateway);
    assert_eq!(
        (
            period.tunnels,
            period.service.in_flight,
            period.service.completions
        ),
        (1, 0, 1)
    );
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " bye");
    eventually("the tunnel is closed", || take(&gateway).tunnels == 0);
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    let backend = Backend::http(|request| {
        assert_eq!(request.header("upgrade"), Some("websocket"));
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec()
    });
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!((client.receive().status(), backend.connections()), (403, 1));
    }
}

#[test]
fn an_answer_before_the_end_of_the_upload_reaches_the_client() {
    let backend = Backend::raw(|mut stream, _| {
        Message::read_head(&mut BufReader::with_capacity(64, stream.try_clone().unwrap())).unwrap();
        stream
            .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!")
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n");
    // As much as is taken before the backend is asked.
    client.send("a beginning".repeat(8_000));
    assert_eq!(client.receive().text(), "no!");
    assert_eq!(take(&gateway).service.completions, 1);
}
