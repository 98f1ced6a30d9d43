use super::*;
use crate::Fixed;
use crate::capacity::Capacity;
use crate::observation::{Latency, NodeObservation};
use crate::resize::{AlwaysOn, PowerState, ResizeTuning, Schedule, Scheduled, Stepwise};
use headroom_units::Cores;

fn plant() -> Plant {
    crate::common::plant([1.0, 4.0, 1.0], [6.0, 2.0, 7.0]).with_servers(3)
}

/// Asks for two cores, a cap that it does not own, and as few servers as can be.
struct TwoCores;

impl Law for TwoCores {
    fn name(&self) -> &'static str {
        "two-cores"
    }
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores]
    }
    fn decide(&mut self, _: &Observation) -> Decision {
        let setting = Setting::default()
            .with(Lever::Cores, Some(2.0))
            .with(Lever::Cap, Some(8.0))
            .with(Lever::Servers, Some(1.0));
        Decision {
            setting,
            expected_rate: None,
            reflex: None,
            reasons: vec![Reason::new("two", "two cores".to_owned(), &[])],
            ..Decision::default()
        }
    }
    fn forget(&mut self) {}
}

fn second(arrivals: u64) -> Observation {
    let traffic = Traffic {
        arrivals,
        completions: arrivals,
        ..Traffic::default()
    };
    Observation {
        length: Seconds::new(1.0),
        in_force: plant().full(),
        traffic: Some(traffic),
        ..Observation::default()
    }
}

#[test]
fn each_reason_says_whose_levers_it_is_of() {
    let parts = vec![Part::new(Box::new(TwoCores)), Part::new(Box::new(AlwaysOn))];
    let decision = Stack::new(parts, plant(), 5).unwrap().decide(&second(1));
    let rule = |lever| decision.reason_of(lever).map(|reason| &*reason.rule);
    assert_eq!(
        [Lever::Cores, Lever::Servers, Lever::Cap].map(rule),
        [Some("two"), Some("always-on"), None]
    );
}

#[test]
fn with_another_plant_the_laws_of_machines_begin_anew_and_those_of_servers_go_on() {
    let stack = |plant: Plant| {
        let fixed = crate::Constant::new(plant.full().only(&[Lever::Cores])).unwrap();
        let parts = vec![Part::new(Box::new(fixed)), Part::new(Box::new(AlwaysOn)).every(3)];
        Stack::new(parts, plant, 5).unwrap()
    };
    let mut running = stack(plant());
    assert!(running.decide(&second(1)).reason_of(Lever::Servers).is_some());
    let larger = crate::common::plant([1.0, 12.0, 1.0], [6.0, 2.0, 7.0]).with_servers(3);
    running.follow(stack(larger));
    let next = running.decide(&second(1));
    assert_eq!(next.setting.cores(), Some(Cores::new(12.0)));
    // The law of servers would decide at once if it had begun anew.
    assert!(next.reason_of(Lever::Servers).is_none());
}

#[test]
fn fixed_shares_no_lever() {
    let fixed = || Part::new(Box::new(Fixed::new(plant())));
    for other in [Part::new(Box::new(TwoCores)), Part::new(Box::new(AlwaysOn))] {
        let lever = other.law.levers()[0];
        let (first, second) = ("fixed", other.law.name());
        let contested = StackError::Contested { lever, first, second };
        assert_eq!(refused(vec![fixed(), other], plant()), contested);
    }
}

fn refused(parts: Vec<Part>, plant: Plant) -> StackError {
    let Err(error) = Stack::new(parts, plant, 5) else {
        panic!("it was accepted")
    };
    error
}

#[test]
fn two_laws_on_one_lever_are_refused_by_name() {
    let parts = || vec![Part::new(Box::new(TwoCores)), Part::new(Box::new(TwoCores))];
    let error = refused(parts(), plant());
    assert_eq!(
        error.to_string(),
        "two-cores and two-cores both move the lever cores: run one of them, or laws whose levers differ"
    );
    assert_eq!(refused(Vec::new(), plant()), StackError::Empty);
    let never = vec![Part::new(Box::new(TwoCores)).every(0)];
    assert_eq!(refused(never, plant()), StackError::Period { law: "two-cores" });
}

#[test]
fn a_law_whose_lever_is_missing_is_refused_by_name() {
    let one = Plant::new(plant().cores(), plant().power()).unwrap();
    let error = refused(vec![Part::new(Box::new(AlwaysOn))], one);
    let lever = Lever::Servers;
    assert_eq!(
        error,
        StackError::Missing {
            law: "always-on",
            lever
        }
    );
}

