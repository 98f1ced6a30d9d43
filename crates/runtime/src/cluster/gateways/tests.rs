//! Real gateways whose control ports close and open again, and what their sum is meanwhile.

use super::*;
use crate::cluster::gateway_port::{BoundPort, ControlPort};
use crate::live::Device;
use headroom_control::Decision;
use headroom_gateway::{BackendConfig, GatewayConfig, Handle};
use headroom_units::{Lever, Sensor, Setting};
use headroom_wire::access::Rules;
use headroom_wire::server::Listen;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

const PERIOD: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(60);

/// A gateway in front of a port that nobody listens on, with a batcher that holds nothing. Its control port may be closed.
struct Served {
    gateway: Arc<Handle>,
    port: Option<ControlPort>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        let mut config = GatewayConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            backends: vec![BackendConfig::new("http://127.0.0.1:9")],
            threads: 1,
            ..GatewayConfig::default()
        };
        config.batch.interval_ms = Some(0);
        let dir = tempfile::tempdir().unwrap();
        let mut served = Self {
            gateway: Arc::new(headroom_gateway::Gateway::start(config).unwrap()),
            port: None,
            path: dir.path().join("gateway.sock"),
            _dir: dir,
        };
        served.open();
        served
    }

    fn open(&mut self) {
        let place = Listen::Unix {
            path: self.path.clone(),
        };
        let port = BoundPort::open(vec![place]).unwrap();
        self.port = Some(port.serve(Arc::clone(&self.gateway), Rules::default()).unwrap());
    }

    /// As a process that was killed leaves it: a socket that nobody listens on.
    fn kill(&mut self) {
        self.port = None;
        let _ = std::fs::remove_file(&self.path);
        drop(UnixListener::bind(&self.path).unwrap());
    }

    fn named(&self, name: &str) -> (String, Address) {
        (name.to_owned(), Address::Unix(self.path.clone()))
    }

    /// A request, which is answered with an error at once.
    fn request(&self) {
        let mut client = TcpStream::connect(self.gateway.local_addrs()[0]).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    }

    fn interval(&self) -> f64 {
        self.gateway.batch_interval().unwrap().as_secs_f64()
    }
}

/// A run of them: what its loop would see.
struct Run(Gateways);

impl Run {
    fn of(named: Vec<(String, Address)>) -> Self {
        let gateways = Gateways::start(named, &ClientOptions::default(), PERIOD).unwrap();
        assert!(gateways.connect(PATIENCE, || false).is_empty());
        let mut run = Self(gateways);
        run.until("a whole period", |run| run.period().is_some());
        run
    }

    fn period(&mut self) -> Option<TrafficPeriod> {
        std::thread::sleep(PERIOD);
        self.0.take(PERIOD)
    }

    /// Each gateway's state.
    fn states(&self) -> Vec<String> {
        let state = |part: &Part| format!("{} {}", part.name, part.state.as_deref().unwrap());
        self.0.parts().iter().map(state).collect()
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", self.0.parts());
        }
    }
}

#[test]
fn one_whose_port_refuses_is_left_out_and_joins_with_its_levers_and_every_request_once() {
    let (one, mut two) = (Served::start(), Served::start());
    let mut run = Run::of(vec![one.named("g1"), two.named("g2")]);
    let mut levers = run.0.levers(LEASE);
    let mut decision = Decision::of(Setting::from([(Lever::BatchInterval, 0.05)]));
    run.until("the interval is in force", |_| {
        levers.apply(&mut decision).is_ok()
    });

    two.kill();
    let mut lost = 0;
    run.until("the sum is whole without it", |run| {
        lost += 1;
        run.period().is_some()
    });
    // The last of these was whole. The first ones may have been so before the end was noticed.
    assert!(lost >= REFUSED_PERIODS, "{lost} periods");
    assert_eq!(run.states(), ["g1 connected", "g2 dead"]);
    assert!(
        run.0.parts()[1].trouble[0].contains("nobody listens"),
        "{:?}",
        run.0.parts()
    );
    // What is decided is in force where somebody is; what nobody counts is not counted.
    let other = Setting::from([(Lever::BatchInterval, 0.02)]);
    let mut decision = Decision::of(other);
    run.until("another interval", |_| levers.apply(&mut decision).is_ok());
    assert_eq!(levers.in_force(), other);
    two.request();

    two.open();
    run.until("it joins", |run| {
        assert!(
            run.period().is_some(),
            "no period is lost by it: {:?}",
            run.0.parts()
        );
        run.states() == ["g1 connected", "g2 joining"]
    });
    // Before anything of it counts.
    assert_eq!(two.interval(), 0.02);
    for _ in 0..5 {
        one.request();
        two.request();
    }
    let (mut arrivals, mut failures) = (0, 0);
    for _ in 0..5 {
        let period = run.period();
        if let Some(period) = period {
            arrivals += period.arrivals;
            failures += period.failures;
        }
    }
    assert_eq!(run.states(), ["g1 connected", "g2 connected"]);
    assert_eq!((arrivals, failures), (10, 10));
}

