//! The law in tables of literals: each rule of the Control Unit, Algorithm 1 and Equation 4 on the authors' machine
//! (2.86 c + 46.52 W, 2 to 16 cores, μ 9/s, T 250 ms).

use crate::common::slo;
use headroom_control::*;
use headroom_units::*;

fn plant(min: f64, max: f64, step: f64) -> Plant {
    crate::common::plant([min, max, step], [46.52, 2.86, 40.0])
}

fn authors() -> Tuning {
    Tuning {
        power_step_w_per_core: Some(3.0),
        at_limit_margin_w: Some(6.0),
        ..Tuning::default()
    }
}

fn law(tuning: Tuning) -> SloPower {
    SloPower::new(slo(250.0), plant(2.0, 16.0, 1.0), PerSecond::new(9.0), tuning).unwrap()
}

/// One period: arrivals in a second, P95 in ms, utilisation, watts, and what was in force.
fn seen(arrivals: u64, p95_ms: f64, utilisation: f64, watts: f64, cores: f64, cap: f64) -> Observation {
    let at = Seconds::from_millis(p95_ms);
    Observation {
        length: Seconds::new(1.0),
        in_force: Allocation::new(Cores::new(cores), Watts::new(cap)).into(),
        traffic: Some(Traffic {
            arrivals,
            completions: arrivals,
            latency: Some(Latency {
                at_slo: at,
                missed: false,
                distribution: Some(Distribution {
                    mean: at * 0.4,
                    p50: at * 0.3,
                    p95: at,
                    p99: at,
                    p999: at,
                }),
            }),
            ..Traffic::default()
        }),
        utilisation: Some(Ratio::new(utilisation)),
        power: Some(Estimated(Watts::new(watts)).into()),
        ..Observation::default()
    }
}

fn rule(decision: &Decision) -> &str {
    &decision.reasons[0].rule
}

#[test]
fn late_with_power_to_give_raises_the_cap_by_the_relative_deviation_and_leaves_the_cores() {
    // |(250 - 500) / 500| = 0.5: 50 W becomes 75 W, under the limit of 6 cores, 63.68 W: bounded there.
    let decision = law(authors()).decide(&seen(41, 500.0, 0.5, 45.0, 6.0, 50.0));
    assert_eq!(rule(&decision), "scale-up-power");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(6.0));
    assert!((decision.setting.cap().unwrap().get() - 63.68).abs() < 1e-9);
    // 220 ms: |(250 - 220) / 220| = 0.13636...: 50 W becomes 56.82 W, inside the limit.
    let decision = law(authors()).decide(&seen(41, 220.0, 0.5, 45.0, 6.0, 50.0));
    assert!((decision.setting.cap().unwrap().get() - 50.0 * (1.0 + 30.0 / 220.0)).abs() < 1e-9);
}

#[test]
fn late_with_power_at_its_limit_asks_equation_3_for_cores_and_gives_each_its_power() {
    // 6 cores: limit 63.68 W; 58 W is within 6 W of it. Eq. 3: 41/s needs 11 cores.
    let decision = law(authors()).decide(&seen(41, 212.0, 0.5, 55.0, 6.0, 58.0));
    assert_eq!(rule(&decision), "scale-up-cores");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(11.0));
    assert_eq!(decision.setting.cap().unwrap(), Watts::new(58.0 + 3.0 * 5.0));
    assert_eq!(decision.reasons[1].rule, "power-follows-cores");
    let text = &decision.reasons[0].text;
    assert!(
        text.starts_with("P95 212 ms > guard 200 ms and power at its limit for 6 cores"),
        "{text}"
    );
}

#[test]
fn late_with_everything_on_says_so_and_stays() {
    let decision = law(authors()).decide(&seen(400, 900.0, 0.99, 92.0, 16.0, 92.28));
    assert_eq!(rule(&decision), "at-maximum");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(16.0));
    assert!((decision.setting.cap().unwrap().get() - 92.28).abs() < 1e-9);
}

