use super::*;
use crate::capacity::Capacity;
use headroom_units::Seconds;
use proptest::prelude::*;

const fn server(state: PowerState, per_s: f64) -> NodeObservation {
    NodeObservation {
        state,
        capacity: Capacity::Exact(PerSecond::new(per_s)),
        answered: None,
    }
}

const fn serving(per_s: f64) -> NodeObservation {
    server(PowerState::Serving, per_s)
}

const OFF: NodeObservation = NodeObservation {
    state: PowerState::Off,
    capacity: Capacity::Unknown,
    answered: None,
};
const BOOTING: NodeObservation = NodeObservation {
    state: PowerState::Booting,
    capacity: Capacity::Unknown,
    answered: None,
};
const NEW: NodeObservation = NodeObservation {
    state: PowerState::Warming,
    capacity: Capacity::Unknown,
    answered: None,
};

fn decide(resizer: &mut Stepwise, at_s: f64, arriving: f64, servers: &[NodeObservation]) -> (usize, String) {
    let resize = resizer.resize(&Observation {
        at: Seconds::new(at_s),
        demand: Some(PerSecond::new(arriving)),
        nodes: servers.to_vec(),
        ..Observation::default()
    });
    (resize.servers, resize.reason.rule.into())
}

fn fixed() -> Stepwise {
    Stepwise::fixed(PerSecond::new(595.0), ResizeTuning::default()).unwrap()
}

fn online() -> Stepwise {
    Stepwise::online(ResizeTuning::default()).unwrap()
}

fn said(servers: usize, rule: &str) -> (usize, String) {
    (servers, rule.to_owned())
}

/// Section 7.5 with its 595 requests/s a server and five servers.
#[test]
fn the_static_controller_through_a_rise_and_a_fall() {
    let mut resizer = fixed();
    let one = [serving(0.0), OFF, OFF, OFF, OFF];
    let boot = [serving(0.0), BOOTING, OFF, OFF, OFF];
    let warm = [serving(0.0), NEW, OFF, OFF, OFF];
    let two = [serving(0.0), serving(0.0), OFF, OFF, OFF];
    assert_eq!(decide(&mut resizer, 0.0, 595.0, &one), said(1, "fits"));
    assert_eq!(decide(&mut resizer, 1.0, 596.0, &one), said(2, "grow"));
    // While it boots, nothing more is ordered, however much arrives, and nothing is turned off.
    assert_eq!(decide(&mut resizer, 2.0, 2_900.0, &boot), said(2, "on-its-way"));
    assert_eq!(decide(&mut resizer, 3.0, 100.0, &boot), said(2, "on-its-way"));
    // It takes requests: ten seconds of warm-up.
    assert_eq!(decide(&mut resizer, 60.0, 100.0, &warm), said(2, "warming-up"));
    assert_eq!(decide(&mut resizer, 69.9, 2_900.0, &two), said(2, "warming-up"));
    assert_eq!(decide(&mut resizer, 70.0, 1_191.0, &two), said(3, "grow"));
    assert_eq!(decide(&mut resizer, 71.0, 596.0, &two), said(2, "fits"));
    assert_eq!(decide(&mut resizer, 72.0, 595.0, &two), said(1, "shrink"));
    // The last one stays.
    assert_eq!(decide(&mut resizer, 73.0, 0.0, &one), said(1, "fits"));
}

#[test]
fn the_dynamic_controller_follows_the_estimates() {
    // Less demand a request: 750 a server, so 1,400 need two and not three (Section 7.5.2).
    let two = [serving(750.0), serving(750.0), OFF];
    assert_eq!(decide(&mut online(), 0.0, 1_400.0, &two), said(2, "fits"));
    assert_eq!(
        decide(&mut fixed(), 0.0, 1_400.0, &two),
        said(3, "grow"),
        "the static controller turns on a third"
    );
    // More demand a request: 300 a server, which the static controller does not see (Section 7.5.3).
    let one = [serving(300.0), OFF, OFF];
    assert_eq!(decide(&mut online(), 0.0, 500.0, &one), said(2, "grow"));
    assert_eq!(decide(&mut fixed(), 0.0, 500.0, &one), said(1, "fits"));
    let both = [serving(300.0), serving(300.0)];
    assert_eq!(decide(&mut online(), 0.0, 900.0, &both), said(2, "all-on"));
}

