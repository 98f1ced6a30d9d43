//! The autoscalers over whole periods, on the SLO-Power authors' cluster: 6 to 48 cores in whole steps.

use headroom_control::hpa::Metric;
use headroom_control::hpa::behaviour::Rules;
use headroom_control::*;
use headroom_units::*;

fn plant(min: f64, max: f64, step: f64) -> Plant {
    crate::common::plant([min, max, step], [139.56, 2.86, 100.0])
}

fn cluster() -> Plant {
    plant(6.0, 48.0, 1.0)
}

/// A law with the machine it runs on: what it decides is in force in the next period.
struct World<L> {
    law: L,
    period: u64,
    in_force: Setting,
}

impl<L: Law> World<L> {
    fn new(law: L, cores: f64) -> Self {
        let in_force = cluster().full().with(Lever::Cores, Some(Cores::new(cores).get()));
        Self {
            law,
            period: 0,
            in_force,
        }
    }

    /// One second with so many busy cores and arrivals.
    fn second(&mut self, busy_cores: Option<f64>, arrivals: u64) -> Decision {
        let cores = self.in_force.cores().unwrap().get();
        let seen = Observation {
            period: self.period,
            length: Seconds::new(1.0),
            in_force: self.in_force,
            traffic: Some(Traffic {
                arrivals,
                completions: arrivals,
                ..Traffic::default()
            }),
            utilisation: busy_cores.map(|busy| Ratio::new((busy / cores).min(1.0))),
            ..Observation::default()
        };
        self.period += 1;
        let decision = self.law.decide(&seen);
        self.in_force = decision.setting;
        decision
    }

    /// The cores after each of so many decisions, at a constant load.
    fn course(&mut self, busy_cores: f64, seconds_each: u32, decisions: u32) -> Vec<f64> {
        let decision = |_| {
            for _ in 0..seconds_each {
                self.second(Some(busy_cores), 100);
            }
            self.in_force.cores().unwrap().get()
        };
        (0..decisions).map(decision).collect()
    }
}

fn rules(decision: &Decision) -> Vec<&str> {
    decision.reasons.iter().map(|reason| &*reason.rule).collect()
}

fn hpa(tuning: HpaTuning) -> Hpa {
    Hpa::new(cluster(), PerSecond::new(24.0), tuning).unwrap()
}

#[test]
fn it_looks_every_15_seconds_and_scales_up_at_once_within_the_rate() {
    let mut world = World::new(hpa(HpaTuning::default()), 6.0);
    for _ in 0..14 {
        assert_eq!(rules(&world.second(Some(6.0), 100)), ["between-syncs"]);
    }
    let decision = world.second(Some(6.0), 100);
    // 100 % of 80 %: ceil(1.25 x 6) = 8.
    assert_eq!(rules(&decision), ["scale-up"]);
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(8.0));
    assert_eq!(decision.setting.cap().unwrap(), cluster().full().cap().unwrap());
    // 20 busy cores: each look sees all busy, until 25 = ceil(20 / 0.8).
    assert_eq!(world.course(20.0, 15, 6), [10.0, 13.0, 17.0, 22.0, 25.0, 25.0]);
}

#[test]
fn it_scales_down_after_300_seconds_and_then_all_the_way() {
    let mut world = World::new(hpa(HpaTuning::default()), 40.0);
    let course = world.course(8.0, 15, 22);
    // The first look is at 15 s, and the 40 of then are 300 s old at the 21st, at 315 s.
    assert!(course[..20].iter().all(|cores| *cores == 40.0), "{course:?}");
    assert_eq!(course[20..], [10.0, 10.0]);
}

#[test]
fn a_dip_of_less_than_the_window_changes_nothing() {
    let mut world = World::new(hpa(HpaTuning::default()), 30.0);
    world.course(24.0, 15, 20);
    let course = world.course(6.0, 15, 19);
    assert!(course.iter().all(|cores| *cores == 30.0), "{course:?}");
    assert_eq!(world.course(24.0, 15, 4), [30.0; 4]);
}

