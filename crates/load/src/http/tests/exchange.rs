//! Requests and answers as bytes on a connection.

use super::*;

#[test]
fn a_body_longer_than_the_socket_holds_is_sent_whole() {
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&lengths);
    let url = serve(move |request: Request<Incoming>| {
        let record = Arc::clone(&record);
        async move {
            // The client must wait until its socket takes more.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let body = http_body_util::BodyExt::collect(request.into_body()).await;
            let body = body.unwrap().to_bytes();
            let is_right = body
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at % 251) as u8);
            record.lock().unwrap().push((body.len(), is_right));
            text("x")
        }
    });
    let mut config = LoadConfig::new(url, open(20.0, 0.2, Spacing::Even));
    config.method = http::Method::POST;
    config.max_connections = 1;
    config.grace = Seconds::new(30.0);
    config.timeout = Seconds::new(30.0);
    config.body = (0..8 << 20).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
    let counts = run(config).counts;
    assert_eq!((counts.completed, counts.connections), (4, 1), "{counts:?}");
    assert_eq!(*lengths.lock().unwrap(), [(8 << 20, true); 4]);
    assert!(counts.sent_bytes > 32 << 20);
}

#[test]
fn an_answer_that_comes_before_the_request_is_sent_counts_and_ends_the_connection() {
    let address = raw_server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
        // What is still being sent is not read; a close now would take the answer back.
        std::thread::sleep(Duration::from_millis(500));
    });
    let mut config = LoadConfig::new(format!("http://{address}/"), open(20.0, 0.2, Spacing::Even));
    config.method = http::Method::POST;
    config.body = vec![0; 20 << 20].into();
    config.warm_connections = 1;
    let counts = run(config).counts;
    assert_eq!((counts.client_errors, counts.retried), (4, 0), "{counts:?}");
    assert_eq!(counts.connections, 4, "{counts:?}");
}

#[test]
fn bodies_end_with_their_last_chunk_or_the_connection_and_heads_have_none() {
    let address = raw_server(|_, mut stream| {
        while let Some(head) = head_of(&mut stream) {
            let answers: &[&str] = if head.starts_with("GET /chunks ") {
                &[
                    "HTTP/1.1 200 OK\r\ntransfer-enc",
                    "oding: chunked\r\n\r\n5\r\nhe",
                    "llo\r\n0\r\n",
                    "\r\n",
                ]
            } else {
                &["HTTP/1.1 200 OK\r\n\r\n", "hello"]
            };
            for part in answers {
                let _ = stream.write_all(part.as_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
            if !head.starts_with("GET /chunks ") {
                return;
            }
        }
    });
    let asked = |path: &str| {
        let mut config = LoadConfig::new(format!("http://{address}{path}"), open(50.0, 0.2, Spacing::Even));
        config.max_connections = 1;
        config.expect_bytes = Some(5);
        run(config).counts
    };
    let chunks = asked("/chunks");
    assert_eq!(
        (chunks.completed, chunks.connections, chunks.body_bytes),
        (10, 1, 50)
    );
    let until_end = asked("/");
    assert_eq!(
        (until_end.completed, until_end.connections, until_end.body_bytes),
        (10, 10, 50),
        "{until_end:?}"
    );

    let url = serve(|_| async { text("hello") });
    let mut config = LoadConfig::new(url, open(50.0, 0.2, Spacing::Even));
    config.method = http::Method::HEAD;
    config.max_connections = 1;
    let counts = run(config).counts;
    assert_eq!(
        (counts.completed, counts.connections, counts.body_bytes),
        (10, 1, 0)
    );
}
