//! Runs with parts: what is recorded, summed, exported and drawn of nodes and gateways.

use crate::common::{cluster, histogram, meta};
use headroom_record::report::{comparison_html, run_html};
use headroom_record::{
    Archive, CapacitySummary, Limits, MAX_PARTS, PeriodRecord, Recorder, RunId, RunMeta, RunSummary,
    summary_table, table,
};
use headroom_units::{Joules, Lever, Part, PerSecond, Ratio, Reading, Role, Seconds, Sensor, Source};
use std::path::{Path, PathBuf};

fn recorded(meta: RunMeta, periods: &[PeriodRecord]) -> (tempfile::TempDir, PathBuf, RunId, RunSummary) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let recorder = Recorder::open(&path, Limits::default()).unwrap();
    let (id, summary) = record(&recorder, meta, periods);
    (folder, path, id, summary)
}

fn record(recorder: &Recorder, meta: RunMeta, periods: &[PeriodRecord]) -> (RunId, RunSummary) {
    let mut run = recorder.start_run(meta).unwrap();
    for period in periods {
        assert!(run.record_waiting(period.clone(), &histogram()).unwrap());
    }
    (run.id(), run.finish().unwrap())
}

/// A period of 2 s with these parts, and nothing else known of it.
fn period(index: u64, parts: Vec<Part>) -> PeriodRecord {
    let at = Seconds::new(2.0 * index as f64);
    PeriodRecord {
        parts,
        ..PeriodRecord::new(index, at, Seconds::new(2.0), None)
    }
}

fn node(name: &str, state: &str) -> Part {
    Part::new(name, Role::Node).in_state(state)
}

fn rows(path: &Path, table: &str, run: RunId) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    let count = format!("SELECT count(*) FROM {table} WHERE run = ?1");
    connection.query_row(&count, [run.0], |row| row.get(0)).unwrap()
}

#[test]
fn parts_are_read_back_as_they_were_recorded() {
    let periods: Vec<PeriodRecord> = cluster(40).collect();
    let (_folder, path, id, _) = recorded(meta("slo-power"), &periods);
    let archive = Archive::open(&path).unwrap();
    let listed = table::runs_table(&[(archive.run(id).unwrap(), archive.summary(id).ok())]);
    assert!(
        listed
            .trim_end()
            .ends_with("2 node serving, 1 node off, 2 gateway ready"),
        "{listed}"
    );
    let read = archive.periods(id).unwrap();
    assert_eq!(read.len(), 40);
    for (read, original) in read.iter().zip(&periods) {
        assert_eq!(read.parts, original.parts);
        assert_eq!(read.cores, original.cores);
    }
}

#[test]
fn a_run_without_cores_or_slo_has_null_for_them() {
    let mut without = meta("dynamic");
    without.slo = None;
    let periods: Vec<PeriodRecord> = (0..20)
        .map(|index| period(index, vec![node("web1", "serving")]))
        .collect();
    let (_folder, path, id, written) = recorded(without.clone(), &periods);
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.run(id).unwrap().meta.slo, None);
    let summary = archive.summary(id).unwrap();
    assert_eq!(summary, written);
    let json = serde_json::to_value(&summary).unwrap();
    for null in ["percentile", "target_ms", "periods_over"] {
        assert!(json["slo"][null].is_null(), "{null}: {json}");
    }
    assert!(json["cores"]["mean"].is_null() && json["cores"]["core_seconds"].is_null());
    assert!(
        !summary.notes.iter().any(|note| note.contains("target")),
        "{:?}",
        summary.notes
    );
    assert_eq!(serde_json::from_value::<RunSummary>(json).unwrap(), summary);
}

#[test]
fn nodes_are_summed_by_state_and_transition() {
    let states = ["off", "booting", "serving", "serving", "draining", "off"];
    let periods = states.iter().enumerate().map(|(index, state)| {
        // A gateway's states are none of a node's, and a node whose state is not known stays in what it was.
        let gateway = Part::new("g1", Role::Gateway).in_state("ready");
        let second = match index {
            3 => Part::new("web2", Role::Node),
            _ => node("web2", "serving"),
        };
        period(index as u64, vec![node("web1", state), second, gateway])
    });
    let (.., summary) = recorded(meta("dynamic"), &periods.collect::<Vec<_>>());
    let json = serde_json::to_value(summary.nodes.unwrap()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "count": 2,
            "state_s": {"off": 4.0, "booting": 2.0, "serving": 14.0, "draining": 2.0},
            "transitions": {"off-booting": 1, "booting-serving": 1, "serving-draining": 1, "draining-off": 1},
        })
    );
}