#[test]
fn a_metric_that_is_missing_takes_nothing_away() {
    let without_window = HpaTuning {
        down: Rules {
            stabilisation_window_s: Some(0.0),
            ..Rules::default()
        },
        ..HpaTuning::default()
    };
    let mut world = World::new(hpa(without_window.clone()), 20.0);
    for _ in 0..14 {
        world.second(None, 100);
    }
    assert_eq!(rules(&world.second(None, 100)), ["hold-unobserved"]);
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(20.0));
    // With two metrics, the one that is there may ask for more but not for fewer: 24/s x 0.8 = 19.2 a pod.
    let both = HpaTuning {
        metrics: vec![Metric::Utilisation, Metric::Requests],
        ..without_window
    };
    let mut world = World::new(hpa(both), 20.0);
    for (arrivals, rule, cores) in [(100, "hold-unobserved", 20.0), (576, "scale-up", 30.0)] {
        for _ in 0..14 {
            world.second(None, arrivals);
        }
        assert_eq!(rules(&world.second(None, arrivals)), [rule]);
        assert_eq!(world.in_force.cores().unwrap(), Cores::new(cores));
    }
    // Both there: the larger proposal counts, 30 for the requests against 5 for the utilisation.
    for _ in 0..14 {
        world.second(Some(4.0), 576);
    }
    assert_eq!(rules(&world.second(Some(4.0), 576)), ["within-tolerance"]);
}

#[test]
fn requests_per_pod_are_a_metric_of_their_own() {
    let tuning = HpaTuning {
        metrics: vec![Metric::Requests],
        target_requests_per_pod_s: Some(10.0),
        ..HpaTuning::default()
    };
    let mut world = World::new(hpa(tuning), 10.0);
    for _ in 0..15 {
        world.second(Some(1.0), 200);
    }
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(20.0));
}

#[test]
fn pods_that_are_not_ready_slow_the_way_up() {
    let tuning = HpaTuning {
        pod_start_s: 60.0,
        ..HpaTuning::default()
    };
    let mut world = World::new(hpa(tuning), 8.0);
    assert_eq!(world.course(8.0, 15, 1), [10.0]);
    // The two new ones count as idle: 8 ready ones at 125 %, so that 10 pods at the mean serve what is asked.
    let mut at_sync = World {
        law: world.law.clone(),
        ..world
    };
    for _ in 0..14 {
        at_sync.second(Some(8.0), 100);
    }
    assert_eq!(rules(&at_sync.second(Some(8.0), 100)), ["within-tolerance"]);
}

#[test]
fn pods_of_several_cores_move_together() {
    let tuning = HpaTuning {
        cores_per_pod: Some(16.0),
        ..HpaTuning::default()
    };
    let mut world = World::new(hpa(tuning.clone()), 16.0);
    assert_eq!(world.course(16.0, 15, 1), [32.0]);
    let error = |tuning| {
        Hpa::new(cluster(), PerSecond::new(24.0), tuning)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(HpaTuning {
            cores_per_pod: Some(2.5),
            ..HpaTuning::default()
        }),
        "cores_per_pod is 2.5: it must be a multiple of 1, the smallest change of cores, and at most 48"
    );
    // One pod of 30 cores is too little for the fewest, 40, and two are more than there are.
    let refused = Hpa::new(
        plant(40.0, 48.0, 1.0),
        PerSecond::new(24.0),
        HpaTuning {
            cores_per_pod: Some(30.0),
            ..HpaTuning::default()
        },
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "cores_per_pod is 30: it must be such that a whole number of pods makes 40 to 48 cores"
    );
    assert_eq!(
        error(HpaTuning {
            max_pods: Some(4),
            ..tuning
        }),
        "max_pods is 4: it must be between 1 and 3, which this machine's cores allow"
    );
    assert_eq!(
        error(HpaTuning {
            min_pods: Some(9),
            max_pods: Some(8),
            ..HpaTuning::default()
        }),
        "min_pods is 9: it must be at most max_pods, 8"
    );
}

#[test]
fn more_than_the_most_is_brought_back_at_once() {
    let tuning = HpaTuning {
        max_pods: Some(20),
        ..HpaTuning::default()
    };
    let mut world = World::new(hpa(tuning), 48.0);
    for _ in 0..14 {
        world.second(Some(48.0), 100);
    }
    assert_eq!(rules(&world.second(Some(48.0), 100)), ["outside-range"]);
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(20.0));
}

