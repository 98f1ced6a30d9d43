//! Runs of a server on call: classes with their SLOs, what a law compared, periods without queries, standstills.

use crate::common::{histogram, meta};
use headroom_record::report::run_html;
use headroom_record::{Archive, Limits, PeriodRecord, Recorder, RunId, RunSummary};
use headroom_units::{
    Compared, Comparison, Joules, Lever, Part, PerSecond, Ratio, Reading, Role, Seconds, Sensor, Setting,
    Source, Verdict,
};

fn recorded(periods: &[PeriodRecord]) -> (tempfile::TempDir, Archive, RunId, RunSummary) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut run = recorder.start_run(meta("on-call")).unwrap();
    for period in periods {
        assert!(run.record_waiting(period.clone(), &histogram()).unwrap());
    }
    let (id, summary) = (run.id(), run.finish().unwrap());
    (folder, Archive::open(&path).unwrap(), id, summary)
}

/// A period of a second in which so many queries were answered, each in 20 ms.
fn period(index: u64, queries: u64) -> PeriodRecord {
    PeriodRecord {
        arrivals: queries,
        completions: queries,
        slo_latency: (queries > 0).then(|| Seconds::from_millis(20.0)),
        ..PeriodRecord::new(index, Seconds::new(index as f64), Seconds::new(1.0), None)
    }
}

#[test]
fn of_periods_without_queries_no_slo_is_said_to_be_kept() {
    let none: Vec<PeriodRecord> = (0..30).map(|index| period(index, 0)).collect();
    let (_folder, archive, id, summary) = recorded(&none);
    assert_eq!(
        (summary.slo.periods_judged, summary.slo.periods_without_requests),
        (20, 20)
    );
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains("there were no requests to hold against it in any of 20 judged periods"));
    assert!(!html.contains("was kept"));
    assert!(summary.in_short().starts_with("P95 under 250 ms: no requests"));
    let table = headroom_record::summary_table(&[summary]);
    assert!(!table.contains("over"), "{table}");

    let some: Vec<PeriodRecord> = (0..30).map(|index| period(index, index % 2)).collect();
    let (_folder, archive, id, summary) = recorded(&some);
    assert_eq!(
        summary.slo.periods_over,
        Some(Ratio::ZERO),
        "what the key means is a contract"
    );
    assert_eq!(
        summary.in_short(),
        "P95 under 250 ms: over in 0.0 % of 10 judged periods (10 more had no requests); energy unknown"
    );
    assert!(headroom_record::summary_table(&[summary]).contains("over"));
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains("was kept in every one of 10 judged periods (10 more had no requests)"));
}

/// A quarter of the periods with queries is late, and as many others have none.
#[test]
fn the_table_the_page_and_the_line_have_one_share_of_late_periods() {
    let late = |index: u64| match index % 8 {
        0..4 => period(index, 0),
        4 => PeriodRecord {
            slo_latency: Some(Seconds::from_millis(300.0)),
            ..period(index, 5)
        },
        _ => period(index, 5),
    };
    let periods: Vec<PeriodRecord> = (0..90).map(late).collect();
    let (_folder, archive, id, summary) = recorded(&periods);
    assert_eq!(summary.slo.periods_over, Some(Ratio::new(0.125)), "a contract");
    let judged = "25 % of 40 judged periods (40 more had no requests)";
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains(&format!("was broken in {judged}")));
    let short = summary.in_short();
    assert!(
        short.contains("over in 25.0 % of 40 judged periods (40 more"),
        "{short}"
    );
    let table = headroom_record::summary_table(&[summary]);
    let row = table
        .lines()
        .find(|line| line.contains("judged periods with P95 over 250 ms"));
    assert!(
        row.is_some_and(|row| row.trim_end().ends_with(" 25.00")),
        "{table}"
    );
}

#[test]
fn a_standstill_is_over_the_target_and_no_period_without_queries() {
    let standstill = |index: u64| PeriodRecord {
        in_flight: 3,
        // The target of these runs is 250 ms.
        oldest_in_flight: Some(Seconds::new(if index < 25 { 2.0 } else { 0.1 })),
        ..period(index, 0)
    };
    let periods: Vec<PeriodRecord> = (0..20)
        .map(|index| period(index, 5))
        .chain((20..30).map(standstill))
        .collect();
    let (_folder, archive, id, summary) = recorded(&periods);
    assert_eq!(summary.slo.periods_over, Some(Ratio::new(0.25)), "5 of 20");
    assert!(summary.in_short().contains("over in 25.0 % of 20 judged periods"));
    assert_eq!(summary.slo.periods_without_requests, 0);
    // The plot of the latency marks them.
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains("was broken in 25 % of 20 judged periods"));
    let calm = recorded(&periods[..20]);
    let marked = |html: &str| html.matches("class=\"over\"").count();
    assert!(
        marked(&html) > marked(&run_html(&calm.1, calm.2).unwrap()),
        "{}",
        marked(&html)
    );
}

