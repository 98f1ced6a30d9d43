use super::super::*;
use super::{Noise, u_shaped, with_interval};
use crate::common::slo;
use crate::registry::{LawConfig, LawContext};
use crate::{BatchObservation, CacheObservation, Distribution, Guardian, Latency, Law, Observation, Traffic};
use headroom_units::{Hertz, Lever, PerSecond, Ratio, Seconds, Setting};
use proptest::prelude::*;

/// A period of so many answers with this mean.
fn period(number: u64, in_force: Setting, answers: u64, mean: f64) -> Observation {
    let mean = Seconds::new(mean);
    Observation {
        period: number,
        length: Seconds::new(1.0),
        in_force,
        traffic: Some(Traffic {
            arrivals: answers,
            completions: answers,
            latency: Some(Latency {
                at_slo: mean * 2.5,
                missed: false,
                distribution: Some(Distribution {
                    mean,
                    p50: mean * 0.7,
                    p95: mean * 2.5,
                    p99: mean * 4.0,
                    p999: mean * 6.0,
                }),
            }),
            ..Traffic::default()
        }),
        cache: Some(CacheObservation {
            lookups: 100,
            hits: 40,
        }),
        ..Observation::default()
    }
}

/// Runs a law on a plant that answers in `f` of the interval in force; intervals and means of the last hundred periods.
fn run(law: &mut dyn Law, periods: u64, noise: f64, f: impl Fn(Seconds) -> f64) -> (f64, f64) {
    let mut random = Noise::new(11);
    let mut in_force = Setting::from([(Lever::BatchInterval, 0.0)]);
    let (mut intervals, mut means) = (0.0, 0.0);
    for number in 0..periods {
        let interval = in_force.batch_interval().unwrap();
        let mean = (f(interval) + noise * random.normal()).max(0.01);
        if number >= periods - 100 {
            intervals += interval.get() / 100.0;
            means += mean / 100.0;
        }
        in_force = law.decide(&period(number, in_force, 120, mean)).setting;
    }
    (intervals, means)
}

/// The paper's law, which knows no percentile.
fn tuned(reference_ms: Option<f64>) -> BatchingTuning {
    BatchingTuning {
        sla_ms: Some(1000.0),
        reference_ms,
        keep_slo: false,
        look_s: 0.0,
        ..BatchingTuning::default()
    }
}

#[test]
fn with_a_reference_of_zero_the_interval_of_the_least_mean_is_found() {
    let mut law = Batching::new(slo(1000.0), with_interval(), tuned(Some(0.0))).unwrap();
    let (interval, mean) = run(&mut law, 400, 0.01, u_shaped);
    assert!((interval - 0.3).abs() < 0.06, "{interval}");
    assert!(mean < u_shaped(Seconds::new(0.3)) * 1.03, "{mean}");
}

#[test]
fn with_the_papers_reference_the_mean_is_brought_to_the_sla() {
    let mut law = Batching::new(slo(1000.0), with_interval(), tuned(None)).unwrap();
    let (_, mean) = run(&mut law, 400, 0.01, u_shaped);
    assert!((mean - 1.0).abs() < 0.04, "{mean}");
}

/// Runs a law on a service whose mean and percentile are those of a wait that is even over the interval; the percentile of each period.
fn percentiles(tuning: BatchingTuning, target_ms: f64, without: (f64, f64), periods: u64) -> Vec<f64> {
    let mut law = Batching::new(slo(target_ms), with_interval(), tuning).unwrap();
    let mut random = Noise::new(3);
    let mut in_force = Setting::from([(Lever::BatchInterval, 0.0)]);
    let mut seen = Vec::new();
    for number in 0..periods {
        let interval = in_force.batch_interval().unwrap().get();
        let noise = 1.0 + 0.02 * random.normal();
        let mut observation = period(number, in_force, 120, (without.0 + 0.5 * interval) * noise);
        let latency = observation
            .traffic
            .as_mut()
            .and_then(|traffic| traffic.latency.as_mut());
        let at_slo = (without.1 + 0.95 * interval) * noise;
        latency.unwrap().at_slo = Seconds::new(at_slo);
        seen.push(at_slo);
        in_force = law.decide(&observation).setting;
    }
    seen
}

