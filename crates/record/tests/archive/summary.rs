//! Summaries of literal periods, computed by hand; and the laws that every summary obeys.

use crate::common::{histogram, joules, meta};
use headroom_record::{Conditions, PeriodRecord, Reason, RunSummary, RunTotals, summary_table};
use headroom_units::{Cores, Joules, Ratio, Reading, Seconds, Source, Watts};
use proptest::prelude::*;

const TARGET: Seconds = Seconds::from_millis(250.0);

/// A period of one second on two cores, in which ten requests were answered with the given P95.
fn period(index: u64, p95_ms: f64) -> PeriodRecord {
    let mut period = PeriodRecord::new(
        index,
        Seconds::new(index as f64),
        Seconds::new(1.0),
        Cores::new(2.0),
    );
    period.arrivals = 10;
    period.completions = 10;
    period.slo_latency = Some(Seconds::from_millis(p95_ms));
    period.energy = joules(50.0, Source::Measured);
    period.power = Some(Reading::new(Watts::new(50.0), Source::Measured));
    period
}

fn over_after_warm_up(periods: impl IntoIterator<Item = PeriodRecord>) -> RunSummary {
    let mut totals = RunTotals::new(TARGET);
    let none = histogram();
    for index in 0..10 {
        // Over the target, all ten: the warm-up must not count.
        totals.add(&period(index, 900.0), &none);
    }
    for (offset, mut period) in periods.into_iter().enumerate() {
        period.index = 10 + offset as u64;
        totals.add(&period, &none);
    }
    totals.summary(&meta("slo-power"))
}

#[test]
fn periods_in_which_the_control_loop_stood_still_are_noted() {
    let lasting = |lengths: &[f64]| {
        let mut totals = RunTotals::new(TARGET).with_usual_period(Seconds::new(1.0));
        for (index, length) in lengths.iter().enumerate() {
            let period = PeriodRecord {
                duration: Seconds::new(*length),
                ..period(index as u64, 10.0)
            };
            totals.add(&period, &histogram());
        }
        let notes = totals.summary(&meta("slo-power")).notes;
        notes.into_iter().find(|note| note.contains("twice as long"))
    };
    assert_eq!(lasting(&[1.0, 1.9, 0.2, 2.0]), None);
    assert_eq!(
        lasting(&[1.0, 2.1, 1.0, 5.64, 1.0]).unwrap(),
        "2 of 5 periods were more than twice as long as the usual 1 s, the longest 5.6 s: the control loop did not get a processor, or the \
         machine stood still"
    );
    assert!(
        lasting(&[4.0, 1.0])
            .unwrap()
            .starts_with("1 of 2 periods was more")
    );
}

#[test]
fn the_keys_of_the_contract_stand_in_their_order() {
    let mut totals = RunTotals::new(TARGET);
    totals.add(&period(0, 100.0), &histogram());
    let json = serde_json::to_string(&totals.summary(&meta("slo-power"))).unwrap();
    let keys = [
        "\"law\"",
        "\"trace\"",
        "\"seed\"",
        "\"world\"",
        "\"periods\"",
        "\"duration_s\"",
        "\"requests\"",
        "\"offered\"",
        "\"completed\"",
        "\"failed\"",
        "\"latency_ms\"",
        "\"mean\"",
        "\"p50\"",
        "\"p95\"",
        "\"p99\"",
        "\"p999\"",
        "\"slo\"",
        "\"percentile\"",
        "\"target_ms\"",
        "\"periods_over\"",
        "\"energy_j\"",
        "\"value\"",
        "\"source\"",
        "\"joules_per_request\"",
        "\"power_w\"",
        "\"consumed_mean\"",
        "\"allocated_mean\"",
        "\"ratio\"",
        "\"cores\"",
        "\"mean\"",
        "\"core_seconds\"",
        "\"utilisation_mean\"",
    ];
    let mut rest = json.as_str();
    for key in keys {
        let at = rest
            .find(key)
            .unwrap_or_else(|| panic!("{key} is missing or out of order in {json}"));
        rest = &rest[at + key.len()..];
    }
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["world"], "live");
    assert_eq!(value["duration_s"], 1.0);
    assert_eq!(value["slo"]["target_ms"], 250.0);
    assert_eq!(
        value["energy_j"],
        serde_json::json!({"value": 50.0, "source": "measured"})
    );
    assert_eq!(value["joules_per_request"], 5.0);
    assert_eq!(
        value["cores"],
        serde_json::json!({"mean": 2.0, "core_seconds": 2.0})
    );
    let back: RunSummary = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), json);
}

