//! The clairvoyant bound: below every run that keeps the promise, and achieved by a schedule that does.

use headroom_control::resize::PowerTuning;
use headroom_control::{Decision, Fixed, Guardian, Law, Observation, Plant, Reason, SloPower, Tuning};
use headroom_sim::bound::{clairvoyant, least, lower_bound};
use headroom_sim::scenario::NodeGroup;
use headroom_sim::{Bare, Fault, Scenario, Totals, run};
use headroom_units::{Hertz, Joules, Lever, Ratio, Seconds, Setting};
use headroom_workload::{ArrivalProcess, Shape, Spacing};
use proptest::prelude::*;

/// As many of the periods may be late as the joint law may have by default.
const LATE: Ratio = Ratio::new(0.005);

fn scenario() -> Scenario {
    let rates = (0..12).map(|hour| 140.0 + 90.0 * f64::from(hour).sin()).collect();
    Scenario::paper().with_trace(rates, Seconds::new(10.0), Spacing::Poisson)
}

#[test]
fn the_bound_encloses_what_is_possible() {
    let scenario = scenario();
    let plant = scenario.plant().unwrap();
    for seed in [1, 2] {
        let bound = clairvoyant(&scenario, seed, 4, LATE).unwrap();
        assert_eq!(bound.least.any, lower_bound(&scenario, seed).unwrap());
        assert_eq!(
            bound.totals.periods_over, 0,
            "the schedule keeps the SLO in every period"
        );
        assert_eq!(bound.schedule.len() as u64, scenario.periods() - 1);
        let gap = bound.gap().get();
        println!(
            "seed {seed}: at least {:.1}, {:.1} achieved, gap {gap:.4}",
            bound.least.prompt, bound.totals.energy
        );
        assert!((0.0..0.05).contains(&gap), "{gap}");
        let mut fixed = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
        let free = run(&scenario, &mut fixed, seed, &mut |_| {}).unwrap();
        let slo = scenario.slo().unwrap();
        let law = SloPower::new(slo, plant, scenario.service_rate(), Tuning::default()).unwrap();
        let saved = run(
            &scenario,
            &mut Guardian::new(Box::new(law), plant, 5),
            seed,
            &mut |_| {},
        )
        .unwrap();
        println!("fixed {:.1}, slo-power {:.1}", free.energy, saved.energy);
        assert!(bound.totals.energy < saved.energy && bound.totals.energy < free.energy);
    }
}

#[test]
fn a_wider_search_finds_no_worse() {
    let scenario = Scenario {
        duration_s: Some(40.0),
        ..scenario()
    };
    let found = |width| {
        clairvoyant(&scenario, 3, width, LATE)
            .unwrap()
            .totals
            .energy
            .get()
    };
    let (narrow, wide) = (found(1), found(12));
    println!("{narrow} {wide}");
    assert!(wide <= narrow * 1.001, "{narrow} {wide}");
}

#[test]
fn what_no_bound_is_defined_for_is_refused() {
    let think = Shape::Exponential {};
    let sessions = Scenario {
        arrivals: ArrivalProcess::Sessions {
            users: 3,
            think_s: 1.0,
            think,
        },
        ..Scenario::paper()
    };
    assert_eq!(lower_bound(&sessions, 1).unwrap_err().key, "arrivals.kind");
    let faults = vec![Fault::TelemetryLost {
        at_s: 1.0,
        until_s: 2.0,
    }];
    let faulty = Scenario { faults, ..scenario() };
    assert!(
        clairvoyant(&faulty, 1, 1, LATE)
            .unwrap_err()
            .to_string()
            .starts_with("faults: is not empty")
    );
    assert_eq!(least(&faulty, 1, LATE).unwrap_err().key, "faults");
    // Where nodes are slow at times, no schedule needs less than where they are not.
    let slowed = Scenario {
        faults: vec![Fault::SlowNode {
            node: 1,
            factor: 0.5,
            at_s: 10.0,
            until_s: 60.0,
        }],
        ..scenario()
    };
    assert_eq!(least(&slowed, 1, LATE), least(&scenario(), 1, LATE));
    let mut slow = scenario();
    slow.delays.cores_s = 1.0;
    let refused = clairvoyant(&slow, 1, 1, LATE).unwrap_err().to_string();
    assert!(
        refused.starts_with("delays.cores_s: is 1: ") && refused.contains("less than service.period_s, 1"),
        "{refused}"
    );
    // No schedule is sought for the other side, which holds whatever the delays are.
    assert_eq!(lower_bound(&slow, 1), lower_bound(&scenario(), 1));
}

/// Servers of eight cores that can be switched, and a load that is steady, or one that comes and goes.
fn switched(servers: u32, rates_per_s: Vec<f64>) -> Scenario {
    let nodes = vec![NodeGroup {
        count: servers,
        cores: 8.0,
        ..NodeGroup::default()
    }];
    let scenario = Scenario {
        nodes,
        power_states: Some(PowerTuning::default()),
        ..Scenario::default()
    };
    scenario.with_trace(rates_per_s, Seconds::new(300.0), Spacing::Poisson)
}

/// So many servers at such a limit, in turn, each held for some periods.
struct InTurn {
    plant: Plant,
    settings: Vec<(f64, Option<f64>)>,
    each: u64,
}