#[test]
fn energy_with_every_server_on_is_held_against_the_same_model_alone() {
    let modelled = |source: Source, watts: Option<f64>| {
        let mut whole = Part::new("cluster", Role::Cluster)
            .with(Sensor::Power, Some(60.0))
            .with(Sensor::PowerAlwaysOn, watts);
        whole.source = Some(source);
        whole
    };
    let with = |source: Source, watts: &[Option<f64>]| {
        let periods = watts.iter().enumerate();
        let periods = periods.map(|(index, watts)| period(index as u64, vec![modelled(source, *watts)]));
        recorded(meta("dynamic"), &periods.collect::<Vec<_>>()).3
    };
    // Where it is not known, neither counts.
    let estimated = with(Source::Estimated, &[Some(100.0), Some(140.0), None]);
    assert_eq!(estimated.energy_always_on_j, Some(Joules::new(480.0)));
    assert_eq!(estimated.saving_against_always_on, Some(Ratio::new(0.5)));
    let measured = with(Source::Measured, &[Some(100.0)]);
    assert_eq!(
        (measured.energy_always_on_j, measured.saving_against_always_on),
        (None, None)
    );
}

#[test]
fn parts_beyond_the_bound_are_left_out_and_said() {
    let many = |index| {
        period(
            index,
            (0..MAX_PARTS + 3)
                .map(|n| node(&format!("n{n}"), "serving"))
                .collect(),
        )
    };
    let (_folder, path, id, summary) = recorded(meta("dynamic"), &[many(0), many(1)]);
    assert_eq!(rows(&path, "parts", id), 2 * MAX_PARTS as i64);
    assert_eq!(summary.nodes.as_ref().unwrap().count, MAX_PARTS as u64);
    let said = "2 of 2 periods had more than 1024 parts: the others are not recorded";
    assert!(
        summary.notes.iter().any(|note| note == said),
        "{:?}",
        summary.notes
    );
}

#[test]
fn parts_go_with_their_periods() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let limits = Limits {
        max_bytes: Limits::MIN_BYTES,
        ..Limits::default()
    };
    let recorder = Recorder::open(&path, limits).unwrap();
    let heavy = |index| {
        let parts = (0..40).map(|n| node(&format!("n{n}"), "serving").fact("meter", "m".repeat(200)));
        period(index, parts.collect())
    };
    let periods: Vec<PeriodRecord> = (0..300).map(heavy).collect();
    let (first, _) = record(&recorder, meta("dynamic"), &periods);
    let archive = Archive::open(&path).unwrap();
    let kept = rows(&path, "periods", first);
    assert!(kept < 300, "{kept} periods are kept");
    assert_eq!(rows(&path, "parts", first), 40 * kept);
    // A whole run goes with all its parts.
    let (second, summary) = record(&recorder, meta("dynamic"), &periods);
    assert!(archive.run(first).is_err());
    assert_eq!(rows(&path, "parts", first), 0);
    assert_eq!(archive.summary(second).unwrap().nodes, summary.nodes);
}