#[test]
fn a_summary_is_what_a_hand_computes() {
    let mut totals = RunTotals::new(TARGET);
    let mut latencies = histogram();
    for ms in 1..=100_u64 {
        latencies.record(ms * 1000).unwrap();
    }
    // 2 s on 4 cores at 90 W under a cap of 100 W, then 1 s on 1 core at 30 W under a cap of 60 W.
    let mut first = period(0, 95.0);
    first.duration = Seconds::new(2.0);
    first.cores = Some(Cores::new(4.0));
    first.arrivals = 103;
    first.completions = 100;
    first.failures = 1;
    first.power = Some(Reading::new(Watts::new(90.0), Source::Estimated));
    first.energy = joules(180.0, Source::Estimated);
    first.cap = Some(Watts::new(100.0));
    first.utilisation = Some(Ratio::new(0.8));
    first.reasons = vec![Reason::new("hold", "a", &[]), Reason::new("power-up", "b", &[])];
    let mut second = period(1, 10.0);
    second.cores = Some(Cores::new(1.0));
    second.arrivals = 0;
    second.completions = 0;
    second.slo_latency = None;
    second.power = None;
    second.energy = joules(30.0, Source::Estimated);
    second.cap = Some(Watts::new(60.0));
    second.utilisation = Some(Ratio::new(0.2));
    second.reasons = vec![Reason::new("hold", "c", &[])];
    totals.add(&first, &latencies);
    totals.add(&second, &histogram());
    let summary = totals.summary(&meta("slo-power"));
    assert_eq!(summary.periods, 2);
    assert_eq!(summary.duration_s, Seconds::new(3.0));
    assert_eq!(
        (
            summary.requests.offered,
            summary.requests.completed,
            summary.requests.failed
        ),
        (103, 100, 1)
    );
    let close = |value: Option<f64>, expected: f64| {
        let value = value.unwrap();
        assert!(
            (value - expected).abs() <= 1e-3 * expected,
            "{value} is not {expected}"
        );
    };
    close(summary.latency_ms.p50, 50.0);
    close(summary.latency_ms.p95, 95.0);
    close(summary.latency_ms.p99, 99.0);
    close(summary.latency_ms.p999, 100.0);
    close(summary.latency_ms.mean, 50.5);
    assert_eq!(summary.energy_j.value, Some(Joules::new(210.0)));
    assert_eq!(summary.energy_j.source, Some(Source::Estimated));
    assert_eq!(summary.joules_per_request, Some(Joules::new(2.1)));
    // (90 W × 2 s + 30 W × 1 s) / 3 s, the second period's power being its energy over its length.
    assert_eq!(summary.power_w.consumed_mean, Some(Watts::new(70.0)));
    close(summary.power_w.allocated_mean.map(Watts::get), 260.0 / 3.0);
    close(summary.power_w.ratio.map(Ratio::get), 210.0 / 260.0);
    assert_eq!(summary.cores.core_seconds, Some(9.0));
    assert_eq!(summary.cores.mean, Some(Cores::new(3.0)));
    close(summary.utilisation_mean.map(Ratio::get), 1.8 / 3.0);
    assert_eq!(summary.decisions["hold"], 2);
    assert_eq!(summary.decisions["power-up"], 1);
    assert_eq!(summary.slo.periods_over, None, "two periods are both warm-up");
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.contains("no period was held")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn periods_over_the_target_count_after_the_warm_up() {
    let summary = over_after_warm_up([
        period(0, 250.0),
        period(0, 250.1),
        period(0, 10.0),
        period(0, 300.0),
    ]);
    assert_eq!(
        summary.slo.periods_over,
        Some(Ratio::new(0.5)),
        "at the target is not over it"
    );
    assert_eq!(summary.slo.periods_judged, 4);
    assert_eq!(summary.slo.periods_unknown, 0);
}

#[test]
fn a_period_without_a_latency_is_judged_by_what_else_is_known() {
    let empty = |change: &dyn Fn(&mut PeriodRecord)| {
        let mut without = PeriodRecord::new(0, Seconds::new(10.0), Seconds::new(1.0), Cores::new(1.0));
        change(&mut without);
        let summary = over_after_warm_up([period(0, 1.0), without]);
        (
            summary.slo.periods_over.unwrap().get() > 0.0,
            summary.slo.periods_unknown,
        )
    };
    type Case<'a> = (&'a str, (bool, u64), &'a dyn Fn(&mut PeriodRecord));
    let cases: [Case<'_>; 8] = [
        ("no request", (false, 0), &|_| {}),
        ("one has just arrived", (false, 0), &|period| {
            (period.arrivals, period.in_flight) = (1, 1)
        }),
        ("the oldest is younger than the target", (false, 0), &|period| {
            period.in_flight = 3;
            period.oldest_in_flight = Some(Seconds::from_millis(249.0));
        }),
        ("the oldest is older than the target", (true, 0), &|period| {
            period.in_flight = 3;
            period.oldest_in_flight = Some(Seconds::from_millis(251.0));
        }),
        ("all failed", (true, 0), &|period| {
            (period.arrivals, period.failures) = (4, 4)
        }),
        ("telemetry lost", (true, 1), &|period| {
            period.telemetry_lost = true
        }),
        ("answered, and nobody knows how fast", (true, 1), &|period| {
            period.completions = 2
        }),
        ("telemetry lost, latency known", (false, 0), &|period| {
            period.telemetry_lost = true;
            period.completions = 2;
            period.slo_latency = Some(Seconds::from_millis(20.0));
        }),
    ];
    for (name, expected, change) in cases {
        assert_eq!(empty(change), expected, "{name}");
    }
}

#[test]
fn a_service_that_stands_still_is_over_its_target() {
    let mut stuck = PeriodRecord::new(0, Seconds::new(10.0), Seconds::new(1.0), Cores::new(1.0));
    stuck.in_flight = 5;
    let kept = over_after_warm_up([stuck.clone()]);
    assert_eq!(
        kept.slo.periods_over,
        Some(Ratio::ZERO),
        "they may have arrived at its very end"
    );
    let stands = over_after_warm_up([stuck.clone(), stuck]);
    assert_eq!(
        stands.slo.periods_over,
        Some(Ratio::new(0.5)),
        "through the second period nobody was answered"
    );
}

/// As behind an HAProxy whose log nobody reads: it counts requests, and times none.
#[test]
fn a_period_whose_latency_nothing_was_to_measure_is_not_judged_unless_it_failed_or_stood_still() {
    let counted = |completions, failures, in_flight| PeriodRecord {
        completions,
        failures,
        in_flight,
        ..PeriodRecord::new(0, Seconds::ZERO, Seconds::new(1.0), None)
    };
    let lost = PeriodRecord {
        telemetry_lost: true,
        ..counted(0, 0, 0)
    };
    let verdict = |is_unmeasured: bool, periods: &[PeriodRecord]| {
        let mut totals = RunTotals::new(TARGET).unmeasured(is_unmeasured.then(|| Ratio::from_percent(95.0)));
        let warm_up = vec![counted(0, 0, 0); 10];
        warm_up
            .iter()
            .chain(periods)
            .for_each(|period| totals.add_row(period));
        let slo = totals.summary(&meta("elastic")).slo;
        let over = slo.periods_over.map(Ratio::get);
        (
            slo.periods_judged,
            over,
            slo.periods_unknown,
            slo.periods_unmeasured,
        )
    };
    let answered = [counted(95, 0, 4)];
    assert_eq!(verdict(true, &answered), (0, None, 0, 1));
    assert_eq!(verdict(false, &answered), (1, Some(1.0), 1, 0));
    // What has just come may still be late.
    assert_eq!(verdict(true, &[counted(0, 0, 3)]), (0, None, 0, 1));
    // Of few that failed the percentile is not.
    for few in [counted(96, 4, 4), counted(95, 5, 4), counted(57, 3, 4)] {
        assert_eq!(verdict(true, &[few]), (0, None, 0, 1));
    }
    for over in [counted(94, 6, 4), lost] {
        let (judged, share, _, unmeasured) = verdict(true, &[over]);
        assert_eq!((judged, share, unmeasured), (1, Some(1.0), 0));
    }
    let stands = [counted(0, 0, 3), counted(0, 0, 3)];
    assert_eq!(verdict(true, &stands), (1, Some(1.0), 0, 1));
    assert_eq!(verdict(true, &[counted(0, 0, 0)]), (1, Some(0.0), 0, 0));
}

#[test]
fn energies_of_two_sources_stand_side_by_side() {
    let mut modelled = period(1, 1.0);
    modelled.energy = joules(7.0, Source::Estimated);
    modelled.power = Some(Reading::new(Watts::new(7.0), Source::Estimated));
    modelled.cap = Some(Watts::new(10.0));
    let mut totals = RunTotals::new(TARGET);
    totals.add(&period(0, 1.0), &histogram());
    totals.add(&modelled, &histogram());
    let summary = totals.summary(&meta("slo-power"));
    assert_eq!((summary.energy_j.value, summary.energy_j.source), (None, None));
    let parts: Vec<(Source, f64)> = summary
        .energy_j
        .by_source
        .iter()
        .map(|part| (part.source, part.value.get()))
        .collect();
    assert_eq!(parts, [(Source::Measured, 50.0), (Source::Estimated, 7.0)]);
    assert_eq!(summary.joules_per_request, None);
    assert_eq!(summary.power_w.consumed_mean, None);
    assert_eq!(summary.power_w.ratio, None);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["energy_j"]["value"], serde_json::Value::Null);
    let table = summary_table(&[summary]);
    assert!(
        table.contains("50.0 measured | 7.0 estimated") && table.contains("not added up"),
        "{table}"
    );
}