#[test]
fn a_percentile_that_is_kept_without_batches_is_kept_with_them() {
    // As an outside review had it: a target of 800 ms, 570 ms without batches. To steer the mean to 800 ms broke it for good.
    let to_the_sla = BatchingTuning {
        sla_ms: Some(800.0),
        ..BatchingTuning::default()
    };
    for tuning in [BatchingTuning::default(), to_the_sla] {
        let seen = percentiles(tuning, 800.0, (0.25, 0.57), 600);
        let late = seen.iter().filter(|at_slo| **at_slo > 0.8).count();
        assert!(late <= 6, "{late}");
    }
    // The paper's law breaks it, as it is meant to.
    let papers = percentiles(tuned(None), 800.0, (0.25, 0.57), 600);
    assert!(papers.iter().filter(|at_slo| **at_slo > 0.8).count() > 400);
}

#[test]
fn by_default_a_fast_service_stays_fast() {
    let seen = percentiles(BatchingTuning::default(), 1000.0, (0.0002, 0.001), 400);
    // While it tries, too.
    assert!(seen.iter().all(|at_slo| *at_slo < 0.002), "{seen:?}");
}

#[test]
fn a_given_model_needs_no_exploration() {
    let mut random = Noise::new(5);
    let series: Vec<Option<Sample>> = (0..300)
        .map(|_| {
            let interval = Seconds::new(random.uniform());
            Some(Sample {
                interval,
                hit_ratio: Ratio::new(0.4),
                response: Seconds::new(u_shaped(interval)),
            })
        })
        .collect();
    let tuning = BatchingTuning {
        model: Some(identify(&series, Lags::DEFAULT).unwrap()),
        explore_periods: 0,
        ..tuned(Some(0.0))
    };
    let mut law = Batching::new(slo(1000.0), with_interval(), tuning).unwrap();
    let decision = law.decide(&period(
        0,
        Setting::from([(Lever::BatchInterval, 0.3)]),
        100,
        0.85,
    ));
    assert_eq!(decision.reasons[0].rule, "batching-predict");
    let (interval, _) = run(&mut law, 400, 0.005, u_shaped);
    assert!((interval - 0.3).abs() < 0.06, "{interval}");
}

#[test]
fn the_exploration_covers_its_range_and_says_how_far_it_is() {
    let mut law = Batching::new(slo(1000.0), with_interval(), tuned(None)).unwrap();
    let mut in_force = Setting::from([(Lever::BatchInterval, 0.0)]);
    let mut tried = Vec::new();
    for number in 0..59 {
        let decision = law.decide(&period(number, in_force, 100, 0.9));
        assert_eq!(decision.reasons[0].rule, "batching-explore");
        in_force = decision.setting;
        tried.push(in_force.batch_interval().unwrap().get());
    }
    tried.sort_by(f64::total_cmp);
    tried.dedup();
    let widest = tried.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
    assert!(tried.len() > 15 && widest < 0.06, "{tried:?}");
    assert!(tried.last().unwrap() <= &0.5);
}

#[test]
fn a_gateway_that_does_not_follow_gives_no_model_and_that_is_said() {
    let mut law = Batching::new(slo(1000.0), with_interval(), tuned(None)).unwrap();
    let stuck = Setting::from([(Lever::BatchInterval, 0.1)]);
    let reasons: Vec<String> = (0..60)
        .map(|number| {
            law.decide(&period(number, stuck, 100, 0.9)).reasons[0]
                .text
                .clone()
        })
        .collect();
    assert!(
        reasons[59].contains("the batch interval is 100 ms in every period"),
        "{}",
        reasons[59]
    );
}

/// A period whose batches took and waited so long, in milliseconds.
fn batched(number: u64, in_force: Setting, answers: u64, took_ms: f64, waited_ms: f64) -> Observation {
    Observation {
        batching: Some(BatchObservation {
            batches: 4,
            requests: 100,
            groups: 50,
            answered: 4,
            processing: Seconds::from_millis(took_ms * 4.0),
            waiting: Seconds::from_millis(waited_ms * 4.0),
            held: 0,
        }),
        ..period(number, in_force, answers, 0.5)
    }
}

