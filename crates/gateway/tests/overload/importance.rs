//! Who is served and who is turned away under more load than servers can take, by how important their requests are.

use super::common::{start, take};
use super::servers::{Prefork, WORKERS, capacity_per_s, in_front_of, offer, offer_for, served_per_s};
use headroom_gateway::{AdmissionClass, AdmissionConfig, BackendChange, GatewayConfig, Handle};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const LENGTH: Duration = Duration::from_secs(4);

fn class(name: &str, paths: &[&str]) -> AdmissionClass {
    AdmissionClass {
        name: name.to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..AdmissionClass::default()
    }
}

fn config(servers: &[Prefork]) -> GatewayConfig {
    let mut config = in_front_of(servers);
    config.admission = AdmissionConfig {
        classes: vec![
            class("checkout", &["/pay"]),
            class("everybody", &[]),
            class("crawlers", &["/feed"]),
        ],
    };
    config.limits.max_queued = 30;
    config
}

/// So many of what each server may have as it has workers and half of its accept queue's places.
fn bound(gateway: &Handle, servers: &[Prefork]) {
    for at in 0..servers.len() {
        let most = u32::try_from(WORKERS + 4).unwrap();
        gateway
            .set_backend_state(at, BackendChange::MostInFlight(Some(most)))
            .unwrap();
    }
}

#[test]
fn what_is_important_is_served_and_what_is_not_is_turned_away_before_a_queue_overflows() {
    let servers: Vec<_> = (0..2).map(|_| Prefork::new()).collect();
    let (gateway, front) = start(config(&servers));
    assert_eq!(gateway.ranks(), ["checkout", "everybody", "crawlers"]);
    bound(&gateway, &servers);
    let capacity_per_s = capacity_per_s(&servers);
    take(&gateway);
    let of_each = [("/pay/7", 0.3), ("/", 0.4), ("/feed", 1.5)];
    let sent = of_each.map(|(_, share)| (share * capacity_per_s * LENGTH.as_secs_f64()) as usize);
    let loads = of_each.map(|(path, share)| offer_for(front, path, share * capacity_per_s, LENGTH));
    std::thread::sleep(LENGTH / 4);
    let rate = served_per_s(&servers, LENGTH / 2) / capacity_per_s;
    let answered = loads.map(|load| load.join().unwrap());
    let shares: Vec<f64> = answered
        .iter()
        .zip(sent)
        .map(|(one, of)| *one as f64 / of as f64)
        .collect();
    let period = take(&gateway);
    let turned_away: Vec<u64> = period.ranks[..3].iter().map(|rank| rank.turned_away).collect();
    println!("{rate:.2} of the capacity; answered {shares:.2?}; turned away {turned_away:?}");
    let connects: Vec<_> = period.backends.iter().map(|backend| backend.connects).collect();
    assert!(connects.iter().all(|one| one.timed_out == 0), "{connects:?}");
    assert!(shares[0] > 0.97, "{shares:.2?}");
    assert!(shares[1] > 0.9 && shares[2] < 0.5, "{shares:.2?}");
    assert!(
        turned_away[2] > 10 * (turned_away[0] + turned_away[1]),
        "{turned_away:?}"
    );
    assert!(rate > 0.75, "{rate:.2} of the capacity");
    assert_eq!(
        period.service.over_limit,
        turned_away.iter().sum::<u64>(),
        "{:?}",
        period.queue
    );
}

#[test]
fn a_bound_that_is_lifted_lets_those_that_wait_in() {
    let servers = [Prefork::new()];
    let mut config = config(&servers);
    config.timeouts.queue_timeout_ms = 10_000;
    let (gateway, front) = start(config);
    let one = BackendChange::MostInFlight(Some(1));
    gateway.set_backend_state(0, one).unwrap();
    assert_eq!(gateway.backends_health()[0].most_in_flight, Some(1));
    let capacity_per_s = capacity_per_s(&servers);
    take(&gateway);
    // With one at a time only one of the two workers has something to do.
    let load = offer(front, 0.9 * capacity_per_s, Duration::from_secs(2));
    std::thread::sleep(Duration::from_millis(500));
    let bounded = served_per_s(&servers, Duration::from_secs(1)) / capacity_per_s;
    gateway
        .set_backend_state(0, BackendChange::MostInFlight(None))
        .unwrap();
    assert_eq!(gateway.backends_health()[0].most_in_flight, None);
    let lifted = served_per_s(&servers, Duration::from_millis(400)) / capacity_per_s;
    load.join().unwrap();
    println!("{bounded:.2} of the capacity with a bound, {lifted:.2} without");
    assert!(
        bounded < 0.6 && lifted > bounded * 1.3,
        "{bounded:.2} {lifted:.2}"
    );
}

/// What a request without an answer from a backend is told.
fn told(front: SocketAddr) -> String {
    let mut stream = TcpStream::connect(front).unwrap();
    stream
        .write_all(b"GET /feed HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn who_is_turned_away_is_told_when_to_come_again() {
    let servers = [Prefork::new()];
    let mut config = config(&servers);
    config.limits.max_queued = 0;
    config.limits.max_in_flight_per_backend = 1;
    let (gateway, front) = start(config);
    let load = offer(front, 4.0 * capacity_per_s(&servers), Duration::from_secs(1));
    std::thread::sleep(Duration::from_millis(300));
    let answers: Vec<String> = (0..20).map(|_| told(front)).collect();
    load.join().unwrap();
    let refused: Vec<&String> = answers.iter().filter(|answer| answer.contains(" 503 ")).collect();
    assert!(!refused.is_empty(), "{answers:?}");
    assert!(
        refused
            .iter()
            .all(|answer| answer.to_ascii_lowercase().contains("retry-after: 1\r\n")),
        "{refused:?}"
    );
    assert!(take(&gateway).ranks[2].turned_away > 0);
}
