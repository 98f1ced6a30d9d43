use super::*;
use crate::capacity::Capacity;
use crate::observation::Traffic;
use crate::resize::{Cause, Leave};
use headroom_units::{Ratio, Seconds, Watts};
use proptest::prelude::*;

fn law(tuning: ElasticTuning) -> Elastic {
    let slo = Slo::new(Ratio::new(0.95), Seconds::new(1.0)).unwrap();
    Elastic::new(slo, tuning).unwrap()
}

/// A cluster under the law: as many of the servers as it wants serve, each after its boot.
pub(super) struct World {
    pub(super) law: Elastic,
    at_s: u64,
    pub(super) nodes: Vec<NodeObservation>,
    boots: Vec<Option<u64>>,
    boot_s: u64,
    pub(super) rule: String,
    pub(super) text: String,
}

pub(super) fn node(state: PowerState, capacity: Capacity) -> NodeObservation {
    NodeObservation::new(state, capacity)
}

pub(super) fn exact(per_s: f64) -> Capacity {
    Capacity::Exact(PerSecond::new(per_s))
}

impl World {
    pub(super) fn new(tuning: ElasticTuning, serving: usize, all: usize, capacity: Capacity) -> Self {
        let nodes = (0..all).map(|at| match at < serving {
            true => node(PowerState::Serving, capacity),
            false => node(PowerState::Off, Capacity::Unknown),
        });
        Self {
            law: law(tuning),
            at_s: 0,
            nodes: nodes.collect(),
            boots: vec![None; all],
            boot_s: 60,
            rule: String::new(),
            text: String::new(),
        }
    }

    /// A second of this load; how many servers are wanted after it.
    pub(super) fn second(&mut self, rate: Option<f64>) -> usize {
        self.at_s += 1;
        let observation = Observation {
            period: self.at_s,
            at: Seconds::new(self.at_s as f64),
            length: Seconds::new(1.0),
            demand: rate.map(PerSecond::new),
            nodes: self.nodes.clone(),
            ..Observation::default()
        };
        let decision = self.law.decide(&observation);
        let wanted = self.says(&decision);
        self.take_out(wanted, &decision.leave);
        self.obey(wanted, &decision.server_ranks);
        wanted
    }

    fn says(&mut self, decision: &Decision) -> usize {
        self.rule = decision.reasons[0].rule.to_string();
        self.text.clone_from(&decision.reasons[0].text);
        decision.setting.servers().unwrap()
    }

    /// What a fleet does with those that are taken out: one that drains is as one that is out, until it comes back.
    fn take_out(&mut self, wanted: usize, leave: &[Leave]) {
        let is_enough = self.taking() >= wanted;
        for (node, leave) in self.nodes.iter_mut().zip(leave) {
            match (node.state, leave) {
                (PowerState::Leaving, Leave::Replaced | Leave::OnTrial) if is_enough => {
                    node.state = PowerState::Maintenance;
                }
                (PowerState::Maintenance, Leave::Waits) => node.state = PowerState::Leaving,
                _ => {}
            }
        }
    }

    /// A second in which so many requests come and are answered and so many are in flight; how many servers are wanted after it.
    pub(super) fn busy(&mut self, requests: u64, in_flight: u64) -> usize {
        self.failing(requests, in_flight, 0)
    }

    /// The same, and so many fail.
    pub(super) fn failing(&mut self, requests: u64, in_flight: u64, failures: u64) -> usize {
        self.of_traffic(Traffic {
            arrivals: requests,
            completions: requests,
            in_flight: Some(in_flight),
            failures,
            ..Traffic::default()
        })
    }

    /// A second of this traffic; how many servers are wanted after it.
    fn of_traffic(&mut self, traffic: Traffic) -> usize {
        self.at_s += 1;
        let observation = Observation {
            period: self.at_s,
            at: Seconds::new(self.at_s as f64),
            length: Seconds::new(1.0),
            demand: Some(PerSecond::new(traffic.arrivals as f64)),
            traffic: Some(traffic),
            nodes: self.nodes.clone(),
            ..Observation::default()
        };
        let decision = self.law.decide(&observation);
        let wanted = self.says(&decision);
        self.take_out(wanted, &decision.leave);
        wanted
    }