fn paper_levels() -> DvfsTuning {
    DvfsTuning {
        frequencies_ghz: Some(vec![2.0, 1.0, 1.5]),
        cpu_use: CpuUse::Batches,
        ..DvfsTuning::default()
    }
}

fn at_ghz(ghz: f64) -> Setting {
    Setting::from([(Lever::Frequency, ghz * 1e9), (Lever::BatchInterval, 0.2)])
}

/// Eight periods: four at one throughput, four at the other; the last decision.
fn eight(law: &mut dyn Law, ghz: f64, answers: [u64; 2], took_ms: f64) -> (f64, String) {
    let decisions: Vec<_> = (0..8)
        .map(|number| {
            let answers = answers[number as usize / 4];
            law.decide(&batched(number, at_ghz(ghz), answers, took_ms, 200.0))
        })
        .collect();
    for between in &decisions[4..7] {
        assert_eq!(between.setting.frequency(), Some(Hertz::new(ghz * 1e9)));
    }
    let last = &decisions[7];
    let rule = last.reasons.last().unwrap().rule.to_string();
    (last.setting.frequency().unwrap().get() / 1e9, rule)
}

#[test]
fn the_frequency_rises_with_work_and_falls_without_it_every_fourth_period() {
    let new = || Dvfs::new(with_interval(), paper_levels()).unwrap();
    assert_eq!(
        eight(&mut new(), 1.5, [100, 150], 400.0),
        (2.0, "dvfs-raise".to_owned())
    );
    assert_eq!(
        eight(&mut new(), 1.5, [150, 80], 60.0),
        (1.0, "dvfs-lower".to_owned())
    );
    assert_eq!(
        eight(&mut new(), 1.5, [100, 100], 200.0),
        (1.5, "dvfs-keep".to_owned())
    );
    // At the ends it stays.
    assert_eq!(
        eight(&mut new(), 2.0, [100, 150], 400.0),
        (2.0, "dvfs-keep".to_owned())
    );
    assert_eq!(
        eight(&mut new(), 1.0, [150, 80], 60.0),
        (1.0, "dvfs-keep".to_owned())
    );
}

#[test]
fn without_batches_the_utilisation_stands_for_what_they_take() {
    let decide = |busy: f64| {
        let mut law = Dvfs::new(with_interval(), paper_levels()).unwrap();
        let mut last = Setting::default();
        for number in 0..8 {
            let observation = Observation {
                utilisation: Some(Ratio::new(busy)),
                ..period(number, at_ghz(1.5), 100, 0.5)
            };
            last = law.decide(&observation).setting;
        }
        last.frequency().unwrap().get() / 1e9
    };
    assert_eq!([decide(0.05), decide(0.7)], [1.0, 1.5]);
    // Only a β over 0.5 raises by itself, and no utilisation is so far above 0.7.
    assert_eq!(decide(1.0), 1.5);
}

#[test]
fn a_batch_that_leaves_nothing_of_the_interval_is_as_busy_as_can_be() {
    let decide = |cpu_use: CpuUse, busy: Option<f64>| {
        let tuning = DvfsTuning {
            cpu_use,
            ..paper_levels()
        };
        let mut law = Dvfs::new(with_interval(), tuning).unwrap();
        let mut last = Setting::default();
        for number in 0..8 {
            let observation = Observation {
                utilisation: busy.map(Ratio::new),
                ..batched(number, at_ghz(1.5), 100, 500.0, 0.0)
            };
            last = law.decide(&observation).setting;
        }
        last.frequency().unwrap().get() / 1e9
    };
    assert_eq!(decide(CpuUse::Batches, Some(0.1)), 2.0);
    // By the utilisation a short interval is nothing of work, as where another law tries it; where none is observed there are the batches.
    assert_eq!(decide(CpuUse::Utilisation, Some(0.1)), 1.0);
    assert_eq!(decide(CpuUse::Utilisation, None), 2.0);
}

#[test]
fn more_outputs_move_by_more_levels() {
    let mut rows = vec![vec![0; 7]; 7];
    rows[6][6] = 2;
    let tuning = DvfsTuning {
        rules: RuleTable::new(rows).unwrap(),
        ..paper_levels()
    };
    let mut law = Dvfs::new(with_interval(), tuning).unwrap();
    assert_eq!(eight(&mut law, 1.0, [100, 150], 400.0).0, 2.0);
}

