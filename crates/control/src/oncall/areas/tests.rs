use super::*;

fn area(name: &str, cores: u32, connections: &[u64]) -> CoreArea {
    CoreArea {
        name: name.to_owned(),
        cores,
        connections: connections.to_vec(),
        ..CoreArea::default()
    }
}

#[test]
fn areas_have_the_cores_after_those_before_them() {
    let decision = AreaDecision {
        areas: vec![area("hot", 2, &[1]), area("warm", 3, &[2, 3])],
        ..AreaDecision::default()
    };
    assert_eq!(decision.cpusets(), [0..2, 2..5]);
    assert_eq!(decision.check(5), Ok(()));
    assert_eq!(
        decision.check(4),
        Err(AreaDecisionError::Cores { asked: 5, cores: 4 })
    );
}

#[test]
fn what_no_machine_can_have_is_named() {
    let with = |areas: Vec<CoreArea>| AreaDecision {
        areas,
        ..AreaDecision::default()
    };
    let said = |decision: AreaDecision| decision.check(8).unwrap_err().to_string();
    assert_eq!(
        said(with(vec![area("hot", 0, &[1]), area("warm", 1, &[])])),
        "the area \"hot\" has connections and no core: give it 1 or more"
    );
    assert_eq!(
        said(with(vec![area("hot", 1, &[1]), area("warm", 1, &[1])])),
        "connection 1 is in two areas"
    );
    let weights = BTreeMap::from([("ls".to_owned(), 0.0)]);
    assert_eq!(
        said(AreaDecision {
            weights,
            ..AreaDecision::default()
        }),
        "the weight of class \"ls\" is 0: it must be above 0 and finite"
    );
}

mod laws {
    use super::*;
    use crate::observation::{ClassObservation, OncallObservation};
    use crate::oncall::policy::Kept;
    use crate::plant::FrequencyRange;
    use headroom_units::{Ratio, Seconds};
    use proptest::prelude::*;

    fn of(id: u64, class: &str, queries: u64, slo: Option<(f64, f64)>) -> Connection {
        let kept = |(violations, budget_ms): (f64, f64)| Kept::Percentile {
            percentile: Ratio::new(0.99),
            violations: Ratio::new(violations),
            budget: Some(Seconds::from_millis(budget_ms)),
        };
        Connection {
            id,
            class: class.to_owned(),
            weight: 1.0,
            queries,
            mean: None,
            cv: None,
            slos: slo.map(kept).into_iter().collect(),
            tokens: 1,
        }
    }

    /// A period of 0.1 s: two connections with an SLO of a mean budget of 10 ms, four without.
    fn period(violations: f64, best_effort_per_s: f64) -> Observation {
        let queries = (best_effort_per_s * 0.1 / 4.0).round() as u64;
        let sensitive = (0..2).map(|id| of(id, "ls", 10, Some((violations, 10.0))));
        let others = (2..6).map(|id| of(id, "be", queries, None));
        let class = |name: &str, queries| ClassObservation {
            name: name.to_owned(),
            queries,
            ..ClassObservation::default()
        };
        Observation {
            length: Seconds::new(0.1),
            oncall: Some(OncallObservation {
                queries: 20 + 4 * queries,
                waiting_least: Some(1),
                classes: vec![class("ls", 20), class("be", 4 * queries)],
                each: sensitive.chain(others).collect(),
                ..OncallObservation::default()
            }),
            ..Observation::default()
        }
    }

    fn cores(decision: &AreaDecision) -> Vec<u32> {
        decision.areas.iter().map(|area| area.cores).collect()
    }

    #[test]
    fn demeter_heats_and_cools() {
        let range = FrequencyRange::new(Hertz::new(1e9), Hertz::new(2e9), Hertz::new(5e8)).unwrap();
        let mut law = DemeterStyle::new(DemeterTuning {
            cores: 4,
            best_effort: PerSecond::new(1_000.0),
            frequency: range,
            clean_periods: 1,
        })
        .unwrap();
        // Violated: warm cores turn hot, until one is left.
        let mut last = Vec::new();
        for _ in 0..4 {
            last = cores(&law.decide(&period(0.5, 1_000.0)).unwrap());
        }
        assert_eq!(last, [3, 1]);
        // Kept and with slack: hot cores go cold one by one, and the last warm core slows.
        for _ in 0..20 {
            law.decide(&period(0.0, 2_000.0));
        }
        assert_eq!((law.zones(), law.warm_frequency()), ([1, 1, 2], Hertz::new(1e9)));
        // Short: first faster, then more.
        for _ in 0..3 {
            law.decide(&period(0.0, 500.0));
        }
        assert_eq!((law.zones(), law.warm_frequency()), ([1, 2, 1], Hertz::new(2e9)));
    }

    #[test]
    fn weights_follow_violations_or_stay_equal() {
        let weight = |law: &mut CgroupWeights, violations| {
            let decision = law.decide(&period(violations, 1_000.0)).unwrap();
            decision.weights.get("ls").copied()
        };
        let mut law = CgroupWeights::following();
        assert_eq!(weight(&mut law, 0.5), Some(2.0));
        assert_eq!(weight(&mut law, 0.5), Some(4.0));
        for _ in 0..100 {
            weight(&mut law, 0.0);
        }
        assert_eq!(weight(&mut law, 0.0), Some(1.0));
        assert_eq!(weight(&mut CgroupWeights::equal(), 0.5), None);
    }