    fn obey(&mut self, wanted: usize, ranks: &[u16]) {
        let capacity = self.nodes[0].capacity;
        for at in 0..self.nodes.len() {
            if self.boots[at].is_some_and(|since| self.at_s >= since + self.boot_s) {
                self.boots[at] = None;
                self.nodes[at] = node(PowerState::Serving, capacity);
            }
        }
        let on = |nodes: &[NodeObservation]| {
            let is_on =
                |node: &&NodeObservation| node.state.is_capacity() || node.state == PowerState::Booting;
            nodes.iter().filter(is_on).count()
        };
        let rank = |at: usize| ranks.get(at).copied().unwrap_or(0);
        while on(&self.nodes) < wanted {
            let off = (0..self.nodes.len()).filter(|at| self.nodes[*at].state == PowerState::Off);
            let Some(next) = off.min_by_key(|at| (rank(*at), *at)) else {
                break;
            };
            self.nodes[next].state = PowerState::Booting;
            self.boots[next] = Some(self.at_s);
        }
        while on(&self.nodes) > wanted {
            let serving = (0..self.nodes.len()).filter(|at| self.nodes[*at].state.is_capacity());
            let Some(last) = serving.max_by_key(|at| (rank(*at), *at)) else {
                break;
            };
            self.nodes[last] = node(PowerState::Off, Capacity::Unknown);
        }
    }

    pub(super) fn run(&mut self, seconds: u64, rate: f64) -> usize {
        (0..seconds).map(|_| self.second(Some(rate))).last().unwrap()
    }

    pub(super) fn taking(&self) -> usize {
        self.nodes.iter().filter(|node| node.state.is_capacity()).count()
    }
}

pub(super) fn wide() -> ElasticTuning {
    ElasticTuning {
        margin: 0.0,
        ..ElasticTuning::default()
    }
}

#[test]
fn a_surge_of_ten_starts_all_that_it_needs_in_its_first_second() {
    let mut world = World::new(wide(), 1, 10, exact(100.0));
    assert_eq!(world.run(120, 50.0), 1);
    assert!(world.second(Some(500.0)) >= 5, "{}", world.rule);
    assert_eq!(world.run(3, 500.0), 5);
    // The limit is the user's.
    let limited = ElasticTuning {
        starts_at_once: 2,
        ..wide()
    };
    let mut world = World::new(limited, 1, 10, exact(100.0));
    world.run(120, 50.0);
    assert_eq!(world.run(5, 500.0), 3);
    world.run(60, 500.0);
    assert_eq!(world.run(5, 500.0), 5);
}

/// By the paper's figures, a boot of 60 s and a shutdown of 60 s: (65 x 60 + 60 x 60) J / 60 W = 125 s.
#[test]
fn one_goes_only_when_it_was_not_needed_for_what_a_boot_is_worth() {
    let tuning = ElasticTuning {
        boot_s: 60.0,
        ..wide()
    };
    assert!((tuning.break_even_s(60.0) - 125.0).abs() < 1e-9);
    let mut world = World::new(tuning, 2, 3, exact(100.0));
    world.run(60, 150.0);
    let goes_after = (1..400).find(|_| world.second(Some(40.0)) < 2).unwrap();
    assert!((125..140).contains(&goes_after), "{goes_after} s");
    assert_eq!(world.rule, "shrink");
    // A cycle that costs more is waited for longer; one that saves nothing is never begun.
    let costly = |power| ElasticTuning { power, ..wide() };
    let power = crate::resize::ServerPower {
        booting_w: 650.0,
        ..Default::default()
    };
    assert!(costly(power).break_even_s(60.0) > 600.0);
    let power = crate::resize::ServerPower {
        off_w: 60.0,
        ..Default::default()
    };
    assert_eq!(costly(power).break_even_s(60.0), f64::INFINITY);
    let mut world = World::new(costly(power), 2, 2, exact(100.0));
    assert_eq!(world.run(5_000, 1.0), 2);
}

/// 46 a second against 45: seven shrinks in 45 s by the law as published.
#[test]
fn a_constant_load_at_the_edge_of_a_server_makes_none_come_and_go() {
    let mut world = World::new(wide(), 2, 3, exact(45.0));
    let mut changes = 0;
    let mut last = 2;
    let mut roll = 1_u64;
    for second in 0..7_200 {
        roll = roll.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let noise = ((roll >> 33) % 2_001) as f64 / 1_000.0 - 1.0;
        // A uniform noise with the deviation of a Poisson count.
        let wanted = world.second(Some(46.0 + noise * (3.0 * 46.0_f64).sqrt()));
        if second > 600 {
            changes += u32::from(wanted != last);
        }
        last = wanted;
    }
    assert_eq!(changes, 0);
}