#[test]
fn a_law_moves_what_it_owns_and_what_nobody_owns_is_full() {
    let mut stack = Stack::new(vec![Part::new(Box::new(TwoCores))], plant(), 5).unwrap();
    let setting = stack.decide(&second(5)).setting;
    assert_eq!(setting, plant().full().with(Lever::Cores, Some(2.0)));
    assert_eq!(stack.name(), "two-cores");
}

#[test]
fn a_slow_law_is_given_its_whole_period_and_keeps_what_it_decided() {
    let resizer = Stepwise::fixed(PerSecond::new(10.0), ResizeTuning::default()).unwrap();
    let parts = vec![
        Part::new(Box::new(TwoCores)),
        Part::new(Box::new(resizer)).every(3),
    ];
    let mut stack = Stack::new(parts, plant(), 5).unwrap();
    assert_eq!(stack.name(), "two-cores+static");
    let node = |state| NodeObservation {
        state,
        capacity: Capacity::Unknown,
        answered: None,
    };
    let nodes = [PowerState::Serving, PowerState::Off, PowerState::Off]
        .map(node)
        .to_vec();
    let mut at = 0.0;
    let mut next = |arrivals| {
        at += 1.0;
        let decision = stack.decide(&Observation {
            at: Seconds::new(at),
            nodes: nodes.clone(),
            ..second(arrivals)
        });
        let rules: Vec<String> = decision.reasons.iter().map(|one| one.rule.to_string()).collect();
        (decision.setting.servers(), rules.join(" "))
    };
    // Its first decision is of the first period: what is off is not started to wait for it.
    assert_eq!(next(0), (Some(1), "two fits".to_owned()));
    // 36 in three seconds are 12 a second, where one server takes 10.
    assert_eq!(next(0), (Some(1), "two".to_owned()));
    assert_eq!(next(0), (Some(1), "two".to_owned()));
    assert_eq!(next(36), (Some(2), "two grow".to_owned()));
    assert_eq!(next(900), (Some(2), "two".to_owned()));
}

#[test]
fn lost_telemetry_gives_up_the_levers_of_the_law_that_needs_it() {
    let parts = vec![Part::new(Box::new(TwoCores)), Part::new(Box::new(AlwaysOn))];
    let mut stack = Stack::new(parts, plant(), 2).unwrap();
    let blind = Observation {
        traffic: None,
        in_force: plant().full().with(Lever::Cores, Some(2.0)),
        ..second(0)
    };
    let held = stack.decide(&blind);
    assert_eq!(held.setting.cores(), Some(Cores::new(2.0)));
    let full = stack.decide(&blind);
    assert_eq!(
        (full.setting.cores(), stack.lost_periods()),
        (Some(Cores::new(4.0)), 2)
    );
    let rules: Vec<&str> = full.reasons.iter().map(|one| one.rule.as_ref()).collect();
    assert_eq!(rules, ["telemetry-lost-full", "always-on"]);
}

#[test]
fn without_telemetry_a_gateway_holds_nothing_and_what_no_law_moves_stays_as_configured() {
    let range = headroom_units::LeverRange::between;
    let plant = plant()
        .with_range(Lever::BatchInterval, range(0.0, 0.5))
        .and_then(|plant| plant.with_range(Lever::CacheSize, range(1e6, 2e7)))
        .unwrap();
    let held = Setting::from([(Lever::BatchInterval, 0.3)]);
    let law = crate::Constant::new(held).unwrap();
    let mut stack = Stack::new(vec![Part::new(Box::new(law))], plant, 3).unwrap();
    let one = |traffic| Observation {
        in_force: plant.full().with(Lever::BatchInterval, Some(0.3)),
        traffic,
        ..second(10)
    };
    let mut levers = |traffic| {
        let setting = stack.decide(&one(traffic)).setting;
        [Lever::BatchInterval, Lever::CacheSize].map(|lever| setting.get(lever))
    };
    assert_eq!(levers(second(10).traffic), [Some(0.3), None]);
    for _ in 0..2 {
        assert_eq!(levers(None), [Some(0.3), None]);
    }
    assert_eq!(levers(None), [Some(0.0), None]);
    let failing = Traffic {
        completions: 10,
        failures: 10,
        ..Traffic::default()
    };
    assert_eq!(levers(Some(failing)), [Some(0.0), None]);
    // Until as many periods are well as may be lost.
    for _ in 0..2 {
        assert_eq!(levers(second(10).traffic), [Some(0.0), None]);
    }
    assert_eq!(levers(second(10).traffic), [Some(0.3), None]);
}

