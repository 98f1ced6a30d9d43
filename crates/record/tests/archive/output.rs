//! Exports and reports: what leaves the archive.

use crate::common::{Day, histogram, joules, meta};
use headroom_record::validate::Validation;
use headroom_record::{
    Archive, Error, LatencySummary, Limits, PeriodRecord, Reason, Recorder, RunId, RunMeta, World, report,
    summary_table, table,
};
use headroom_units::{Cores, Hertz, Lever, Part, Reading, Role, Seconds, Sensor, Source, Watts};
use std::path::{Path, PathBuf};

/// A folder with a file in which these runs are recorded.
fn archive(runs: Vec<(RunMeta, Vec<PeriodRecord>)>) -> (tempfile::TempDir, Archive, Vec<RunId>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let mut latencies = histogram();
    latencies.record_n(30_000, 10).unwrap();
    let ids = runs
        .into_iter()
        .map(|(meta, periods)| {
            let mut run = recorder.start_run(meta).unwrap();
            for period in periods {
                assert!(run.record_waiting(period, &latencies).unwrap());
            }
            let id = run.id();
            run.finish().unwrap();
            id
        })
        .collect();
    drop(recorder);
    let archive = Archive::open(&path).unwrap();
    (folder, archive, ids)
}

fn period(index: u64) -> PeriodRecord {
    let mut period = PeriodRecord::new(
        index,
        Seconds::new(index as f64),
        Seconds::new(1.0),
        Cores::new(2.5),
    );
    period.completions = 10;
    period.slo_latency = Some(Seconds::from_millis(30.0));
    period.energy = joules(40.0, Source::Estimated);
    period.power = Some(Reading::new(Watts::new(40.0), Source::Estimated));
    period.reasons = vec![Reason::new(
        "hold",
        "P95 30 ms, \"calm\",\r\nnothing to do",
        &[("p95_ms", 30.0)],
    )];
    period
}

/// Attributes and elements that would load or run something from outside.
fn loads_something(html: &str) -> Option<&'static str> {
    [
        "src=", "href=", "http://", "https://", "@import", "url(", "<link", "<iframe", "<img",
    ]
    .into_iter()
    .find(|needle| html.contains(needle))
}

#[test]
fn csv_is_read_back_as_it_was_written() {
    let (_folder, archive, ids) = archive(vec![(meta("slo-power"), vec![period(0), period(1)])]);
    let mut bytes = Vec::new();
    archive.export_csv(ids[0], &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let head = text.split("\r\n").next().unwrap();
    assert!(
        head.starts_with("run,index,t_s,duration_s,arrivals,completions"),
        "{head}"
    );
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    let field = |name: &str| &rows[1][headers.iter().position(|header| header == name).unwrap()];
    assert_eq!(
        (
            field("index"),
            field("cores"),
            field("slo_ms"),
            field("power_source")
        ),
        ("1", "2.5", "30.0", "estimated")
    );
    assert_eq!(field("forecast_per_s"), "", "unknown is empty");
    assert_eq!(field("rules"), "hold");
    let reasons: Vec<Reason> = serde_json::from_str(field("reasons")).unwrap();
    assert_eq!(reasons, period(1).reasons, "commas, quotes and line ends survive");
}

#[test]
fn json_lines_are_one_object_a_period() {
    let (_folder, archive, ids) = archive(vec![(meta("slo-power"), vec![period(0), period(1), period(2)])]);
    let mut bytes = Vec::new();
    archive.export_jsonl(ids[0], &mut bytes).unwrap();
    let lines: Vec<serde_json::Value> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["index"], 2);
    assert_eq!(lines[2]["energy_j"], 40.0);
    assert_eq!(lines[2]["frequency_hz"], serde_json::Value::Null);
    assert_eq!(lines[2]["reasons"][0]["numbers"]["p95_ms"], 30.0);
    assert!(matches!(
        archive.export_jsonl(RunId(99), Vec::new()),
        Err(Error::NoSuchRun { .. })
    ));
}

