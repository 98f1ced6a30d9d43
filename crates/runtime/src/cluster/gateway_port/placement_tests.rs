//! Real gateways in front of two servers whose answers differ in size, placed over their control ports.

use crate::cluster::Gateways;
use crate::cluster::gateway_port::{BoundPort, ControlPort};
use crate::live::{Device, Telemetry, TrafficPeriod};
use headroom_control::Decision;
use headroom_control::placement::Routes;
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, Handle, SizesConfig};
use headroom_units::{Lever, Setting};
use headroom_wire::Address;
use headroom_wire::access::Rules;
use headroom_wire::client::{CallError, ClientOptions, GatewayClient};
use headroom_wire::message::{ClassRoute, LeverSetting};
use headroom_wire::server::Listen;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const PERIOD: Duration = Duration::from_millis(200);

/// A server that says who it is; paths under /large are answered with 100 000 bytes, others with 100.
pub(crate) fn server(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut writer = stream;
                let (mut line, mut large) = (String::new(), false);
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    large |= line.starts_with("GET /large");
                    if line == "\r\n" {
                        let length = if large { 100_000 } else { 100 };
                        let head =
                            format!("HTTP/1.1 200 OK\r\nwho: {name}\r\ncontent-length: {length}\r\n\r\n");
                        let answer = [head.as_bytes(), &vec![b'x'; length]].concat();
                        if writer.write_all(&answer).is_err() {
                            return;
                        }
                        large = false;
                    }
                    line.clear();
                }
            });
        }
    });
    url
}

pub(crate) struct Served {
    pub(crate) gateway: Arc<Handle>,
    _port: ControlPort,
    pub(crate) control: Address,
    pub(crate) at: SocketAddr,
    _dir: tempfile::TempDir,
}

pub(crate) fn served(backends: &[&str], bounds: &[u64]) -> Served {
    let config = GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: backends.iter().map(|url| BackendConfig::new(*url)).collect(),
        threads: 1,
        sizes: SizesConfig {
            bounds_bytes: bounds.to_vec(),
            ..SizesConfig::default()
        },
        ..GatewayConfig::default()
    };
    let gateway = Arc::new(Gateway::start(config).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let port = BoundPort::open(vec![Listen::Unix { path: path.clone() }]).unwrap();
    Served {
        _port: port.serve(Arc::clone(&gateway), Rules::default()).unwrap(),
        at: gateway.local_addrs()[0],
        gateway,
        control: Address::Unix(path),
        _dir: dir,
    }
}

/// Who answers a request.
fn who(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.80}");
    let (_, after) = answer.split_once("who: ").unwrap();
    after[..1].to_owned()
}

fn placed(value: f64) -> Vec<LeverSetting> {
    vec![LeverSetting {
        lever: Lever::Placement.name().to_owned(),
        value,
    }]
}

pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes periods until one has sizes with requests in them.
fn with_sizes(gateways: &mut Gateways, ask: impl Fn()) -> TrafficPeriod {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no period had sizes");
        ask();
        std::thread::sleep(PERIOD);
        if let Some(period) = gateways.take(PERIOD).filter(|period| period.arrivals > 0) {
            return period;
        }
    }
}

#[test]
fn requests_are_placed_for_as_long_as_the_lease_and_wrong_weights_are_refused() {
    let (a, b) = (server("a"), server("b"));
    let served = served(&[&a, &b], &[4096]);
    who(served.at, "/small");
    who(served.at, "/large");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = GatewayClient::connect(&served.control, &ClientOptions::default())
            .await
            .unwrap();
        assert_eq!(client.gateway().size_bounds, [4096]);
        let of = |rows: Vec<Vec<u32>>| rows.into_iter().map(ClassRoute::from).collect::<Vec<_>>();
        for (settings, rows, words) in [
            (
                placed(1.0),
                vec![],
                "routes is 0 long: expected weights of each class",
            ),
            (
                placed(0.0),
                vec![vec![1, 0]; 2],
                "routes is 2 long: expected none",
            ),
            (vec![], vec![vec![1, 0]; 2], "routes is 2 long: expected none"),
            (placed(1.0), vec![vec![1, 0]; 3], "3 classes"),
            (
                placed(1.0),
                vec![vec![1, 0, 1], vec![1, 0, 1]],
                "3 weights of a class",
            ),
            (placed(1.0), vec![vec![1, 1001], vec![1, 0]], "1001"),
            (placed(1.5), vec![vec![1, 0]; 2], "outside 0 to 1"),
        ] {
            match client.set_levers_and_routes(settings, of(rows), LONG).await {
                Err(CallError::Refused(refusal)) => assert!(refusal.to_string().contains(words), "{refusal}"),
                other => panic!("{words}: {other:?}"),
            }
            assert!(served.gateway.routes().is_empty());
        }
        let routes = of(vec![vec![0, 1], vec![1, 0]]);
        let now = client
            .set_levers_and_routes(placed(1.0), routes, SHORT)
            .await
            .unwrap();
        assert_eq!(now, placed(1.0));
    });
    assert_eq!(
        served.gateway.routes(),
        [headroom_gateway::ClassRoute::from(vec![0, 1]), vec![1, 0].into()]
    );
    for _ in 0..10 {
        let answered = (who(served.at, "/small"), who(served.at, "/large"));
        // The lease may end meanwhile, where this machine stood still.
        if !served.gateway.routes().is_empty() {
            assert_eq!(answered, ("b".to_owned(), "a".to_owned()));
        }
    }
    eventually("the lease ends", || served.gateway.routes().is_empty());
    let answered: Vec<String> = (0..4).map(|_| who(served.at, "/small")).collect();
    assert!(answered.contains(&"a".to_owned()) && answered.contains(&"b".to_owned()));
}