#[test]
fn a_utilisation_forecast_over_beta_adds_cores_before_latency_suffers() {
    let mut law = law(authors());
    law.decide(&seen(41, 150.0, 0.60, 55.0, 6.0, 58.0));
    law.decide(&seen(41, 150.0, 0.70, 55.0, 6.0, 58.0));
    // The line 0.6, 0.7, 0.8 reads 0.9 one step ahead.
    let decision = law.decide(&seen(41, 150.0, 0.80, 55.0, 6.0, 58.0));
    assert_eq!(rule(&decision), "scale-up-proactive");
    // Eq. 2 with T = 250 ms: 8.2, so 9 cores.
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(9.0));
}

#[test]
fn within_the_hold_band_nothing_changes() {
    let decision = law(authors()).decide(&seen(10, 120.0, 0.5, 50.0, 6.0, 60.0));
    assert_eq!(rule(&decision), "hold-near-target");
    assert_eq!(
        decision.setting,
        Allocation::new(Cores::new(6.0), Watts::new(60.0)).into()
    );
}

#[test]
fn the_papers_text_alone_has_no_hold_band_and_no_floor() {
    let mut law = law(Tuning {
        power_step_w_per_core: Some(3.0),
        ..Tuning::paper_only()
    });
    let decision = law.decide(&seen(10, 120.0, 0.5, 60.0, 6.0, 60.0));
    assert_eq!(rule(&decision), "scale-down-power");
    assert!((decision.setting.cap().unwrap().get() - (60.0 - 3.0 / 5.0)).abs() < 1e-9);
}

#[test]
fn d_quiet_periods_lower_the_cap_each_and_then_take_one_core() {
    let mut law = law(authors());
    let (mut cores, mut cap) = (8.0, 69.4);
    for period in 1..=4 {
        let decision = law.decide(&seen(10, 60.0, 0.4, 50.0, cores, cap));
        assert_eq!(rule(&decision), "scale-down-power", "period {period}");
        assert!((decision.setting.cap().unwrap().get() - (cap - 0.6)).abs() < 1e-9);
        (cores, cap) = (
            decision.setting.cores().unwrap().get(),
            decision.setting.cap().unwrap().get(),
        );
    }
    let decision = law.decide(&seen(10, 60.0, 0.4, 50.0, cores, cap));
    assert_eq!(rule(&decision), "scale-down-cores");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(7.0));
    assert!((decision.setting.cap().unwrap().get() - (cap - 3.0)).abs() < 1e-9);
    // The counter starts again.
    let decision = law.decide(&seen(10, 60.0, 0.4, 50.0, 7.0, cap - 3.0));
    assert_eq!(rule(&decision), "scale-down-power");
}

#[test]
fn a_cap_over_what_the_cores_can_need_is_lowered_from_there() {
    // A cluster lifts a cap that limits nothing, so all 92.28 W are in force beside 8 cores, whose limit is 69.40 W.
    let decision = law(authors()).decide(&seen(10, 50.0, 0.2, 50.0, 8.0, 92.28));
    assert_eq!(rule(&decision), "scale-down-power");
    assert!(
        (decision.setting.cap().unwrap().get() - (69.40 - 3.0 / 5.0)).abs() < 1e-9,
        "{decision:?}"
    );
}

#[test]
fn one_late_period_starts_the_count_of_quiet_ones_again() {
    let mut law = law(authors());
    for _ in 0..4 {
        law.decide(&seen(10, 60.0, 0.4, 50.0, 8.0, 69.4));
    }
    law.decide(&seen(10, 230.0, 0.4, 50.0, 8.0, 69.4));
    for _ in 0..4 {
        let decision = law.decide(&seen(10, 60.0, 0.4, 50.0, 9.0, 69.4));
        assert_eq!(rule(&decision), "scale-down-power");
    }
    assert_eq!(
        rule(&law.decide(&seen(10, 60.0, 0.4, 50.0, 9.0, 69.4))),
        "scale-down-cores"
    );
}

#[test]
fn cores_that_equation_3_needs_are_not_taken_away() {
    let mut law = law(authors());
    for _ in 0..20 {
        let decision = law.decide(&seen(41, 60.0, 0.4, 50.0, 11.0, 77.0));
        assert_eq!(decision.setting.cores().unwrap(), Cores::new(11.0));
    }
}