#[test]
fn a_report_holds_what_a_reader_asks_for_and_loads_nothing() {
    let days =
        ["fixed", "slo-power"].map(|law| (meta(law), Day::new(law, 300).map(|(period, _)| period).collect()));
    let (_folder, archive, ids) = archive(days.into());
    let one = report::run_html(&archive, ids[1]).unwrap();
    for needed in [
        "power is estimated by a model: this machine has no RAPL",
        "Power, estimated</b>",
        "</svg>Power cap</span>",
        "Power ratio",
        "Utilisation",
        "Arrival rate",
        "</svg>Forecast</span>",
        "T = 250 ms",
        "αT = 200 ms",
        "latency-over-guard",
        "Eq. 3 asks for",
        "Decisions worth reading",
        "prefers-color-scheme",
    ] {
        assert!(one.contains(needed), "{needed}");
    }
    let both = report::comparison_html(&archive, &ids).unwrap();
    for needed in [
        "saving against fixed",
        "less energy than fixed (estimated)",
        "judged periods with P95 over 250 ms",
        "Latency by percentile",
    ] {
        assert!(both.contains(needed), "{needed}");
    }
    for html in [&one, &both] {
        assert_eq!(loads_something(html), None);
        assert!(html.contains("default-src 'none'"));
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
        assert!(
            !html.contains("NaN") && !html.contains("inf,"),
            "no number that is none"
        );
    }
    assert!(matches!(
        report::comparison_html(&archive, &[]),
        Err(Error::NothingToCompare)
    ));
}

#[test]
fn markup_in_any_text_of_a_run_is_harmless() {
    const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=\"alert('2')\">&";
    let mut bad = period(0);
    bad.reasons = vec![Reason::new(EVIL, EVIL, &[(EVIL, 1.0)])];
    bad.slo_latency = Some(Seconds::new(9.0));
    bad.seen = serde_json::json!({ EVIL: EVIL });
    let evil = RunMeta {
        name: EVIL.to_owned(),
        law: EVIL.to_owned(),
        trace: EVIL.to_owned(),
        notes: vec![EVIL.to_owned()],
        config: EVIL.to_owned(),
        version: EVIL.to_owned(),
        host: EVIL.to_owned(),
        nodes: vec![EVIL.to_owned()],
        provenance: headroom_record::Provenance {
            command: EVIL.to_owned(),
            host: EVIL.to_owned(),
            ..headroom_record::Provenance::default()
        },
        ..meta("x")
    };
    let (_folder, archive, ids) = archive(vec![
        (evil, vec![bad.clone(), period(1), period(2)]),
        (meta("fixed"), vec![bad]),
    ]);
    for html in [
        report::run_html(&archive, ids[0]).unwrap(),
        report::comparison_html(&archive, &ids).unwrap(),
    ] {
        // Two scripts are the page's own: the data and the crosshair.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script").count(), 2);
        assert!(!html.contains("<img") && !html.contains("onerror=\""));
        assert!(html.contains("&lt;script&gt;alert(1)"), "the text is shown");
    }
}

#[test]
fn energies_of_different_sources_are_called_not_comparable() {
    let measured = |index| {
        let mut measured = period(index);
        measured.energy = joules(10.0, Source::Measured);
        measured.power = Some(Reading::new(Watts::new(10.0), Source::Measured));
        measured
    };
    let (_folder, archive, ids) = archive(vec![
        (meta("fixed"), (0..20).map(measured).collect()),
        (meta("slo-power"), (0..20).map(period).collect()),
        (
            meta("changing"),
            (0..20)
                .map(|index| {
                    if index < 10 {
                        measured(index)
                    } else {
                        period(index)
                    }
                })
                .collect(),
        ),
    ]);
    let html = report::comparison_html(&archive, &ids).unwrap();
    assert!(html.contains("energies of two sources (measured and estimated)"));
    assert!(html.contains("the source of its energy changed"));
    assert!(
        !html.contains("less energy") && !html.contains("class=\"bars\""),
        "no saving is drawn or said"
    );
    for source in ["<b>Power, measured", "<b>Power, estimated"] {
        assert!(
            html.contains(source),
            "each source has a panel of its own: {source}"
        );
    }
    let changed = report::run_html(&archive, ids[2]).unwrap();
    assert!(changed.contains("</svg>Power, measured") && changed.contains("</svg>Power, estimated"));
    assert!(changed.contains("parts are not added up"));
    let summaries: Vec<_> = ids.iter().map(|id| archive.summary(*id).unwrap()).collect();
    assert!(summary_table(&summaries).contains("mixed"));
}