#[test]
fn parts_are_exported_with_their_periods_and_as_lines_of_their_own() {
    let mut web = node("web1", "serving")
        .with(Lever::Cores, Some(2.5))
        .with(Sensor::ArrivalRate, Some(410.0))
        .fact("meter", "a \"model\"");
    web.source = Some(Source::Estimated);
    web.trouble = vec!["no cap, none here".to_owned()];
    let (_folder, path, id, _) = recorded(
        meta("dynamic"),
        &[period(0, vec![web.clone()]), period(1, Vec::new())],
    );
    let archive = Archive::open(&path).unwrap();
    assert!(archive.has_parts(id).unwrap());
    let mut lines = Vec::new();
    archive.export_jsonl(id, &mut lines).unwrap();
    let lines: Vec<serde_json::Value> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["parts"][0], serde_json::to_value(&web).unwrap());
    assert!(lines[0]["cores"].is_null() && lines[1].get("parts").is_none());
    let mut bytes = Vec::new();
    archive.export_parts_csv(id, &mut bytes).unwrap();
    let mut csv = csv::Reader::from_reader(bytes.as_slice());
    let header = csv.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1);
    let of = |name: &str| {
        let column = header.iter().position(|head| head == name);
        rows[0]
            .get(column.unwrap_or_else(|| panic!("no column {name}")))
            .unwrap()
    };
    assert_eq!(
        [of("name"), of("role"), of("state"), of("source")],
        ["web1", "node", "serving", "estimated"]
    );
    assert_eq!(
        [of("cores"), of("arrival_rate_per_second"), of("cap_watts")],
        ["2.5", "410", ""]
    );
    assert_eq!(of("facts"), r#"{"meter":"a \"model\""}"#);
    assert_eq!(of("trouble"), r#"["no cap, none here"]"#);
}

#[test]
fn the_report_draws_each_quantity_of_each_part_and_their_states() {
    let periods: Vec<PeriodRecord> = cluster(200).collect();
    let (_folder, path, id, _) = recorded(meta("slo-power"), &periods);
    let html = run_html(&Archive::open(&path).unwrap(), id).unwrap();
    let (whole, parts) = html.split_once("<h2>Nodes and gateways</h2>").unwrap();
    for needed in [
        "Servers on</b>",
        "</svg>Power with every server on</span>",
        "</svg>Capacity</span>",
        "Energy against every server on, both by the model",
        "serving 82.",
    ] {
        assert!(whole.contains(needed), "{needed}");
    }
    for needed in [
        "</svg>unreachable</span>",
        "<text x=\"912\" y=\"",
        "<h2>Each node</h2>",
        "Power, emulated</b>",
        "</svg>web3</span>",
        "<h2>Each gateway</h2>",
        "Latency at the SLO&#39;s percentile</b>",
        "</svg>gateway2</span>",
        "off \u{2192} booting",
        "the agent does not answer: connection refused",
        "meter: emulated",
    ] {
        assert!(parts.contains(needed), "{needed}");
    }
    assert!(!html.contains("NaN") && !html.contains("inf"));
    // The crosshair needs a line in each panel that it is drawn in, the states included.
    assert_eq!(
        html.matches("<svg viewBox=\"0 0 1000").count(),
        html.matches("class=\"cross\"").count()
    );
}

#[test]
fn many_nodes_are_a_band_from_the_smallest_to_the_largest() {
    let nodes = |index: u64, count: u64| {
        let node =
            |n: u64| node(&format!("n{n}"), "serving").with(Sensor::Power, Some((10 + n + index) as f64));
        period(index, (0..count).map(node).collect())
    };
    let page = |count: u64| {
        let periods: Vec<PeriodRecord> = (0..20).map(|index| nodes(index, count)).collect();
        let (_folder, path, id, _) = recorded(meta("dynamic"), &periods);
        run_html(&Archive::open(&path).unwrap(), id).unwrap()
    };
    let few = page(12);
    assert_eq!(few.matches("</svg>n11</span>").count(), 1);
    assert!(!few.contains("class=\"area envelope"));
    let many = page(13);
    assert!(many.contains("Power: mean of 13, the band from the smallest to the largest"));
    assert!(many.contains("class=\"area envelope c1") && !many.contains("</svg>n11</span>"));
}

#[test]
fn a_run_with_neither_slo_nor_cores_nor_requests_has_a_report_of_what_it_has() {
    let mut without = meta("dynamic");
    without.slo = None;
    let periods = (0..30).map(|index| {
        let queue = Part::new("ebpf", Role::Node)
            .with(Sensor::Capacity, Some(500.0 + index as f64))
            .with(Sensor::DropRatio, Some(0.001));
        PeriodRecord {
            telemetry_lost: true,
            ..period(index, vec![queue])
        }
    });
    let (_folder, path, id, _) = recorded(without, &periods.collect::<Vec<_>>());
    let archive = Archive::open(&path).unwrap();
    for html in [
        run_html(&archive, id).unwrap(),
        comparison_html(&archive, &[id, id]).unwrap(),
    ] {
        assert!(!html.contains("NaN") && !html.contains("Cores, mean"), "{html}");
    }
    let html = run_html(&archive, id).unwrap();
    assert!(html.contains("held to no SLO") && html.contains("Capacity</b>") && html.contains("Drop ratio"));
    for absent in ["P95", "Cores allocated", "Arrival rate", "Periods over"] {
        assert!(!html.contains(absent), "{absent}");
    }
}

#[test]
fn energy_of_a_meter_and_of_the_model_are_figures_of_their_own() {
    let periods = (0..20).map(|index| {
        let mut whole = Part::new("cluster", Role::Cluster)
            .with(Sensor::Power, Some(60.0))
            .with(Sensor::PowerAlwaysOn, Some(120.0));
        whole.source = Some(Source::Estimated);
        PeriodRecord {
            energy: Some(Reading::new(Joules::new(90.0), Source::Emulated)),
            ..period(index, vec![whole])
        }
    });
    let (_folder, path, id, summary) = recorded(meta("static"), &periods.collect::<Vec<_>>());
    let html = run_html(&Archive::open(&path).unwrap(), id).unwrap();
    let lead = html.split_once("<p class=\"lead\">").unwrap().1;
    let lead = lead.split_once("</p>").unwrap().0.replace('\u{202f}', "");
    assert!(
        lead.contains(
            "1800 J (emulated). By the model it used 2400 J, 50 % less than the 4800 J of every server on."
        ),
        "{lead}"
    );
    let table = summary_table(&[summary]);
    assert!(table.contains("energy by the model"), "{table}");
}

fn lower_bound(per_s: f64) -> CapacitySummary {
    CapacitySummary {
        kind: "lower-bound".to_owned(),
        per_s: Some(PerSecond::new(per_s)),
        unit: "connections".to_owned(),
        interval_per_s: None,
        age_s: Some(Seconds::ZERO),
        assumes: None,
        rule: "served".to_owned(),
        why: "too little waited yet to tell".to_owned(),
    }
}

#[test]
fn what_is_unknown_at_the_end_is_said_to_be_and_its_key_is_null_where_it_never_was_known() {
    let mut estimate = meta("busy-time");
    estimate.slo = None;
    let unknown = CapacitySummary {
        kind: "unknown".to_owned(),
        per_s: None,
        age_s: None,
        rule: "nobody-listens".to_owned(),
        why: "nobody listens".to_owned(),
        ..lower_bound(0.0)
    };
    let of = |first: CapacitySummary| {
        let periods = (0..4).map(|index| {
            let said = if index < 2 { &first } else { &unknown };
            let estimator = Part::new("busy time (eBPF)", Role::Estimator);
            period(
                index,
                vec![said.on(Part::new("port 80", Role::Cluster)), estimator],
            )
        });
        let (_folder, path, id, summary) = recorded(estimate.clone(), &periods.collect::<Vec<_>>());
        (run_html(&Archive::open(&path).unwrap(), id).unwrap(), summary)
    };
    let (html, summary) = of(lower_bound(12.0));
    assert!(
        html.contains(
            "The capacity is unknown at the end: nobody listens. The last number that busy-time had was 12.0 \
             connections a second."
        ),
        "{html}"
    );
    assert_eq!(summary.capacity_per_s, Some(PerSecond::new(12.0)));
    let (html, summary) = of(unknown.clone());
    assert!(
        html.contains("The capacity is unknown: nobody listens."),
        "{html}"
    );
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json.get("capacity_per_s"), Some(&serde_json::Value::Null));
}