#[test]
fn the_cap_stays_above_the_consumption_by_a_tenth_and_an_unknown_consumption_stops_the_saving() {
    let mut law = law(authors());
    let decision = law.decide(&seen(10, 60.0, 0.4, 60.0, 8.0, 65.0));
    assert_eq!(rule(&decision), "hold-cap");
    assert_eq!(decision.setting.cap().unwrap(), Watts::new(65.0));
    let mut blind = seen(10, 60.0, 0.4, 0.0, 8.0, 65.0);
    blind.power = None;
    assert_eq!(rule(&law.decide(&blind)), "hold-cap");
    blind.utilisation = None;
    assert_eq!(rule(&law.decide(&blind)), "hold-unobserved");
}

#[test]
fn a_service_that_answers_nothing_at_all_is_late_and_an_idle_one_is_not() {
    let mut stalled = seen(41, 0.0, 0.4, 50.0, 6.0, 50.0);
    stalled.traffic = Some(Traffic {
        arrivals: 41,
        in_flight: Some(41),
        oldest_in_flight: Some(Seconds::new(1.0)),
        ..Traffic::default()
    });
    assert_eq!(rule(&law(authors()).decide(&stalled)), "scale-up-power");
    let mut idle = seen(0, 0.0, 0.0, 46.0, 6.0, 60.0);
    idle.traffic = Some(Traffic::default());
    assert_eq!(rule(&law(authors()).decide(&idle)), "scale-down-power");
}

#[test]
fn quotas_move_in_steps_of_a_tenth_and_the_power_with_them() {
    let plant = plant(0.2, 2.0, 0.1);
    let mut law = SloPower::new(slo(250.0), plant, PerSecond::new(250.0), authors()).unwrap();
    let mut in_force = Setting::from(Allocation::new(Cores::new(1.0), Watts::new(49.0)));
    for _ in 0..5 {
        let period = seen(
            50,
            60.0,
            0.3,
            40.0,
            in_force.cores().unwrap().get(),
            in_force.cap().unwrap().get(),
        );
        in_force = law.decide(&period).setting;
    }
    assert!((in_force.cores().unwrap().get() - 0.9).abs() < 1e-9);
    // Four decrements of 3 * 0.1 / 5 W and then 0.1 core's 0.3 W.
    assert!((in_force.cap().unwrap().get() - (49.0 - 4.0 * 0.06 - 0.3)).abs() < 1e-9);
}

#[test]
fn a_target_below_one_request_alone_is_refused() {
    let error = SloPower::new(
        slo(100.0),
        plant(2.0, 16.0, 1.0),
        PerSecond::new(9.0),
        Tuning::default(),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("100.000 ms") && error.to_string().contains("9.000"),
        "{error}"
    );
}

#[test]
fn five_periods_without_telemetry_put_everything_to_full_and_no_fewer() {
    let plant = plant(2.0, 16.0, 1.0);
    let mut guardian = Guardian::new(Box::new(law(authors())), plant, 5);
    let mut blind = seen(10, 60.0, 0.4, 50.0, 4.0, 50.0);
    blind.traffic = None;
    for _ in 0..4 {
        let decision = guardian.decide(&blind);
        assert_eq!(rule(&decision), "telemetry-lost-hold");
        assert_eq!(decision.setting, blind.in_force);
    }
    for _ in 0..3 {
        let decision = guardian.decide(&blind);
        assert_eq!(rule(&decision), "telemetry-lost-full");
        assert_eq!(decision.setting, plant.full());
    }
    // It comes back with full allocation in force: the law saves again, slowly.
    let decision = guardian.decide(&seen(10, 60.0, 0.4, 50.0, 16.0, 92.28));
    assert_eq!(rule(&decision), "scale-down-power");
    assert_eq!(guardian.lost_periods(), 0);
}

/// A quiet period in which so many requests were answered, the service failed so many, and so many clients went away.
fn failing(completions: u64, failed: u64, failed_by_client: u64) -> Observation {
    let mut period = seen(0, 0.0, 0.0, 46.0, 6.0, 60.0);
    let failures = failed + failed_by_client;
    period.traffic = Some(Traffic {
        arrivals: completions + failures,
        completions,
        failures,
        failed_by_client,
        ..Traffic::default()
    });
    period
}