/// How many lines the panel of this title has; none where there is no such panel.
fn lines_of(html: &str, title: &str) -> Option<usize> {
    let rest = &html[html.find(&format!("<b>{title}"))?..];
    Some(
        rest[..rest.find("</figcaption>")?]
            .matches("class=\"entry\"")
            .count(),
    )
}

#[test]
fn runs_with_and_without_batches_are_compared_by_their_means_and_intervals() {
    let mut latencies = histogram();
    latencies.record_n(30_000, 10).unwrap();
    let latency = LatencySummary::of_micros(&latencies);
    let plain = |index| PeriodRecord {
        latency,
        ..period(index)
    };
    let part = || Part::new("cluster", Role::Cluster).with(Lever::BatchInterval, Some(0.1));
    let off = |index| PeriodRecord {
        parts: vec![part()],
        ..plain(index)
    };
    let held = |index| PeriodRecord {
        parts: vec![part().with(Sensor::BatchWaiting, Some(0.05))],
        ..plain(index)
    };
    let (_folder, archive, ids) = archive(vec![
        (meta("fixed"), (0..20).map(plain).collect()),
        (meta("hpa"), (0..20).map(plain).collect()),
        (meta("seek"), (0..20).map(off).collect()),
        (meta("batching"), (0..20).map(held).collect()),
    ]);
    let all = report::comparison_html(&archive, &ids).unwrap();
    assert_eq!(lines_of(&all, "Mean response time"), Some(4));
    assert_eq!(lines_of(&all, "Batch interval"), Some(2));
    // Where nobody holds requests the percentiles say more.
    let none = report::comparison_html(&archive, &ids[..2]).unwrap();
    assert_eq!(lines_of(&none, "Mean response time"), None);
    let draws_mean = |id| {
        let html = report::run_html(&archive, id).unwrap();
        html.contains("</svg>Mean response time") || html.contains("<b>Mean response time")
    };
    assert!(draws_mean(ids[2]) && draws_mean(ids[3]) && !draws_mean(ids[0]));
}