#[test]
fn a_server_of_which_nothing_is_known_counts_as_its_peers() {
    let servers = [serving(600.0), server(PowerState::Serving, 500.0), NEW, OFF];
    assert_eq!(decide(&mut online(), 0.0, 1_650.0, &servers), said(3, "fits"));
    assert_eq!(decide(&mut online(), 0.0, 1_651.0, &servers), said(4, "grow"));
}

const fn serving_unseen() -> NodeObservation {
    NodeObservation {
        state: PowerState::Serving,
        capacity: Capacity::Unknown,
        answered: None,
    }
}

#[test]
fn what_a_server_takes_at_least_starts_no_other() {
    let mut resizer = online();
    let at_least = |per_s: f64| NodeObservation {
        capacity: Capacity::LowerBound(PerSecond::new(per_s)),
        ..serving(per_s)
    };
    let seen = [at_least(400.0), at_least(380.0), OFF];
    // More than was ever taken, and nobody has waited yet.
    assert_eq!(decide(&mut resizer, 0.0, 900.0, &seen), said(2, "unproven"));
    // One more is too many even by what was taken at least.
    assert_eq!(decide(&mut resizer, 20.0, 300.0, &seen), said(1, "shrink"));
    // Once one of them was in difficulty, the other counts as much as that one.
    let seen = [at_least(400.0), serving(450.0), OFF];
    assert_eq!(decide(&mut resizer, 40.0, 890.0, &seen), said(2, "fits"));
    assert_eq!(decide(&mut resizer, 60.0, 910.0, &seen), said(3, "grow"));
    // But not less than it has taken itself.
    let seen = [at_least(500.0), serving(450.0), OFF];
    assert_eq!(decide(&mut resizer, 80.0, 910.0, &seen), said(2, "fits"));
    // Of one that is not seen nobody knows whether it is in any difficulty.
    let seen = [at_least(400.0), serving_unseen(), OFF];
    assert_eq!(decide(&mut resizer, 90.0, 910.0, &seen), said(2, "unproven"));
    assert_eq!(decide(&mut resizer, 99.0, 910.0, &seen), said(2, "unproven"));
    assert_eq!(decide(&mut resizer, 101.0, 910.0, &seen), said(3, "grow"));
    // And where there is no other server there is nothing to wait for.
    let seen = [at_least(400.0), at_least(380.0)];
    assert_eq!(decide(&mut resizer, 120.0, 900.0, &seen), said(2, "all-on"));
}

#[test]
fn what_boots_drains_stops_or_failed_is_no_capacity() {
    use crate::resize::Cause;
    for state in [
        PowerState::Off,
        PowerState::Draining,
        PowerState::Stopping,
        PowerState::Failed(Cause::Boot),
    ] {
        let servers = [serving(600.0), server(state, 600.0), OFF];
        assert_eq!(
            decide(&mut online(), 0.0, 601.0, &servers),
            said(2, "grow"),
            "{state:?}"
        );
    }
    // One that boots is not capacity either: it is only not ordered again.
    let servers = [serving(600.0), server(PowerState::Booting, 600.0), OFF];
    assert_eq!(decide(&mut online(), 0.0, 601.0, &servers), said(2, "on-its-way"));
}