#[test]
fn gateways_with_their_backends_in_another_order_add_up_and_are_placed_alike() {
    let (a, b) = (server("a"), server("b"));
    let (one, two) = (served(&[&a, &b], &[4096]), served(&[&b, &a], &[4096]));
    let named = vec![
        ("g1".to_owned(), one.control.clone()),
        ("g2".to_owned(), two.control.clone()),
    ];
    let mut gateways = Gateways::start(named, &ClientOptions::default(), PERIOD).unwrap();
    assert!(gateways.connect(PATIENCE, || false).is_empty());
    let mut levers = gateways.levers(LONG);
    let ask = || {
        for at in [one.at, two.at] {
            who(at, "/small");
            who(at, "/large");
        }
    };
    let period = with_sizes(&mut gateways, ask);
    let sizes = period.sizes.as_ref().unwrap();
    let urls: Vec<&str> = sizes
        .backends
        .iter()
        .map(|backend| backend.url.as_str())
        .collect();
    assert_eq!(urls, [a.as_str(), b.as_str()]);

    let mut decision = Decision::of(Setting::from([(Lever::Placement, 1.0)]));
    let error = levers.apply(&mut decision).unwrap_err().to_string();
    assert!(error.contains("no weights"), "{error}");
    decision.routes = Some(Routes {
        weights: vec![vec![1, 0, 0]; 2],
        ..Routes::default()
    });
    assert!(levers.apply(&mut decision).is_err(), "of three backends");
    decision.routes = Some(Routes {
        weights: vec![vec![0, 1], vec![1, 0]],
        most_in_flight: vec![vec![0, 3]; 1],
    });
    assert!(levers.apply(&mut decision).is_err(), "bounds of one class of two");
    decision.routes = Some(Routes {
        weights: vec![vec![0, 1], vec![1, 0]],
        most_in_flight: vec![vec![4, 7], vec![8, 1]],
    });
    eventually("the weights are in force", || levers.apply(&mut decision).is_ok());
    // Each in its own order, and with half of each bound.
    let routes = |rows: [[[u32; 2]; 2]; 2]| {
        rows.map(|[weights, most]| headroom_gateway::ClassRoute {
            weights: weights.to_vec(),
            most_in_flight: most.to_vec(),
        })
    };
    assert_eq!(one.gateway.routes(), routes([[[0, 1], [2, 4]], [[1, 0], [4, 1]]]));
    assert_eq!(two.gateway.routes(), routes([[[1, 0], [4, 2]], [[0, 1], [1, 4]]]));
    for at in [one.at, two.at] {
        assert_eq!(
            (who(at, "/small"), who(at, "/large")),
            ("b".to_owned(), "a".to_owned())
        );
    }
    // The rest of what was asked for before the weights were in force.
    std::thread::sleep(2 * PERIOD);
    gateways.take(PERIOD);
    let period = with_sizes(&mut gateways, ask);
    let sizes = period.sizes.as_ref().unwrap();
    assert_eq!(sizes.routes, [[0, 1], [1, 0]]);
    let sum = |of: fn(&headroom_gateway::ClassCounts) -> u64| sizes.classes.iter().map(of).sum::<u64>();
    assert_eq!(sum(|class| class.counts.arrivals), period.arrivals);
    assert_eq!(sum(|class| class.counts.completions), period.completions);
    let [small, large, unknown] = &sizes.classes[..] else {
        panic!()
    };
    assert_eq!((small.backends[0].arrivals, large.backends[1].arrivals), (0, 0));
    assert_eq!(small.backends[1].arrivals, small.counts.arrivals);
    assert_eq!(unknown.counts.arrivals, 0);

    let mut back = Decision::of(Setting::from([(Lever::Placement, 0.0)]));
    eventually("as configured", || levers.apply(&mut back).is_ok());
    assert!(one.gateway.routes().is_empty() && two.gateway.routes().is_empty());
}

#[test]
fn gateways_with_different_classes_tell_of_no_sizes() {
    let a = server("a");
    for other in [&[8192][..], &[]] {
        let (one, two) = (served(&[&a], &[4096]), served(&[&a], other));
        let named = vec![
            ("g1".to_owned(), one.control.clone()),
            ("g2".to_owned(), two.control.clone()),
        ];
        let mut gateways = Gateways::start(named, &ClientOptions::default(), PERIOD).unwrap();
        assert!(gateways.connect(PATIENCE, || false).is_empty());
        let period = with_sizes(&mut gateways, || {
            who(one.at, "/small");
        });
        assert!(period.sizes.is_none());
    }
}

#[test]
fn what_was_placed_is_as_configured_when_the_controller_is_gone() {
    let (a, b) = (server("a"), server("b"));
    let served = served(&[&a, &b], &[4096]);
    let gateways = vec![("g1".to_owned(), served.control.clone())];
    let mut gateways = Gateways::start(gateways, &ClientOptions::default(), PERIOD).unwrap();
    assert!(gateways.connect(PATIENCE, || false).is_empty());
    let mut levers = gateways.levers(LONG);
    with_sizes(&mut gateways, || {
        who(served.at, "/small");
    });
    let mut decision = Decision::of(Setting::from([(Lever::Placement, 1.0)]));
    decision.routes = Some(Routes {
        weights: vec![vec![1, 0], vec![1, 0]],
        ..Routes::default()
    });
    eventually("the weights are in force", || levers.apply(&mut decision).is_ok());
    assert!(!served.gateway.routes().is_empty());
    drop(gateways);
    eventually("given back", || served.gateway.routes().is_empty());
}