#[test]
fn while_a_few_percent_fail_the_law_gives_but_does_not_take_and_then_everything_goes_to_full() {
    let all = plant(2.0, 16.0, 1.0);
    let mut guardian = Guardian::new(Box::new(law(authors())), all, 5);
    let few = failing(970, 30, 0);
    for _ in 0..4 {
        let decision = guardian.decide(&few);
        assert_eq!(rule(&decision), "failing-hold");
        assert_eq!(decision.setting, few.in_force);
    }
    for _ in 0..3 {
        let decision = guardian.decide(&few);
        assert_eq!(rule(&decision), "failing-full");
        assert_eq!(decision.setting, all.full());
    }
    // One period in which fewer fail is chance; as many in a row as it took begin the count anew.
    let well = failing(980, 20, 0);
    assert_eq!(rule(&guardian.decide(&well)), "failing-full");
    assert_eq!(rule(&guardian.decide(&few)), "failing-full");
    for _ in 0..4 {
        let decision = guardian.decide(&well);
        assert_eq!((rule(&decision), decision.setting), ("failing-full", all.full()));
    }
    assert!(!rule(&guardian.decide(&well)).starts_with("failing"));
    assert_eq!(rule(&guardian.decide(&few)), "failing-hold");
    // One that hangs until requests time out is late, and is given more.
    let mut hung = few.clone();
    let traffic = hung.traffic.as_mut().unwrap();
    (traffic.completions, traffic.failures) = (0, 2);
    (traffic.in_flight, traffic.oldest_in_flight) = (Some(40), Some(Seconds::new(60.0)));
    assert_eq!(rule(&guardian.decide(&hung)), "scale-up-cores");
}

#[test]
fn where_many_fail_everything_goes_to_full_at_once() {
    let all = plant(2.0, 16.0, 1.0);
    for (period, expected) in [
        (failing(0, 40, 0), "failing-full"),
        (failing(90, 10, 0), "failing-full"),
        (failing(91, 9, 0), "failing-hold"),
        // Few requests are no share of anything, unless most of them fail.
        (failing(4, 2, 0), "the law's"),
        (failing(1, 2, 0), "failing-hold"),
        // Clients that go away miss no SLO, but where most do something may be wrong.
        (failing(60, 0, 40), "the law's"),
        (failing(40, 0, 60), "failing-hold"),
    ] {
        let mut guardian = Guardian::new(Box::new(law(authors())), all, 5);
        let decision = guardian.decide(&period);
        match expected {
            "the law's" => assert!(
                !rule(&decision).starts_with("failing"),
                "{period:?}: {decision:?}"
            ),
            expected => assert_eq!(rule(&decision), expected, "{period:?}"),
        }
        if expected == "failing-full" {
            assert_eq!(decision.setting, all.full());
        }
    }
    let limits = FailingLimits {
        hold: Ratio::new(0.5),
        full: Ratio::new(0.6),
        fewest: 1,
    };
    let mut guardian = Guardian::new(Box::new(law(authors())), all, 5).with_failing(limits);
    assert!(!rule(&guardian.decide(&failing(60, 40, 0))).starts_with("failing"));
}

#[test]
fn a_recorded_period_comes_back_from_json_as_it_was() {
    let period = seen(41, 212.0, 0.5, 55.0, 6.0, 58.0);
    let decision = law(authors()).decide(&period);
    let json = serde_json::to_string(&(&period, &decision)).unwrap();
    let back: (Observation, Decision) = serde_json::from_str(&json).unwrap();
    assert_eq!(back, (period, decision));
}

#[test]
fn a_frequency_that_something_else_limited_is_let_go() {
    let mut period = seen(10, 120.0, 0.5, 50.0, 6.0, 60.0);
    period.in_force = period.in_force.with(Lever::Frequency, Some(1.2e9));
    let decision = law(authors()).decide(&period);
    assert_eq!(rule(&decision), "hold-near-target");
    assert_eq!(decision.setting.frequency(), None);
}