#[test]
fn periods_that_it_was_not_shown_pass_on_its_clock() {
    let mut world = World::new(hpa(HpaTuning::default()), 40.0);
    world.course(8.0, 15, 1);
    // Lost telemetry for five minutes: by then the 40 of the start are old.
    world.period += 300;
    assert_eq!(rules(&world.second(Some(8.0), 100))[0], "scale-down");
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(10.0));
}

#[test]
fn after_the_guardian_put_everything_to_full_it_starts_again_from_there() {
    let law = hpa(HpaTuning::default());
    let mut guardian = Guardian::new(Box::new(law), cluster(), 5);
    let mut seen = Observation {
        length: Seconds::new(1.0),
        in_force: cluster().full().with(Lever::Cores, Some(Cores::new(10.0).get())),
        utilisation: Some(Ratio::new(0.2)),
        ..Observation::default()
    };
    for period in 0..5 {
        seen.period = period;
        seen.in_force = guardian.decide(&seen).setting;
    }
    assert_eq!(seen.in_force, cluster().full());
    // Then the window holds the 48 in force for 300 s, and no longer.
    seen.traffic = Some(Traffic::default());
    for period in 5..5 + 299 {
        seen.period = period;
        seen.in_force = guardian.decide(&seen).setting;
        assert_eq!(
            seen.in_force.cores().unwrap(),
            Cores::new(48.0),
            "in period {period}"
        );
    }
    for period in 304..340 {
        seen.period = period;
        seen.in_force = guardian.decide(&seen).setting;
    }
    assert!(seen.in_force.cores().unwrap() < Cores::new(48.0));
}

fn as_run(nodes: u32) -> K8sAsRun {
    let tuning = K8sAsRunTuning {
        nodes,
        ..K8sAsRunTuning::default()
    };
    K8sAsRun::new(cluster(), tuning).unwrap()
}

#[test]
fn as_run_it_follows_utilisation_every_2_seconds_without_tolerance() {
    let mut world = World::new(as_run(1), 10.0);
    assert_eq!(rules(&world.second(Some(8.1), 100)), ["between-syncs"]);
    // ceil(10 x 0.81 / 0.8) = ceil(10.125).
    assert_eq!(rules(&world.second(Some(8.1), 100)), ["scale-up"]);
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(11.0));
    // ceil(11 x 0.2 / 0.8) = 3, clipped to 6: no stabilisation, no limit.
    assert_eq!(world.course(2.2, 2, 1), [6.0]);
    // At full load by 0.99/0.8 at a time: 7.4, 9.9, 12.4, 16.1.
    assert_eq!(world.course(48.0, 2, 4), [8.0, 10.0, 13.0, 17.0]);
    assert_eq!(world.in_force.cap().unwrap(), cluster().full().cap().unwrap());
}

#[test]
fn as_run_on_three_nodes_each_gets_whole_cores() {
    let mut world = World::new(as_run(3), 12.0);
    // Each node: ceil(4 x 0.85 / 0.8) = 5.
    assert_eq!(world.course(10.2, 2, 1), [15.0]);
    let error = K8sAsRun::new(
        cluster(),
        K8sAsRunTuning {
            nodes: 64,
            ..K8sAsRunTuning::default()
        },
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("nodes is 64: it must be at most 48"),
        "{error}"
    );
}

#[test]
fn as_run_as_many_nodes_as_steps_are_accepted_whatever_the_step() {
    let tuning = |nodes| K8sAsRunTuning {
        nodes,
        ..K8sAsRunTuning::default()
    };
    // 2.3 / 0.1 is a hair below 23.
    let tenths = plant(0.1, 2.3, 0.1);
    assert!(K8sAsRun::new(tenths, tuning(23)).is_ok());
    let error = K8sAsRun::new(tenths, tuning(24)).unwrap_err().to_string();
    assert!(error.contains("at most 23, one step"), "{error}");
}

#[test]
fn as_run_it_stays_where_the_utilisation_is_unknown() {
    let mut world = World::new(as_run(1), 10.0);
    world.second(None, 100);
    assert_eq!(rules(&world.second(None, 100)), ["hold-unobserved"]);
    assert_eq!(world.in_force.cores().unwrap(), Cores::new(10.0));
}