#[test]
fn one_that_hangs_and_the_last_one_are_never_left_out() {
    let (one, mut two) = (Served::start(), Served::start());
    let mut run = Run::of(vec![one.named("g1"), two.named("g2")]);
    two.port = None;
    let _ = std::fs::remove_file(&two.path);
    // It accepts, and says nothing.
    let hangs = UnixListener::bind(&two.path).unwrap();
    for _ in 0..4 * REFUSED_PERIODS {
        run.period();
        assert_ne!(run.states()[1], "g2 dead");
    }
    assert!(run.period().is_none());
    drop(hangs);
    run.until("nobody listens there any more", |run| run.period().is_some());
    assert_eq!(run.states(), ["g1 connected", "g2 dead"]);

    let mut one = one;
    one.kill();
    for _ in 0..4 * REFUSED_PERIODS {
        run.period();
    }
    assert!(run.period().is_none());
    assert_eq!(run.states(), ["g1 unreachable", "g2 dead"]);
}

#[test]
fn gateways_come_and_go_while_a_run_goes_on() {
    let (one, two, three) = (Served::start(), Served::start(), Served::start());
    let mut run = Run::of(vec![one.named("g1"), two.named("g2")]);
    let members = run.0.members();
    let mut levers = run.0.levers(LEASE);
    let mut decision = Decision::of(Setting::from([(Lever::BatchInterval, 0.05)]));
    run.until("the interval is in force", |_| {
        levers.apply(&mut decision).is_ok()
    });

    let none = members.replace(Vec::new()).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
    let same = members.replace(vec![one.named("g1"), two.named("g2")]).unwrap();
    assert!(same.is_nothing(), "{same:?}");

    let changed = members.replace(vec![one.named("g1"), three.named("g3")]).unwrap();
    assert_eq!(changed.joined, [format!("g3 at unix:{}", three.path.display())]);
    assert_eq!(changed.left, [format!("g2 at unix:{}", two.path.display())]);
    let mut news = Vec::new();
    run.until("one has come and one has gone", |run| {
        run.period();
        news.push(run.states());
        run.states() == ["g1 connected", "g3 connected"]
    });
    assert!(news[0].contains(&"g2 left".to_owned()), "{news:?}");
    assert!(!news[1].contains(&"g2 left".to_owned()), "{news:?}");
    assert!(news.iter().any(|states| states[1] == "g3 joining"), "{news:?}");
    // The new one is as the others were before anything of it counted, and the one that left as it is configured.
    assert_eq!((three.interval(), one.interval()), (0.05, 0.05));
    run.until("it is let go of", |_| two.interval() == 0.0);

    // Its requests count from now on, and the other's do not.
    one.request();
    two.request();
    three.request();
    let arrivals: u64 = (0..5)
        .filter_map(|_| run.period())
        .map(|period| period.arrivals)
        .sum();
    assert_eq!(arrivals, 2);
    assert!(run.0.parts()[0].get(Sensor::ArrivalRate).is_some());

    // Whoever is left alone is the last one, dead or not.
    let mut three = three;
    // It ends in order, and takes its socket with it.
    three.port = None;
    let _ = std::fs::remove_file(&three.path);
    run.until("it is dead", |run| {
        run.period();
        run.states()[1] == "g3 dead"
    });
    members.replace(vec![three.named("g3")]).unwrap();
    run.period();
    assert!(run.period().is_none(), "an empty sum is no telemetry");
    assert_eq!(run.states(), ["g3 unreachable"]);
}

#[test]
fn what_is_told_of_a_period_is_about_as_long_as_that() {
    let of =
        |length: f64, elapsed: f64| is_of(Duration::from_secs_f64(length), Duration::from_secs_f64(elapsed));
    for (length, elapsed) in [(1.0, 1.0), (0.3, 1.0), (1.9, 1.0), (0.02, 0.2), (4.0, 8.0)] {
        assert!(of(length, elapsed), "{length} {elapsed}");
    }
    // It stood still for seven seconds, and what came then is told in the next period.
    for (length, elapsed) in [(0.8, 7.8), (8.0, 1.0), (0.2, 1.0), (3.0, 1.0)] {
        assert!(!of(length, elapsed), "{length} {elapsed}");
    }
}