fn alone(mode: Mode) -> SloPower {
    let plant = plant(2.0, 16.0, 1.0);
    SloPower::with_mode(slo(250.0), plant, PerSecond::new(9.0), authors(), mode).unwrap()
}

#[test]
fn power_alone_repairs_with_the_cap_and_keeps_all_cores_on() {
    let mut law = alone(Mode::PowerOnly);
    assert_eq!(law.name(), "power-only");
    // 70 W of the 92.28 W of 16 cores: |(250 - 500) / 500| = 0.5, bounded.
    let decision = law.decide(&seen(41, 500.0, 0.5, 60.0, 16.0, 70.0));
    assert_eq!(rule(&decision), "scale-up-power");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(16.0));
    assert!((decision.setting.cap().unwrap().get() - 92.28).abs() < 1e-9);
    let decision = law.decide(&seen(41, 500.0, 0.5, 90.0, 16.0, 92.28));
    assert_eq!(rule(&decision), "at-maximum");
    // Fewer cores than all are none of its doing: it puts them back, and counts on them.
    let decision = law.decide(&seen(41, 500.0, 0.5, 60.0, 6.0, 60.0));
    assert_eq!(rule(&decision), "scale-up-power");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(16.0));
    assert_eq!(decision.setting.cap().unwrap(), Watts::new(90.0));
}

#[test]
fn power_alone_saves_a_step_of_the_cap_a_period_and_never_a_core() {
    let mut law = alone(Mode::PowerOnly);
    let mut cap = 92.28;
    for period in 1..=20 {
        let decision = law.decide(&seen(5, 50.0, 0.1, 50.0, 16.0, cap));
        assert_eq!(rule(&decision), "scale-down-power");
        assert_eq!(decision.setting.cores().unwrap(), Cores::new(16.0));
        cap = decision.setting.cap().unwrap().get();
        assert!((cap - (92.28 - 0.6 * f64::from(period))).abs() < 1e-9);
    }
    // 1.1 times what is consumed is the end.
    assert_eq!(
        rule(&law.decide(&seen(5, 50.0, 0.1, 75.0, 16.0, 80.0))),
        "hold-cap"
    );
}

#[test]
fn cores_alone_repair_at_once_and_never_touch_the_cap() {
    let mut law = alone(Mode::ElasticOnly);
    assert_eq!(law.name(), "elastic-only");
    // Whatever cap is in force, it counts as at its limit: 41/s needs 11 cores by Eq. 3.
    let decision = law.decide(&seen(41, 212.0, 0.5, 55.0, 6.0, 50.0));
    assert_eq!(rule(&decision), "scale-up-cores");
    assert_eq!(decision.reasons.len(), 1);
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(11.0));
    assert!((decision.setting.cap().unwrap().get() - 92.28).abs() < 1e-9);
    let decision = law.decide(&seen(400, 212.0, 0.99, 90.0, 16.0, 92.28));
    assert_eq!(rule(&decision), "at-maximum");
}

#[test]
fn cores_alone_prepare_for_load_and_save_a_step_every_d_periods() {
    let mut law = alone(Mode::ElasticOnly);
    let decision = law.decide(&seen(41, 150.0, 0.9, 55.0, 6.0, 92.28));
    assert_eq!(rule(&decision), "scale-up-proactive");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(9.0));
    let mut law = alone(Mode::ElasticOnly);
    let mut cores = 16.0;
    let mut course = Vec::new();
    for _ in 0..11 {
        let decision = law.decide(&seen(41, 50.0, 0.3, 60.0, cores, 92.28));
        cores = decision.setting.cores().unwrap().get();
        assert!((decision.setting.cap().unwrap().get() - 92.28).abs() < 1e-9);
        course.push((cores, rule(&decision).to_owned()));
    }
    for (period, (cores, rule)) in course.iter().enumerate() {
        let steps = (period + 1) / 5;
        assert_eq!(*cores, 16.0 - steps as f64);
        let expected = if (period + 1) % 5 == 0 {
            "scale-down-cores"
        } else {
            "hold-cores"
        };
        assert_eq!(rule, expected);
    }
}