#[test]
fn a_steep_rise_can_start_several_at_once() {
    let tuning = ResizeTuning {
        starts_at_once: 3,
        ..ResizeTuning::default()
    };
    let mut resizer = Stepwise::fixed(PerSecond::new(100.0), tuning).unwrap();
    let servers = [serving(0.0), OFF, OFF, OFF, OFF, OFF];
    assert_eq!(decide(&mut resizer, 0.0, 250.0, &servers), said(3, "grow"));
    assert_eq!(decide(&mut resizer, 1.0, 600.0, &servers), said(4, "grow"));
    let servers = [serving(0.0), BOOTING, BOOTING, BOOTING, OFF, OFF];
    assert_eq!(decide(&mut resizer, 2.0, 600.0, &servers), said(4, "on-its-way"));
}

#[test]
fn a_margin_and_a_wait_make_it_slower_to_save() {
    let tuning = ResizeTuning {
        margin: 0.2,
        spare_for_s: 5.0,
        ..ResizeTuning::default()
    };
    let mut resizer = Stepwise::fixed(PerSecond::new(100.0), tuning).unwrap();
    let two = [serving(0.0), serving(0.0), OFF];
    assert_eq!(decide(&mut resizer, 0.0, 161.0, &two), said(3, "grow"));
    assert_eq!(decide(&mut resizer, 1.0, 81.0, &two), said(2, "fits"));
    assert_eq!(decide(&mut resizer, 2.0, 80.0, &two), said(2, "sparing"));
    assert_eq!(decide(&mut resizer, 3.0, 81.0, &two), said(2, "fits"));
    assert_eq!(decide(&mut resizer, 4.0, 80.0, &two), said(2, "sparing"));
    assert_eq!(decide(&mut resizer, 9.0, 80.0, &two), said(1, "shrink"));
}

#[test]
fn losing_telemetry_ends_with_everything_on() {
    let mut resizer = fixed();
    let servers = [serving(0.0), serving(0.0), OFF, OFF];
    let mut blind = |at_s: f64| {
        let resize = resizer.resize(&Observation {
            at: Seconds::new(at_s),
            nodes: servers.to_vec(),
            ..Observation::default()
        });
        (resize.servers, resize.reason.rule.into_owned())
    };
    assert_eq!(blind(0.0), said(2, "blind-hold"));
    assert_eq!(blind(10.0), said(2, "blind-hold"));
    assert_eq!(blind(11.0), said(4, "blind-full"));
    // Nor without a single estimate.
    let mut resizer = online();
    assert_eq!(decide(&mut resizer, 0.0, 5.0, &[NEW, OFF]), said(1, "blind-hold"));
    assert_eq!(
        decide(&mut resizer, 11.0, 5.0, &[NEW, OFF]),
        said(2, "blind-full")
    );
}

#[test]
fn with_no_server_on_the_fewest_are_started_and_waited_for() {
    let mut resizer = online();
    assert_eq!(decide(&mut resizer, 0.0, 50.0, &[OFF, OFF]), said(1, "grow"));
    for second in 1..60 {
        let got = decide(&mut resizer, f64::from(second), 50.0, &[BOOTING, OFF]);
        assert_eq!(got, said(1, "on-its-way"));
    }
}

#[test]
fn fewer_than_the_fewest_is_said_to_be_too_few() {
    let tuning = ResizeTuning {
        min_servers: 3,
        ..ResizeTuning::default()
    };
    let mut resizer = Stepwise::fixed(PerSecond::new(100.0), tuning).unwrap();
    assert_eq!(
        decide(&mut resizer, 0.0, 10.0, &[serving(0.0), OFF, OFF, OFF]),
        said(3, "grow")
    );
    // There are no more than two.
    let two = [serving(0.0), serving(0.0)];
    assert_eq!(decide(&mut resizer, 20.0, 10.0, &two), said(2, "warming-up"));
    assert_eq!(decide(&mut resizer, 30.0, 10.0, &two), said(2, "fits"));
}