#[test]
fn a_gateways_counts_of_two_periods_add_up() {
    use crate::observation::{BatchObservation, CacheObservation};
    let one = |hits, batches| Observation {
        cache: Some(CacheObservation { lookups: 10, hits }),
        batching: Some(BatchObservation {
            batches,
            requests: 12,
            groups: 4,
            answered: 1,
            processing: Seconds::new(0.1),
            waiting: Seconds::new(0.5),
            held: batches,
        }),
        ..second(5)
    };
    let both = together(one(4, 2), &one(6, 3));
    assert_eq!(
        both.cache,
        Some(CacheObservation {
            lookups: 20,
            hits: 10
        })
    );
    let batching = both.batching.unwrap();
    assert_eq!((batching.batches, batching.requests, batching.groups), (5, 24, 8));
    // Those that are held are the later's.
    assert_eq!(batching.held, 3);
    assert_eq!(batching.mean_waiting(), Some(Seconds::new(0.2)));
    // A period of which nothing is known takes nothing away.
    assert_eq!(together(one(4, 2), &second(5)).cache, one(4, 2).cache);
}

#[test]
fn between_the_decisions_of_a_slow_law_alone_there_is_a_reason_too() {
    let mut stack = Stack::new(vec![Part::new(Box::new(TwoCores)).every(3)], plant(), 5).unwrap();
    assert_eq!(stack.decide(&second(1)).reasons[0].rule, "two");
    let reason = stack.decide(&second(1)).reasons.remove(0);
    assert_eq!(reason.rule, "between-decisions");
    assert!(reason.text.contains("in 2 periods"), "{}", reason.text);
}

#[test]
fn two_periods_make_one() {
    let latency = |ms: f64| Latency {
        at_slo: Seconds::from_millis(ms),
        missed: false,
        distribution: None,
    };
    let with = |arrivals, ms| {
        let mut seen = second(arrivals);
        if let Some(traffic) = &mut seen.traffic {
            traffic.latency = Some(latency(ms));
        }
        seen
    };
    let both = together(with(10, 90.0), &with(30, 20.0));
    let traffic = both.traffic.clone().unwrap();
    assert_eq!((traffic.arrivals, traffic.latency), (40, Some(latency(90.0))));
    assert_eq!(
        (both.length, both.demand()),
        (Seconds::new(2.0), Some(PerSecond::new(20.0)))
    );
}

/// The static law of servers where one takes 10/s, every 40 periods beside another law.
fn with_slow_servers() -> Stack {
    let resizer = Stepwise::fixed(PerSecond::new(10.0), ResizeTuning::default()).unwrap();
    let parts = vec![
        Part::new(Box::new(TwoCores)),
        Part::new(Box::new(resizer)).every(40),
    ];
    Stack::new(parts, plant(), 5).unwrap()
}

/// Second `at` of a run in which one server of three serves.
fn one_serves(at: u32, traffic: Option<Traffic>) -> Observation {
    let states = [PowerState::Serving, PowerState::Off, PowerState::Off];
    let node = |state| NodeObservation {
        state,
        capacity: Capacity::Unknown,
        answered: None,
    };
    Observation {
        at: Seconds::new(f64::from(at)),
        in_force: plant().full().with(Lever::Servers, Some(1.0)),
        nodes: states.map(node).to_vec(),
        traffic,
        ..second(0)
    }
}

fn traffic(completions: u64, failures: u64) -> Option<Traffic> {
    Some(Traffic {
        arrivals: completions + failures,
        completions,
        failures,
        ..Traffic::default()
    })
}

#[test]
fn short_losses_of_telemetry_are_left_out_of_a_slow_laws_window() {
    for (arrivals, expected) in [(6, 1), (12, 2)] {
        let mut stack = with_slow_servers();
        let mut decided = Vec::new();
        for at in 0..200 {
            // Outages of two periods every nine; also in the 41st period, in which a decision is due.
            let lost = at % 9 >= 7 || at == 40;
            let decision = stack.decide(&one_serves(at, traffic(arrivals, 0).filter(|_| !lost)));
            let reason = decision.reason_of(Lever::Servers);
            if reason.is_some_and(|reason| reason.rule != "telemetry-lost-hold") {
                decided.push((at, decision.setting.servers().unwrap()));
            }
            assert_eq!(decision.setting.servers(), decided.last().map(|last| last.1));
        }
        // The first decision is of the first period; the others are of the mean of what is known, not of less.
        let [first, others @ ..] = &decided[..] else {
            panic!("nothing was decided")
        };
        assert_eq!(first.0, 0);
        assert!(others.len() >= 4 && others[0].0 == 41, "{decided:?}");
        assert!(
            others.iter().all(|(_, servers)| *servers == expected),
            "{decided:?}"
        );
    }
}