#[test]
fn the_table_says_of_what_kind_a_clusters_capacity_is() {
    for (kind, shown) in [
        ("lower-bound", "at least 202.9/s"),
        ("about", "about 202.9/s"),
        ("presumed", "presumably 202.9/s"),
        ("exact", "202.9"),
        ("given", "202.9"),
    ] {
        let whole = Part::new("cluster", Role::Cluster)
            .with(Sensor::Capacity, Some(202.9))
            .fact("capacity", kind);
        let periods: Vec<_> = (0..3).map(|index| period(index, vec![whole.clone()])).collect();
        let (_folder, _, _, summary) = recorded(meta("elastic"), &periods);
        let table = summary_table(std::slice::from_ref(&summary));
        let row = table.lines().find(|line| line.contains("capacity at the end"));
        assert!(row.is_some_and(|row| row.contains(shown)), "{kind}: {table}");
    }
}

#[test]
fn a_run_that_estimates_a_capacity_says_it_and_has_no_row_without_a_value() {
    let mut estimate = meta("busy-time");
    (estimate.slo, estimate.name, estimate.trace) = (None, "first".to_owned(), "live traffic".to_owned());
    let periods = (0..20).map(|index| {
        let whole = lower_bound(595.0).on(Part::new("port 80", Role::Cluster));
        let estimator = Part::new("busy-time", Role::Estimator).with(Sensor::Capacity, Some(595.0));
        period(index, vec![whole, estimator])
    });
    let (_folder, path, id, summary) = recorded(estimate, &periods.collect::<Vec<_>>());
    assert_eq!(summary.capacity_per_s, Some(PerSecond::new(595.0)));
    let html = run_html(&Archive::open(&path).unwrap(), id).unwrap();
    for needed in [
        "first: capacity by busy-time, live traffic",
        "The capacity is at least 595.0 connections a second; its limit was not met, as busy-time estimates it at the end.",
        "at least 595.0",
        "connections/s at the end, estimated: lower-bound",
        "Connections served",
        "attempts, retries included",
        "SYNs dropped",
        "Connection attempts, retries included",
        "Capacity, at least, in connections",
    ] {
        assert!(html.contains(needed), "{needed}");
    }
    for absent in [
        "held to no SLO",
        "Energy per request",
        "Power ratio",
        "Power, mean",
        " failed<",
        "card bad",
    ] {
        assert!(!html.contains(absent), "{absent}");
    }
    let table = summary_table(std::slice::from_ref(&summary));
    let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(
        row("capacity at the end").contains("at least 595.0 connections/s"),
        "{table}"
    );
    for absent in ["saving against", "requests failed", "requests answered"] {
        assert!(!table.contains(absent), "{absent}: {table}");
    }
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(
        (&json["capacity"]["kind"], &json["capacity"]["unit"]),
        (&"lower-bound".into(), &"connections".into())
    );
    let empty = table.lines().filter(|line| line.ends_with(" -"));
    assert_eq!(empty.count(), 0, "{table}");
    // Two of one law have columns of their own names.
    let other = RunSummary {
        name: "second".to_owned(),
        ..summary.clone()
    };
    let both = summary_table(&[summary, other]);
    let head = both.lines().next().unwrap();
    assert!(head.contains("(first") && head.contains("(second"), "{head}");
}

