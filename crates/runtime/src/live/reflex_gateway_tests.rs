//! A real gateway with its control port, requests that nobody answers, and a control loop whose machine is in memory; and the
//! same loop where its thread stands still.

use super::*;
use crate::cluster::Gateways;
use crate::cluster::gateway_port::{BoundPort, ControlPort};
use crate::live::{
    Clock, ControlLoop, DevicePeriod, Frame, ManualClock, Sink, SystemClock, Telemetry, Tick, TrafficPeriod,
    silence,
};
use headroom_control::{CoreRange, Law, Observation, Plant, PowerEnvelope, Slo, Stack};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, Handle};
use headroom_units::{Cores, Lever, Ratio, Setting, Watts};
use headroom_wire::Address;
use headroom_wire::access::Rules;
use headroom_wire::client::ClientOptions;
use headroom_wire::server::Listen;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FEW: f64 = 0.5;
const BOUND: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway of two cores in front of a backend that takes every request and answers none.
struct Served {
    gateway: Arc<Handle>,
    _port: ControlPort,
    control: Address,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", backend.local_addr().unwrap());
        std::thread::spawn(move || {
            let taken: Vec<_> = backend.incoming().collect();
            drop(taken);
        });
        let config = GatewayConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            backends: vec![BackendConfig::new(&url)],
            threads: 2,
            cancel_on_fin: true,
            ..GatewayConfig::default()
        };
        let gateway = Arc::new(Gateway::start(config).unwrap());
        let address = gateway.local_addrs()[0];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.sock");
        let port = BoundPort::open(vec![Listen::Unix { path: path.clone() }]).unwrap();
        let port = port.serve(Arc::clone(&gateway), Rules::default()).unwrap();
        Self {
            gateway,
            _port: port,
            control: Address::Unix(path),
            address,
            _dir: dir,
        }
    }
}

/// These gateways as telemetry, connected.
fn telemetry_of(served: &[&Served], period: Duration) -> Gateways {
    let gateways = served
        .iter()
        .map(|served| (served.address.to_string(), served.control.clone()));
    let telemetry = Gateways::start(gateways.collect(), &ClientOptions::default(), period).unwrap();
    assert!(telemetry.connect(PATIENCE, || false).is_empty());
    telemetry
}

/// One such gateway, and the telemetry of it.
struct Place {
    served: Served,
    telemetry: Gateways,
    address: SocketAddr,
}

impl Place {
    fn new(period: Duration) -> Self {
        let served = Served::new();
        Self {
            telemetry: telemetry_of(&[&served], period),
            address: served.address,
            served,
        }
    }
}

fn request(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    client
}

struct Memory(f64);

impl Device for Memory {
    fn observe(&mut self, _: &mut DevicePeriod) {}
    fn in_force(&self) -> Setting {
        Setting::from([(Lever::Cores, self.0)])
    }
    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        self.0 = decision.setting.get(Lever::Cores).unwrap_or(self.0);
        Ok(())
    }
}

fn plant() -> Plant {
    let cores = CoreRange::new(Cores::new(0.5), Cores::new(4.0), Cores::new(0.5)).unwrap();
    let power = PowerEnvelope {
        base: Watts::new(6.0),
        per_core: Watts::new(2.0),
        lowest_cap: Watts::new(6.5),
    };
    Plant::new(cores, power).unwrap()
}

fn reflex() -> Reflex {
    Reflex {
        bound: BOUND,
        oldest: None,
        setting: plant().full(),
    }
}

/// Few cores, with or without a reflex.
struct Careless(Option<Reflex>);

impl Law for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }
    fn levers(&self) -> &[Lever] {
        &[Lever::Cores, Lever::Cap]
    }
    fn decide(&mut self, _: &Observation) -> Decision {
        let setting = plant().full().with(Lever::Cores, Some(FEW));
        Decision {
            reflex: self.0,
            ..Decision::of(setting)
        }
    }
    fn forget(&mut self) {}
}

/// Sends a burst after the first decision, and keeps what each period reports.
struct Burst {
    address: SocketAddr,
    clients: Vec<TcpStream>,
    /// Reflexes of a period, and the cores in force at its end.
    periods: Vec<(u32, Option<Cores>)>,
}

