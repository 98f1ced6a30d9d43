//! What one source may have and ask, over all cores.

use std::time::{Duration, Instant};

use crate::common::{Backend, Client, gateway_with, ok, take};

#[test]
fn a_source_has_so_many_connections_over_all_cores_and_another_still_gets_in() {
    let backend = Backend::http(|_| ok("hello"));
    let (gateway, address) = gateway_with(&backend, |it| {
        it.threads = 3;
        it.sources.max_connections = 4;
        it.sources.exempt = vec!["127.0.0.2".parse().unwrap()];
    });
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status(), 200);
    }
    for _ in 0..6 {
        assert!(Client::connect(address).is_closed());
    }
    let period = take(&gateway);
    assert_eq!(
        (
            period.sources.connections,
            period.service.failures,
            period.service.refused
        ),
        (6, 0, 0)
    );
    for other in ["127.0.0.3:0", "127.0.0.2:0", "127.0.0.2:0"] {
        let mut client = Client::from(other, address);
        assert_eq!(client.get("/").status(), 200);
    }
    // One that goes makes room for one.
    drop(clients.pop());
    crate::common::eventually("there is room again", || {
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        !client.is_closed()
    });
    drop(gateway);
}

#[test]
fn requests_over_the_rate_are_answered_429_and_are_refused_not_failed() {
    let backend = Backend::http(|_| ok("hello"));
    let (gateway, address) = gateway_with(&backend, |it| {
        it.threads = 2;
        it.sources.requests_per_s = 5;
        it.sources.requests_burst = 10;
    });
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    let answers: Vec<_> = (0..60).map(|turn| clients[turn % 3].get("/")).collect();
    let passed = answers.iter().filter(|answer| answer.status() == 200).count();
    let most = 10.0 + 5.0 * begun.elapsed().as_secs_f64() + 1.0;
    assert!(passed >= 10 && passed as f64 <= most, "{passed} of {most}");
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert_eq!(refused.len() + passed, 60);
    assert!(
        refused
            .iter()
            .all(|answer| answer.header("retry-after") == Some("1"))
    );
    let period = take(&gateway);
    assert_eq!(period.sources.requests, refused.len() as u64);
    assert_eq!(
        (period.service.refused, period.service.failures),
        (refused.len() as u64, 0)
    );
    assert_eq!(period.service.completions, passed as u64);
    // It is the source's rate, and another's is whole. After a while the source may ask again, on the same connection.
    assert_eq!(Client::from("127.0.0.9:0", address).get("/").status(), 200);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(clients[0].get("/").status(), 200);
}

#[test]
fn connections_over_the_rate_are_closed() {
    let backend = Backend::http(|_| ok("hello"));
    let (gateway, address) = gateway_with(&backend, |it| {
        it.sources.connections_per_s = 1;
        it.sources.connections_burst = 3;
    });
    let begun = Instant::now();
    let served = (0..20)
        .filter(|_| {
            let mut client = Client::connect(address);
            let _ = std::io::Write::write_all(&mut client.stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            !client.is_closed()
        })
        .count();
    let most = 3.0 + begun.elapsed().as_secs_f64() + 1.0;
    assert!(served >= 3 && served as f64 <= most, "{served} of {most}");
    assert_eq!(take(&gateway).sources.connects, 20 - served as u64);
}
