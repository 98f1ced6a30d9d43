//! Backends over HTTP/2: what is asked and answered, how connections are shared, and how streams and connections end.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use headroom_gateway::{BackendProtocol, GatewayConfig};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;
use crate::common::{Client, eventually, start, take};
use crate::servers::{
    Outgoing, Server, answer_h2, block_on, full, get, h2_client, h2c_config, read_h2, serve_h2, text,
    tls_config, tls_server,
};

fn builder() -> h2::server::Builder {
    h2::server::Builder::new()
}

fn with_streams(most: u32) -> h2::server::Builder {
    let mut builder = builder();
    builder.max_concurrent_streams(most);
    builder
}

/// A request body of these frames, as they come.
fn streamed(frames: tokio::sync::mpsc::Receiver<Frame<Bytes>>) -> Outgoing {
    BodyExt::boxed(StreamBody::new(Frames(frames.into())))
}

struct Frames(std::sync::Mutex<tokio::sync::mpsc::Receiver<Frame<Bytes>>>);

impl futures_core::Stream for Frames {
    type Item = Result<Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.get_mut().unwrap().poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

#[test]
fn heads_bodies_and_trailers_pass_both_ways() {
    let seen = Arc::new(std::sync::Mutex::new(None));
    let noted = seen.clone();
    let backend = Server::start(move |stream, _| {
        let noted = noted.clone();
        serve_h2(stream, builder(), move |request, mut respond| {
            let noted = noted.clone();
            async move {
                let (head, body) = request.into_parts();
                let (body, trailers) = read_h2(body).await.unwrap();
                *noted.lock().unwrap() = Some((head, body, trailers));
                let answer = Response::builder()
                    .status(201)
                    .header("x-answer", "a")
                    .header("x-answer", "b")
                    .body(())
                    .unwrap();
                let mut stream = respond.send_response(answer, false).unwrap();
                stream.send_data(Bytes::from("made"), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", HeaderValue::from_static("7"));
                stream.send_trailers(trailers).unwrap();
            }
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    block_on(async {
        let mut sender = h2_client(address).await;
        let (frames, body) = tokio::sync::mpsc::channel(4);
        frames.send(Frame::data(Bytes::from("one,"))).await.unwrap();
        frames.send(Frame::data(Bytes::from("two"))).await.unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-check", HeaderValue::from_static("3"));
        frames.send(Frame::trailers(trailers)).await.unwrap();
        drop(frames);
        let request = Request::post("http://shop.example/items?a=1")
            .header("te", "trailers")
            .header("x-ask", "please")
            .body(streamed(body))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 201);
        let both: Vec<_> = answer.headers().get_all("x-answer").iter().collect();
        assert_eq!(both, ["a", "b"]);
        assert_eq!(answer.headers()["via"], "2.0 headroom");
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-sum"], "7");
        assert_eq!(body.to_bytes(), "made");
    });
    let (head, body, trailers) = seen.lock().unwrap().take().unwrap();
    assert_eq!((head.method.as_str(), head.version), ("POST", Version::HTTP_2));
    assert_eq!(head.uri.to_string(), "http://shop.example/items?a=1");
    for (name, value) in [
        ("te", "trailers"),
        ("x-ask", "please"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example"),
        ("via", "2.0 headroom"),
    ] {
        assert_eq!(head.headers[name], value);
    }
    assert!(!head.headers.contains_key("host"));
    assert_eq!(
        (body.as_slice(), &trailers["x-check"]),
        (&b"one,two"[..], &HeaderValue::from_static("3"))
    );
    let period = take(&gateway);
    assert_eq!(
        (period.service.completions, period.backends[0].counts.completions),
        (1, 1)
    );
    assert_eq!(period.service.response_bytes, 4);
}

#[test]
fn a_client_over_http_1_is_answered_from_http_2() {
    let backend = Server::start(|stream, _| {
        serve_h2(stream, builder(), |request, mut respond| async move {
            let head = request.method() == http::Method::HEAD;
            let (body, _) = read_h2(request.into_body()).await.unwrap();
            if head {
                let answer = Response::builder()
                    .header("content-length", "5")
                    .body(())
                    .unwrap();
                respond.send_response(answer, true).unwrap();
                return;
            }
            answer_h2(respond, body);
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    let mut client = Client::connect(address);
    client.send(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    let answer = client.receive();
    assert_eq!(
        (answer.status(), answer.text().as_str(), answer.complete),
        (200, "abcde", true)
    );
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nxyz");
    assert_eq!(client.receive().text(), "xyz");
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    let answer = crate::common::Message::read(&mut client.reader, true).unwrap();
    assert_eq!(answer.header("content-length"), Some("5"));
    assert_eq!(client.get("/").text(), "");
    assert_eq!(take(&gateway).service.completions, 4);
    assert_eq!(backend.connections(), 1);
}

/// Sends so many requests at once, and returns what was answered.
async fn at_once(address: std::net::SocketAddr, count: usize) -> Vec<(StatusCode, String)> {
    let sender = h2_client(address).await;
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let answer = sender.send_request(get(&format!("/{number}"))).await.unwrap();
                (answer.status(), text(answer).await)
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// A backend that answers once so many requests wait for it, over all its connections.
fn gathering(count: usize, streams: u32) -> Server {
    let waiting = Arc::new((AtomicUsize::new(0), Notify::new()));
    Server::start(move |stream, _| {
        let waiting = waiting.clone();
        serve_h2(stream, with_streams(streams), move |request, respond| {
            let waiting = waiting.clone();
            async move {
                let all = waiting.1.notified();
                if waiting.0.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    waiting.1.notify_waiters();
                } else {
                    all.await;
                }
                answer_h2(respond, request.uri().path().to_owned());
            }
        })
    })
}

#[test]
fn requests_share_a_connection_and_open_more_where_a_backend_takes_no_more() {
    for (streams, connections) in [(200, 1), (10, 6), (1, 60)] {
        let backend = gathering(60, streams);
        let (gateway, address) = start(h2c_config(backend.address));
        let answers = block_on(at_once(address, 60));
        for (number, (status, path)) in answers.iter().enumerate() {
            assert_eq!(
                (status.as_u16(), path.as_str()),
                (200, format!("/{number}").as_str())
            );
        }
        assert_eq!(backend.connections(), connections, "{streams} streams");
        let period = take(&gateway);
        assert_eq!((period.service.completions, period.service.retries), (60, 0));
        assert_eq!(period.backends[0].connects.opened, connections as u64);
    }
}

#[test]
fn a_refused_request_is_sent_again_and_any_other_reset_is_answered() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counter = refusals.clone();
    let backend = Server::start(move |stream, _| {
        let counter = counter.clone();
        serve_h2(stream, builder(), move |request, mut respond| {
            let counter = counter.clone();
            async move {
                match request.uri().path() {
                    // Refused once, whatever the method: nothing of it was processed.
                    "/refused" if counter.fetch_add(1, Ordering::SeqCst) == 0 => {
                        respond.send_reset(Reason::REFUSED_STREAM);
                    }
                    "/broken" => respond.send_reset(Reason::INTERNAL_ERROR),
                    path @ ("/echo" | "/long") => {
                        let refuses = path == "/long" || counter.fetch_add(1, Ordering::SeqCst) == 2;
                        let (body, trailers) = read_h2(request.into_body()).await.unwrap();
                        match refuses {
                            true => respond.send_reset(Reason::REFUSED_STREAM),
                            false => answer_h2(respond, [&body, trailers["x-check"].as_bytes()].concat()),
                        }
                    }
                    _ => answer_h2(respond, "done"),
                }
            }
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    let mut client = Client::connect(address);
    client.send("POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.receive().text(), "done");
    assert_eq!(client.get("/broken").status(), 502);
    // What was sent of its body is sent again, and the trailers behind it.
    let chunked = "HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(format!(
        "POST /echo {chunked}3\r\nabc\r\n2\r\nde\r\n0\r\nx-check: 7\r\n\r\n"
    ));
    let answer = client.receive();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "abcde7"));
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.retries), (2, 2));
    assert_eq!(
        (period.service.failures, period.service.aborted_by_backend),
        (1, 1)
    );
    // More than is kept is not.
    let body = "a".repeat(100_000);
    client.send(format!(
        "POST /long HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n{body}"
    ));
    assert_eq!(client.receive().status(), 502);
    assert_eq!(take(&gateway).service.retries, 0);
}

#[test]
fn a_backend_that_says_goodbye_loses_no_request() {
    let backend = Server::start(move |stream, _| async move {
        let mut connection = builder().handshake::<_, Bytes>(stream).await.unwrap();
        let mut taken = 0;
        while let Some(request) = connection.accept().await {
            let Ok((request, respond)) = request else { return };
            taken += 1;
            if taken == 20 {
                connection.graceful_shutdown();
            }
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                answer_h2(respond, request.uri().path().to_owned());
            });
        }
    });
    let (gateway, address) = start(h2c_config(backend.address));
    block_on(async {
        let sender = h2_client(address).await;
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    for _ in 0..50 {
                        let request = Request::post("http://shop.example/x")
                            .body(full("a body"))
                            .unwrap();
                        let answer = sender.send_request(request).await.unwrap();
                        assert_eq!(answer.status(), 200);
                        assert_eq!(text(answer).await, "/x");
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    assert!(backend.connections() > 5, "{}", backend.connections());
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (400, 0));
}

#[test]
fn a_response_breaks_off_where_its_backend_does() {
    for kills in [false, true] {
        let go_on = Arc::new(Notify::new());
        let read = go_on.clone();
        let backend = Server::start(move |stream, _| {
            let read = read.clone();
            let broken = Rc::new(Notify::new());
            let breaks = broken.clone();
            async move {
                let serve = serve_h2(stream, builder(), move |_, mut respond| {
                    let (read, breaks) = (read.clone(), breaks.clone());
                    async move {
                        let mut stream = respond.send_response(Response::new(()), false).unwrap();
                        stream.send_data(Bytes::from("a part"), false).unwrap();
                        read.notified().await;
                        match kills {
                            true => breaks.notify_one(),
                            false => stream.send_reset(Reason::INTERNAL_ERROR),
                        }
                        std::future::pending::<()>().await;
                    }
                });
                tokio::select! {
                    () = serve => {}
                    () = broken.notified() => {}
                }
            }
        });
        let (gateway, address) = start(h2c_config(backend.address));
        block_on(async {
            let mut sender = h2_client(address).await;
            let mut body = sender.send_request(get("/")).await.unwrap().into_body();
            let part = body.frame().await.unwrap().unwrap();
            assert_eq!(part.into_data().unwrap(), "a part");
            go_on.notify_one();
            assert!(body.frame().await.unwrap().is_err());
        });
        let period = take(&gateway);
        assert_eq!(
            (period.service.aborted_by_backend, period.service.completions),
            (1, 0)
        );
        assert_eq!(period.backends[0].counts.aborted_by_backend, 1);
    }
}

#[test]
fn a_client_that_goes_away_cancels_its_stream_and_no_other() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let counter = cancelled.clone();
    let backend = Server::start(move |stream, _| {
        let counter = counter.clone();
        serve_h2(stream, builder(), move |request, mut respond| {
            let counter = counter.clone();
            async move {
                if request.uri().path() == "/quick" {
                    return answer_h2(respond, "quick");
                }
                let mut stream = match request.uri().path() {
                    "/body" => Some(respond.send_response(Response::new(()), false).unwrap()),
                    _ => None,
                };
                let reset = std::future::poll_fn(|cx| match &mut stream {
                    Some(stream) => stream.poll_reset(cx),
                    None => respond.poll_reset(cx),
                });
                assert_eq!(reset.await.unwrap(), Reason::CANCEL);
                counter.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    block_on(async {
        let mut sender = h2_client(address).await;
        let body = sender.send_request(get("/body")).await.unwrap().into_body();
        drop(body);
        let unanswered = sender.send_request(get("/head"));
        assert!(
            tokio::time::timeout(Duration::from_millis(200), unanswered)
                .await
                .is_err()
        );
        assert_eq!(
            text(sender.send_request(get("/quick")).await.unwrap()).await,
            "quick"
        );
    });
    eventually("both were cancelled", || cancelled.load(Ordering::SeqCst) == 2);
    assert_eq!(backend.connections(), 1);
    let period = take(&gateway);
    assert_eq!(
        (period.service.aborted_by_client, period.service.completions),
        (2, 1)
    );
}

#[test]
fn a_client_that_does_not_read_blocks_its_own_stream_alone() {
    const LARGE: usize = 4 << 20;
    let backend = Server::start(|stream, _| {
        serve_h2(stream, builder(), |_, mut respond| async move {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let mut left = LARGE;
            while left > 0 {
                stream.reserve_capacity(left.min(16_384));
                let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                    return;
                };
                left -= room;
                stream.send_data(Bytes::from(vec![7; room]), left == 0).unwrap();
            }
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    block_on(async {
        // Clients' connections of their own: here it is the backend's connection that they share.
        let mut stalled = Vec::new();
        for _ in 0..20 {
            let mut sender = h2_client(address).await;
            let answer = sender.send_request(get("/")).await.unwrap();
            stalled.push((sender, answer));
        }
        let mut sender = h2_client(address).await;
        for _ in 0..3 {
            let answer = sender.send_request(get("/")).await.unwrap();
            assert_eq!(
                answer.into_body().collect().await.unwrap().to_bytes().len(),
                LARGE
            );
        }
        for (_sender, answer) in stalled {
            assert_eq!(
                answer.into_body().collect().await.unwrap().to_bytes().len(),
                LARGE
            );
        }
    });
    assert_eq!(backend.connections(), 1);
    assert_eq!(take(&gateway).service.completions, 23);
}

#[test]
fn a_backend_that_does_not_read_stops_its_client_and_no_other() {
    let backend = Server::start(|stream, _| {
        // A connection's window is the backend's to give: here with room for more than one stream that it does not read.
        let mut builder = builder();
        builder.initial_connection_window_size(1 << 20);
        serve_h2(stream, builder, |request, respond| async move {
            if request.uri().path() == "/stalled" {
                // Holds the body unread.
                let _request = request;
                let _respond = respond;
                std::future::pending::<()>().await;
                return;
            }
            let (body, _) = read_h2(request.into_body()).await.unwrap();
            answer_h2(respond, body.len().to_string());
        })
    });
    let (_gateway, address) = start(h2c_config(backend.address));
    block_on(async {
        let (frames, body) = tokio::sync::mpsc::channel(1);
        let mut sender = h2_client(address).await;
        let request = Request::post("http://shop.example/stalled")
            .body(streamed(body))
            .unwrap();
        let _stalled = tokio::spawn(sender.send_request(request));
        let mut accepted = 0;
        let piece = Bytes::from(vec![1; 16_384]);
        while let Ok(sent) = tokio::time::timeout(
            Duration::from_millis(300),
            frames.send(Frame::data(piece.clone())),
        )
        .await
        {
            sent.unwrap();
            accepted += piece.len();
            assert!(accepted < 8 << 20, "a body that nobody reads is held somewhere");
        }
        let mut other = h2_client(address).await;
        let request = Request::post("http://shop.example/")
            .body(full(vec![1; 1 << 20]))
            .unwrap();
        let answer = other.send_request(request).await.unwrap();
        assert_eq!(text(answer).await, (1 << 20).to_string());
    });
}

#[test]
fn a_backend_that_fell_silent_is_noticed_by_its_pings() {
    let backend = Server::start(|stream, _| async move {
        let answers_pings = serve_h2(stream, builder(), |_, mut respond| async move {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from("a part"), false).unwrap();
            std::future::pending::<()>().await;
        });
        // From then on nobody reads the connection, as if the machine were gone.
        let _ = tokio::time::timeout(Duration::from_secs(1), answers_pings).await;
        std::future::pending::<()>().await;
    });
    let mut config = h2c_config(backend.address);
    config.timeouts.backend_ping_ms = 100;
    let (gateway, address) = start(config);
    block_on(async {
        let begun = Instant::now();
        let mut sender = h2_client(address).await;
        let mut body = sender.send_request(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        // While it answered PINGs it was left alone.
        assert!(
            begun.elapsed() > Duration::from_millis(900),
            "{:?}",
            begun.elapsed()
        );
    });
    let period = take(&gateway);
    assert_eq!(period.service.aborted_by_backend, 1);
}

#[test]
fn an_idle_connection_is_let_go_of() {
    let open = Arc::new(AtomicUsize::new(0));
    let counter = open.clone();
    let backend = Server::start(move |stream, _| {
        let counter = counter.clone();
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            serve_h2(
                stream,
                builder(),
                |_, respond| async move { answer_h2(respond, "") },
            )
            .await;
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let mut config = h2c_config(backend.address);
    config.timeouts.pool_idle_timeout_ms = 100;
    let (_gateway, address) = start(config);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(open.load(Ordering::SeqCst), 1);
    eventually("it was closed", || open.load(Ordering::SeqCst) == 0);
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(backend.connections(), 2);
}

#[test]
fn what_does_not_speak_http_2_is_no_backend_for_it() {
    let backend = crate::common::Backend::http(|_| crate::common::ok(""));
    let (gateway, address) = start(h2c_config(backend.address));
    assert_eq!(Client::connect(address).get("/").status(), 502);
    assert!(take(&gateway).backends[0].connects.refused > 0);
}

/// A server over TLS that offers these protocols, and answers with the one that was chosen, in either HTTP.
fn choosing(authority: &Authority, protocols: &[&str]) -> Server {
    let acceptor = TlsAcceptor::from(tls_server(&authority.sign("127.0.0.1"), protocols, None));
    Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                return serve_h2(stream, builder(), |request, respond| async move {
                    let scheme = request.uri().scheme_str().unwrap_or_default().to_owned();
                    answer_h2(respond, format!("h2 {scheme}"));
                })
                .await;
            }
            let service =
                hyper::service::service_fn(|mut request: Request<hyper::body::Incoming>| async move {
                    let Some(protocol) = request.headers().get("upgrade").cloned() else {
                        return Ok::<_, std::convert::Infallible>(Response::new(full("http/1.1")));
                    };
                    let upgraded = hyper::upgrade::on(&mut request);
                    tokio::spawn(async move {
                        let mut io = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
                        let _ = tokio::io::AsyncWriteExt::write_all(&mut io, b"hello").await;
                    });
                    let answer = Response::builder()
                        .status(StatusCode::SWITCHING_PROTOCOLS)
                        .header("connection", "upgrade")
                        .header("upgrade", protocol);
                    Ok(answer.body(full("")).unwrap())
                });
            let io = hyper_util::rt::TokioIo::new(stream);
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
            let _ = connection.with_upgrades().await;
        }
    })
}

#[test]
fn a_backend_over_tls_chooses_its_http() {
    let authority = Authority::new();
    for (offered, protocol, answer) in [
        (&["h2", "http/1.1"][..], None, Some("h2 https")),
        (&["http/1.1"], None, Some("http/1.1")),
        (&[], None, Some("http/1.1")),
        (&["h2"], Some(BackendProtocol::H2), Some("h2 https")),
        (&["http/1.1"], Some(BackendProtocol::H2), None),
        (
            &["h2", "http/1.1"],
            Some(BackendProtocol::Http1),
            Some("http/1.1"),
        ),
    ] {
        let backend = choosing(&authority, offered);
        let (_gateway, address) = start(tls_config(backend.address, authority.trusted(), protocol));
        let mut client = Client::connect(address);
        for _ in 0..3 {
            let got = client.get("/");
            match answer {
                Some(answer) => assert_eq!(got.text(), answer, "{offered:?} {protocol:?}"),
                None => assert_eq!(got.status(), 502),
            }
        }
        if answer.is_some() {
            assert_eq!(backend.connections(), 1, "{offered:?} {protocol:?}");
        }
    }
}

#[test]
fn an_upgrade_goes_over_http_1_where_the_backend_has_both() {
    let authority = Authority::new();
    let backend = choosing(&authority, &["h2", "http/1.1"]);
    let (_gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
    assert_eq!(Client::connect(address).get("/").text(), "h2 https");
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    let head = crate::common::Message::read_head(&mut client.reader).unwrap();
    assert_eq!(head.status(), 101);
    let mut hello = [0; 5];
    std::io::Read::read_exact(&mut client.reader, &mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    assert_eq!(Client::connect(address).get("/").text(), "h2 https");
    assert_eq!(backend.connections(), 2);
}

#[test]
fn health_checks_speak_what_requests_speak() {
    let healthy = Arc::new(AtomicBool::new(true));
    let seen = healthy.clone();
    let backend = Server::start(move |stream, _| {
        let seen = seen.clone();
        serve_h2(stream, builder(), move |request, mut respond| {
            let is_well = request.uri().path() == "/healthz" && seen.load(Ordering::SeqCst);
            async move {
                let status = if is_well { 200 } else { 503 };
                let answer = Response::builder().status(status).body(()).unwrap();
                let _ = respond.send_response(answer, true);
            }
        })
    });
    let mut config = h2c_config(backend.address);
    config.health.path = Some("/healthz".to_owned());
    config.health.interval_ms = 20;
    let (gateway, _) = start(config);
    eventually("checks came", || backend.connections() > 4);
    assert!(gateway.backends_health()[0].healthy);
    healthy.store(false, Ordering::SeqCst);
    eventually("it is found ill", || !gateway.backends_health()[0].healthy);
}

#[test]
fn a_backend_that_never_answers_times_out_and_the_stream_with_it() {
    let reset = Arc::new(AtomicBool::new(false));
    let was_reset = reset.clone();
    let backend = Server::start(move |stream, _| {
        let was_reset = was_reset.clone();
        serve_h2(stream, builder(), move |_, mut respond| {
            let was_reset = was_reset.clone();
            async move {
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                was_reset.store(true, Ordering::SeqCst);
            }
        })
    });
    let change = |config: &mut GatewayConfig| config.timeouts.response_header_timeout_ms = 200;
    let mut config = h2c_config(backend.address);
    change(&mut config);
    let (gateway, address) = start(config);
    assert_eq!(Client::connect(address).get("/").status(), 504);
    eventually("the stream was reset", || reset.load(Ordering::SeqCst));
    let period = take(&gateway);
    assert_eq!(
        (period.service.timed_out, period.backends[0].counts.timed_out),
        (1, 1)
    );
}

#[test]
fn a_head_that_is_too_large_is_not_passed_on() {
    let backend = Server::start(|stream, _| {
        serve_h2(stream, builder(), |request, mut respond| async move {
            let mut answer = Response::builder();
            match request.uri().path() {
                "/large" => answer = answer.header("x-large", "a".repeat(40_000)),
                _ => {
                    for number in 0..200 {
                        answer = answer.header(format!("x-{number}"), "a");
                    }
                }
            }
            let _ = respond.send_response(answer.body(()).unwrap(), true);
        })
    });
    let (gateway, address) = start(h2c_config(backend.address));
    let mut client = Client::connect(address);
    assert_eq!(client.get("/large").status(), 502);
    assert_eq!(client.get("/many").status(), 502);
    assert_eq!(take(&gateway).service.unreachable, 2);
}

#[test]
fn what_waits_for_a_connection_that_cannot_be_opened_fails_with_it() {
    let counts = Rc::new(RefCell::new(0));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (gateway, front) = start(h2c_config(address));
    for (status, _) in block_on(at_once(front, 30)) {
        assert_eq!(status, 502);
        *counts.borrow_mut() += 1;
    }
    assert_eq!(*counts.borrow(), 30);
    assert_eq!(take(&gateway).service.unreachable, 30);
}