#[test]
fn a_lasting_loss_and_failing_requests_reach_a_slow_law_as_soon_as_any_other() {
    // The traffic from the 10th period on, and the period in which everything is on.
    for (after, full_at) in [
        (None, 14),
        (traffic(0, 40), 10),
        (traffic(90, 10), 10),
        (traffic(97, 3), 14),
    ] {
        let mut stack = with_slow_servers();
        for at in 0..60 {
            let now = if at < 10 { traffic(6, 0) } else { after.clone() };
            let setting = stack.decide(&one_serves(at, now)).setting;
            let expected = match at < full_at {
                true => (Some(1), Some(2.0)),
                false => (Some(3), Some(4.0)),
            };
            // While nothing is known what is in force stays, which is all cores here.
            let cores = setting.get(Lever::Cores).filter(|_| at < 10 || at >= full_at);
            let known = expected.1.filter(|_| at < 10 || at >= full_at);
            assert_eq!((setting.servers(), cores), (expected.0, known), "{after:?} {at}");
        }
        // Once it is over it begins anew: a whole window stands behind its next decision.
        let over = (60..120).find(|at| {
            let decision = stack.decide(&one_serves(*at, traffic(6, 0)));
            decision.setting.servers() == Some(1)
        });
        let well = if after.is_some() { 4 } else { 0 };
        assert_eq!(over, Some(99 + well), "{after:?}");
    }
}

#[test]
fn what_goes_by_no_telemetry_stays_without_it_and_is_full_while_requests_fail() {
    let schedule = Schedule::new(Seconds::new(60.0), vec![1]).unwrap();
    let law = Scheduled::new(schedule, Seconds::ZERO).unwrap();
    let mut stack = Stack::of(Box::new(law), plant(), 2).unwrap();
    let mut servers = |traffic| stack.decide(&one_serves(0, traffic)).setting.servers();
    for _ in 0..4 {
        assert_eq!(servers(None), Some(1));
    }
    assert_eq!(servers(traffic(0, 40)), Some(3));
    assert_eq!(servers(traffic(40, 0)), Some(3));
    assert_eq!(servers(traffic(40, 0)), Some(1));
}

/// Sends the one class of sizes to the second of two backends.
struct ToTheSecond;

impl Law for ToTheSecond {
    fn name(&self) -> &'static str {
        "to-the-second"
    }
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Placement]
    }
    fn decide(&mut self, _: &Observation) -> Decision {
        Decision {
            routes: Some(Routes {
                weights: vec![vec![0, 1]],
                ..Routes::default()
            }),
            ..Decision::of(Setting::default().with(Lever::Placement, Some(1.0)))
        }
    }
    fn forget(&mut self) {}
}

#[test]
fn a_guardian_that_holds_keeps_the_routes_and_places_nothing_where_nobody_knows_them() {
    let range = headroom_units::LeverRange::between(0.0, 1.0);
    let plant = plant().with_range(Lever::Placement, range).unwrap();
    let stack = || Stack::new(vec![Part::new(Box::new(ToTheSecond))], plant, 2).unwrap();
    let placed = |traffic| Observation {
        in_force: plant.full().with(Lever::Placement, Some(1.0)),
        traffic,
        ..second(1)
    };
    let said = |decision: Decision| (decision.setting.get(Lever::Placement), decision.routes);
    let routes = Routes {
        weights: vec![vec![0, 1]],
        ..Routes::default()
    };
    let mut running = stack();
    let telemetry = second(1).traffic;
    assert_eq!(
        said(running.decide(&placed(telemetry.clone()))),
        (Some(1.0), Some(routes.clone()))
    );
    assert_eq!(said(running.decide(&placed(None))), (Some(1.0), Some(routes)));
    // Out of patience nothing is placed.
    assert_eq!(said(running.decide(&placed(None))), (Some(0.0), None));
    assert_eq!(said(running.decide(&placed(None))), (Some(0.0), None));
    // A controller that finds another's routes in force has never seen them.
    assert_eq!(said(stack().decide(&placed(None))), (Some(0.0), None));
}