impl Law for InTurn {
    fn name(&self) -> &'static str {
        "in-turn"
    }
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers, Lever::Frequency]
    }
    fn decide(&mut self, observation: &Observation) -> Decision {
        let at = (observation.period / self.each) as usize % self.settings.len();
        let (servers, gigahertz) = self.settings[at];
        let range = self.plant.frequency().unwrap();
        let limit = gigahertz.map(|ghz| range.round_down(Hertz::new(ghz * 1e9)).get());
        let setting: Setting = self.plant.full().with(Lever::Servers, Some(servers));
        Decision {
            reasons: vec![Reason::new("in-turn", String::new(), &[])],
            ..Decision::of(setting.with(Lever::Frequency, limit))
        }
    }
    fn forget(&mut self) {}
}

/// 5.4 servers' worth of a steady load: no schedule needs much less than six servers at full speed do, which just keep the SLO.
#[test]
fn whole_servers_and_the_slo_bring_the_bound_near_what_is_achieved() {
    let scenario = switched(10, vec![1036.0; 4]);
    let plant = scenario.plant().unwrap();
    let mut law = InTurn {
        plant,
        settings: vec![(6.0, None)],
        each: 1,
    };
    let totals = run(&scenario, &mut Bare(&mut law), 1, &mut |_| {}).unwrap();
    let least = least(&scenario, 1, LATE).unwrap();
    let (achieved, prompt, any) = (totals.energy.get(), least.prompt.get(), least.any.get());
    println!(
        "{achieved:.0} achieved, {prompt:.0} and {any:.0} at least, {:?} late",
        totals.share_over()
    );
    assert!(least.standing < least.any);
    assert!(any < 0.97 * prompt, "{any} {prompt}");
    assert!((0.95..=1.0).contains(&(prompt / achieved)), "{prompt} {achieved}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No schedule that keeps the SLO is under the bound, whatever it switches and when.
    #[test]
    fn no_schedule_that_keeps_the_slo_is_under_the_bound(
        settings in prop::collection::vec((1u32..=4, prop::option::of(0.8..2.1f64)), 1..6),
        rates in prop::collection::vec(5.0..500.0f64, 1..5),
        each in 40u64..400,
        mixed in any::<bool>(),
        seed in 0u64..100,
    ) {
        let mut scenario = switched(if mixed { 2 } else { 4 }, rates);
        if mixed {
            scenario.nodes.push(NodeGroup {
                count: 2,
                cores: 12.0,
                speed: 0.7,
                machine: headroom_sim::power::Machine::Broadwell {},
                ..NodeGroup::default()
            });
        }
        let plant = scenario.plant().unwrap();
        let settings = settings.into_iter().map(|(servers, ghz)| (f64::from(servers), ghz)).collect();
        let mut law = InTurn { plant, settings, each };
        let totals = run(&scenario, &mut Bare(&mut law), seed, &mut |_| {}).unwrap();
        let least = least(&scenario, seed, LATE).unwrap();
        prop_assert!(least.any <= least.prompt);
        let late = totals.share_over().map_or(0.0, |share| share.get());
        // Cases that keep the SLO are drawn until there are as many as are asked for.
        prop_assume!(late <= LATE.get() && totals.failed == 0);
        prop_assert!(totals.energy >= least.prompt, "{} under {}", totals.energy, least.prompt);
    }
}

#[test]
fn requests_of_a_server_switched_off_by_the_last_decision_are_counted_as_failed() {
    // One server has more to do than it can, and the decision on the last period, as on each 119th, is to switch.
    let scenario = switched(4, vec![361.2678312936924]);
    let mut law = InTurn {
        plant: scenario.plant().unwrap(),
        settings: vec![(1.0, None), (2.0, None)],
        each: 119,
    };
    let totals = run(&scenario, &mut Bare(&mut law), 0, &mut |_| {}).unwrap();
    assert!(totals.failed > 0, "{totals:?}");
    assert_eq!(
        totals.offered,
        totals.completed + totals.failed + totals.in_flight
    );
}

/// A run with so many servers on at full speed, and what it needs at least, joules.
fn beside_its_bound(scenario: &Scenario, servers: f64) -> (Totals, Joules) {
    let mut law = InTurn {
        plant: scenario.plant().unwrap(),
        settings: vec![(servers, None)],
        each: 1,
    };
    let totals = run(scenario, &mut Bare(&mut law), 1, &mut |_| {}).unwrap();
    let least = least(scenario, 1, LATE).unwrap().prompt;
    println!(
        "{} of {} late, {:.0}, at least {least:.0}",
        totals.periods_over, totals.periods, totals.energy
    );
    (totals, least)
}

#[test]
fn no_run_that_keeps_the_slo_is_under_the_bound_however_short() {
    for length_s in [20.0, 30.0, 31.0, 40.0, 80.0, 160.0] {
        let scenario = Scenario {
            duration_s: Some(length_s),
            ..switched(4, vec![40.0])
        };
        let (totals, least) = beside_its_bound(&scenario, 1.0);
        assert_eq!(totals.periods_over, 0);
        assert!(totals.energy >= least, "{length_s} s");
    }
}

#[test]
fn where_everything_on_is_late_the_bound_is_not_over_what_that_needs() {
    // For a third of the time more comes than can be served, and all of it is done within two targets.
    let rates_per_s = [[820.0, 500.0, 500.0]; 10].concat();
    let scenario = switched(4, Vec::new()).with_trace(rates_per_s, Seconds::new(10.0), Spacing::Poisson);
    let (totals, least) = beside_its_bound(&scenario, 4.0);
    assert!(totals.periods_over > 3 && totals.energy >= least);
}