#[test]
fn servers_that_are_lost_are_replaced_and_an_outage_is_not_no_demand() {
    let mut world = World::new(wide(), 6, 12, exact(50.0));
    world.run(300, 270.0);
    assert_eq!(world.taking(), 6);
    // Four die; what is counted falls with them.
    for at in 2..6 {
        world.nodes[at].state = PowerState::Failed(Cause::Lost);
    }
    assert_eq!(world.second(Some(100.0)), 6);
    // The others too, and nothing arrives anywhere.
    for at in 0..2 {
        world.nodes[at].state = PowerState::Failed(Cause::Lost);
    }
    world.boots = vec![None; 12];
    for node in &mut world.nodes[6..] {
        node.state = PowerState::Off;
    }
    assert!(world.second(Some(0.0)) >= 6, "{}", world.rule);
    assert_eq!(world.rule, "outage");
    // A controller that begins in an outage knows nothing: all.
    let mut world = World::new(wide(), 0, 12, exact(50.0));
    assert_eq!(world.second(Some(0.0)), 12);
}

#[test]
fn a_boot_that_hangs_is_not_waited_for() {
    let mut world = World::new(wide(), 1, 4, exact(100.0));
    world.law.boot_s = 60.0;
    world.boot_s = 10_000;
    world.run(60, 50.0);
    assert_eq!(world.run(90, 150.0), 2);
    let again_after = (1..100).find(|_| world.second(Some(150.0)) == 3).unwrap();
    // 1.5 times a boot and three seconds after it was ordered.
    assert!(again_after <= 13, "{again_after}");
}

#[test]
fn as_many_as_the_user_asks_for_may_be_lost() {
    let reserve = |reserve, survive_zone| ElasticTuning {
        reserve,
        survive_zone,
        // What the load may grow to is another question.
        exceeded: 0.5,
        servers: (0..6)
            .map(|at| ServerTraits {
                zone: at % 2,
                ..ServerTraits::default()
            })
            .collect(),
        ..wide()
    };
    let settled = |tuning| World::new(tuning, 6, 6, exact(100.0)).run(3_000, 150.0);
    assert_eq!(settled(reserve(0, false)), 2);
    assert_eq!(settled(reserve(1, false)), 3);
    assert_eq!(settled(reserve(2, false)), 4);
    // Two zones, each with two.
    assert_eq!(settled(reserve(0, true)), 4);
}

#[test]
fn servers_have_capacities_of_their_own_and_the_least_per_watt_goes_first() {
    let mut world = World::new(
        ElasticTuning {
            exceeded: 0.5,
            servers: [65.0, 65.0, 130.0]
                .map(|watts| ServerTraits {
                    full: Some(Watts::new(watts)),
                    ..ServerTraits::default()
                })
                .to_vec(),
            ..wide()
        },
        3,
        3,
        exact(100.0),
    );
    // The first is the smaller one, the last takes as much for twice the power.
    world.nodes[0].capacity = exact(50.0);
    world.run(3_000, 120.0);
    assert_eq!(world.taking(), 2);
    let states: Vec<bool> = world
        .nodes
        .iter()
        .map(|node| node.state.takes_requests())
        .collect();
    // By power the second is best; the first and the third are alike, 0.77 requests a joule, and the one last in the list goes.
    assert_eq!(states, [true, true, false]);
}

#[test]
fn one_that_does_the_same_for_fewer_watts_is_started_first_and_nothing_alternates() {
    let watts = |watts: f64| ServerTraits {
        full: Some(Watts::new(watts)),
        ..ServerTraits::default()
    };
    let tuning = |thrifty: f64| ElasticTuning {
        boot_s: 60.0,
        exceeded: 0.5,
        servers: vec![watts(130.0), watts(130.0), watts(thrifty)],
        ..wide()
    };
    let swapped = |thrifty: f64, seconds: u64| {
        let mut world = World::new(tuning(thrifty), 2, 3, exact(100.0));
        let (mut fewest, mut changes, mut on) = (3, 0, 2);
        for _ in 0..seconds {
            let wanted = world.second(Some(150.0));
            changes += u32::from(wanted != on);
            (fewest, on) = (fewest.min(world.taking()), wanted);
        }
        (world.nodes[2].state, fewest, changes)
    };
    // (65 x 60 + 130/65 x 60 x 60) J / 60 W are 185 s, and then the boot.
    assert_eq!(swapped(65.0, 180), (PowerState::Off, 2, 0));
    assert_eq!(swapped(65.0, 220), (PowerState::Booting, 2, 1));
    assert_eq!(swapped(65.0, 280), (PowerState::Serving, 2, 2));
    // Never back, and never for what is hardly better.
    assert_eq!(swapped(65.0, 8_000), (PowerState::Serving, 2, 2));
    assert_eq!(swapped(120.0, 8_000).2, 0);
}