#[test]
fn a_frequency_is_plotted_where_one_is_known_and_kept_with_its_limit() {
    let mut periods = vec![period(0), period(1)];
    periods[1].frequency = Some(Hertz::new(1.4e9));
    periods[1].frequency_limit = Some(Hertz::new(1.5e9));
    let runs = vec![
        (meta("slow"), periods.clone()),
        (meta("fixed"), vec![period(0), period(1)]),
    ];
    let (_folder, archive, ids) = archive(runs);
    let read = archive.periods(ids[0]).unwrap();
    assert_eq!(
        (read[1].frequency, read[1].frequency_limit),
        (periods[1].frequency, periods[1].frequency_limit)
    );
    let with = report::run_html(&archive, ids[0]).unwrap();
    assert!(with.contains("Mean frequency</b>") && with.contains("</svg>Frequency limit<"));
    assert!(!report::run_html(&archive, ids[1]).unwrap().contains("frequency"));
    let mut csv = Vec::new();
    archive.export_csv(ids[0], &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(
        csv.contains("frequency_hz,frequency_limit_hz") && csv.contains("1500000000"),
        "{csv}"
    );
}

#[test]
fn a_long_run_is_thinned_without_losing_its_worst_moment() {
    let mut periods: Vec<PeriodRecord> = (0..20_000).map(period).collect();
    periods[12_345].slo_latency = Some(Seconds::from_millis(612.5));
    periods[12_345].reasons = vec![Reason::new("spike", "the one that matters", &[])];
    let (_folder, archive, ids) = archive(vec![(meta("slo-power"), periods)]);
    let html = report::run_html(&archive, ids[0]).unwrap();
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    assert!(html.contains("612.5"), "the peak is in the data of the crosshair");
    assert!(html.contains("the one that matters"));
    assert!(html.contains("17 to a line"), "the table says that it is thinned");
}

#[test]
fn energy_that_is_known_in_few_periods_is_shown_with_their_share() {
    let mut periods: Vec<PeriodRecord> = (0..4).map(period).collect();
    for dark in &mut periods[1..] {
        (dark.energy, dark.power) = (None, None);
    }
    let (_folder, archive, ids) = archive(vec![(meta("one"), periods)]);
    let html = report::run_html(&archive, ids[0]).unwrap();
    let coverage = "25 % of the periods known";
    assert_eq!(
        html.matches(coverage).count(),
        3,
        "verdict and both cards of energy"
    );
    let listed = (archive.run(ids[0]).unwrap(), archive.summary(ids[0]).ok());
    let listed = table::runs_table(&[listed]);
    assert!(listed.contains(coverage), "{listed}");
}

#[test]
fn odd_runs_have_reports_too() {
    let mut dark = PeriodRecord::new(0, Seconds::ZERO, Seconds::ZERO, Cores::ZERO);
    dark.telemetry_lost = true;
    let (_folder, archive, ids) = archive(vec![
        (meta("empty"), vec![]),
        (meta("dark"), vec![dark]),
        (meta("one"), vec![period(3)]),
    ]);
    for id in &ids {
        let html = report::run_html(&archive, *id).unwrap();
        assert!(!html.contains("NaN"), "{id}");
        // Where nothing was answered nothing was good.
        let known = !archive.latencies(*id).unwrap().is_empty();
        let card = html.split("P95 of the run").next().unwrap();
        let class = card.rsplit("<div class=\"card ").next().unwrap();
        assert_eq!(class.starts_with("good"), known, "{id}: {class}");
    }
    assert!(!report::comparison_html(&archive, &ids).unwrap().contains("NaN"));
    let runs = archive.runs(100).unwrap().into_iter();
    let listed: Vec<_> = runs.map(|run| (run, None)).collect();
    assert_eq!(table::runs_table(&listed).lines().count(), 4);
}

#[test]
fn a_file_in_a_folder_that_may_not_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, first, ids) = archive(vec![(meta("fixed"), vec![period(0)])]);
    let path = first.path().to_owned();
    drop(first);
    let _ = std::fs::remove_file(path.with_extension("db-wal"));
    let _ = std::fs::remove_file(path.with_extension("db-shm"));
    let lock = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    lock(0o555);
    let writable = std::fs::write(folder.path().join("probe"), "").is_ok();
    let read = Archive::open(Path::new(&path)).and_then(|archive| archive.summary(ids[0]));
    lock(0o755);
    assert_eq!(read.unwrap().periods, 1);
    if writable {
        println!("skipped: this user may write everywhere, so the read-only folder was not one");
    }
}