    fn consolidation(best_effort_per_s: f64) -> QosConsolidation {
        let best_effort = PerSecond::new(best_effort_per_s);
        QosConsolidation::new(ConsolidationTuning {
            profile_periods: 3,
            clean_periods: 2,
            ..ConsolidationTuning::of(4, best_effort)
        })
        .unwrap()
    }

    /// Profiles a server whose cores serve 1000 queries per second each.
    fn profiled(law: &mut QosConsolidation) {
        let mut cores_now = 4.0;
        for _ in 0..100 {
            let decision = law.decide(&period(0.0, 1_000.0 * cores_now - 200.0)).unwrap();
            if law.profile().is_some() {
                return;
            }
            cores_now = f64::from(decision.areas[0].cores);
        }
        panic!("the profile never ends");
    }

    #[test]
    fn consolidation_profiles_divides_and_moves() {
        let mut law = consolidation(1_500.0);
        profiled(&mut law);
        let tp: Vec<f64> = (1..=4)
            .map(|cores| law.profile().unwrap().at(cores).get())
            .collect();
        for (cores, tp) in tp.iter().enumerate() {
            assert!(
                (tp / (1_000.0 * (cores as f64 + 1.0)) - 1.0).abs() < 0.02,
                "{tp:?}"
            );
        }
        // Two connections of 10 ms ask for 200 per second; best effort needs two cores; the strictest has the rest.
        assert_eq!(law.cores(), [2, 2]);
        let decision = law.decide(&period(0.0, 2_000.0)).unwrap();
        assert_eq!(
            (&*decision.areas[0].name, &decision.areas[0].connections[..]),
            ("hot", &[0, 1][..])
        );
        // Best effort short of its budget in its own area: it has nobody looser to take from.
        let decision = law.decide(&period(0.0, 1_000.0)).unwrap();
        assert_eq!(cores(&decision), [2, 2]);
        // A violation takes no core from an area that could not keep its budget with one less.
        let decision = law.decide(&period(0.5, 1_600.0)).unwrap();
        assert_eq!(cores(&decision), [2, 2]);
        let decision = law.decide(&period(0.5, 3_900.0)).unwrap();
        assert_eq!(
            (cores(&decision), &*decision.reasons[0].rule),
            (vec![3, 1], "area-reactive")
        );
    }

    #[test]
    fn budgets_that_cannot_be_kept_are_refused_in_words() {
        let mut law = consolidation(4_500.0);
        profiled(&mut law);
        let decision = law.decide(&period(0.0, 2_000.0)).unwrap();
        assert!(decision.areas.is_empty());
        assert!(
            decision.reasons[0]
                .text
                .starts_with("warning: the SLOs cannot be met: the areas ask for"),
            "{}",
            decision.reasons[0].text
        );
    }

    #[test]
    fn satori_finds_the_division_that_serves_most_and_evenly() {
        let mut law = SatoriStyle::new(SatoriTuning { cores: 12 }).unwrap();
        let mut hot = 12.0;
        let mut of_last = [0u32; 12];
        for number in 0..120 {
            // Each class is served in proportion to its cores up to a demand: 3 cores for one, 9 for the other.
            let (ls, be) = match number < 10 {
                true => (3.0, 9.0),
                false => (f64::min(hot, 3.0), f64::min(12.0 - hot, 9.0)),
            };
            let mut seen = period(0.0, 0.0);
            if let Some(oncall) = &mut seen.oncall {
                oncall.classes[0].queries = (ls * 100.0) as u64;
                oncall.classes[1].queries = (be * 100.0) as u64;
            }
            let decision = law.decide(&seen).unwrap();
            if let Some(area) = decision.areas.first() {
                hot = f64::from(area.cores);
                if number >= 80 {
                    of_last[area.cores as usize] += 1;
                }
            }
        }
        let most = (1..12).max_by_key(|cores| of_last[*cores]).unwrap();
        assert!((2..=4).contains(&most), "{of_last:?}");
    }

    proptest! {
        /// Whatever is observed, what is answered can be carried out.
        #[test]
        fn answers_are_areas_that_can_be(
            periods in proptest::collection::vec((0.0..0.1f64, 0.0..6_000.0f64), 1..80), cores in 2u32..16, share in 0.1..0.9f64,
        ) {
            let best_effort = PerSecond::new(1_000.0 * f64::from(cores) * share);
            let range = FrequencyRange::new(Hertz::new(1e9), Hertz::new(2e9), Hertz::new(1e8)).unwrap();
            let demeter = DemeterTuning { cores, best_effort, frequency: range, clean_periods: 2 };
            let reef = ConsolidationTuning { profile_periods: 3, workers_per_core: Some(1.5), ..ConsolidationTuning::of(cores, best_effort) };
            let mut laws: Vec<Box<dyn AreaLaw>> = vec![
                Box::new(DemeterStyle::new(demeter).unwrap()),
                Box::new(QosConsolidation::new(reef).unwrap()),
                Box::new(SatoriStyle::new(SatoriTuning { cores }).unwrap()),
                Box::new(CgroupWeights::following()),
                Box::new(CgroupWeights::equal()),
            ];
            for (violations, throughput) in periods {
                for law in &mut laws {
                    if let Some(decision) = law.decide(&period(violations, throughput)) {
                        prop_assert_eq!(decision.check(cores), Ok(()), "{}", law.name());
                        prop_assert!(!decision.reasons.is_empty());
                    }
                }
            }
        }
    }
}
