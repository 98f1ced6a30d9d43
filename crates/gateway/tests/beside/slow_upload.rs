//! Clients that take a second to upload ten bytes are not taken for a slow service.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::clients::{Counts, ask};
use crate::common::{Backend, Client, PATIENCE, ok, take};
use crate::products::{Kind, Product, Setup, beside};

const UPLOADS: usize = 6;
const GETS: usize = 50;
const SERVICE: Duration = Duration::from_millis(20);

/// What is told of the requests' latency, in milliseconds.
#[derive(Debug)]
struct Told {
    /// Our histogram's, which is what a law reads; `%Tr` of HAProxy.
    service_p50_ms: f64,
    service_p95_ms: f64,
    /// `%Ta` of HAProxy.
    whole_p95_ms: Option<f64>,
    /// The shortest upload, as its client saw it.
    upload_ms: f64,
    gets: Counts,
}

/// Uploads ten bytes over a second; how long it took until it was answered.
fn upload(address: SocketAddr) -> Duration {
    let mut client = Client::connect(address);
    let begun = Instant::now();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n");
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        client.stream.write_all(b"x").unwrap();
    }
    assert_eq!(client.receive().text(), "10");
    begun.elapsed()
}

/// Of each request method, `%Tr` and `%Ta`, as many as were asked.
fn logged(log: &UdpSocket, requests: usize) -> Vec<(f64, f64)> {
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 2048];
    let mut lines = Vec::new();
    while lines.len() < requests {
        let length = log.recv(&mut buffer).expect("a line for each request");
        let line = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let fields: Vec<&str> = line.split_whitespace().rev().take(4).collect();
        if let [all, first, "200", "GET" | "POST"] = fields[..] {
            lines.push((first.parse().unwrap(), all.parse().unwrap()));
        }
    }
    lines
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent).div_ceil(100) - 1]
}

fn told(kind: Kind) -> Told {
    let backend = Backend::http(|request| {
        std::thread::sleep(SERVICE);
        ok(&request.body.len().to_string())
    });
    let log = UdpSocket::bind("127.0.0.1:0").unwrap();
    let setup = Setup {
        log: Some(log.local_addr().unwrap()),
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let address = product.address;
    let uploads: Vec<_> = (0..UPLOADS)
        .map(|_| std::thread::spawn(move || upload(address)))
        .collect();
    let gets = ask(address, 2, GETS / 2, Duration::ZERO);
    let took = uploads.into_iter().map(|upload| upload.join().unwrap());
    let upload_ms = took.min().unwrap().as_secs_f64() * 1_000.0;
    match product.handle() {
        Some(handle) => {
            let period = take(handle);
            assert_eq!(period.service.completions, (UPLOADS + GETS) as u64);
            let percentile = |percent| period.histogram.value_at_percentile(percent) as f64 / 1_000.0;
            Told {
                service_p50_ms: percentile(50.0),
                service_p95_ms: percentile(95.0),
                whole_p95_ms: None,
                upload_ms,
                gets,
            }
        }
        None => {
            let (first, all): (Vec<_>, Vec<_>) = logged(&log, UPLOADS + GETS).into_iter().unzip();
            Told {
                service_p50_ms: percentile(first.clone(), 50),
                service_p95_ms: percentile(first, 95),
                whole_p95_ms: Some(percentile(all, 95)),
                upload_ms,
                gets,
            }
        }
    }
}

#[test]
fn what_is_told_of_the_latency_is_what_haproxy_tells_of_its_servers_and_not_of_the_whole() {
    let (ours, theirs) = beside("slow clients", told);
    // More than a twentieth of all are uploads: the 95th percentile is one of them.
    const { assert!(UPLOADS * 20 > UPLOADS + GETS) };
    for told in [Some(&ours), theirs.as_ref()].into_iter().flatten() {
        assert_eq!(told.gets.failed, 0, "{told:?}");
        assert!(told.service_p95_ms < told.upload_ms / 2.0, "{told:?}");
        // What the service does take is in it; HAProxy cuts off to milliseconds.
        let service_ms = SERVICE.as_secs_f64() * 1_000.0;
        assert!(told.service_p50_ms >= service_ms - 1.0, "{told:?}");
    }
    if let Some(theirs) = theirs {
        let whole = theirs.whole_p95_ms.unwrap();
        assert!(whole > theirs.upload_ms / 2.0, "{theirs:?}");
        assert!(ours.service_p95_ms < whole / 2.0, "{ours:?}, {theirs:?}");
    }
}