#[test]
fn a_run_without_a_meter_has_no_energy_rather_than_none_used() {
    let mut dark = period(0, 1.0);
    (dark.energy, dark.power) = (None, None);
    let mut totals = RunTotals::new(TARGET);
    totals.add(&dark, &histogram());
    let summary = totals.summary(&meta("slo-power"));
    assert_eq!(summary.energy_j.value, None);
    assert_eq!(summary.joules_per_request, None);
    assert!(
        summary.notes.iter().any(|note| note.contains("no power meter")),
        "{:?}",
        summary.notes
    );
    let mut totals = RunTotals::new(TARGET);
    totals.add(&dark, &histogram());
    totals.add(&period(1, 1.0), &histogram());
    let summary = totals.summary(&meta("slo-power"));
    assert_eq!(summary.energy_j.value, Some(Joules::new(50.0)));
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.contains("unknown in 1 of 2 periods")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn lost_levers_missing_nodes_and_unknown_energies_are_counted_by_period() {
    let mut totals = RunTotals::new(TARGET);
    for index in 0..5 {
        let mut one = period(index, 1.0);
        one.levers_lost = index < 2;
        one.nodes_missing = if index == 3 { 2 } else { 0 };
        if index == 3 {
            one.energy = None;
        }
        totals.add(&one, &histogram());
    }
    let meta = headroom_record::RunMeta {
        nodes: vec!["n1".to_owned(), "n2".to_owned(), "n3".to_owned()],
        ..meta("slo-power")
    };
    let summary = totals.summary(&meta);
    let expected = Conditions {
        energy_unknown_periods: 1,
        levers_lost_periods: 2,
        nodes: meta.nodes.clone(),
        nodes_missing_periods: 1,
        bystanders: None,
        began_ms: summary.conditions.began_ms,
        arrivals: Vec::new(),
    };
    assert_eq!(summary.conditions, expected);
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.contains("in 1 of 5 periods nodes could not be reached")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn a_table_of_many_runs_has_a_line_for_each_and_no_control_characters() {
    let summary = over_after_warm_up([period(0, 1.0)]);
    let many: Vec<RunSummary> = (0..7)
        .map(|number| RunSummary {
            law: format!("law-{number}\u{1b}[31m"),
            ..summary.clone()
        })
        .collect();
    let table = summary_table(&many);
    assert_eq!(
        table.lines().filter(|line| line.starts_with(" law-")).count(),
        7,
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert_eq!(summary_table(&[]), "no runs\n");
}

#[test]
fn rules_beyond_the_limit_are_counted_together() {
    let (mut totals, none) = (RunTotals::new(TARGET), histogram());
    for index in 0..400 {
        let mut one = period(index, 1.0);
        one.reasons = vec![Reason::new(format!("rule-{index}"), "because", &[])];
        totals.add(&one, &none);
    }
    let decisions = totals.summary(&meta("chatty")).decisions;
    assert_eq!(decisions.len(), 257);
    assert_eq!(decisions["other rules"], 400 - 256);
}

prop_compose! {
    fn any_period()(
        arrivals in 0..1000_u64, completions in 0..1000_u64, failures in 0..10_u64, in_flight in 0..50_u64,
        slo_ms in prop::option::of(0.0..2000.0_f64), energy in prop::option::of(0.0..500.0_f64),
        cap in prop::option::of(10.0..300.0_f64), cores in 0.0..64.0_f64, utilisation in prop::option::of(0.0..1.0_f64),
        duration in 0.01..10.0_f64, lost in any::<bool>(), rule in 0..400_usize,
    ) -> PeriodRecord {
        let mut period = PeriodRecord::new(0, Seconds::ZERO, Seconds::new(duration), Cores::new(cores));
        (period.arrivals, period.completions, period.failures) = (arrivals, completions, failures);
        period.in_flight = in_flight;
        period.slo_latency = slo_ms.map(Seconds::from_millis);
        period.energy = energy.and_then(|energy| joules(energy, Source::Measured));
        period.cap = cap.map(Watts::new);
        period.utilisation = utilisation.map(Ratio::new);
        period.telemetry_lost = lost;
        period.reasons = vec![Reason::new(format!("rule-{rule}"), "because", &[])];
        period
    }
}

#[test]
fn failed_requests_are_the_slowest_of_a_period_and_of_the_run() {
    let mut totals = RunTotals::new(TARGET);
    let mut latencies = histogram();
    latencies.record_n(1_000, 90).unwrap();
    for index in 0..12 {
        let mut period = PeriodRecord::new(
            index,
            Seconds::new(index as f64),
            Seconds::new(1.0),
            Cores::new(1.0),
        );
        (period.arrivals, period.completions, period.failures) = (100, 90, 10);
        // In the last all that went wrong were clients that went away.
        (period.failed_by_client, period.slo_latency) = match index {
            11 => (10, Some(Seconds::from_millis(1.0))),
            _ => (0, None),
        };
        totals.add(&period, &latencies);
    }
    let summary = totals.summary(&meta("failing"));
    assert_eq!(summary.slo.periods_judged, 2);
    assert_eq!(summary.slo.periods_over.unwrap().get(), 0.5);
    assert_eq!(summary.slo.periods_unknown, 0, "it is known that it was missed");
    assert_eq!((summary.slo.latency_ms, summary.requests.failed), (None, 120));
    assert!(summary.latency_ms.p95.unwrap() < 1.01, "of the good answers");
    assert!(
        summary.notes.iter().any(|note| note.contains("is missed")),
        "{:?}",
        summary.notes
    );
}

#[test]
fn energy_is_that_of_the_periods_known_with_their_share() {
    let with = |known: u64| {
        let mut totals = RunTotals::new(TARGET);
        for index in 0..10 {
            let mut period = PeriodRecord::new(
                index,
                Seconds::new(index as f64),
                Seconds::new(1.0),
                Cores::new(1.0),
            );
            // The periods without a meter have more requests: they must not make the others' cheaper.
            period.completions = if index < known { 1 } else { 9 };
            period.arrivals = period.completions;
            period.energy = (index < known).then(|| Reading::new(Joules::new(2.0), Source::Measured));
            totals.add(&period, &histogram());
        }
        totals.summary(&meta("dead meter"))
    };
    for (known, joules, share) in [
        (0, None, Some(0.0)),
        (3, Some(6.0), Some(0.3)),
        (5, Some(10.0), Some(0.5)),
        (10, Some(20.0), None),
    ] {
        let summary = with(known);
        assert_eq!(summary.energy_j.value.map(Joules::get), joules);
        assert_eq!(summary.energy_j.known_share.map(Ratio::get), share);
        assert_eq!(summary.joules_per_request.map(Joules::get), joules.map(|_| 2.0));
        let said = format!("unknown in {} of 10 periods", 10 - known);
        let said = summary.notes.iter().any(|note| note.contains(&said));
        assert_eq!(said, (1..10).contains(&known), "{:?}", summary.notes);
    }
    let table = summary_table(&[with(3)]);
    assert!(table.contains("6.0 (30 % of the periods known)"), "{table}");
}

proptest! {
    #[test]
    fn shares_are_shares_and_sums_are_sums(periods in prop::collection::vec(any_period(), 0..60)) {
        let (mut totals, none) = (RunTotals::new(TARGET), histogram());
        for (index, period) in periods.iter().enumerate() {
            totals.add(&PeriodRecord { index: index as u64, ..period.clone() }, &none);
        }
        let summary = totals.summary(&meta("any"));
        prop_assert_eq!(summary.periods, periods.len() as u64);
        prop_assert_eq!(summary.slo.periods_judged, periods.len().saturating_sub(10) as u64);
        prop_assert_eq!(summary.slo.periods_over.is_some(), periods.len() > 10);
        if let Some(over) = summary.slo.periods_over {
            prop_assert!((0.0..=1.0).contains(&over.get()));
            prop_assert!(summary.slo.periods_unknown as f64 <= over.get() * summary.slo.periods_judged as f64 + 1e-9);
        }
        let energy: f64 = periods.iter().filter_map(|period| period.energy).map(|energy| energy.value.get()).sum();
        prop_assert!((summary.energy_j.value.map_or(0.0, Joules::get) - energy).abs() <= 1e-9 * energy.max(1.0));
        prop_assert_eq!(summary.requests.offered, periods.iter().map(|period| period.arrivals).sum::<u64>());
        let (least, most) = periods.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), period| {
            let cores = period.cores.map_or(f64::NAN, Cores::get);
            (least.min(cores), most.max(cores))
        });
        if let Some(mean) = summary.cores.mean {
            prop_assert!(mean.get() >= least - 1e-9 && mean.get() <= most + 1e-9);
        }
        prop_assert_eq!(summary.decisions.values().sum::<u64>(), periods.len() as u64);
        let json = serde_json::to_string(&summary).unwrap();
        prop_assert_eq!(serde_json::from_str::<RunSummary>(&json).unwrap(), summary);
    }

    #[test]
    fn worse_latency_never_lowers_the_share_over_the_target(
        latencies in prop::collection::vec(0.0..500.0_f64, 11..40), worse_by in 0.0..300.0_f64,
    ) {
        let share = |extra: f64| over_after_warm_up(latencies.iter().map(|ms| period(0, ms + extra)))
            .slo.periods_over.unwrap().get();
        prop_assert!(share(worse_by) >= share(0.0));
    }
}

#[test]
fn a_run_that_knows_its_bound_says_how_far_above_it_was() {
    let mut totals = RunTotals::new(TARGET);
    let mut one = period(0, 1.0);
    one.energy = Some(Reading::new(Joules::new(120.0), Source::Simulated));
    totals.add(&one, &histogram());
    let bounded = |joules: f64| {
        let meta = headroom_record::RunMeta {
            energy_bound: Some(Joules::new(joules)),
            ..meta("slo-power")
        };
        totals.summary(&meta)
    };
    let summary = bounded(100.0);
    assert!((summary.energy_over_bound.unwrap().get() - 0.2).abs() < 1e-12);
    let table = summary_table(&[summary]);
    assert!(
        table.contains("energy over the bound") && table.contains("20.00"),
        "{table}"
    );
    // Proven for whoever answers everything: a run under it did not, and is not held against it.
    let under = bounded(130.0);
    assert_eq!(under.energy_over_bound, None);
    assert!(
        under
            .notes
            .iter()
            .any(|note| note.contains("less than the 130.0 J")),
        "{:?}",
        under.notes
    );
    let unknown = totals.summary(&meta("slo-power"));
    assert!(!summary_table(&[unknown]).contains("bound"));
}