/// A live run on emulated hardware and a simulated one: named by their worlds, in one table and on one axis.
#[test]
fn a_live_run_and_its_simulation_stand_side_by_side() {
    let sourced = |source: Source, watts: f64| -> Vec<PeriodRecord> {
        let periods = (0..20).map(|index| PeriodRecord {
            energy: joules(watts, source),
            power: Some(Reading::new(Watts::new(watts), source)),
            cap: Some(Watts::new(60.0)),
            ..period(index)
        });
        periods.collect()
    };
    let of = |world: World, law: &str| RunMeta { world, ..meta(law) };
    let (_folder, archive, ids) = archive(vec![
        (of(World::Emulated, "<b>law"), sourced(Source::Emulated, 50.0)),
        (of(World::Simulated, "<b>law"), sourced(Source::Simulated, 51.0)),
        (of(World::Emulated, "fixed"), sourced(Source::Emulated, 50.0)),
    ]);
    let validation = Validation::of(&archive, ids[0], ids[1]).unwrap();
    let energy = &validation.sides[0];
    assert_eq!((energy.live, energy.simulated), (Some(1000.0), Some(1020.0)));
    assert!((energy.apart.unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(
        (validation.by_period.periods, validation.by_period.cores),
        (20, 0.0)
    );
    assert!((validation.by_period.power_w - 1.0).abs() < 1e-9);
    let json = serde_json::to_value(&validation).unwrap();
    assert_eq!(json["live"]["energy_j"]["source"], "emulated");
    assert_eq!(json["simulated"]["world"], "simulated");
    assert_eq!(json["sides"][0]["name"], "energy");

    let remarks = ["It knows <nothing> of the gateway.".to_owned()];
    let html = report::validation_html(&archive, &[(ids[0], ids[1])], &remarks).unwrap();
    assert_eq!(loads_something(&html), None);
    assert!(html.contains("&lt;b&gt;law") && !html.contains("<b>law"));
    assert!(html.contains("It knows &lt;nothing&gt; of the gateway."));
    for part in [
        "Power, live (emulated) and simulated; dashed: Power cap",
        "<td class=\"n\"><b>+2.0 %</b></td>",
        "<td class=\"n\">1000</td>",
        "id=\"data\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // Two pairs: a table of all, and no box at the crosshair.
    let two = report::validation_html(&archive, &[(ids[0], ids[1]), (ids[2], ids[1])], &[]).unwrap();
    assert!(
        two.contains("fixed, live") && two.contains("&lt;b&gt;law, live") && !two.contains("id=\"data\"")
    );
    assert!(matches!(
        report::validation_html(&archive, &[], &[]),
        Err(Error::NothingToCompare)
    ));
}

#[test]
fn of_a_run_in_which_nothing_measures_latencies_nobody_says_that_it_was_late_or_kept_its_slo() {
    let unmeasured = |name: &str| {
        let mut meta = meta(name);
        meta.slo = meta.slo.map(|slo| headroom_record::Slo {
            is_unmeasured: true,
            ..slo
        });
        meta
    };
    let of = |failures: fn(u64) -> u64| {
        let one = |index| PeriodRecord {
            slo_latency: None,
            failures: failures(index) * period(index).completions,
            ..period(index)
        };
        (0..104).map(one).collect::<Vec<_>>()
    };
    let runs = vec![
        (unmeasured("elastic"), of(|_| 0)),
        (unmeasured("elastic"), of(|index| u64::from(index >= 94))),
    ];
    let (_folder, archive, ids) = archive(runs);
    for (id, said) in ids.into_iter().zip([
        "latency unknown in 94 of 94 periods",
        "10 failed or stood still, latency unknown in 84 of 94 periods",
    ]) {
        let summary = archive.summary(id).unwrap();
        assert!(
            summary
                .in_short()
                .starts_with(&format!("P95 under 250 ms: {said}")),
            "{}",
            summary.in_short()
        );
        let html = report::run_html(&archive, id).unwrap();
        let headline = format!("The SLO was P95 under 250 ms; whether it was kept is not known: {said}");
        assert!(html.contains(&headline), "{headline}");
        for wrong in ["was broken", "was kept in", "count as over the target"] {
            assert!(!html.contains(wrong), "{wrong}");
        }
        let said = summary_table(&[summary]);
        assert!(
            said.contains("nothing that this run was configured with measures latencies"),
            "{said}"
        );
        assert!(!said.contains("100.00"), "{said}");
    }
}
