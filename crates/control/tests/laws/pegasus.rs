//! Pegasus row by row, on the SLO-Power authors' node (2.86 c + 46.52 W, 16 cores: 92.28 W) with a target of 200 ms.

use crate::common::slo;
use headroom_control::*;
use headroom_units::*;
use proptest::prelude::*;

fn plant() -> Plant {
    crate::common::plant([2.0, 16.0, 1.0], [46.52, 2.86, 40.0])
}

fn law(variant: PegasusVariant, tuning: PegasusTuning) -> Pegasus {
    Pegasus::new(slo(200.0), plant(), variant, tuning).unwrap()
}

fn published() -> Pegasus {
    law(PegasusVariant::Published, PegasusTuning::default())
}

fn as_run() -> Pegasus {
    law(PegasusVariant::AsRun, PegasusTuning::default())
}

/// A second of 100 requests with this P95, under this cap; nothing at all where there is no P95.
fn second(p95_ms: Option<f64>, cap: f64) -> Observation {
    let at_slo = |ms| Latency {
        at_slo: Seconds::from_millis(ms),
        missed: false,
        distribution: None,
    };
    let requests = if p95_ms.is_some() { 100 } else { 0 };
    Observation {
        length: Seconds::new(1.0),
        in_force: Allocation::new(Cores::new(16.0), Watts::new(cap)).into(),
        traffic: Some(Traffic {
            arrivals: requests,
            completions: requests,
            latency: p95_ms.map(at_slo),
            ..Traffic::default()
        }),
        ..Observation::default()
    }
}

fn rule_and_cap(decision: &Decision) -> (&str, f64) {
    (&decision.reasons[0].rule, decision.setting.cap().unwrap().get())
}

#[track_caller]
fn assert_decides(decision: &Decision, rule: &str, cap: f64) {
    let (got_rule, got_cap) = rule_and_cap(decision);
    assert_eq!(got_rule, rule);
    assert!((got_cap - cap).abs() < 1e-9, "{got_cap} W instead of {cap} W");
}

#[test]
fn each_row_of_the_published_table() {
    for (p95_ms, cap, rule, given) in [
        (271.0, 60.0, "far-over", 92.28),
        (270.0, 60.0, "over", 64.2),
        (201.0, 60.0, "over", 64.2),
        (201.0, 90.0, "over", 92.28),
        (200.0, 60.0, "near", 60.0),
        (170.0, 60.0, "near", 60.0),
        (169.0, 60.0, "under", 59.4),
        (120.0, 60.0, "under", 59.4),
        (119.0, 60.0, "far-under", 58.2),
        (119.0, 40.5, "far-under", 40.0),
    ] {
        let decision = published().decide(&second(Some(p95_ms), cap));
        assert_decides(&decision, rule, given);
        assert_eq!(
            decision.setting.cores().unwrap(),
            Cores::new(16.0),
            "all cores stay on"
        );
    }
}

#[test]
fn each_row_as_run_every_2_seconds() {
    for (p95_ms, cap, rule, given) in [
        (271.0, 70.0, "far-over", 92.28),
        (201.0, 70.0, "over", 74.9),
        (170.0, 70.0, "near", 70.0),
        (169.0, 70.0, "under", 69.3),
        // -3 % never fires.
        (20.0, 70.0, "under", 69.3),
        // 30/46 of the limit is the lowest.
        (20.0, 60.3, "under", 92.28 * 30.0 / 46.0),
    ] {
        let mut law = as_run();
        assert_decides(&law.decide(&second(Some(p95_ms), cap)), "between-looks", cap);
        assert_decides(&law.decide(&second(Some(p95_ms), cap)), rule, given);
    }
}

#[test]
fn a_late_average_of_30_seconds_goes_to_the_maximum_for_5_minutes() {
    let mut law = published();
    for _ in 0..29 {
        assert_decides(&law.decide(&second(Some(201.0), 60.0)), "over", 64.2);
    }
    assert_decides(&law.decide(&second(Some(201.0), 60.0)), "average-late", 92.28);
    for _ in 0..299 {
        assert_decides(&law.decide(&second(Some(50.0), 92.28)), "hold-maximum", 92.28);
    }
    // The 300 s are over, and the last 30 of them were early.
    assert_decides(&law.decide(&second(Some(50.0), 92.28)), "far-under", 92.28 * 0.97);
}

#[test]
fn the_average_slides_over_30_seconds() {
    let mut law = published();
    for _ in 0..100 {
        law.decide(&second(Some(180.0), 60.0));
    }
    // 12 of 30 at 229 ms and 18 at 180 are 199.6 on average; 13 of them, 201.2.
    for _ in 0..12 {
        assert_decides(&law.decide(&second(Some(229.0), 60.0)), "over", 64.2);
    }
    assert_decides(&law.decide(&second(Some(229.0), 60.0)), "average-late", 92.28);
}