#[test]
fn a_run_with_a_batcher_and_a_cache_says_their_means_in_the_table_and_another_does_not() {
    let periods = |of: &dyn Fn(u64) -> Part| -> Vec<_> {
        (0..20).map(|index| period(index, vec![of(index)])).collect()
    };
    let held = |index: u64| {
        Part::new("cluster", Role::Cluster)
            .with(Lever::BatchInterval, Some(if index < 10 { 0.1 } else { 0.3 }))
            .with(Sensor::CacheHitRatio, Some(0.25))
    };
    let (_folder, _path, _id, summary) = recorded(meta("seek"), &periods(&held));
    let interval = summary.batch_interval_mean_s.unwrap().get();
    assert!((interval - 0.2).abs() < 1e-9, "{interval}");
    let table = summary_table(std::slice::from_ref(&summary));
    let line = |what: &str| table.lines().find(|line| line.contains(what)).unwrap().to_owned();
    assert!(line("batch interval, mean").ends_with(" 200.0"), "{table}");
    assert!(line("cache hit rate, mean").ends_with(" 25.0"), "{table}");
    let plain = |_| Part::new("cluster", Role::Cluster);
    let (_folder, _path, _id, summary) = recorded(meta("fixed"), &periods(&plain));
    let table = summary_table(&[summary]);
    assert!(
        !table.contains("batch interval") && !table.contains("hit rate"),
        "{table}"
    );
}