#[test]
fn without_any_limit_known_one_is_drained_on_trial() {
    let bound = Capacity::LowerBound(PerSecond::new(4.0));
    let mut world = World::new(wide(), 3, 3, bound);
    // Servers that would never show it: nothing is tried.
    assert_eq!(world.run(2_000, 12.0), 3);
    let busy = |world: &mut World, in_flight: u64| world.busy(12, in_flight);
    // What a request usually takes must be known first.
    let probes_after = (1..60).find(|_| busy(&mut world, 2) == 2).unwrap();
    assert!(
        probes_after > 5 && world.rule == "probe",
        "{probes_after} {}",
        world.rule
    );
    world.nodes[2].state = PowerState::Draining;
    for _ in 0..10 {
        assert_eq!((busy(&mut world, 2), world.rule.as_str()), (2, "probing"));
    }
    // Requests take five times as long: it comes back, and is left alone for a while. No limit is made of that.
    let back_after = (1..15).find(|_| busy(&mut world, 10) == 3).unwrap();
    assert!(
        back_after <= 10 && world.rule == "probe-failed",
        "{back_after} {}",
        world.rule
    );
    assert!(!world.law.takes.proven);
    world.nodes[2].state = PowerState::Serving;
    for _ in 0..590 {
        assert_eq!(busy(&mut world, 2), 3, "{}", world.rule);
    }
}

#[test]
fn a_trial_waits_for_what_a_boot_is_worth_after_the_last_and_shows_nothing_in_a_lull() {
    let bound = Capacity::LowerBound(PerSecond::new(20.0));
    let mut world = World::new(wide(), 5, 5, bound);
    let worth_s = world.law.tuning.break_even_s(world.law.boot_s) as u64;
    let mut begun = Vec::new();
    for second in 0..2_000 {
        // A lull of a minute, in which trials begun before do not end.
        let requests = if second % 500 >= 440 { 30 } else { 70 };
        // It takes some seconds until it is seen.
        let is_lull = second % 500 >= 450;
        let rule_before = world.rule.clone();
        let wanted = world.busy(requests, 2 * requests / 10);
        match world.rule.as_str() {
            "probe" => {
                assert!(!is_lull, "begun in a lull, at {second} s");
                begun.push(world.at_s);
                world.nodes[wanted].state = PowerState::Draining;
            }
            "probe-passed" => {
                assert!(!is_lull && rule_before == "probing", "{second} s, {rule_before}");
                world.nodes[wanted].state = PowerState::Off;
            }
            _ => {}
        }
    }
    assert!(begun.len() >= 2, "{begun:?}");
    for pair in begun.windows(2) {
        assert!(pair[1] - pair[0] >= worth_s, "{begun:?}, worth {worth_s} s");
    }
}

/// Clients that reset at once are accepted and served in no time: three servers of 25/s that take 60/s seem to take ten times that.
#[test]
fn a_bound_that_contradicts_a_limit_that_was_met_makes_none_go_but_on_trial() {
    let mut world = World::new(wide(), 3, 3, exact(25.0));
    for _ in 0..200 {
        world.busy(60, 12);
    }
    for node in &mut world.nodes {
        node.capacity = Capacity::LowerBound(PerSecond::new(219.7));
    }
    let goes_after = (1..1_000).find(|_| world.busy(60, 12) < 3).unwrap();
    assert_eq!(
        (world.rule.as_str(), world.taking()),
        ("probe", 3),
        "{goes_after}"
    );
    world.nodes[2].state = PowerState::Draining;
    for node in &mut world.nodes[..2] {
        node.capacity = exact(25.0);
    }
    assert_eq!((world.busy(60, 20), world.rule.as_str()), (3, "probe-failed"));
    world.nodes[2].state = PowerState::Serving;
    for _ in 0..500 {
        assert_eq!(world.busy(60, 12), 3, "{}", world.rule);
    }
    // One that has become faster for good is found so.
    let mut world = World::new(wide(), 3, 3, exact(25.0));
    for _ in 0..200 {
        world.busy(60, 12);
    }
    for node in &mut world.nodes {
        node.capacity = Capacity::LowerBound(PerSecond::new(100.0));
    }
    assert!((1..1_000).any(|_| world.busy(60, 3) < 3));
    world.nodes[2].state = PowerState::Draining;
    assert!((1..100).any(|_| {
        assert_eq!(world.busy(60, 3), 2, "{}", world.rule);
        world.rule == "probe-passed"
    }));
}

