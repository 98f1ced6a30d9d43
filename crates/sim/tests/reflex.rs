//! The reflex between two decisions: raised within a period, once, by the newest decision alone, and never lowered.

use headroom_control::{
    Allocation, Decision, Guardian, Law, LawConfig, LawContext, LawName, Observation, Plant, Reason, Reflex,
};
use headroom_sim::{Bare, Scenario, Totals, run};
use headroom_units::{Cores, Lever, Seconds, Setting};
use headroom_workload::{ArrivalProcess, Spacing};
use proptest::prelude::*;

/// Few cores, and everything when a bound is passed.
struct Careless {
    plant: Plant,
    cores: f64,
    bound: Option<u64>,
    oldest: Option<Seconds>,
}

impl Law for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores, Lever::Cap, Lever::Frequency]
    }
    fn decide(&mut self, _: &Observation) -> Decision {
        let full = self.plant.full_allocation();
        Decision {
            setting: Setting::from(Allocation {
                cores: Cores::new(self.cores),
                ..full
            }),
            expected_rate: None,
            reflex: self.bound.map(|bound| Reflex {
                bound,
                oldest: self.oldest,
                setting: full.into(),
            }),
            reasons: vec![Reason::new("careless", String::new(), &[])],
            ..Decision::default()
        }
    }
    fn forget(&mut self) {}
}

/// Ten minutes of periods of 5 s; in every minute two seconds of ten times the load.
fn bursts() -> Scenario {
    let mut rates = vec![20.0; 600];
    for minute in 0..10 {
        rates[minute * 60 + 31] = 400.0;
        rates[minute * 60 + 32] = 400.0;
    }
    let mut scenario = Scenario::default().with_trace(rates, Seconds::new(1.0), Spacing::Poisson);
    scenario.service.period_s = 5.0;
    scenario.allow_overload = true;
    scenario
}

/// The run, and the most reflexes that a period reported.
fn run_with(scenario: &Scenario, bound: Option<u64>, oldest: Option<Seconds>) -> (Totals, u32) {
    let plant = scenario.plant().unwrap();
    let mut law = Careless {
        plant,
        cores: 9.0,
        bound,
        oldest,
    };
    let mut most = 0;
    let totals = run(scenario, &mut Bare(&mut law), 7, &mut |outcome| {
        let observation = outcome.observation;
        most = most.max(observation.reflexes);
        if observation.reflexes > 0 {
            assert_eq!(observation.in_force.cores(), Some(plant.cores().max()));
        }
    })
    .unwrap();
    (totals, most)
}

#[test]
fn a_burst_between_two_decisions_is_met_within_the_period() {
    let scenario = bursts();
    let (without, none) = run_with(&scenario, None, None);
    let (with, most) = run_with(&scenario, Some(20), None);
    assert_eq!((without.reflexes, none, most), (0, 0, 1));
    assert!((8..=20).contains(&with.reflexes), "{}", with.reflexes);
    assert!(without.periods_over >= 8, "{}", without.periods_over);
    assert!(
        with.periods_over * 2 < without.periods_over,
        "{} of {}",
        with.periods_over,
        without.periods_over
    );
    // Once at most of each decision, and the next one takes the cores back.
    assert!(with.cores_mean < without.cores_mean * 2.0);
}

#[test]
fn age_alone_fires_it_too() {
    let (with, _) = run_with(&bursts(), Some(u64::MAX), Some(Seconds::new(0.6)));
    assert!(with.reflexes >= 8, "{}", with.reflexes);
}

#[test]
fn a_reflex_of_an_earlier_decision_does_nothing() {
    let mut scenario = bursts();
    scenario.delays.reflex_s = 6.0;
    let (late, most) = run_with(&scenario, Some(20), Some(Seconds::new(0.6)));
    let (without, _) = run_with(&scenario, None, None);
    assert_eq!((late.reflexes, most), (0, 0));
    assert_eq!(late.energy, without.energy);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Whatever the bounds are: no more than once a decision, and the accounts come out right, for a run that ends has
    /// checked them.
    #[test]
    fn it_fires_at_most_once_a_decision(
        bound in 0u64..60,
        oldest in proptest::option::of(0.0..1.0f64),
        delay_s in 0.0..0.3f64,
        rate in 10.0..300.0f64,
    ) {
        let mut scenario = Scenario {
            arrivals: ArrivalProcess::Poisson { rate_per_s: rate },
            duration_s: Some(60.0),
            allow_overload: true,
            ..Scenario::default()
        };
        scenario.delays.reflex_s = delay_s;
        let (totals, most) = run_with(&scenario, Some(bound), oldest.map(Seconds::new));
        prop_assert!(most <= 1);
        prop_assert!(totals.reflexes <= totals.periods);
    }
}

/// What the bounds of a law's reflexes were over an hour of a load that has no bursts.
#[derive(Debug)]
struct Calm {
    /// Periods with a bound, and reflexes.
    periods: usize,
    alarms: u64,
    /// The median of bounds over the requests that are in flight on average then.
    times: f64,
}

/// An hour with so much load on so many nodes, under this SLO.
fn calm(law: &str, nodes: u32, rate_per_s: f64, target_ms: f64) -> Calm {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s },
        duration_s: Some(3600.0),
        ..Scenario::default()
    };
    scenario.service.target_ms = target_ms;
    scenario.nodes[0].count = nodes;
    let plant = scenario.plant().unwrap();
    let context = LawContext {
        slo: scenario.slo().unwrap(),
        plant,
        service_rate: scenario.service_rate(),
        machines: scenario.machines(),
    };
    let law = LawConfig::of(law.parse::<LawName>().unwrap())
        .build(&context)
        .unwrap();
    let mut law = Guardian::new(law, plant, 5);
    let (mut times, mut bound) = (Vec::new(), None);
    let totals = run(&scenario, &mut law, 11, &mut |outcome| {
        let observation = outcome.observation;
        let traffic = observation.traffic.as_ref();
        let usual = traffic
            .and_then(|traffic| traffic.mean_in_flight(observation.length))
            .unwrap_or(0.0);
        // The first periods learn.
        if observation.period > 300
            && let Some(bound) = bound
        {
            times.push(bound / usual.max(1.0));
        }
        bound = outcome.decision.reflex.map(|reflex| reflex.bound as f64);
    });
    let totals = totals.unwrap();
    times.sort_by(f64::total_cmp);
    Calm {
        periods: times.len(),
        alarms: totals.reflexes,
        times: times[times.len() / 2],
    }
}

#[test]
fn a_calm_hour_has_few_alarms_and_bounds_near_what_is_usual() {
    for (law, nodes, target_ms, most_times) in [
        ("headroom", 1, 250.0, 4.8),
        ("headroom", 1, 1500.0, 3.4),
        ("headroom", 8, 250.0, 2.1),
        ("joint", 8, 1500.0, 1.75),
    ] {
        let calm = calm(law, nodes, 60.0 * f64::from(nodes), target_ms);
        let what = format!("{law}, {nodes} nodes, {target_ms} ms: {calm:?}");
        assert!(calm.periods > 3000, "{what}");
        // A false alarm in a hundred periods is what the law asks for.
        assert!((calm.alarms as f64) < 0.013 * calm.periods as f64, "{what}");
        assert!(calm.times < most_times, "{what}");
    }
}
