//! What a gateway refuses is no demand, whether the loop reads the gateway of its process or one over its control port.

use super::levers::placement_tests::{PATIENCE, PERIOD, Served, served, server};
use crate::cluster::Gateways;
use crate::live::{GatewayTelemetry, Telemetry, TrafficPeriod};
use headroom_wire::client::ClientOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Asks, over a connection of its own, and reads the answer to its end.
fn ask(served: &Served, request: &str, status: &str) {
    let mut stream = TcpStream::connect(served.at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer:.80}");
}

/// Five that are answered, and a flood of those that are not.
fn flood(served: &Served) {
    for _ in 0..5 {
        ask(
            served,
            "GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n",
            "200",
        );
        for _ in 0..4 {
            let impossible = "GET / HTTP/1.1\r\nhost: t\r\nexpect: the-moon\r\nconnection: close\r\n\r\n";
            ask(served, impossible, "417");
        }
    }
}

/// Adds periods up until all have ended.
fn add_up(telemetry: &mut dyn Telemetry) -> TrafficPeriod {
    let until = Instant::now() + PATIENCE;
    let mut sum = TrafficPeriod::default();
    while sum.completions + sum.refused < 25 {
        assert!(Instant::now() < until, "{sum:?}");
        std::thread::sleep(Duration::from_millis(20));
        if let Some(period) = telemetry.take(PERIOD) {
            sum.end_going_on();
            sum.add(&period);
        }
    }
    sum
}

fn is_no_demand(sum: &TrafficPeriod) {
    assert_eq!(
        (
            sum.arrivals,
            sum.completions,
            sum.failures,
            sum.refused,
            sum.in_flight
        ),
        (5, 5, 0, 20, Some(0)),
        "{sum:?}"
    );
}

#[test]
fn what_the_gateway_of_this_process_refuses_is_no_demand() {
    let served = served(&[&server("a")], &[4096]);
    let mut telemetry = GatewayTelemetry::new(&served.gateway);
    flood(&served);
    let sum = add_up(&mut telemetry);
    is_no_demand(&sum);
}

#[test]
fn nor_is_what_one_elsewhere_does() {
    let served = served(&[&server("a")], &[4096]);
    let named = vec![("g".to_owned(), served.control.clone())];
    let mut gateways = Gateways::start(named, &ClientOptions::default(), PERIOD).unwrap();
    assert!(gateways.connect(PATIENCE, || false).is_empty());
    flood(&served);
    let sum = add_up(&mut gateways);
    is_no_demand(&sum);
}
