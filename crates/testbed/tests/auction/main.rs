//! The auction site, visited through a gateway with a cache and a batcher.

mod killed;

use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, Handle};
use headroom_load::http::{LoadConfig, LoadHandle, LoadResult, Pacing, People, UserLoad, start};
use headroom_testbed::auction::{AuctionConfig, AuctionHandle, serve};
use headroom_units::Seconds;
use headroom_workload::auction::{Behaviour, Mix, Site, SiteConfig};
use headroom_workload::users::UserCurve;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn figures() -> SiteConfig {
    SiteConfig {
        items: 300,
        users: 100,
        mean_bytes: 5_000,
        ..SiteConfig::default()
    }
}

fn service(max_age_s: f64) -> AuctionHandle {
    serve(AuctionConfig {
        site: figures(),
        max_age: Seconds::new(max_age_s),
        ..AuctionConfig::default()
    })
    .unwrap()
}

/// A gateway with a cache and a batcher in front of a service.
fn gateway(backend: SocketAddr) -> (Handle, SocketAddr) {
    let mut config = GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: vec![BackendConfig::new(format!("http://{backend}"))],
        threads: 1,
        ..GatewayConfig::default()
    };
    config.cache.bytes = 64 << 20;
    config.batch.interval_ms = Some(20);
    let handle = Gateway::start(config).unwrap();
    let address = handle.local_addrs()[0];
    (handle, address)
}

/// Visitors who think for 20 ms in the mean.
fn visitors(address: SocketAddr, mix: Mix, curve: &str, seconds: f64) -> LoadHandle {
    let pacing = Pacing::users(UserLoad {
        curve: UserCurve::parse(curve).unwrap(),
        duration: Seconds::new(seconds),
        people: People::Auction {
            behaviour: Behaviour::thinking(mix, Seconds::from_millis(20.0)),
            site: Box::new(Site::new(figures()).unwrap()),
        },
    });
    let mut config = LoadConfig::new(format!("http://{address}/"), pacing);
    config.timeout = Seconds::new(30.0);
    config.grace = Seconds::new(30.0);
    start(config).unwrap()
}

fn completed(result: &LoadResult, page: &str) -> u64 {
    let found = result.by_kind.iter().find(|kind| kind.page == page);
    found.map_or(0, |kind| kind.completed)
}

/// Sends a request on a connection of its own, and gives the whole answer.
fn ask(address: SocketAddr, method: &str, target: &str, form: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = form.len();
    let body = match method {
        "GET" => String::new(),
        _ => format!(
            "content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{form}"
        ),
    };
    let end = if body.is_empty() { "\r\n" } else { "" };
    let head = format!("{method} {target} HTTP/1.1\r\nhost: auction\r\nconnection: close\r\n");
    stream.write_all(format!("{head}{body}{end}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn number_after(text: &str, before: &str) -> u64 {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{before} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn bids(page: &str) -> u64 {
    number_after(page, "<p>Bids: ")
}

#[test]
fn visitors_are_answered_what_they_ask_for_through_a_cache_and_a_batcher() {
    let auction = service(60.0);
    let (gateway, address) = gateway(auction.address());
    for (mix, curve) in [
        (Mix::Browsing, "steps:10/1s,30/1s,5/1s"),
        (Mix::Bidding, "20"),
        (Mix::Selling, "10"),
    ] {
        let result = visitors(address, mix, curve, 3.0).join().unwrap();
        let counts = result.counts;
        assert_eq!(counts.failed.total(), 0, "{mix}: {counts:?}");
        assert!(counts.completed > 200, "{mix}: {counts:?}");
        assert_eq!(counts.pages_completed, counts.pages_begun);
        let by_kind: u64 = result.by_kind.iter().map(|kind| kind.completed).sum();
        assert_eq!(by_kind, counts.completed);
        let writes = [
            "store-bid",
            "store-buy-now",
            "store-comment",
            "register-item",
            "register-user",
        ]
        .map(|page| completed(&result, page))
        .iter()
        .sum::<u64>();
        let share = writes as f64 / counts.completed as f64;
        match mix {
            Mix::Browsing => assert_eq!(writes, 0),
            Mix::Bidding | Mix::Selling => assert!((0.06..0.24).contains(&share), "{mix}: {share}"),
        }
    }
    let period = gateway.take_period_blocking(Duration::from_secs(30));
    assert!(period.cache.hits > 100, "{:?}", period.cache);
    assert!(period.cache.invalidated > 0, "{:?}", period.cache);
    assert!(period.batch.groups > 0, "{:?}", period.batch);
    let served = auction.stats().pages_served;
    assert!(served > 0 && served < period.service.completions, "{served}");
    drop(gateway);
    auction.shutdown().unwrap();
}

#[test]
fn a_bid_is_seen_at_once_although_the_item_s_page_is_cached() {
    let auction = service(3_600.0);
    let (gateway, address) = gateway(auction.address());
    let page = |target| ask(address, "GET", target, "");
    let (first, again) = (page("/item/7"), page("/item/7"));
    assert!(again.to_lowercase().contains("\r\nage: "), "{again}");
    assert_eq!(bids(&first), bids(&again));
    page("/item/7/bids");
    page("/item/8");
    for made in 1..4 {
        let stored = ask(address, "POST", "/item/7/bids", "user=3&raise_cents=25");
        assert!(stored.starts_with("HTTP/1.1 201"), "{stored}");
        assert_eq!(bids(&page("/item/7")), bids(&first) + made);
        assert_eq!(bids(&page("/item/7/bids")), bids(&first) + made);
    }
    // Without the gateway's knowledge the page stays as it is stored, as its max-age allows.
    ask(auction.address(), "POST", "/item/8/bids", "user=3&raise_cents=25");
    assert_eq!(
        bids(&page("/item/8")) + 1,
        bids(&ask(auction.address(), "GET", "/item/8", ""))
    );
    drop(gateway);
    auction.shutdown().unwrap();
}

#[test]
fn what_must_be_asked_for_each_time_is_never_out_of_date() {
    let auction = service(0.0);
    let (gateway, address) = gateway(auction.address());
    let before = bids(&ask(address, "GET", "/item/9", ""));
    ask(auction.address(), "POST", "/item/9/bids", "user=3&raise_cents=25");
    assert_eq!(bids(&ask(address, "GET", "/item/9", "")), before + 1);
    drop(gateway);
    auction.shutdown().unwrap();
}