#[test]
fn an_idle_night_is_not_blindness() {
    let mut resizer = online();
    for second in 0..60 {
        let idle = NodeObservation {
            state: PowerState::Serving,
            ..NEW
        };
        assert_eq!(
            decide(&mut resizer, f64::from(second), 0.0, &[idle, OFF]),
            said(1, "fits")
        );
    }
}

#[test]
fn a_capacity_that_is_none_is_refused() {
    assert!(Stepwise::fixed(PerSecond::ZERO, ResizeTuning::default()).is_err());
    assert_eq!(online().name(), "dynamic");
    assert_eq!(fixed().name(), "static");
}

proptest! {
    /// Never less than the fewest, never more than there are, never a rule that is not listed; and none is
    /// turned off that arrivals need.
    #[test]
    fn what_is_asked_for_can_be_given(
        steps in proptest::collection::vec((0.0..5_000.0f64, proptest::collection::vec(0..7usize, 1..8)), 1..60),
        min_servers in 1..4usize,
    ) {
        let tuning = ResizeTuning { min_servers, ..ResizeTuning::default() };
        let mut resizer = Stepwise::fixed(PerSecond::new(595.0), tuning).unwrap();
        for (at, (arriving, states)) in steps.into_iter().enumerate() {
            use PowerState::{Booting, Draining, Failed, Off, Serving, Stopping, Warming};
            let states = states.into_iter().map(|state| {
                [Off, Booting, Warming, Serving, Draining, Stopping, Failed(Cause::Lost)][state]
            });
            let servers: Vec<NodeObservation> = states.map(|state| server(state, 1.0)).collect();
            let (target, rule) = decide(&mut resizer, at as f64, arriving, &servers);
            prop_assert!(target >= min_servers.min(servers.len()) && target <= servers.len());
            if rule == "shrink" {
                prop_assert!(target as f64 * 595.0 >= arriving);
            }
        }
    }
}

const LOST: NodeObservation = server(PowerState::Failed(Cause::Lost), 0.0);

#[test]
fn an_outage_is_not_that_nobody_comes() {
    let mut resizer = online();
    let six = [[serving(100.0); 6].as_slice(), &[OFF; 4]].concat();
    assert_eq!(decide(&mut resizer, 0.0, 580.0, &six), said(6, "fits"));
    // All are lost at once, and nothing arrives where nobody takes it: as many as before, together.
    let all_lost = [[LOST; 6].as_slice(), &[OFF; 4]].concat();
    assert_eq!(decide(&mut resizer, 20.0, 0.0, &all_lost), said(6, "outage"));
    let booting = [[BOOTING; 4].as_slice(), &[LOST; 6]].concat();
    assert_eq!(decide(&mut resizer, 60.0, 0.0, &booting), said(6, "outage"));
    // The user's limit holds there too.
    let tuning = ResizeTuning {
        starts_in_outage: 2,
        ..ResizeTuning::default()
    };
    let mut limited = Stepwise::online(tuning).unwrap();
    decide(&mut limited, 0.0, 580.0, &six);
    assert_eq!(decide(&mut limited, 20.0, 0.0, &all_lost), said(2, "outage"));
    // Of a cluster that never served nothing is known: one is more than none.
    assert_eq!(decide(&mut online(), 0.0, 0.0, &[OFF; 4]), said(1, "grow"));
}

#[test]
fn servers_that_are_lost_together_are_replaced_together_and_none_goes_meanwhile() {
    let mut resizer = online();
    let six = [[serving(100.0); 6].as_slice(), &[OFF; 4]].concat();
    decide(&mut resizer, 0.0, 580.0, &six);
    let half = [[serving(100.0); 3].as_slice(), &[LOST; 3], &[OFF; 4]].concat();
    assert_eq!(decide(&mut resizer, 20.0, 580.0, &half), said(6, "grow"));
    // What came to the lost ones is not counted yet at the others.
    assert_eq!(decide(&mut resizer, 21.0, 90.0, &half), said(3, "fits"));
}