#[test]
fn the_coordinator_scales_the_adjustment_of_the_interval_when_the_frequency_changes() {
    let model = || {
        let mut random = Noise::new(5);
        let series: Vec<Option<Sample>> = (0..300)
            .map(|_| {
                let interval = Seconds::new(random.uniform());
                let response = Seconds::new(u_shaped(interval));
                let hit_ratio = Ratio::new(0.4);
                Some(Sample {
                    interval,
                    hit_ratio,
                    response,
                })
            })
            .collect();
        BatchingTuning {
            model: Some(identify(&series, Lags::DEFAULT).unwrap()),
            ..tuned(Some(0.0))
        }
    };
    let mut both = BatchingDvfs::new(
        slo(1000.0),
        with_interval(),
        model(),
        paper_levels(),
        CoordinatorTuning { scaling: 0.5 },
    )
    .unwrap();
    let mut alone = Batching::new(slo(1000.0), with_interval(), model()).unwrap();
    let mut scaled = 0;
    for number in 0..8 {
        let answers = if number < 4 { 100 } else { 150 };
        let observation = batched(number, at_ghz(1.5), answers, 400.0, 200.0);
        let (one, two) = (
            both.decide(&observation).setting,
            alone.decide(&observation).setting,
        );
        let adjusted = |setting: Setting| setting.batch_interval().unwrap().get() - 0.2;
        if one.frequency() == Some(Hertz::new(2e9)) {
            scaled += 1;
            assert!((adjusted(one) - 0.5 * adjusted(two)).abs() < 1e-9);
            assert!(adjusted(two).abs() > 1e-3);
        } else {
            assert_eq!(adjusted(one), adjusted(two));
        }
    }
    assert_eq!(scaled, 1);
}

/// `[law]` as JSON, built for an SLO of a second.
fn refused(json: &str) -> String {
    let config: LawConfig = serde_json::from_str(json).unwrap();
    let context = LawContext {
        slo: slo(1000.0),
        plant: with_interval(),
        service_rate: PerSecond::new(250.0),
        machines: Vec::new(),
    };
    let error = config
        .check()
        .err()
        .or_else(|| config.build(&context).map(drop).err());
    error.unwrap().to_string()
}

