//! A machine of literals with a server that comes and goes.

use super::super::testing::{Wrap, at, options};
use super::*;
use crate::live::ReportedLatency;
use headroom_control::OncallObservation;
use headroom_node::agent::machine::About;
use headroom_telemetry::latency_histogram;
use headroom_units::{LeverRange, Ratio, Source};
use headroom_wire::message::Node;
use headroom_wire::proto;
use std::path::Path;

/// Cores alone; refuses what is above 2.
#[derive(Default)]
struct Fake {
    in_force: Setting,
}

impl Machine for Fake {
    fn about(&mut self) -> About {
        About {
            node: Node::default(),
            service: "db".to_owned(),
            devices: Vec::new(),
            meters: Vec::new(),
            envelope: None,
            source: Source::Estimated,
            oncall: None,
        }
    }

    fn ranges(&mut self) -> Ranges {
        Ranges::default().with(Lever::Cores, Ok(LeverRange::between(0.1, 4.0)))
    }

    fn apply(&mut self, setting: Setting) -> Result<Vec<String>, MachineError> {
        for (lever, value) in setting.iter() {
            assert_eq!(lever, Lever::Cores, "the server's are not the machine's");
            if value > 2.0 {
                return Err(MachineError::new("the quota is stuck"));
            }
        }
        self.in_force = setting;
        Ok(Vec::new())
    }

    fn put_back(&mut self) -> PutBack {
        self.in_force = Setting::default();
        PutBack::default()
    }

    fn in_force(&self) -> Setting {
        self.in_force
    }

    fn read(&mut self) -> Counters {
        Counters::default()
    }
}

fn open(folder: &Path) -> (OncallMachine, Vec<String>) {
    OncallMachine::open(Box::<Fake>::default(), at(folder), options()).unwrap()
}

fn both(cores: f64, workers: f64) -> Setting {
    Setting::from([
        (Lever::Cores, cores),
        (Lever::Concurrency, workers),
        (Lever::QueryBatch, 2.0),
        (Lever::RoundDelay, 0.0),
    ])
}

#[test]
fn a_setting_is_divided_between_the_machine_and_the_server_and_put_back_at_both() {
    let folder = tempfile::tempdir().unwrap();
    let wrap = Wrap::start(folder.path(), 1);
    let (mut machine, notes) = open(folder.path());
    assert!(notes[0].contains("on call by this run"), "{notes:?}");
    for (lever, least) in [
        (Lever::Cores, 0.1),
        (Lever::Concurrency, 1.0),
        (Lever::QueryBatch, 1.0),
    ] {
        assert_eq!(machine.ranges().get(lever).map(|range| range.min), Some(least));
    }
    assert_eq!(machine.read_within(), None, "nothing is to be renewed");
    // Workers are whole: what is asked for is rounded down.
    assert_eq!(machine.apply(both(1.5, 3.9)), Ok(Vec::new()));
    assert_eq!(machine.in_force(), both(1.5, 3.0));
    assert_eq!(wrap.workers(), Some(3));
    assert_eq!(machine.read_within(), Some(options().lease / RENEWALS));
    // What the machine refuses keeps the server from nothing, and is an error.
    assert!(machine.apply(both(3.0, 5.0)).is_err());
    assert_eq!(
        (wrap.workers(), machine.in_force().cores()),
        (Some(5), both(1.5, 5.0).cores())
    );
    // A setting without its levers lets the workers go.
    let cores = Setting::from([(Lever::Cores, 1.0)]);
    machine.apply(cores).unwrap();
    assert_eq!((wrap.workers(), machine.in_force()), (None, cores));
    machine.apply(both(1.0, 2.0)).unwrap();
    let done = machine.put_back();
    assert_eq!(done.notes, ["all workers of db go"]);
    assert!(done.failed.is_empty() && machine.in_force().is_empty());
    assert_eq!((wrap.workers(), machine.read_within()), (None, None));
}