#[test]
fn as_run_the_average_begins_at_the_last_hold_and_holds_30_seconds() {
    let mut law = as_run();
    for period in 1..30 {
        let decision = law.decide(&second(Some(210.0), 70.0));
        let looks = if period % 2 == 0 { "over" } else { "between-looks" };
        assert_eq!(rule_and_cap(&decision).0, looks);
    }
    assert_decides(&law.decide(&second(Some(210.0), 70.0)), "average-late", 92.28);
    for _ in 0..29 {
        assert_decides(&law.decide(&second(Some(900.0), 92.28)), "hold-maximum", 92.28);
    }
    // What came during the hold is forgotten: no average until 30 s after it.
    for _ in 0..29 {
        let decision = law.decide(&second(Some(100.0), 80.0));
        assert!(["between-looks", "under"].contains(&rule_and_cap(&decision).0));
    }
    // It is one since then: an old early time outweighs a late one that a window of 30 s would see.
    let mut law = as_run();
    for _ in 0..300 {
        law.decide(&second(Some(100.0), 80.0));
    }
    for _ in 0..60 {
        let decision = law.decide(&second(Some(250.0), 80.0));
        assert!(["between-looks", "over"].contains(&rule_and_cap(&decision).0));
    }
}

#[test]
fn two_periods_count_by_their_requests() {
    let mut law = as_run();
    let mut few = second(Some(400.0), 70.0);
    few.traffic.as_mut().unwrap().completions = 1;
    law.decide(&few);
    // (1 x 400 + 100 x 100) / 101 = 103 ms.
    assert_decides(&law.decide(&second(Some(100.0), 70.0)), "under", 69.3);
}

#[test]
fn without_requests_the_cap_stays_and_the_average_grows_old() {
    let mut law = published();
    for _ in 0..29 {
        law.decide(&second(Some(260.0), 60.0));
    }
    for _ in 0..30 {
        assert_decides(&law.decide(&second(None, 60.0)), "idle", 60.0);
    }
    assert_decides(&law.decide(&second(Some(100.0), 60.0)), "far-under", 58.2);
}

#[test]
fn a_service_that_stopped_answering_is_late() {
    let mut stuck = second(None, 60.0);
    stuck.traffic.as_mut().unwrap().oldest_in_flight = Some(Seconds::new(2.0));
    assert_decides(&published().decide(&stuck), "far-over", 92.28);
}

#[test]
fn after_lost_telemetry_it_starts_from_full_without_a_hold() {
    let mut guardian = Guardian::new(Box::new(published()), plant(), 5);
    for _ in 0..30 {
        guardian.decide(&second(Some(300.0), 60.0));
    }
    let lost = Observation {
        traffic: None,
        ..second(None, 60.0)
    };
    for _ in 0..5 {
        guardian.decide(&lost);
    }
    let decision = guardian.decide(&second(Some(100.0), 92.28));
    assert_decides(&decision, "far-under", 92.28 * 0.97);
}

#[test]
fn what_cannot_be_is_named() {
    for (tuning, said) in [
        (
            PegasusTuning {
                far_over: 0.9,
                ..PegasusTuning::default()
            },
            "far_over is 0.9: it must be 1 or more",
        ),
        (
            PegasusTuning {
                far_under: 0.9,
                ..PegasusTuning::default()
            },
            "far_under is 0.9: it must be between 0 and under, 0.85",
        ),
        (
            PegasusTuning {
                raise: 0.0,
                ..PegasusTuning::default()
            },
            "raise is 0: it must be greater than 0",
        ),
        (
            PegasusTuning {
                average_s: 0.0,
                ..PegasusTuning::default()
            },
            "average_s is 0: it must be between 1 and 3600 s",
        ),
        (
            PegasusTuning {
                lowest_cap_share: Some(2.0),
                ..PegasusTuning::default()
            },
            "lowest_cap_share is 2: it must be greater than 0 and at most 1",
        ),
    ] {
        let error = Pegasus::new(slo(200.0), plant(), PegasusVariant::Published, tuning).unwrap_err();
        assert_eq!(error.to_string(), said);
    }
    assert!(serde_json::from_str::<PegasusTuning>(r#"{"rise": 0.1}"#).is_err());
    let tuning: PegasusTuning = serde_json::from_str(r#"{"hold_s": 60}"#).unwrap();
    assert_eq!(
        tuning,
        PegasusTuning {
            hold_s: Some(60.0),
            ..PegasusTuning::default()
        }
    );
}

proptest! {
    #[test]
    fn a_period_over_the_target_never_lowers_the_cap(
        before in prop::collection::vec(proptest::option::of(1.0..900.0f64), 0..80),
        late_ms in 200.5..5_000.0f64, cap in 61.0..92.28f64, published: bool,
    ) {
        let variant = if published { PegasusVariant::Published } else { PegasusVariant::AsRun };
        let tuning = PegasusTuning { interval_s: Some(1.0), ..PegasusTuning::default() };
        let mut law = law(variant, tuning);
        for p95_ms in before {
            law.decide(&second(p95_ms, cap));
        }
        prop_assert!(law.decide(&second(Some(late_ms), cap)).setting.cap().unwrap().get() >= cap);
    }
}