#[test]
fn classes_are_drawn_with_their_targets_and_states() {
    let class = |index: u64| {
        let p99 = if index < 20 { 30.0 } else { 90.0 };
        Part::new("gold<1>", Role::Class)
            .in_state(match index {
                0..5 => "no queries",
                5..20 => "kept",
                _ => "missed",
            })
            .with(Sensor::LatencyP99, Some(p99 / 1e3))
            // Tightened while it runs.
            .with(Sensor::TargetP99, Some(if index < 25 { 0.06 } else { 0.05 }))
            .with(Sensor::MissedSlo, Some(if index < 20 { 0.0 } else { 2.0 }))
    };
    let rest = Part::new("rest", Role::Class).with(Sensor::Connections, Some(3.0));
    let periods: Vec<PeriodRecord> = (0..30)
        .map(|index| PeriodRecord {
            parts: vec![class(index), rest.clone()],
            ..period(index, 5)
        })
        .collect();
    let (_folder, archive, id, _) = recorded(&periods);
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains(
        "Class gold&lt;1&gt;: latency of the last queries of all its connections together; the targets hold for each connection alone"
    ));
    assert!(html.contains("a class misses its SLOs while one of its connections does"));
    assert!(!html.contains("Class rest:"), "it has neither");
    assert!(html.contains("line c2 dashed") && html.contains("target of P99"));
    // Each quantity once: what has a panel of its own is in no other.
    assert!(!html.contains("<b>P99 of the last queries</b>") && !html.contains("<b>Target of P99</b>"));
    for state in ["no queries", "kept", "missed"] {
        assert!(html.contains(state), "{state}");
    }
    assert!(
        !html.contains("kept \u{2192} missed"),
        "its states are drawn, and not listed"
    );
}

#[test]
fn a_class_without_targets_has_a_panel_whose_curves_can_be_drawn() {
    // Spread over far more than five times the median, so that the axis is logarithmic.
    let p99_ms = |index: u64| {
        if index % 10 == 9 {
            900.0
        } else {
            3.0 + index as f64 / 10.0
        }
    };
    let periods: Vec<PeriodRecord> = (0..30)
        .map(|index| PeriodRecord {
            parts: vec![
                Part::new("rest", Role::Class)
                    .in_state("kept")
                    .with(Sensor::LatencyP99, Some(p99_ms(index) / 1e3)),
            ],
            ..period(index, 5)
        })
        .collect();
    let (_folder, archive, id, _) = recorded(&periods);
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains("Class rest: latency of the last queries of all its connections together"));
    assert!(!html.contains("NaN") && !html.contains("the targets hold"));
}

#[test]
fn what_a_law_compared_is_in_the_record_and_a_table() {
    let comparison = Comparison {
        began: Seconds::new(2.0),
        ended: Seconds::new(12.0),
        about: "workers and queries in a round, while queries always wait".to_owned(),
        compared: [(Some(4.0), 812.0, Verdict::Found), (None, 700.0, Verdict::Worse)]
            .map(|(workers, rate, verdict)| Compared {
                setting: Setting::default().with(Lever::Concurrency, workers),
                turns: 3,
                periods: 12,
                rate: Some(PerSecond::new(rate)),
                energy_per_query: Some(Reading::new(Joules::new(0.0125), Source::Estimated)),
                latency_at_slo: Some(Seconds::from_millis(7.5)),
                p99: Some(Seconds::from_millis(9.5)),
                gain: Some(Ratio::new(0.05)),
                verdict,
                why: (verdict == Verdict::Worse).then(|| "queries pile up".to_owned()),
            })
            .to_vec(),
    };
    let mut periods: Vec<PeriodRecord> = (0..15).map(|index| period(index, 5)).collect();
    periods[11].decided = serde_json::json!({ "setting": {}, "comparisons": [comparison] });
    let (_folder, archive, id, _) = recorded(&periods);
    let read = &archive.periods(id).unwrap()[11];
    let read: Comparison = serde_json::from_value(read.decided["comparisons"][0].clone()).unwrap();
    assert_eq!(read, comparison);
    let html = run_html(&archive, id).unwrap();
    for cell in [
        "What did the law compare?",
        "C 4 workers",
        "not on call",
        "12.5 (estimated)",
        ">found<",
        ">worse: queries pile up<",
        "P95, or oldest wait ms",
    ] {
        assert!(html.contains(cell), "{cell}");
    }
}

/// A comparison is in the record once it ends. One that is under way with the last period is said to be, and one that was and is over is not.
#[test]
fn a_comparison_that_is_under_way_at_the_end_is_said_to_be() {
    let of = |comparing: std::ops::Range<u64>| {
        let periods: Vec<PeriodRecord> = (0..30)
            .map(|index| PeriodRecord {
                reasons: comparing
                    .contains(&index)
                    .then(|| headroom_record::Reason {
                        rule: Comparison::UNDER_WAY.to_owned(),
                        text: "C = 4 of 6 settings is compared".to_owned(),
                        numbers: Default::default(),
                        levers: Vec::new(),
                    })
                    .into_iter()
                    .collect(),
                ..period(index, 5)
            })
            .collect();
        recorded(&periods).3.notes.join(" ")
    };
    let under_way = of(20..30);
    assert!(
        under_way.contains("a comparison was under way at the end") && under_way.contains("C = 4 of 6"),
        "{under_way}"
    );
    assert!(!of(20..29).contains("under way"));
}