#[test]
fn a_server_that_comes_back_has_what_the_lease_asks_for_and_one_that_is_away_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (mut machine, notes) = open(folder.path());
    assert!(notes[0].contains("no server on call yet"), "{notes:?}");
    // Also of one that is not there the levers can be commanded.
    assert!(machine.ranges().get(Lever::Concurrency).is_some());
    let notes = machine.apply(both(1.0, 3.0)).unwrap();
    assert!(notes[0].contains("wrap --steered"), "{notes:?}");
    assert_eq!(machine.in_force(), Setting::from([(Lever::Cores, 1.0)]));
    let why = machine.read().oncall.unwrap().now.unwrap_err();
    assert!(why.contains("no wrapped server is there"), "{why}");
    let device = machine.about().devices.remove(0);
    assert!(
        !device.in_use && device.remedy.contains("--name db"),
        "{device:?}"
    );
    let wrap = Wrap::start(folder.path(), 1);
    // It is found with the next reading, commanded at once, and seen with the one after.
    assert!(machine.read().oncall.unwrap().now.is_err());
    assert_eq!((wrap.workers(), machine.in_force()), (Some(3), both(1.0, 3.0)));
    let seen = machine.read().oncall.unwrap();
    assert_eq!(
        (seen.server.as_str(), seen.now.map(|now| now.connections)),
        ("db", Ok(0))
    );
    let about = machine.about();
    assert!(about.devices[0].in_use && about.oncall.is_some(), "{about:?}");
    // While a wrap shuts its server down nobody commands it.
    let Wrap { offer, steering, .. } = wrap;
    drop(offer);
    assert!(machine.read().oncall.unwrap().now.is_err());
    assert!(!steering.as_ref().unwrap().commanded().enabled);
    assert_eq!(machine.in_force(), Setting::from([(Lever::Cores, 1.0)]));
    drop(steering);
    // After the lease the next one is left as it is.
    machine.put_back();
    let again = Wrap::start(folder.path(), 2);
    machine.read();
    assert!(machine.read().oncall.unwrap().now.is_ok());
    assert_eq!(again.workers(), None);
    machine.apply(both(1.0, 4.0)).unwrap();
    assert_eq!(again.workers(), Some(4));
    drop(machine);
    assert_eq!(again.workers(), None, "with the agent they go");
}

#[test]
fn a_second_commander_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _wrap = Wrap::start(folder.path(), 1);
    let _first = open(folder.path());
    let second = OncallMachine::open(Box::<Fake>::default(), at(folder.path()), options());
    let error = second.err().unwrap();
    assert!(
        !error.is_absence() && error.to_string().contains("one commander"),
        "{error}"
    );
}

#[test]
fn counts_are_sums_that_only_grow_and_can_be_sent() {
    let mut counted = Counted {
        counters: OnCallCounters::default(),
        latencies: BTreeMap::new(),
        at: Instant::now(),
    };
    let mut before = OnCallCounters::default();
    for period in 1..=50_u64 {
        let mut histogram = latency_histogram();
        histogram.record_n(period * 37, 10).unwrap();
        histogram.record_n(100, 5).unwrap();
        let traffic = TrafficPeriod {
            arrivals: 16,
            completions: 15,
            latency: ReportedLatency::Histogram(histogram),
            ..TrafficPeriod::default()
        };
        let oncall = OncallObservation {
            rounds: 3,
            given_back: 1,
            // Not each reading has them.
            context_switches: (period % 2 == 0).then_some(40),
            long_idle: (period % 5 > 0).then_some(Ratio::new(0.25)),
            ..OncallObservation::default()
        };
        counted.add(&oncall, &traffic, Duration::from_millis(20));
        let now = counted.counters();
        assert_eq!(
            (now.queries - before.queries, now.arrivals - before.arrivals),
            (15, 16)
        );
        let of = |all: &OnCallCounters| all.latencies.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(of(&now) - of(&before), 15);
        before = now;
    }
    assert_eq!((before.rounds, before.given_back), (150, 50));
    assert_eq!(before.context_switches, Some(1000));
    assert_eq!(
        (before.measured, before.long_idle),
        (Duration::from_millis(800), Duration::from_millis(200))
    );
    let fast = before.latencies.iter().find(|(us, _)| *us == 100).unwrap();
    assert_eq!(fast.1, 250);
    let sample = OnCallSample {
        server: "db".to_owned(),
        now: Err("é".repeat(MAX_AWAY)),
        counters: before,
    };
    assert!(OnCallSample::try_from(proto::OnCallSample::from(sample.clone())).is_err());
    let short = OnCallSample {
        now: sample.now.map_err(|why| shortened(&why)),
        ..sample
    };
    let read = OnCallSample::try_from(proto::OnCallSample::from(short.clone()));
    assert_eq!(read, Ok(short));
}