impl Sink for Burst {
    fn tick(&mut self, tick: &Tick) {
        self.periods
            .push((tick.observation.reflexes, tick.observation.in_force.cores()));
        if self.periods.len() == 1 {
            self.clients = (0..=2 * BOUND).map(|_| request(self.address)).collect();
        }
    }
}

/// Three periods of a second with a burst in the second.
fn run_with(reflex: Option<Reflex>) -> Vec<(u32, Option<Cores>)> {
    let period = Duration::from_secs(1);
    let mut place = Place::new(period);
    let mut law = Stack::of(Box::new(Careless(reflex)), plant(), 100).unwrap();
    let mut machine = Memory(FEW);
    let mut burst = Burst {
        address: place.address,
        clients: Vec::new(),
        periods: Vec::new(),
    };
    let mut control = ControlLoop {
        frame: Frame {
            period,
            slo: Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25)).unwrap(),
            dry: false,
        },
        law: &mut law,
        laws: None,
        devices: vec![&mut machine],
        telemetry: Some(&mut place.telemetry),
        clock: &SystemClock,
        sinks: vec![&mut burst],
    };
    let mut left = 3;
    control.run(&Stop::default(), |_| {
        left -= 1;
        left == 0
    });
    burst.periods
}

#[test]
fn a_burst_between_two_decisions_raises_cores_within_the_period() {
    let with = run_with(Some(reflex()));
    assert_eq!(with[0], (0, Some(Cores::new(FEW))), "{with:?}");
    assert_eq!(with[1], (1, Some(Cores::new(4.0))), "{with:?}");
}

#[test]
fn without_a_reflex_the_next_decision_is_waited_for() {
    let few = (0, Some(Cores::new(FEW)));
    let without = run_with(None);
    assert!(without.iter().all(|period| *period == few), "{without:?}");
}