#[test]
fn mistakes_in_a_configuration_come_with_their_key() {
    for (json, start) in [
        (
            r#"{"name": "batching", "batching": {"max_interval_ms": 1500}}"#,
            "law.batching.max_interval_ms: is 1500: an interval over the SLA, 1000 ms, breaks it by itself; give at most 1000",
        ),
        (
            r#"{"name": "batching", "batching": {"sla_ms": 400, "max_interval_ms": 500}}"#,
            "law.batching.max_interval_ms: is 500: an interval over the SLA, 400 ms",
        ),
        (
            r#"{"name": "batching-dvfs", "batching": {"sla_ms": 4000, "max_interval_ms": 2500}}"#,
            "law.batching.max_interval_ms: is 2500: the gateway holds requests for 1000 ms at most",
        ),
        (
            r#"{"name": "batching", "batching": {"min_interval_ms": 600, "max_interval_ms": 500}}"#,
            "law.batching.min_interval_ms: is 600",
        ),
        (
            r#"{"name": "batching", "batching": {"explore_max_ms": 1200}}"#,
            "law.batching.explore_max_ms: is 1200",
        ),
        (
            r#"{"name": "batching", "batching": {"explore_periods": 10}}"#,
            "law.batching.explore_periods: is 10: it must be 16 or more",
        ),
        (
            r#"{"name": "batching", "batching": {"forgetting": 1.5}}"#,
            "law.batching.forgetting: is 1.5",
        ),
        (
            r#"{"name": "dvfs", "dvfs": {"frequencies_ghz": [1.0, 2.83]}}"#,
            "law.dvfs.frequencies_ghz[1]: is 2.83 GHz: it must be between 0.8 and 2.1 GHz",
        ),
        (
            r#"{"name": "dvfs", "dvfs": {"rules": [[0, 0, 0, 0, 0, 0, 0]]}}"#,
            "law.dvfs.rules: has 1 rows: it needs 7, one for each value of α from NL to PL, and row 2 (NM) is missing",
        ),
        (
            r#"{"name": "batching-dvfs", "batching-dvfs": {"scaling": 1.5}}"#,
            "law.batching-dvfs.scaling: is 1.5",
        ),
    ] {
        let error = refused(json);
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn a_plant_without_the_lever_is_refused_with_the_remedy() {
    let plant = crate::common::plant([0.2, 4.0, 0.1], [6.0, 2.86, 6.2]);
    let error = Batching::new(slo(1000.0), plant, tuned(None))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("batch_interval") && error.contains("gateway.batch.interval_ms"),
        "{error}"
    );
    let error = Dvfs::new(plant, DvfsTuning::default()).unwrap_err().to_string();
    assert!(error.contains("dvfs moves the lever frequency"), "{error}");
}

prop_compose! {
    fn any_period()(
        answers in 0u64..2_000, mean in proptest::option::weighted(0.9, prop_oneof![0.0..5.0f64, Just(f64::NAN), Just(f64::INFINITY)]),
        interval in proptest::option::weighted(0.9, 0.0..2.0f64), ghz in proptest::option::of(0.1..4.0f64),
        busy in proptest::option::of(0.0..1.2f64), lost in prop::bool::weighted(0.1),
        lookups in 0u64..100, took in 0.0..2.0f64, waited in 0.0..1.0f64, batches in 0u64..5,
    ) -> Observation {
        let in_force = Setting::default()
            .with(Lever::BatchInterval, interval)
            .with(Lever::Frequency, ghz.map(|ghz| ghz * 1e9));
        let mut observation = period(0, in_force, answers, mean.unwrap_or(0.0));
        if mean.is_none() && let Some(traffic) = &mut observation.traffic {
            traffic.latency = None;
        }
        if lost {
            observation.traffic = None;
        }
        observation.utilisation = busy.map(Ratio::new);
        observation.cache = Some(CacheObservation { lookups, hits: lookups / 2 });
        observation.batching = Some(BatchObservation {
            batches, requests: batches * 7, groups: batches * 3, answered: batches,
            processing: Seconds::new(took), waiting: Seconds::new(waited), held: 0,
        });
        observation
    }
}

fn all() -> Vec<Box<dyn Law>> {
    let (slo, plant) = (slo(800.0), with_interval());
    let quick = || BatchingTuning {
        explore_periods: 16,
        min_interval_ms: 5.0,
        ..BatchingTuning::default()
    };
    let coordinator = CoordinatorTuning::default();
    vec![
        Box::new(Batching::new(slo, plant, quick()).unwrap()),
        Box::new(Dvfs::new(plant, DvfsTuning::default()).unwrap()),
        Box::new(BatchingDvfs::new(slo, plant, quick(), DvfsTuning::default(), coordinator).unwrap()),
    ]
}

proptest! {
    #[test]
    fn whatever_is_observed_decisions_are_within_the_bounds_and_the_same_again(
        periods in prop::collection::vec(any_period(), 1..80),
    ) {
        for (law, twin) in all().into_iter().zip(all()) {
            let mut one = Guardian::new(law, with_interval(), 5);
            let mut two = Guardian::new(twin, with_interval(), 5);
            for observation in &periods {
                let decision = one.decide(observation);
                prop_assert_eq!(&decision, &two.decide(observation));
                prop_assert!(!decision.reasons.is_empty());
                if decision.reasons[0].rule.starts_with("telemetry") {
                    // The guardian keeps what is in force, whatever that is.
                    continue;
                }
                for reason in &decision.reasons {
                    prop_assert!(reason.numbers.iter().all(|(_, value)| value.is_finite()), "{:?}", reason);
                }
                if let Some(interval) = decision.setting.get(Lever::BatchInterval) {
                    prop_assert!((0.0..=0.8).contains(&interval), "{}", interval);
                }
                if let Some(hertz) = decision.setting.get(Lever::Frequency) {
                    prop_assert!((0.8e9..=2.1e9).contains(&hertz), "{}", hertz);
                }
            }
        }
    }
}