/// Clients that leave parts of requests: what is said then is not sure, and as much too high as the bound that it follows.
#[test]
fn lost_telemetry_costs_energy_and_never_latency() {
    let mut world = World::new(wide(), 2, 5, exact(100.0));
    world.run(100, 150.0);
    for _ in 0..11 {
        assert_eq!(world.second(None), 2);
    }
    assert_eq!(world.second(None), 5);
}

proptest! {
    /// Whatever comes: the number is within the cluster, and never under what the servers that are known need for a mean load.
    #[test]
    fn what_comes_is_provided_for(
        rates in proptest::collection::vec(0.0..900.0_f64, 1..12),
        capacity in 20.0..200.0_f64,
        reserve in 0..3usize,
    ) {
        let tuning = ElasticTuning { reserve, ..ElasticTuning::default() };
        let mut world = World::new(tuning, 4, 12, exact(capacity));
        for rate in rates {
            let mut wanted = 0;
            for _ in 0..120 {
                wanted = world.second(Some(rate));
                prop_assert!((1..=12).contains(&wanted));
            }
            let needed = (rate / (0.9 * capacity)).ceil() as usize + reserve;
            prop_assert!(wanted >= needed.min(12), "{wanted} of {needed} for {rate}: {}", world.rule);
        }
    }
}

/// A second in which these requests come and are answered, with this percentile, and so many are in flight.
fn answered(world: &mut World, requests: u64, in_flight: u64, at_slo_s: f64, missed: bool) -> usize {
    let latency = crate::observation::Latency {
        at_slo: Seconds::new(at_slo_s),
        missed,
        distribution: None,
    };
    let traffic = Traffic {
        arrivals: requests,
        completions: requests,
        in_flight: Some(in_flight),
        latency: (requests > 0).then_some(latency),
        ..Traffic::default()
    };
    world.of_traffic(traffic)
}

#[test]
fn streams_beside_requests_that_users_have_in_time_are_no_difficulty_and_show_no_limit() {
    let bound = Capacity::LowerBound(PerSecond::new(4.0));
    let mut world = World::new(wide(), 1, 3, bound);
    for _ in 0..200 {
        assert_eq!(answered(&mut world, 3, 1, 0.2, false), 1);
    }
    // Sixty are opened within half a minute, and stay; now and then nothing is answered in a second.
    for second in 0..600 {
        let requests = if second % 20 == 7 { 0 } else { 3 };
        // Or a stream ends, which is the percentile of so few.
        let at_slo_s = if second % 10 == 3 { 90.0 } else { 0.2 };
        let wanted = answered(&mut world, requests, 1 + (2 * second).min(60), at_slo_s, false);
        assert_eq!(wanted, 1, "{second} s: {}", world.text);
    }
    assert!(!world.law.takes.proven);
    // Where they are late that is difficulty.
    let grown = (1..10).find(|_| answered(&mut world, 3, 61, 1.2, false) == 2);
    assert!(grown.is_some_and(|after| after <= 4), "{grown:?}");
    assert!(world.law.takes.proven);
}

#[test]
fn what_is_answered_beside_what_fails_is_no_limit() {
    let bound = Capacity::LowerBound(PerSecond::new(4.0));
    let mut world = World::new(wide(), 2, 3, bound);
    for second in 0..260 {
        match second < 200 {
            true => answered(&mut world, 12, 2, 0.2, false),
            false => answered(&mut world, 6, 2, 2.0, true),
        };
    }
    assert!(!world.law.takes.proven, "{}", world.text);
}