/// Prints how long it takes from the first request over the bound until cores are raised; asserts that they are.
#[test]
fn every_burst_is_met_and_how_soon_is_printed() {
    let rounds = 40;
    // Long: nothing else is to wake the telemetry.
    let mut place = Place::new(Duration::from_secs(20));
    let stop = Stop::default();
    let mut reflexes = Reflexes::new(&stop);
    let mut took_ms = Vec::new();
    for _ in 0..rounds {
        let mut machine = Memory(FEW);
        place.telemetry.watch(reflexes.arm(Some(reflex())));
        // Until the gateway has it.
        std::thread::sleep(Duration::from_millis(50));
        let mut clients: Vec<_> = (0..BOUND).map(|_| request(place.address)).collect();
        let client = TcpStream::connect(place.address).unwrap();
        clients.push(client);
        let sent = Instant::now();
        let line = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        clients.last_mut().unwrap().write_all(line).unwrap();
        stop.wait_until_or(sent + PATIENCE, || reflexes.is_due());
        reflexes.fire(&mut [&mut machine]);
        took_ms.push(sent.elapsed().as_secs_f64() * 1e3);
        assert_eq!((reflexes.take(), machine.0), (1, 4.0));
        drop(clients);
        let deadline = Instant::now() + PATIENCE;
        while place
            .served
            .gateway
            .take_period_blocking(PATIENCE)
            .service
            .in_flight
            > 0
        {
            assert!(
                Instant::now() < deadline,
                "requests of clients that are gone are in flight"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms[((took_ms.len() - 1) as f64 * share).round() as usize];
    println!(
        "from the first request over the bound to the raise, {rounds} bursts: P50 {:.2} ms, P99 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// A gateway that is gone rings no bell, and one that is back is watched again.
#[test]
fn a_gateway_that_is_gone_leaves_what_is_in_force() {
    let mut place = Place::new(Duration::from_secs(1));
    let stop = Stop::default();
    let mut reflexes = Reflexes::new(&stop);
    place.telemetry.watch(reflexes.arm(Some(reflex())));
    let Place { served, .. } = place;
    drop(served._port);
    drop(served.gateway);
    assert!(!stop.wait_until_or(Instant::now() + Duration::from_millis(300), || reflexes.is_due()));
    let mut machine = Memory(FEW);
    reflexes.fire(&mut [&mut machine]);
    assert_eq!((machine.0, reflexes.take()), (FEW, 0));
}

/// However a flood is spread over two gateways: it fires with the request that passes the bound of both together, and with none
/// before.
#[test]
fn two_gateways_have_one_bound_whatever_each_gets() {
    for at_the_first in [BOUND, BOUND / 2, 0] {
        let (first, second) = (Served::new(), Served::new());
        let mut telemetry = telemetry_of(&[&first, &second], Duration::from_secs(1));
        let stop = Stop::default();
        let mut reflexes = Reflexes::new(&stop);
        telemetry.watch(reflexes.arm(Some(reflex())));
        let mut clients: Vec<_> = (0..at_the_first).map(|_| request(first.address)).collect();
        clients.extend((at_the_first..BOUND).map(|_| request(second.address)));
        let calm = Instant::now() + Duration::from_millis(500);
        stop.wait_until_or(calm, || reflexes.is_due());
        assert!(!reflexes.is_due(), "{at_the_first} at the first");
        clients.push(request(second.address));
        stop.wait_until_or(Instant::now() + PATIENCE, || reflexes.is_due());
        assert!(reflexes.is_due(), "{at_the_first} at the first");
    }
}

/// A gateway that is gone has no part of the bound: all of it is the other's.
#[test]
fn the_bound_of_a_gateway_that_is_gone_is_the_others() {
    let (first, second) = (Served::new(), Served::new());
    let mut telemetry = telemetry_of(&[&first, &second], Duration::from_secs(1));
    let stop = Stop::default();
    let mut reflexes = Reflexes::new(&stop);
    telemetry.watch(reflexes.arm(Some(reflex())));
    drop(first._port);
    drop(first.gateway);
    let mut clients: Vec<_> = (0..BOUND).map(|_| request(second.address)).collect();
    let calm = Instant::now() + Duration::from_millis(500);
    stop.wait_until_or(calm, || reflexes.is_due());
    assert!(!reflexes.is_due());
    clients.push(request(second.address));
    stop.wait_until_or(Instant::now() + PATIENCE, || reflexes.is_due());
    assert!(reflexes.is_due());
}

/// The watch of the newest decision, kept for who rings it.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Option<Watch>>>);

impl Kept {
    fn set(&self, watch: Option<Watch>) -> Option<Watch> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), watch)
    }
}

impl Telemetry for Kept {
    fn take(&mut self, _: Duration) -> Option<TrafficPeriod> {
        Some(TrafficPeriod::default())
    }
    fn watch(&mut self, watch: Option<Watch>) {
        self.set(watch);
    }
}

/// Each wait lasts so long, whatever it was to last, and then a bound has been passed.
struct Standing(ManualClock, Duration, Kept);

impl Clock for Standing {
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn time_of_day(&self) -> Seconds {
        self.0.time_of_day()
    }
    fn wait_until(&self, deadline: Instant, stop: &Stop, rung: &dyn Fn() -> bool) -> bool {
        match self.2.set(None) {
            Some(watch) => {
                self.0.advance(self.1);
                watch.passed();
                stop.is_raised()
            }
            None => self.0.wait_until(deadline, stop, rung),
        }
    }
}

/// How many reflexes two periods report where each wait of the loop lasts so long.
fn fired_after(wait: Duration) -> u32 {
    let period = Duration::from_secs(1);
    let mut kept = Kept::default();
    let clock = Standing(ManualClock::new(), wait, kept.clone());
    let mut law = Stack::of(Box::new(Careless(Some(reflex()))), plant(), 100).unwrap();
    let mut machine = Memory(FEW);
    let mut burst = Reported(Vec::new());
    let mut control = ControlLoop {
        frame: Frame {
            period,
            slo: Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25)).unwrap(),
            dry: false,
        },
        law: &mut law,
        laws: None,
        devices: vec![&mut machine],
        telemetry: Some(&mut kept),
        clock: &clock,
        sinks: vec![&mut burst],
    };
    let mut left = 2;
    control.run(&Stop::default(), |_| {
        left -= 1;
        left == 0
    });
    burst.0.iter().sum()
}

/// The reflexes of each period.
struct Reported(Vec<u32>);

impl Sink for Reported {
    fn tick(&mut self, tick: &Tick) {
        self.0.push(tick.observation.reflexes);
    }
}

#[test]
fn what_was_decided_before_the_loop_stood_still_is_not_carried_out() {
    let period = Duration::from_secs(1);
    assert_eq!(fired_after(period / 2), 1);
    assert_eq!(fired_after(silence(period) * 2), 0);
}
